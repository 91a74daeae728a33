"""`cachekit store show`: one record whole."""

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


@verb("home")
def command(cache: Cache, key: Key) -> Shown:
    """Show a record: its ingredients, its modules, and who made it.

    Example:  cachekit store show 3f2a91c0
    """
    return Shown(cache.show(key), human, lambda found: str(found["key"]))


def human(document: dict[str, Any]) -> list[str]:
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
    width = max(len(name) for name in document["hard"]) + 2
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
