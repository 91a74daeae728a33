"""What a report of a store shows, as plain values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cachekit.errors import UnknownNameError
from cachekit.store import Store, Summaries
from cachekit.verbs.history import history
from cachekit.verbs.stats import Stats, stats
from cachekit.verbs.timeline import Timeline, timeline
from cachekit.verbs.zoo_coverage import Coverage, zoo_coverage

if TYPE_CHECKING:
    from cachekit.verbs.price import Price


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of records by recipe and compiler, the largest recipe first; two records may share files."""

    compilers: tuple[str, ...]
    recipes: dict[str, tuple[int, ...]]
    records: int


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that the page shows."""

    made: datetime
    host: str
    stats: Stats
    timeline: Timeline | None
    sizes: Sizes
    coverage: Coverage


def report(store: Store, *, run: str = "", price: Price | None = None, now: datetime | None = None) -> Report:
    """Gather it.

    Args:
        store: The store.
        run: The run whose time line is shown; by default the last one that compiled.
        price: What an hour costs.
        now: UTC.

    Raises:
        UnknownNameError: There is no such run.
    """
    counted = stats(store.layout, price=price)
    if run:
        if run == "last":
            run = counted.last_run.run if counted.last_run else run
        known = [name for name in history(store.layout).runs if name.startswith(run)]
        if len(known) != 1:
            raise UnknownNameError(f"no run is called {run[:80]!r}", hint="cachekit stats --run last")
        (run,) = known
    records = store.summaries()
    return Report(
        made=now or datetime.now(timezone.utc),
        host=os.uname().nodename,
        stats=counted,
        timeline=timeline(store.layout, run),
        sizes=_sizes(records),
        coverage=zoo_coverage(records),
    )


def _sizes(records: Summaries) -> Sizes:
    found: dict[str, dict[str, int]] = {}
    number = 0
    for record in records:
        number += 1
        sums = found.setdefault(record.recipe, {})
        sums[record.directory] = sums.get(record.directory, 0) + record.bytes
    compilers = sorted({name for sums in found.values() for name in sums})
    order = sorted(found, key=lambda name: (-sum(found[name].values()), name))
    return Sizes(
        tuple(compilers), {name: tuple(found[name].get(one, 0) for one in compilers) for name in order}, number
    )
