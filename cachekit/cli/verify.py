"""`cachekit store verify`: is the store what its records say?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cachekit.cli import out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Problem, Verified

SHOWN = 20  # problems, for people

Quick = Annotated[bool, typer.Option("--quick", help="Only check which files exist and their sizes; hash nothing.")]
Repair = Annotated[bool, typer.Option("--repair", help="Replace what is bad with good bytes from the remotes.")]


@verb("home", "cache", "trust", answers="Verified")
def command(cache: Cache, quick: Quick = False, repair: Repair = False) -> Shown:
    """Check every record and every file of the store. Exits 5 and names what is bad.

    Checks digests and compiled graphs, and changes nothing. --repair takes good bytes from the remotes, and exits 0 if
    all is good again.

    Example:  cachekit store verify --quick

    Example:  cachekit store verify --repair --cache local:rw,hf://team/cache:r
    """
    return Shown(cache.verify(quick=quick, repair=repair), human, quiet_lines)


def quiet_lines(answer: Verified) -> str:
    """Keys of records that are bad still, for scripts."""
    return "\n".join(sorted({key for one in answer.problems if not one.repaired for key in one.keys}))


def human(answer: Verified) -> list[str]:
    """A check for people."""
    looked = "looked at" if answer.quick else "hashed"
    problems = answer.problems
    lines = [
        f"{out.count(answer.records, 'record')}, {out.count(answer.blobs, 'file')}, "
        f"{out.size(answer.bytes)} {looked} in {out.duration(answer.seconds)}: "
        + (f"{len(problems)} bad" if problems else "all good")
    ]
    repaired = [one for one in problems if one.repaired]
    bad = [one for one in problems if not one.repaired]
    for one in repaired[:SHOWN]:
        lines += out.labelled("repaired    ", f"{_name(one)}: from {one.repaired}")
    for one in bad[:SHOWN]:
        why = f"; not repaired: {one.left}" if one.left else ""
        lines += out.labelled("bad         ", f"{_name(one)}: {one.reason}{why}")
    if more := max(len(bad) - SHOWN, 0) + max(len(repaired) - SHOWN, 0):
        lines.append(f"            ... and {more} more (--format json)")
    came = answer.origins
    sources = {
        "made here": came.here,
        "from places of yours": came.owner,
        "signed": came.signed,
        "taken from anybody (--trust-all)": came.anybody,
        "of unknown origin": came.unknown,
        "not used": len(came.refused),
    }
    if told := ", ".join(f"{count} {words}" for words, count in sources.items() if count):
        lines += out.labelled("trust       ", f"{told}; {len(came.revoked) or 'none'} revoked")
    for gone in came.revoked[:SHOWN]:
        lines += out.labelled("revoked     ", f"{gone.key[:12]} {gone.recipe}: {gone.reason}")
    for other in came.refused[:SHOWN]:
        lines += out.labelled("not used    ", f"{other.key[:12]} {other.recipe}: it is {other.reason}")
    for kept in came.kept[:SHOWN]:
        lines += out.labelled("kept        ", f"{kept.key[:12]} {kept.recipe} is not shared: {kept.reason}")
    for note in answer.notes[:SHOWN]:
        lines += out.labelled("note        ", note)
    if answer.of_later_versions:
        lines.append(f"unknown     {out.count(answer.of_later_versions, 'record')} of a later cachekit")
    for count, words in ((answer.orphans, "of no record"), (answer.garbage, "left by processes that are gone")):
        if count.files:
            size = out.size(count.bytes)
            lines.append(f"garbage     {out.count(count.files, 'file')}, {size}, {words}: cachekit store gc")
    if answer.quarantined.files:
        size = out.size(answer.quarantined.bytes)
        lines.append(f"quarantine  {out.count(answer.quarantined.files, 'file')}, {size}, set aside")
    return lines


def _name(one: Problem) -> str:
    more = f" and {len(one.keys) - 1} more" if len(one.keys) > 1 else ""
    recipe = f" {one.recipe}" if one.recipe else ""
    return f"{one.keys[0][:12]}{more}{recipe} {one.file}"
