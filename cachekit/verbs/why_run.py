"""Why a run compiled: what its journal says, and for each module that compiled what differs from the recorded ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from cachekit import files
from cachekit.compilers import registry
from cachekit.errors import UnknownNameError
from cachekit.events import BYPASS, Event, read
from cachekit.store import Store
from cachekit.store.record import DamagedRecordError, Record, decode
from cachekit.values import Answer
from cachekit.verbs.stats import LAST, one_run

VERBS = frozenset({"warm", "train", "run"})
# Told by `train` and by `run` where something compiled although a record was restored.
COMPILED = frozenset({"train.compiled", "command.compiled"})
BEGINS = frozenset({"worker.start", "command.start"})  # from here on something may compile
ENDS = frozenset({"run.end", "run.failed", "train.end", "command.done"})  # a `warm` within a `train` is no end


class UnforeseenModule(Struct, frozen=True):
    """A module that compiled although the plan said hit.

    Attributes:
        name: The compiler's own.
        differs: What of its name is new: `graph`, `flags`, `new`, `compiler`; `recorded` where nothing is.
        words: Sentences.
        seconds: What its compile took, where that is known.
    """

    name: str
    differs: str
    words: tuple[str, ...]
    seconds: float | None = None


class RunWhy(Answer, frozen=True, tag="cachekit/why-run/1"):
    """What a run compiled, and why.

    Attributes:
        run: Its identity.
        verb: `warm`, `train` or `run`.
        recipe: What it ran; empty where it never came to that.
        key: Of the recipe.
        planned: What the plan said: `hit`, `miss`; empty where it never came to that.
        compiled: Graphs that compiled.
        found: Graphs that were found.
        built: Files of machine code that were built.
        phases: When it compiled.
        modules: What compiled although the plan said hit.
        words: What the compiler's own counters tell.
        bypassed: Why the run bypassed the cache, or a part of it, and how often.
        failure: What ended it, where it failed.
        ended: It came to its end; one that was killed, or is still running, did not.
        untold: It began to compile, and ended, or was read, before it told what it had compiled.
    """

    run: str
    verb: str
    recipe: str
    key: str
    planned: str
    compiled: int
    found: int
    built: int
    phases: tuple[str, ...]
    modules: tuple[UnforeseenModule, ...] = ()
    words: tuple[str, ...] = ()
    bypassed: Mapping[str, int] = {}
    failure: str = ""
    ended: bool = True
    untold: bool = False


def why_run(store: Store, name: str = LAST) -> RunWhy:
    """Read a run's journal.

    Args:
        store: The store.
        name: `last`, or the beginning of a run's identity.

    Raises:
        UnknownNameError: There is no such run, or there are several.
    """
    events = _events(store, name)
    run = str(events[0].get("run", ""))
    verb = str(next((event.get("verb", "") for event in events if event.get("event") == "run"), ""))
    plans = [event for event in events if event.get("event") == "plan"]
    told = [event for event in events if event.get("event") in COMPILED]
    ends = [event for event in events if event.get("event") in {"worker.end", "command.done"}]
    failed = next((event for event in events if event.get("event") == "run.failed"), {})
    names = {str(event.get("event")) for event in events}
    plan = plans[-1] if plans else {}
    key = str(plan.get("key", ""))
    numbers = _numbers(ends[-1] if ends else {})
    warmed = [event for event in events if event.get("event") == "warm.end"]
    compiled = sum(_int(event.get("graphs")) for event in told) + sum(_int(event.get("compiled")) for event in warmed)
    if ends and not told and not warmed:
        compiled = numbers.get("compiled", 0)
    record = _record(store, key) if told else None
    return RunWhy(
        run=run,
        verb=verb,
        recipe=str(plan.get("recipe", "")),
        key=key,
        planned=str(plan.get("status", "")),
        compiled=compiled,
        found=numbers.get("found", 0),
        built=sum(_int(event.get("built")) for event in told),
        phases=tuple(dict.fromkeys(str(phase) for event in told for phase in _list(event.get("when")))),
        modules=tuple(module for event in told for module in _modules(store, record, event)),
        words=_counted(numbers) if told else (),
        bypassed=dict(Counter(str(event.get("reason")) for event in events if event.get("event") == BYPASS)),
        failure=str(failed.get("message", "")),
        ended=bool(names & ENDS) or (verb == "warm" and bool(warmed)),
        untold=bool(names & BEGINS) and not (ends or told or warmed),
    )


def _events(store: Store, name: str) -> list[Event]:
    paths = {path.stem: path for path in sorted(store.layout.journal.glob("*/*.jsonl"), key=lambda path: path.stem)}
    if name == LAST:
        for path in reversed(paths.values()):
            if events := _read(path):
                return events
        raise UnknownNameError(
            "no run of warm, train or run is recorded here", hint="cachekit warm RECIPE; or check --home"
        )
    chosen = one_run([*paths], name)
    if events := _read(paths[chosen], verbs=None):
        return events
    raise UnknownNameError(f"the journal of run {chosen} cannot be read", hint=f"look at {paths[chosen]}")


def _read(path: Path, verbs: frozenset[str] | None = VERBS) -> list[Event]:
    """A journal's events; none where it cannot be read, or is of another verb."""
    try:
        events = read(path)
    except OSError:
        return []
    verb = next((event.get("verb") for event in events if event.get("event") == "run"), None)
    return events if verbs is None or verb in verbs else []


def _record(store: Store, key: str) -> Record | None:
    """A key's record as it is now, wherever it lies; its files are not checked."""
    for path in store.layout.records.glob(f"*/*/{key}.json") if files.is_digest(key) else ():
        with suppress(OSError, DamagedRecordError):
            return decode(files.read(path))
    return None


def _modules(store: Store, record: Record | None, event: Event) -> list[UnforeseenModule]:
    """What compiled, against what was recorded before it."""
    new, again = ([str(name) for name in _list(event.get(which))] for which in ("modules", "again"))
    seconds = event.get("seconds")
    times = seconds if isinstance(seconds, dict) else {}
    if record is None or not (new or again):
        return []
    adapter = registry.adapter(record.compiler)
    told = adapter.explain_modules([*new, *again], new, record, lambda file: store.layout.blob(file.sha256))
    took = {name: seconds for name, seconds in times.items() if isinstance(seconds, int | float)}
    return [UnforeseenModule(name, one.relation, one.words, took.get(name)) for name, one in told.items()]


def _counted(numbers: Mapping[str, int]) -> tuple[str, ...]:
    """What compilers say of their counters: each knows its own."""
    return tuple(words for adapter in registry.every() for words in adapter.explain_counters(numbers))


def _numbers(event: Event) -> dict[str, int]:
    counters = event.get("counters", event)
    known = counters.items() if isinstance(counters, dict) else ()
    return {str(name): value for name, value in known if isinstance(value, int) and not isinstance(value, bool)}


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
