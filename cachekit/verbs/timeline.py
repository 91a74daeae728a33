"""When was what done in a warm, by whom, and how much at once: from the journals of a run and of those beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachekit import ordinary
from cachekit.store.layout import Layout
from cachekit.verbs.counting import decoded
from cachekit.verbs.history import journals

GAP = 120.0  # seconds; runs that follow each other this closely belong together
MOST = 24  # runs on one time line
VERBS = frozenset({"warm", "train", "run"})

# What a worker's phases are to somebody who looks at a time line. A trial run's training is its compile.
PREPARING = frozenset({"import", "data", "model", "features"})


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time.

    Attributes:
        kind: `wait`, `fetch`, `prepare`, `compile`, `restore`, `train` or `push`.
        start: Seconds from the time line's beginning.
        end: Likewise.
        label: In words.
    """

    kind: str
    start: float
    end: float
    label: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One run: what it was, where and who ran it, and rows of spans; no two of a row are at the same time."""

    name: str
    host: str
    who: str
    rows: tuple[tuple[Span, ...], ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Runs side by side.

    Attributes:
        start: When it began, in seconds since 1970.
        seconds: How long it took.
        at_once: The most compiles at any moment.
        compiling: Seconds of all compiles together.
        busy: Seconds in which anything compiled.
        left_out: Runs that are not shown.
    """

    start: float
    seconds: float
    lanes: tuple[Lane, ...]
    at_once: int
    compiling: float
    busy: float
    left_out: int = 0


def timeline(layout: Layout, run: str = "") -> Timeline | None:
    """The time line of a run and of those beside it; by default of the last one that compiled.

    Args:
        layout: Of the store.
        run: Its name.
    """
    read: dict[str, list[dict[str, Any]]] = {}

    def of(name: str) -> list[dict[str, Any]]:
        if name not in read:
            read[name] = _events(Path(found[name].path))
        return read[name]

    found = journals(layout)
    names = list(found)
    chosen = run or next((name for name in reversed(names) if _compiled(Path(found[name].path))), "")
    if chosen not in found or not of(chosen):
        return None
    group = [chosen]
    first, last = of(chosen)[0]["time"], of(chosen)[-1]["time"]
    at = names.index(chosen)
    left_out = 0
    for beside in (reversed(names[:at]), iter(names[at + 1 :])):
        for name in beside:
            events = of(name)
            if not events or events[0].get("verb") not in VERBS:
                continue
            if events[0]["time"] > last + GAP or events[-1]["time"] < first - GAP:
                break
            if len(group) == MOST:
                left_out += 1
                continue
            group.append(name)
            first, last = min(first, events[0]["time"]), max(last, events[-1]["time"])
    lanes = tuple(_lane(of(name), first) for name in sorted(group, key=lambda one: (of(one)[0]["time"], one)))
    compiles = [span for lane in lanes for row in lane.rows for span in row if span.kind == "compile"]
    at_once, busy = _together(compiles)
    total = sum(span.end - span.start for span in compiles)
    return Timeline(first, last - first, lanes, at_once, total, busy, left_out)


def _compiled(path: Path) -> bool:
    try:
        return b'{"event": "compile.start"' in ordinary.read(path)
    except OSError:
        return False


def _events(path: Path) -> list[dict[str, Any]]:
    """A journal's events whose times go forward, whatever the clock did."""
    try:
        raw = ordinary.read(path)
    except OSError:
        return []
    events, now = [], 0.0
    for line in raw.split(b"\n"):
        event = decoded(line)
        if event is not None and isinstance(event.get("event"), str) and (time := _number(event.get("time"))):
            now = max(now, time)
            events.append({**event, "time": now})
    return events


def _number(value: Any) -> float:
    return float(value) if type(value) in {int, float} and 0 <= value < 1e11 else 0.0  # noqa: PLR2004 - a year far off


