"""`cachekit store gc`: take out of the store what nobody needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Collected, GoneRecord

SHOWN = 20  # records, for people

MaxSize = Annotated[
    Optional[str],
    typer.Option(
        "--max-size", metavar="SIZE", help="Remove the least recently used until the rest fits: 50GB, 500MiB, 0."
    ),
]
MaxAge = Annotated[
    Optional[str], typer.Option("--max-age", metavar="TIME", help="Remove what was not used for this long: 30d, 12h.")
]
AllOf = Annotated[
    str,
    typer.Option(
        "--all-of", metavar="DIR", help="Only records of compilers that fit this pattern; without a limit, all of them."
    ),
]


@verb("home", answers="Collected")
def command(
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
    return Shown(done, human, lambda found: "\n".join(record.key for record in found.records))


def human(found: Collected) -> list[str]:
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
        lines = [f"{would} {what}, {out.size(found.bytes)}; {', '.join(stays)}"]
    limit = found.max_size
    if limit is not None and found.after > limit:
        meanwhile = "" if found.dry_run else "used or published in the meantime, "
        lines.append(
            f"that is more than {out.size(limit)}: the rest is pinned, in use, {meanwhile}or of another compiler"
        )
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
    lines = out.table(rows, ["     size", "key", "recipe", "compiler", "last used", "why"], cut=(2, 3))
    left = records[SHOWN:]
    if left:
        size = sum(record.bytes for record in left)
        lines.append(f"{out.size(size):>9}  {out.count(len(left), 'more record')} (--format json)")
    return lines
