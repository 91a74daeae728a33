"""`cachekit store verify`: is the store what its records say?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachekit.cli import out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache

SHOWN = 20  # problems, for people

Quick = Annotated[bool, typer.Option("--quick", help="Only check which files exist and their sizes; hash nothing.")]
Repair = Annotated[bool, typer.Option("--repair", help="Replace what is bad, also from the remotes.")]


@verb("home", "cache", "trust", answers="Verified")
def command(cache: Cache, quick: Quick = False, repair: Repair = False) -> Shown:
    """Check every record and every file of the store. Exits 5 and names what is bad.

    Checks digests and compiled graphs. --repair takes good bytes from the remotes, and exits 0 if all is good again.

    Example:  cachekit store verify --quick

    Example:  cachekit store verify --repair --cache local:rw,hf://team/cache:r
    """
    return Shown(cache.verify(quick=quick, repair=repair), human, quiet_lines)


def quiet_lines(document: dict[str, Any]) -> str:
    """Keys of records that are bad still, for scripts."""
    return "\n".join(sorted({key for one in document["problems"] if not one["mended"] for key in one["keys"]}))


def human(document: dict[str, Any]) -> list[str]:
    """A check for people."""
    looked = "looked at" if document["quick"] else "hashed"
    problems = document["problems"]
    lines = [
        f"{out.count(document['records'], 'record')}, {out.count(document['blobs'], 'file')}, "
        f"{out.size(document['bytes'])} {looked} in {out.duration(document['seconds'])}: "
        + (f"{len(problems)} bad" if problems else "all good")
    ]
    repaired = [one for one in problems if one["mended"]]
    bad = [one for one in problems if not one["mended"]]
    for one in repaired[:SHOWN]:
        lines += out.labelled("repaired  ", f"{_name(one)}: from {one['mended']}")
    for one in bad[:SHOWN]:
        why = f"; not repaired: {one['left']}" if one["left"] else ""
        lines += out.labelled("bad       ", f"{_name(one)}: {one['reason']}{why}")
    if more := max(len(bad) - SHOWN, 0) + max(len(repaired) - SHOWN, 0):
        lines.append(f"          … and {more} more (--format json)")
    for note in document["notes"][:SHOWN]:
        lines += out.labelled("odd       ", note)
    if document["of_later_versions"]:
        lines.append(f"unknown   {out.count(document['of_later_versions'], 'record')} of a later cachekit")
    for name, words in (("orphans", "of no record"), ("garbage", "left by processes that are gone")):
        if document[name]["files"]:
            size = out.size(document[name]["bytes"])
            lines.append(f"spare     {out.count(document[name]['files'], 'file')}, {size}, {words}: cachekit store gc")
    if document["quarantined"]["files"]:
        size = out.size(document["quarantined"]["bytes"])
        lines.append(f"aside     {out.count(document['quarantined']['files'], 'file')}, {size}, in quarantine")
    return lines


def _name(one: dict[str, Any]) -> str:
    more = f" and {len(one['keys']) - 1} more" if len(one["keys"]) > 1 else ""
    recipe = f" {one['recipe']}" if one["recipe"] else ""
    return f"{one['keys'][0][:12]}{more}{recipe} {one['file']}"
