"""What one run comes to, counted from its journal; the rule that `cachekit stats` counts by.

A run names a key, mostly one, and for each key it comes to one hit or one miss: as it ended, not as the plan thought.
The figures go into cells, one for each recipe and remote, which add up. docs/stats.md has each figure in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from cachekit.errors import UsageError
from cachekit.store.layout import LOCAL

BYPASS = "bypass:"  # before a reason's name, among the figures
ON = "on:"  # before the type of the machine that ran, of the seconds saved there
LARGEST = 1e15  # a number beyond it was not written by us
LONGEST = 200  # characters of a name


class Cell(Struct, frozen=True, array_like=True, gc=False):
    """Sums of what was done for a recipe with a remote; either is empty where there is none."""

    recipe: str
    remote: str
    figures: dict[str, int | float]


class Counted(Struct, frozen=True, array_like=True, gc=False):
    """A run: its command, who ran it, and its cells."""

    verb: str
    host: str
    cells: list[Cell]


class _Key(Struct):
    """What became of a key so far."""

    recipe: str = ""
    remote: str = ""
    reused_from: str = ""  # the remote of the record that it began with
    found: bool = False
    unknown: bool = False
    compiling: bool = False
    commanded: bool = False
    restored: bool = False
    silent: bool = False  # a command of which no compiler was seen to do anything
    failed: bool = False  # a command that did
    graphs: float = 0
    compiled: float = 0
    warmed: float = 0  # seconds of warms
    recorded: float = 0  # seconds: of its record
    spared: float = 0  # seconds: what it found although it missed
    retrieval: float = 0  # seconds

    @property
    def hit(self) -> bool:
        """The cache had it; a command that was given nothing missed, whatever the plan said."""
        return self.found and not self.compiling and (self.restored or not self.commanded)

    @property
    def unreached(self) -> bool:
        """A command that came to no compiler; of one that tells nothing of what it finds, what was given was used."""
        return self.silent and (self.failed or not self.restored)


class _Run(Struct):
    keys: dict[str, _Key] = {}
    # Whose recipe it is may be known later only: by name, else that of these keys.
    sums: list[tuple[str, tuple[str, ...], str, str, float]] = []
    waited: set[str] = set()
    verb: str = ""
    host: str = ""
    instance: str = ""
    failed: bool = False
    misused: bool = False  # it failed because of what was asked for
    ended: bool = False

    def key(self, event: Mapping[str, Any]) -> _Key:
        """What is known of the event's key."""
        return self.keys.setdefault(_text(event.get("key")), _Key())

    def add(self, event: Mapping[str, Any], remote: str, figure: str, value: float) -> None:
        """Add to a figure of the recipe that the event is about."""
        several = event.get("keys")
        names = [_text(event.get("key")), *map(_text, several if isinstance(several, list) else ())]
        self.sums.append((_text(event.get("recipe")), tuple(filter(None, names)), remote, figure, value))


def count(events: Iterable[Mapping[str, Any]]) -> Counted:
    """Count a run's events, whatever their order.

    Events of unknown names, and values that are not what they should be, count as nothing.
    """
    run = _Run()
    for event in events:
        name = event.get("event")
        counts = COUNTS.get(name) if isinstance(name, str) else None
        if counts is not None:
            counts(run, event)
    if run.misused and not run.keys and not run.sums:
        return Counted(run.verb, run.host, [])  # nothing ran
    main = next((key.recipe for key in run.keys.values() if key.recipe), "")
    cells: dict[tuple[str, str], dict[str, int | float]] = {}

    def add(recipe: str, remote: str, **figures: float) -> None:
        for name, value in figures.items():
            if value:
                cell = cells.setdefault((recipe, remote), {})
                cell[name] = cell.get(name, 0) + value

    for recipe, names, remote, figure, value in run.sums:
        known = {run.keys[name].recipe for name in names if name in run.keys}
        add(recipe or (known.pop() if len(known) == 1 else "" if names else main), remote, **{figure: value})
    for key in run.keys.values():
        remote = (key.remote or LOCAL) if key.hit else key.reused_from
        # What a command that was given nothing found, it had compiled itself a moment before.
        graphs = 0 if key.commanded and not key.restored else max(key.graphs - key.compiled, 0)
        add(key.recipe, remote, hits=int(key.hit and not key.unreached))
        add(key.recipe, remote or LOCAL, graphs_found=graphs)
        unknown = key.unknown and not key.hit
        add(
            key.recipe,
            "",
            misses=int(not (key.hit or unknown or key.unreached)),
            unknown=int(unknown),
            graphs_compiled=key.compiled,
        )
        recorded = key.recorded if key.hit else key.spared
        retrieval = key.retrieval + (key.warmed if key.hit else 0)
        add(key.recipe, remote, recorded_seconds=recorded, retrieval_seconds=retrieval)
        add(key.recipe, remote, **({ON + run.instance: recorded - retrieval} if run.instance else {}))
    add(main, "", runs=1, failed=int(run.failed), unfinished=int(not run.ended and not run.failed))
    found = [Cell(recipe, remote, figures) for (recipe, remote), figures in sorted(cells.items())]
    return Counted(run.verb, run.host, found)


def _number(value: Any) -> float:
    return value if type(value) in {int, float} and -LARGEST < value < LARGEST else 0


def _text(value: Any) -> str:
    return value[:LONGEST].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


# Events, by name


def _run(run: _Run, event: Mapping[str, Any]) -> None:
    run.verb, run.host, run.instance = (_text(event.get(name)) for name in ("verb", "host", "instance"))


