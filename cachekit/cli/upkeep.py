"""`cachekit store gc` and `verify`: what goes out of the store, and whether the rest is what its records say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.text import first_of

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Collected, GoneRecord, Problem, Verified


SHOWN = 20  # records or problems, for people

MaxSize = Annotated[
    Optional[str],
    typer.Option(
        "--max-size",
        metavar="SIZE",
        help="Remove the least recently used records until the rest fits: 50GB, 500MiB, 0.",
    ),
]
MaxAge = Annotated[
    Optional[str],
    typer.Option("--max-age", metavar="TIME", help="Remove what has not been used for this long: 30d, 12h."),
]
AllOf = Annotated[
    str,
    typer.Option(
        "--all-of",
        metavar="DIR",
        help="Only records of compilers that match this pattern; without a limit, all of them.",
    ),
]


@verb("home", answers="Collected")
def gc(
    cache: Cache,
    max_size: MaxSize = None,
    max_age: MaxAge = None,
    all_of: AllOf = "",
    dry_run: options.DryRun = False,
) -> Shown:
    """Remove what is no longer needed from the store.

    Removes files that no record names, and records beyond the limits; pinned records stay, and so do those in use.
    Without options, the limits are the settings gc_max_size and gc_max_age.

    Example:  cachekit store gc --max-size 50GB --max-age 30d --dry-run

    Example:  cachekit store gc --all-of 'neuronxcc-2.2*'
    """
    done = cache.gc(max_size=max_size, max_age=max_age, all_of=all_of, dry_run=dry_run)
    return Shown(done, collected, lambda found: "\n".join(record.key for record in found.records))


def collected(found: Collected) -> list[str]:
    """What went, for people."""
    would = "would remove" if found.dry_run else "removed"
    records, files = found.records, found.files
    stays = [f"{out.size(found.after)} of {out.size(found.before)} stay"]
    stays += [f"{out.size(found.pinned_bytes)} pinned"] if found.pinned_bytes else []
    stays += [f"{out.size(found.used_bytes)} in use"] if found.used_bytes else []
    if not records and not files:
        lines = [f"nothing to remove; {', '.join(stays)}"]
    else:
        what = f"{out.count(len(records), 'record')} and {out.count(len(files), 'other file')}"
        lines = out.labelled("", f"{would} {what}, {out.size(found.bytes)}; {', '.join(stays)}")
    limit = found.max_size
    if limit is not None and found.after > limit:
        meanwhile = "" if found.dry_run else "used or published in the meantime, "
        why = f"each of these records is pinned, in use, {meanwhile}or of another compiler"
        lines += out.labelled("", f"what stays is more than the limit of {out.size(limit)}: {why}")
    if records:
        lines += _table(records)
    if files:
        counts = Counter(one.why for one in files)
        sizes: Counter[str] = Counter()
        for one in files:
            sizes[one.why] += one.bytes
        lines += [f"{out.size(sizes[why]):>9}  {out.count(counts[why], 'file')}: {why}" for why in sorted(counts)]
    lines += [f"{one.key[:12]} is kept: {one.why} in the meantime" for one in found.kept[:SHOWN]]
    return lines


def _table(records: Sequence[GoneRecord]) -> list[str]:
    rows = [
        [
            out.size(record.bytes).rjust(9),
            record.key[:12],
            record.recipe or "(damaged)",
            record.directory,
            record.last_used[:10],
            record.why,
        ]
        for record in records[:SHOWN]
    ]
    lines = out.table(rows, ["     size", "key", "recipe", "compiler", "last used", "why"], shrink=(2, 3))
    left = records[SHOWN:]
    if left:
        size = sum(record.bytes for record in left)
        lines.append(f"{out.size(size):>9}  {out.count(len(left), 'more record')} (--format json)")
    return lines


Quick = Annotated[bool, typer.Option("--quick", help="Only check which files exist and their sizes; hash nothing.")]
Repair = Annotated[bool, typer.Option("--repair", help="Replace what is bad with good bytes from the remotes.")]


@verb("home", "cache", "trust", answers="Verified")
def verify(cache: Cache, quick: Quick = False, repair: Repair = False) -> Shown:
    """Check every record and every file of the store. Exits 5 if anything is bad, and names it.

    Checks digests and compiled graphs, and changes nothing. --repair takes good bytes from the remotes, and exits 0 if
    all is good again.

    Example:  cachekit store verify --quick

    Example:  cachekit store verify --repair --cache local:rw,hf://team/cache:r
    """
    return Shown(cache.verify(quick=quick, repair=repair), verified, quiet_lines)


def quiet_lines(answer: Verified) -> str:
    """Keys of records that are bad still, for scripts."""
    return "\n".join(sorted({key for one in answer.problems if not one.repaired for key in one.keys}))


def verified(answer: Verified) -> list[str]:
    """A check for people."""
    looked = "looked at" if answer.quick else "hashed"
    problems, came = answer.problems, answer.origins
    unused = came.revoked or came.refused
    repairs = ", now repaired" if problems and all(one.repaired for one in problems) else ""
    lines = [
        f"{out.count(answer.records, 'record')}, {out.count(answer.blobs, 'file')}, "
        f"{out.size(answer.bytes)} {looked} in {out.duration(answer.seconds)}: "
        + (f"{len(problems)} bad{repairs}" if problems else "all complete" if unused else "all good")
    ]
    repaired = [one for one in problems if one.repaired]
    bad = [one for one in problems if not one.repaired]
    for one in repaired[:SHOWN]:
        lines += out.labelled("repaired    ", f"{_name(one)}: from {one.repaired}")
    for one in bad[:SHOWN]:
        why = f"; not repaired: {one.left}" if one.left else ""
        lines += out.labelled("bad         ", f"{_name(one)}: {one.reason}{why}")
    lines += out.more(max(len(bad) - SHOWN, 0) + max(len(repaired) - SHOWN, 0), 12)
    sources = {
        "made here": came.here,
        "from places of yours": came.owner,
        "signed": came.signed,
        "taken from anybody (--trust-all)": came.all,
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
    recipe = f" {one.recipe}" if one.recipe else ""
    return f"{first_of((key[:12] for key in one.keys), 1)}{recipe} {one.file}"