def _words(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _lane(events: list[dict[str, Any]], zero: float) -> Lane:
    verb, recipe = _words(events[0].get("verb")), ""
    spans: list[Span] = []
    open_: dict[str, tuple[float, str, str]] = {}  # by what ends it
    mode = ""

    def begin(what: str, time: float, kind: str, label: str) -> None:
        finish(what, time)
        open_[what] = time, kind, label

    def finish(what: str, time: float) -> None:
        if what in open_:
            start, kind, label = open_.pop(what)
            spans.append(Span(kind, start - zero, time - zero, label))

    for event in events:
        name, time = event["event"], event["time"]
        recipe = recipe or _words(event.get("recipe"))
        if name != "flight.wait" and not name.startswith("remote."):
            finish("wait", time)
        if name == "flight.wait":
            begin("wait", time, "wait", f"waiting for {_words(event.get('holder'))}")
        elif name == "pull.start":
            begin("pull", time, "fetch", f"fetching from {_words(event.get('tier'))}")
        elif name == "push.start":
            begin("push", time, "push", f"pushing to {_words(event.get('tier'))}")
        elif name in {"pull.end", "pull.modules"}:
            finish("pull", time)
        elif name in {"push.end", "push.failed"}:
            finish("push", time)
        elif name == "worker.start":
            mode = _words(event.get("mode"))
            begin("worker", time, "prepare", "starting the worker")
        elif name == "worker.phase":
            begin("worker", time, *_phase(_words(event.get("name")), mode))
        elif name == "command.start":
            begin("worker", time, "train", "the command")
        elif name in {"worker.end", "command.end"}:
            finish("worker", time)
        elif name == "restore":
            spans.append(Span("restore", max(time - _number(event.get("seconds")) - zero, 0), time - zero, "restoring"))
        elif name == "worker.compiled" and (took := _number(event.get("seconds"))):
            spans.append(Span("compile", max(time - took - zero, 0), time - zero, _words(event.get("module"))))
    for what in [*open_]:
        finish(what, events[-1]["time"])
    if any(span.kind == "compile" and span.label != COMPILING for span in spans):
        # The modules tell it better than the phase that they compiled in.
        spans = [Span("train", s.start, s.end, "trial run") if s.label == COMPILING else s for s in spans]
    host = _words(events[0].get("host"))
    who = f"{host}, process {_number(events[0].get('pid')):.0f}".removeprefix(", ")
    return Lane(f"{verb} {recipe}".strip(), host, who, tuple(map(tuple, _rows(spans))))


COMPILING = "trial run: compiling"


def _phase(name: str, mode: str) -> tuple[str, str]:
    if name in PREPARING:
        return "prepare", f"preparing: {name}"
    if mode == "trial":
        return "compile", COMPILING
    return "train", name or "training"


def _rows(spans: list[Span]) -> list[list[Span]]:
    """Spans in as few rows as do without two at once."""
    rows: list[list[Span]] = []
    for span in sorted(_joined(spans), key=lambda one: (one.start, one.end)):
        for row in rows:
            if row[-1].end <= span.start + 1e-6:
                row.append(span)
                break
        else:
            rows.append([span])
    return rows


def _joined(spans: list[Span]) -> list[Span]:
    """Spans of the same label that follow each other, as one."""
    found: list[Span] = []
    for span in spans:
        before = found[-1] if found else None
        if before and (before.kind, before.label) == (span.kind, span.label) and span.start - before.end < 1e-6:  # noqa: PLR2004
            found[-1] = Span(span.kind, before.start, span.end, span.label)
        else:
            found.append(span)
    return found


def _together(spans: Iterable[Span]) -> tuple[int, float]:
    """The most spans at any moment, and the seconds in which there was any."""
    moments = sorted([(span.start, 1) for span in spans] + [(span.end, -1) for span in spans])
    now = most = 0
    busy = since = 0.0
    for time, change in moments:
        if now == 0:
            since = time
        now += change
        most = max(most, now)
        if now == 0:
            busy += time - since
    return most, busy
