"""What one run comes to, counted from its journal; the rule that `cachekit stats` counts by.

A run names a key, mostly one, and for each key it comes to one hit or one miss: as it ended, not as the plan thought.
The figures go into cells, one for each recipe and tier, which add up. docs/stats.md has each figure in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from cachekit.tiers.layout import LOCAL

BYPASS = "bypass:"  # before a reason's name, among the figures
LARGEST = 1e15  # a number beyond it was not written by us
LONGEST = 200  # characters of a name
_START = b'{"event": "'


class Cell(Struct, frozen=True, array_like=True, gc=False):
    """Sums of what was done for a recipe with a tier; either is empty where there is none."""

    recipe: str
    tier: str
    figures: dict[str, int | float]


class Counted(Struct, frozen=True, array_like=True, gc=False):
    """A run: its command, who ran it, and its cells."""

    verb: str
    host: str
    cells: list[Cell]


@dataclass(slots=True)
class _Key:
    """What became of a key so far."""

    recipe: str = ""
    tier: str = ""
    planned: bool = False
    hit: bool = False
    compiling: bool = False
    restored: bool = False
    graphs: float = 0
    compiled: float = 0
    recorded: float = 0
    retrieval: float = 0


@dataclass(slots=True)
class _Run:
    cells: dict[tuple[str, str], dict[str, int | float]] = field(default_factory=dict)
    keys: dict[str, _Key] = field(default_factory=dict)
    waited: set[str] = field(default_factory=set)
    verb: str = ""
    host: str = ""
    failed: bool = False
    ended: bool = False

    def add(self, recipe: str, tier: str, **figures: float) -> None:
        """Add to a cell; a figure of 0 leaves no trace."""
        for name, value in figures.items():
            if value:
                cell = self.cells.setdefault((recipe, tier), {})
                cell[name] = cell.get(name, 0) + value

    def key(self, event: Mapping[str, Any]) -> _Key:
        """What is known of the event's key."""
        return self.keys.setdefault(_text(event.get("key")), _Key())

    def recipe(self, event: Mapping[str, Any]) -> str:
        """The recipe that an event is about: as it says, else its key's."""
        names = [name for name in event["keys"] if isinstance(name, str)] if _is_list(event.get("keys")) else []
        known = {self.keys[name].recipe for name in (_text(event.get("key")), *names) if name in self.keys}
        return _text(event.get("recipe")) or (known.pop() if len(known) == 1 else "")


def count(raw: bytes) -> Counted:
    """Count a journal.

    Torn lines, events of unknown names, and values that are not what they should be count as nothing.

    Args:
        raw: The journal's bytes.
    """
    return tally(filter(None, map(_decoded, raw.split(b"\n"))))


def tally(events: Iterable[Mapping[str, Any]]) -> Counted:
    """Count a run's events; see `count`."""
    run = _Run()
    for event in events:
        name = event.get("event")
        counts = COUNTS.get(name) if isinstance(name, str) else None
        if counts is not None:
            counts(run, event)
    for key in run.keys.values():
        _finish(run, key)
    recipe = next((key.recipe for key in run.keys.values() if key.recipe), "")
    run.add(recipe, "", runs=1, failed=int(run.failed), unfinished=int(not run.ended and not run.failed))
    cells = [Cell(recipe, tier, figures) for (recipe, tier), figures in sorted(run.cells.items())]
    return Counted(run.verb, run.host, cells)


def _finish(run: _Run, key: _Key) -> None:
    tier = (key.tier or LOCAL) if key.hit else ""
    if key.planned:
        run.add(key.recipe, tier, hits=int(key.hit), misses=int(not key.hit))
    found = max(key.graphs - key.compiled, 0)
    run.add(key.recipe, tier or (LOCAL if found else ""), graphs_found=found)
    run.add(key.recipe, "", graphs_compiled=key.compiled)
    run.add(key.recipe, tier, recorded_seconds=key.recorded, retrieval_seconds=key.retrieval)


def _decoded(line: bytes) -> Mapping[str, Any] | None:
    if not line:
        return None
    if line.startswith(_START):
        # Most lines are of no interest here, and decoding them is most of the time that counting takes.
        name = line[len(_START) : line.find(b'"', len(_START))]
        if name not in _WANTED and b"\\" not in name:
            return None
    try:
        event = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        try:  # what json writes and msgspec does not read: NaN, halves of surrogate pairs
            event = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return event if isinstance(event, dict) else None


def _number(value: Any) -> float:
    return value if type(value) in {int, float} and -LARGEST < value < LARGEST else 0


def _text(value: Any) -> str:
    return value[:LONGEST].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


# Events, by name


def _run(run: _Run, event: Mapping[str, Any]) -> None:
    run.verb, run.host = _text(event.get("verb")), _text(event.get("host"))


def _failed(run: _Run, _: Mapping[str, Any]) -> None:
    run.failed = True


def _end(run: _Run, _: Mapping[str, Any]) -> None:
    run.ended = True


def _plan(run: _Run, event: Mapping[str, Any]) -> None:
    key = run.key(event)
    key.planned = True
    key.recipe = _text(event.get("recipe")) or key.recipe
    key.hit = event.get("status") == "hit"
    key.tier = _text(event.get("tier")) or key.tier


