"""What runs did when, side by side, as a Chrome trace, which Perfetto draws."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from cachekit.errors import UnknownNameError
from cachekit.events import read
from cachekit.store.history import history, journals
from cachekit.store.layout import Layout
from cachekit.verbs.stats import run_named

GAP = 120.0  # seconds; runs that follow each other this closely belong together
MOST_RUNS = 24
VERBS = frozenset({"warm", "train", "run"})

# What begins with an event, by its name: which row it is of (the next of that row ends it), its kind, and its label,
# made of the event's own fields.
_BEGINS = {
    "lock.wait": ("wait", "wait", "waiting for {holder}"),
    "pull.start": ("pull", "fetch", "fetching from {remote}"),
    "push.start": ("push", "push", "pushing to {remote}"),
    "worker.start": ("worker", "prepare", "starting the worker"),
    "command.start": ("worker", "train", "the command"),
}
_ENDS = {
    "pull.end": "pull",
    "pull.modules": "pull",
    "push.end": "push",
    "push.failed": "push",
    "worker.end": "worker",
    "command.end": "worker",
}
_PREPARING = frozenset({"import", "data", "model", "features"})  # phases of a worker before its first step

Event = dict[str, Any]


class Span(Struct, frozen=True, order=True):
    """Something that took time: seconds since 1970, and what it was."""

    start: float
    end: float
    kind: str
    label: str


def trace(layout: Layout, run: str) -> dict[str, Any]:
    """A run, and the runs beside it, in the trace event format: a process is a run, its rows are its threads.

    Args:
        layout: Of the store.
        run: `last`, or the run's name or how it begins.

    Raises:
        UnknownNameError: There is no such run, or its journal was removed.
    """
    paths = {name: Path(entry.path) for name, entry in journals(layout).items()}
    chosen = run_named(history(layout), run)
    if chosen not in paths:
        raise UnknownNameError(
            f"the journal of run {chosen} was removed",
            cause="journals are kept for `keep_logs` days; the run's figures are still known",
            hint=f"cachekit stats --run {chosen}",
        )
    runs = _beside(paths, chosen)
    zero = min((events[0]["time"] for events in runs if events), default=0.0)
    found: list[dict[str, Any]] = []
    for number, events in enumerate(sorted(filter(None, runs), key=lambda one: float(one[0]["time"])), start=1):
        found.append(_name("process_name", number, 0, _title(events)))
        for row, spans in enumerate(_rows(_spans(events)), start=1):
            found.append(_name("thread_name", number, row, spans[0].kind))
            found += [
                {
                    "ph": "X",
                    "pid": number,
                    "tid": row,
                    "cat": span.kind,
                    "name": span.label,
                    "ts": round((span.start - zero) * 1e6),
                    "dur": round((span.end - span.start) * 1e6),
                }
                for span in spans
            ]
    return {"otherData": {"maker": "cachekit", "start": zero}, "displayTimeUnit": "ms", "traceEvents": found}


def _name(what: str, process: int, row: int, words: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": row, "name": what, "args": {"name": words}}


def _beside(paths: dict[str, Path], chosen: str) -> list[list[Event]]:
    """The events of a run, and of those that ran at the same time or hardly before or after it."""
    names = list(paths)
    group = [_events(paths[chosen])]
    if not group[0]:
        return group
    first, last = group[0][0]["time"], group[0][-1]["time"]
    at = names.index(chosen)
    for others in (reversed(names[:at]), iter(names[at + 1 :])):
        for name in others:
            events = _events(paths[name])
            if not events or events[0].get("verb") not in VERBS:
                continue
            if len(group) == MOST_RUNS or events[0]["time"] > last + GAP or events[-1]["time"] < first - GAP:
                break
            group.append(events)
            first, last = min(first, events[0]["time"]), max(last, events[-1]["time"])
    return group


def _events(path: Path) -> list[Event]:
    """A journal's events whose times go forward, whatever the clock did."""
    found, now = [], 0.0
    with suppress(OSError):
        for event in read(path):
            if isinstance(event.get("event"), str) and (time := _number(event.get("time"))):
                now = max(now, time)
                found.append({**event, "time": now})
    return found


def _number(value: Any) -> float:
    return float(value) if type(value) in {int, float} and 0 <= value < 1e11 else 0.0  # noqa: PLR2004 - a year far off


def _words(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _title(events: list[Event]) -> str:
    recipe = next(filter(None, (_words(event.get("recipe")) for event in events)), "")
    host = _words(events[0].get("host"))
    job = f"{_words(events[0].get('verb'))} {recipe}".strip()
    return f"{job}, {host}, process {_number(events[0].get('pid')):.0f}".replace(", ,", ",")


def _spans(events: list[Event]) -> list[Span]:
    spans: list[Span] = []
    running: dict[str, tuple[float, str, str]] = {}  # by row
    trial = False

    def begin(row: str, time: float, kind: str, label: str) -> None:
        end(row, time)
        running[row] = time, kind, label

    def end(row: str, time: float) -> None:
        if row in running:
            start, kind, label = running.pop(row)
            spans.append(Span(start, time, kind, label))

    for event in events:
        name, time = event["event"], event["time"]
        if name != "lock.wait" and not name.startswith("remote."):
            end("wait", time)
        if name in _BEGINS:
            row, kind, label = _BEGINS[name]
            fields = {field: _words(event.get(field)) for field in ("holder", "remote")}
            begin(row, time, kind, label.format(**fields))
            trial = event.get("mode") == "trial" if name == "worker.start" else trial
        elif name in _ENDS:
            end(_ENDS[name], time)
        elif name == "worker.phase":
            phase = _words(event.get("name"))
            kind = "prepare" if phase in _PREPARING else "train"
            begin("worker", time, kind, "trial run" if trial and kind == "train" else phase)
        elif name in {"worker.log", "worker.checkpoint"} and running.get("worker", ("", ""))[1] == "train":
            # Inductor compiles within a step, and within the first batch of an evaluation.
            start, kind, label = running["worker"]
            spans.append(Span(start, time, kind, _part(event)))
            running["worker"] = time, kind, label
        elif name in {"restore", "worker.compiled"}:
            took = _number(event.get("seconds"))
            kind, label = ("restore", "restoring") if name == "restore" else ("compile", _words(event.get("module")))
            spans.append(Span(max(time - took, events[0]["time"]), time, kind, label))
    for row in [*running]:
        end(row, events[-1]["time"])
    return spans


def _part(event: Event) -> str:
    """What a training did until it told this."""
    if event["event"] == "worker.checkpoint":
        return "checkpoint"
    return (
        "evaluation" if any(name.startswith("eval_") for name in event) else f"to step {_number(event.get('step')):.0f}"
    )


def _rows(spans: list[Span]) -> list[list[Span]]:
    """Spans in as few rows as do without two at once; what is of one kind stays together.

    One that took no time is left out: viewers draw it around the next.
    """
    rows: list[list[Span]] = []
    for span in sorted(one for one in spans if one.end - one.start > 1e-6):  # noqa: PLR2004 - a microsecond
        for row in rows:
            if row[0].kind == span.kind and row[-1].end <= span.start + 1e-6:
                row.append(span)
                break
        else:
            rows.append([span])
    return rows
