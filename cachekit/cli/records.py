"""`cachekit store ls`, `show` and `rm`: what records the store has, one of them whole, and away with some."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache

_DIGEST = re.compile(r"[0-9a-f]{64}")  # whole in the JSON

Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="A key, or its first digits (`cachekit store ls`).",
        show_default=False,
        autocompletion=options.complete_key,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Remove pinned records too, and those in use.")]


@verb("home", answers="list[Listed]")
def ls(cache: Cache) -> Shown:
    """List the records of the store, newest first.

    Example:  cachekit store ls --format json
    """
    where = str(next(one.value for one in cache.settings() if one.name == "home"))
    return Shown(cache.ls(), lambda rows: listed(rows, where), lambda rows: "\n".join(row.key for row in rows))


def listed(found: list[Any], home: str) -> list[str]:
    """Records as a table; they are taken out of the list, so that of 100,000 no two forms lie in memory."""
    if not found:
        return [f"the store at {home} has no records; next: cachekit warm RECIPE"]
    found.reverse()
    rows, same = [], dict[str, str]()
    while found:
        row = found.pop()
        cells = [
            row.key[:12],
            row.recipe,
            row.directory,
            str(row.graphs),
            out.size(row.bytes),
            out.duration(row.compile_seconds),
            row.created[:10],
        ]
        rows.append([cells[0], *(same.setdefault(cell, cell) for cell in cells[1:])])
    return out.table(rows, ["key", "recipe", "compiler", "graphs", "size", "compile", "made"], cut=(1, 2))


@verb("home", answers="StoredRecord")
def show(cache: Cache, key: Key) -> Shown:
    """Show a record: its ingredients, its modules, and who made it.

    Example:  cachekit store show 3f2a91c0
    """
    return Shown(cache.show(key), shown, lambda found: str(found["key"]))


def shown(document: dict[str, Any]) -> list[str]:
    """A record for people."""
    made = document["provenance"]
    agrees = (
        "hashing them gives this key" if document["key_of_ingredients"] == document["key"] else "THEY DO NOT GIVE IT"
    )
    lines = [
        f"key        {document['key']}",
        f"recipe     {document['recipe']}",
        f"compiler   {document['directory']}, {document['graphs']} graphs, {out.duration(document['compile_seconds'])}",
        f"made       {out.moment(made['created'])} by {made['user']}@{made['host']} {made['instance']}".rstrip(),
        *out.labelled("with       ", ", ".join(f"{name} {version}" for name, version in made["toolchain"].items())),
        f"bytes      {out.size(document['bytes'])}, {'whole' if document['whole'] else 'DAMAGED: will compile again'}",
        "modules",
        *(line for module in document["modules"] for line in _module(module)),
        f"ingredients ({agrees})",
    ]
    width = max(map(len, (*document["hard"], *document["soft"]))) + 2
    for name, value in sorted(document["hard"].items()):
        lines += out.labelled(name.ljust(width), _value(value), 2)
    lines.append("beside the key")
    for name, value in sorted(document["soft"].items()):
        lines += out.labelled(name.ljust(width), _value(value), 2)
    return lines


def _module(module: dict[str, Any]) -> list[str]:
    lines = [f"  {_DIGEST.sub(_cut, module['name'])}"]
    if "neffs" in module:
        lines.append(f"    {out.size(module['files'][0]['size'])}, {out.count(module['neffs'], 'compiled graph')}")
    neff = module.get("neff")
    if neff is not None and neff["state"] != "verified":
        lines.append(f"    {neff['state'].upper()}: {neff['reason']}")
    elif neff is not None:
        took = f", compiled in {out.duration(module['seconds'])}" if module.get("seconds") else ""
        files = out.size(sum(file["size"] for file in module["files"]))
        tensors = f"{out.count(neff['inputs'], 'input')}, {out.count(neff['outputs'], 'output')}"
        lines.append(f"    {files}, {neff['chip'] or neff['target'] or 'unknown chip'}, {tensors}{took}")
    return lines


def _cut(digest: re.Match[str]) -> str:
    return f"{digest.group()[:16]}…"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "(none)"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


@verb("home", "compiler", answers="list[Deleted]")
def rm(
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
    return Shown(done, removed, lambda found: "\n".join(one["key"] for one in found))


def removed(found: list[dict[str, Any]]) -> list[str]:
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
