"""Which modules failed to compile and are not there since: what Neuron's own cache tells, and our memory beside it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from cachekit.compilers.neuron import locks
from cachekit.compilers.neuron.entries import Entry
from cachekit.compilers.neuron.failure_memory import FailureMemory
from cachekit.compilers.neuron.failures import classify
from cachekit.compilers.port import Failed


def of(entries: Iterable[Entry], memory: Path) -> dict[str, Failed]:
    """Failures by module.

    Args:
        entries: Modules that are not finished.
        memory: The folder of `FailureMemory`.
    """
    entries = list(entries)
    known = FailureMemory(memory)
    found: dict[str, Failed] = {}
    for entry in entries:
        if ours := known.recall(entry.name, compiler=entry.compiler):
            kind, log = ours.failure_class, known.path(entry.name, entry.compiler)
            found[entry.module] = Failed(ours.kind, ours.message, str(log), ours.when, kind.advice, remembered=True)
    for one in locks.poisoned(entries):
        if one.entry.module not in found:
            failure = classify(one.text)
            when = datetime.fromtimestamp(one.modified / 1e9, timezone.utc).isoformat(timespec="seconds")
            found[one.entry.module] = Failed(
                failure.kind.name,
                failure.message or next(iter(one.excerpt), ""),
                str(one.log),
                when,
                failure.advice,
                remembered=True,
            )
    return found
