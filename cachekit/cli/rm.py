"""`cachekit rm`: take records out of the store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cachekit.cli import options, out

NAME = "rm"
Force = Annotated[bool, typer.Option("--force", help="Pinned ones, too, and those in use.")]


def command(
    names: options.RecipesOrKeys,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    force: Force = False,
    dry_run: options.DryRun = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
) -> int:
    """Remove records from the store, with what only they name. Shared caches keep theirs.

    Example:  cachekit rm 3f2a91c0 --dry-run
    """
    from cachekit.verbs.remove import remove

    out.setup(format, quiet=quiet, verbose=verbose)
    config = options.load_config(home, compiler)
    with options.session(config, None, "" if dry_run else NAME) as session:
        keys = [options.key_of(config, name, overrides, tiny=tiny) for name in names]
        done = remove(session, keys, force=force, dry_run=dry_run)
    out.data([one.as_dict() for one in done], human, lambda found: "\n".join(one["key"] for one in found))
    return 0


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