def _failed(run: _Run, event: Mapping[str, Any]) -> None:
    run.failed, run.misused = True, event.get("exit_code") == UsageError.exit_code


def _end(run: _Run, _: Mapping[str, Any]) -> None:
    run.ended = True


def _plan(run: _Run, event: Mapping[str, Any]) -> None:
    key = run.key(event)
    key.recipe = key.recipe or _text(event.get("recipe"))
    key.remote = _text(event.get("remote")) or key.remote
    key.found = key.found or event.get("status") == "hit"
    key.unknown = event.get("status") == "unknown"


def _compile(run: _Run, event: Mapping[str, Any]) -> None:
    run.key(event).compiling = True


def _warmed(run: _Run, event: Mapping[str, Any]) -> None:
    key = run.key(event)
    key.recipe = key.recipe or _text(event.get("recipe"))
    key.remote = _text(event.get("remote")) or key.remote
    compiled, seconds = _number(event.get("compiled")), _number(event.get("compile_seconds"))
    cold = _number(event.get("cold_seconds")) or seconds
    key.graphs = max(key.graphs, _number(event.get("graphs")), compiled)
    key.compiled += compiled
    key.warmed += _number(event.get("seconds"))
    key.recorded = cold
    if compiled or key.compiling:  # a trial run that reused every graph is none the less one
        key.compiling = True
        key.spared += max(cold - seconds, 0)  # by graphs that were reused
        run.add(event, "", "compile_seconds", seconds)
    else:
        key.found = True
    run.add(event, "", "waited_seconds", _number(event.get("waited_seconds")))


def _trained(run: _Run, event: Mapping[str, Any]) -> None:
    key = run.key(event)
    key.recipe = key.recipe or _text(event.get("recipe"))
    compiled = _number(event.get("compiled"))
    key.compiled += compiled
    key.graphs = max(key.graphs, _number(event.get("found")) + compiled)
    key.recorded = _number(event.get("saved_seconds"))
    key.retrieval += _number(event.get("overhead_seconds"))


def _commanded(run: _Run, event: Mapping[str, Any]) -> None:
    key = run.key(event)
    key.commanded = True
    key.silent = not any(_number(event.get(name)) for name in ("found", "compiled", "built"))
    key.failed = event.get("exit_code", 0) != 0
    compiled = _number(event.get("compiled"))
    key.compiled += compiled
    key.graphs = max(key.graphs, _number(event.get("found")) + compiled)
    run.add(event, "", "compile_seconds", _number(event.get("compile_seconds")))
    if _number(event.get("restored_bytes")):
        key.recorded = key.spared = _number(event.get("saved_seconds"))
        key.retrieval += _number(event.get("overhead_seconds"))


def _restored(run: _Run, event: Mapping[str, Any]) -> None:
    run.key(event).restored = True
    run.add(event, LOCAL, "bytes_restored", _number(event.get("bytes")))


def _reuse_restored(run: _Run, event: Mapping[str, Any]) -> None:
    # The recipe that it names is the other record's. What it spares is in `warm.end`; getting it is no part of that.
    key = run.key(event)
    key.reused_from = _text(event.get("remote")) or LOCAL
    key.retrieval += _number(event.get("seconds"))
    run.add({"key": event.get("key")}, LOCAL, "bytes_restored", _number(event.get("bytes")))


def _reused(run: _Run, event: Mapping[str, Any]) -> None:
    run.add({}, "", "graphs_reused", _number(event.get("graphs")))  # likewise, and its key


def _waited(run: _Run, event: Mapping[str, Any]) -> None:
    name = _text(event.get("key"))
    if name not in run.waited:
        run.waited.add(name)
        run.add(event, "", "waits", 1)


def _moves(count: str, sizes: str, seconds: str) -> Callable[[_Run, Mapping[str, Any]], None]:
    def one(run: _Run, event: Mapping[str, Any]) -> None:
        remote = _text(event.get("remote"))
        run.add(event, remote, count, 1)
        run.add(event, remote, sizes, _number(event.get("bytes")))
        run.add(event, remote, seconds, _number(event.get("seconds")))

    return one


def _adds(figure: str) -> Callable[[_Run, Mapping[str, Any]], None]:
    def one(run: _Run, event: Mapping[str, Any]) -> None:
        remote = LOCAL if event["event"] == "store.damaged" else _text(event.get("remote"))
        run.add(event, remote, figure, 1)

    return one


def _bypassed(run: _Run, event: Mapping[str, Any]) -> None:
    run.add(event, "", BYPASS + (_text(event.get("reason")) or "unnamed"), 1)


def _asked(run: _Run, event: Mapping[str, Any]) -> None:
    run.add(event, "", "ask_seconds", _number(event.get("asked")))
    run.add(event, "", "lost_seconds", _number(event.get("lost")))


_PULLED = _moves("fetches", "bytes_fetched", "fetch_seconds")
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
    "reuse.restored": _reuse_restored,
    "reuse.end": _reused,
    "lock.wait": _waited,
    "pull.end": _PULLED,
    "pull.modules": _PULLED,
    "push.end": _moves("pushes", "bytes_pushed", "push_seconds"),
    "push.failed": _adds("push_failures"),
    "remote.failed": _adds("remote_failures"),
    "remote.time": _asked,
    "remote.damaged": _adds("damaged"),
    "store.damaged": _adds("damaged"),
    "cache.bypass": _bypassed,
}
