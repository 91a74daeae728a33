"""`cachekit store rm`: take records out of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache

Force = Annotated[bool, typer.Option("--force", help="Remove pinned records too, and those in use.")]


@verb("home", "compiler", answers="list[Deleted]")
def command(
    cache: Cache,
    names: options.RecipesOrKeys,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    force: Force = False,
    dry_run: options.DryRun = False,
) -> Shown:
    """Remove records from the store, with the files that only they name. Remotes keep theirs.

    Example:  cachekit store rm 3f2a91c0 --dry-run
    """
    done = cache.rm(*options.variants(names, overrides, tiny=tiny), force=force, dry_run=dry_run)
    return Shown(done, human, lambda found: "\n".join(one["key"] for one in found))


def human(found: list[dict[str, Any]]) -> list[str]:
    """What went, for people."""
    lines = []
    for one in found:
        would = "would remove" if one["dry_run"] else "removed"
        name = " ".join(filter(None, [one["key"][:12], one["recipe"], f"({one['directory']})"]))
        lines.append(f"{would} {name}: {out.count(len(one['files']), 'file')}, {out.size(one['bytes'])}")
        if one["shared_bytes"]:
            lines.append(f"  {out.size(one['shared_bytes'])} stay: other records name them, or a process uses them")
        if one["unpinned"]:
            lines.append("  it was pinned, and is no longer")
    return lines