def _compile(run: _Run, event: Mapping[str, Any]) -> None:
    key = run.key(event)
    key.compiling, key.hit = True, False


def _warmed(run: _Run, event: Mapping[str, Any]) -> None:
    key = run.key(event)
    key.planned = True
    key.recipe = key.recipe or _text(event.get("recipe"))
    compiled = _number(event.get("compiled"))
    key.hit = not compiled and not key.compiling
    key.tier = _text(event.get("tier")) or key.tier
    key.compiled += compiled
    key.graphs = max(key.graphs, _number(event.get("graphs")), key.compiled)
    seconds = _number(event.get("compile_seconds"))
    cold = _number(event.get("cold_seconds")) or seconds
    if key.hit:
        key.recorded = cold
        key.retrieval += _number(event.get("seconds"))
    elif compiled:
        run.add(key.recipe, "", compile_seconds=seconds)
        key.recorded = max(cold - seconds, 0)  # what a neighbour's graphs spared
    run.add(key.recipe, "", waited_seconds=_number(event.get("waited_seconds")))


def _trained(run: _Run, event: Mapping[str, Any]) -> None:
    key = run.key(event)
    key.planned = True
    key.recipe = key.recipe or _text(event.get("recipe"))
    phases = event.get("phases")
    loading = _number(phases.get("graphs")) if isinstance(phases, dict) else 0
    compiled = _number(event.get("compiled"))
    key.compiled += compiled
    key.graphs = max(key.graphs, _number(event.get("found")) + compiled, key.compiled)
    if key.hit:
        key.recorded = _number(event.get("saved_seconds")) + loading
    key.retrieval += _number(event.get("overhead_seconds")) + loading


def _commanded(run: _Run, event: Mapping[str, Any]) -> None:
    key = run.key(event)
    key.planned = True
    key.hit = key.hit and key.restored
    compiled = _number(event.get("compiled"))
    key.compiled += compiled
    key.graphs = max(key.graphs, _number(event.get("found")) + compiled)
    run.add(key.recipe, "", compile_seconds=_number(event.get("compile_seconds")))
    if key.restored:
        key.recorded = _number(event.get("saved_seconds"))
        key.retrieval += _number(event.get("overhead_seconds"))


def _restored(run: _Run, event: Mapping[str, Any]) -> None:
    key = run.key(event)
    key.restored = True
    run.add(key.recipe, LOCAL, bytes_restored=_number(event.get("bytes")))


def _neighbour(run: _Run, event: Mapping[str, Any]) -> None:
    run.add(run.key(event).recipe, LOCAL, bytes_restored=_number(event.get("bytes")))


def _helped(run: _Run, event: Mapping[str, Any]) -> None:
    # Its key and its recipe are the neighbour's.
    recipe = next((key.recipe for key in run.keys.values() if key.recipe), "")
    run.add(recipe, "", graphs_from_neighbours=_number(event.get("graphs")))


def _waited(run: _Run, event: Mapping[str, Any]) -> None:
    name = _text(event.get("key"))
    if name not in run.waited:
        run.waited.add(name)
        run.add(run.recipe(event), "", waits=1)


def _pulled(run: _Run, event: Mapping[str, Any]) -> None:
    size, seconds = _number(event.get("bytes")), _number(event.get("seconds"))
    run.add(run.recipe(event), _text(event.get("tier")), fetches=1, bytes_fetched=size, fetch_seconds=seconds)


def _pushed(run: _Run, event: Mapping[str, Any]) -> None:
    size, seconds = _number(event.get("bytes")), _number(event.get("seconds"))
    run.add(run.recipe(event), _text(event.get("tier")), pushes=1, bytes_pushed=size, push_seconds=seconds)


def _adds(figure: str) -> Callable[[_Run, Mapping[str, Any]], None]:
    def one(run: _Run, event: Mapping[str, Any]) -> None:
        tier = LOCAL if event["event"] == "store.damaged" else _text(event.get("tier"))
        run.add(run.recipe(event), tier, **{figure: 1})

    return one


def _bypassed(run: _Run, event: Mapping[str, Any]) -> None:
    reason = _text(event.get("reason")) or "unnamed"
    run.add(run.recipe(event), "", **{BYPASS + reason: 1})


COUNTS: dict[str, Callable[[_Run, Mapping[str, Any]], None]] = {
    "run": _run,
    "run.failed": _failed,
    "run.end": _end,
    "plan": _plan,
    "compile.start": _compile,
    "warm.end": _warmed,
    "train.end": _trained,
    "command.done": _commanded,
    "restore": _restored,
    "neighbour.restored": _neighbour,
    "neighbour.helped": _helped,
    "flight.wait": _waited,
    "pull.end": _pulled,
    "pull.modules": _pulled,
    "push.end": _pushed,
    "push.failed": _adds("push_failures"),
    "remote.failed": _adds("tier_failures"),
    "remote.damaged": _adds("damaged"),
    "store.damaged": _adds("damaged"),
    "cache.bypass": _bypassed,
}
_WANTED = frozenset(name.encode() for name in COUNTS)
