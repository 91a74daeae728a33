"""Add up what a Neuron run reported; and what a whole log tells, of whichever kind.

A log is a run's output, that of `neuron_parallel_compile`, or the compiler's own.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import BinaryIO

from msgspec import Struct

from cachekit.compilers.graphs import Logged, LoggedCompile, LoggedFailure
from cachekit.compilers.neuron.failures import CompileFailure, classify
from cachekit.compilers.neuron.log.compiler import CompilerRun, read_compiler_log
from cachekit.compilers.neuron.log.event import Event, compiler_in
from cachekit.compilers.neuron.log.reader import LogReader
from cachekit.files import PIECE

# How a compile's seconds came about, the more exact first; `report` is npc's own measurement.
_BASES = ("report", "command", "worker", "next-line", "gap", "")
_TEXT = 8000  # characters of a failure's text that are kept


class Log(Struct):
    """The sum of a run's events so far; a run that still goes on may be asked at any time. As JSON it is a document."""

    hits: dict[str, int] = {}  # lines by module that was found in the cache
    # Lines by graph that was written for a later compile; every rank writes its own line.
    extracted: dict[str, int] = {}
    compiled: dict[str, tuple[float | None, str]] = {}  # seconds and their basis by module that was compiled
    waits: dict[str, float] = {}  # longest wait in minutes by module whose lock somebody else held
    remembered: dict[str, str] = {}  # what is known by module that was skipped because an earlier run had failed on it
    failed: dict[str, str] = {}  # what the compiler said by module that failed in this run
    # What was said of an earlier failure by module that was compiled again, in this run or an earlier one.
    retried: dict[str, str] = {}
    # What that took, by module and process, where the log tells, and whether it is an upper bound. Ranks that wait for
    # one compile all report its failure.
    failed_seconds: dict[str, dict[str, tuple[float, bool]]] = {}
    # What the first compile of a model took (`priority`), and all others together (`seconds`), as NxD's model builder
    # says it.
    whole: dict[str, float] = {}
    exported: list[tuple[str, float]] = []  # the parts of a model that optimum-neuron exported, with their seconds
    passes: int = 0  # how often a compiler said that it ended well; it names no module
    ends: int = 0  # how often that was said of a module, or of a part that was exported
    # The modules that each process (`rank 0`, `pid 10142`) found, compiled or extracted.
    by_process: dict[str, set[str]] = {}
    # Exit codes of failed workers as torchrun reports them, by rank (by process where it names none).
    exits: dict[str, float] = {}
    compilers: set[str] = set()  # the compilers' directories (`neuronxcc-…`) that were named
    # `neuron_parallel_compile`'s count of this run's compiles: `total`, `success`, `failed`, as far as it said them.
    summary: dict[str, float] = {}
    # Its last count of the root's entries by state (`failed`, `done`, …), those of earlier runs too.
    entries: dict[str, float] = {}
    alone: list[str] = []  # lines with the compiler's errors, of which nothing tells the module
    mentioned: dict[str, int] = {}  # how many others the run had come to before, by module
    begun: set[str] = set()  # modules for which the compiler was called, or that are said to be compiled next

    def add_all(self, events: Iterable[Event]) -> Log:
        """Take several events; gives itself."""
        for event in events:
            self.add(event)
        return self

    def add(self, event: Event) -> None:
        """Take one event."""
        if compiler := compiler_in(event.path):
            self.compilers.add(compiler)
        module = event.module
        if module:
            self.mentioned.setdefault(module, len(self.mentioned))
        match event.kind:
            case "hit":
                self._count(self.hits, event)
            case "extracted":
                self._count(self.extracted, event)
            case "status" if event.text == "PASS":
                self.passes += 1
            case "exported":
                self.exported.append((event.text, event.numbers["seconds"]))
                self.ends += 1
            case "compiled":
                self.ends += 1
                self._compiled(event, event.text)
                self._used(event)
            case "report" if event.numbers["success"]:
                self._compiled(event, "report")  # npc's parent writes it, which compiles nothing
            case "waiting":
                self.waits[module] = max(event.numbers.get("minutes", 0.0), self.waits.get(module, 0.0))
            case "cached-failure" if module not in self.failed:  # else another rank of this run met the failure first
                self.remembered[module] = event.text
            case "retrying":
                self.retried[module] = self.remembered.pop(module, event.text)
            case "quoted" if module in self.remembered:
                self._failed(event)
            case "quoted" if module in self.retried:
                self.retried[module] = _joined(self.retried[module], event.text)
            case "failed" | "report":
                self._failed(event)
            case "error" if module in self.remembered or module in self.failed:
                self._failed(event)
            case "error" if not module:
                self.alone.append(event.text)
            case "whole":  # once for each model, and by each of its processes
                for name, seconds in event.numbers.items():
                    self.whole[name] = max(seconds, self.whole.get(name, 0.0))
            case "summary":  # older versions spread it over three lines
                self.summary |= event.numbers
            case "remaining":
                self.entries = dict(event.numbers)
            case "command" | "not-found" if module:
                self.begun.add(module)
            case "child-exit":
                self.exits[_process(event)] = event.numbers["code"]
            case _:
                pass

    @property
    def modules(self) -> list[str]:
        """Every module that the run itself reported as needed, in the order in which the run came to them."""
        needed = {*self.extracted, *self.hits, *self.compiled}
        return [module for module in self.mentioned if module in needed]

    @property
    def unnamed(self) -> int:
        """How many compiles ended well of which no line tells the module."""
        return max(0, self.passes - max(self.ends, len(self.compiled)))

    @property
    def unfinished(self) -> set[str]:
        """Modules whose compile has begun, and of which no end was reported."""
        ended = {*self.hits, *self.extracted, *self.compiled, *self.failed, *self.remembered}
        return (self.begun | set(self.retried)) - ended

    def failures(self) -> dict[str, CompileFailure]:
        """The class of each module's failure, in this run or an earlier one; `unknown` where nothing was said."""
        return {module: classify(text) for module, text in {**self.remembered, **self.failed}.items()}

    def _count(self, lines: dict[str, int], event: Event) -> None:
        lines[event.module] = lines.get(event.module, 0) + 1
        self._used(event)

    def _used(self, event: Event) -> None:
        if event.module and (event.rank is not None or event.pid is not None):
            self.by_process.setdefault(_process(event), set()).add(event.module)

    def _compiled(self, event: Event, basis: str) -> None:
        if not event.module:
            return
        known = self.compiled.get(event.module)
        if known is None or _BASES.index(basis) < _BASES.index(known[1]):
            self.compiled[event.module] = (event.seconds, basis)
        if event.module in self.failed:  # a retry that ended well
            self.retried[event.module] = self.failed.pop(event.module)

    def _failed(self, event: Event) -> None:
        # A skipped module cannot fail anew: what is said of it is the old failure.
        known = self.remembered if event.module in self.remembered else self.failed
        if event.seconds is not None and known is self.failed:
            took = self.failed_seconds.setdefault(event.module, {})
            before, bound = took.get(event.process, (0.0, False))
            took[event.process] = before + event.seconds, bound or bool(event.numbers.get("at_most"))
        known[event.module] = _joined(known.get(event.module, ""), event.text)


def _joined(known: str, text: str) -> str:
    return f"{known}\n{text}".strip()[:_TEXT]


def _process(event: Event) -> str:
    return f"rank {event.rank}" if event.rank is not None else f"pid {event.pid}"


_LINE = 1 << 16  # characters of a line; the rest of a longer one is taken for another
_BOUNDS = frozenset({"next-line", "gap"})  # bases of seconds that hold more than the compile


def read(log: BinaryIO) -> Logged | None:
    """Read a log from its beginning; None for one in which nothing of Neuron stands.

    A run's output may quote the compiler's lines, so that the compiler's own log is what no run speaks in.
    """
    run = Log()
    told = _of_run(log, run)
    if told is None:
        log.seek(0)
        with io.TextIOWrapper(log, encoding="utf-8", errors="replace") as lines:
            told = _of_compiler(read_compiler_log(iter(partial(lines.readline, _LINE), "")))
    # What somebody has cut out of either: the error alone.
    return told or (Logged(of="run", failed=tuple(_of_nobody(run))) if run.alone else None)


def _of_nobody(run: Log) -> Iterator[LoggedFailure]:
    """What the compiler said of a graph that the log does not name, each cause once."""
    known = {(failure.kind, failure.code): failure for failure in map(classify, run.alone)}
    return (_failure("", failure, None) for failure in known.values())


def _of_run(log: BinaryIO, run: Log) -> Logged | None:
    reader, spans = LogReader(), _Spans()
    while piece := log.read(PIECE):
        for event in reader.feed(piece):
            run.add(event)
            spans.add(event)
    for event in reader.close():
        run.add(event)
        spans.add(event)
    cached = (run.modules, run.waits, run.remembered, run.failed, run.summary, run.entries, run.unfinished)
    if not any((*cached, run.exits, run.whole, run.exported, run.unnamed)):
        return None
    later = set(run.extracted) - set(run.compiled)
    found = set(run.hits) - set(run.compiled)
    if run.summary:  # neuron_parallel_compile has been through them: what it did not compile was there
        found, later = found | later - set(run.failed), set[str]()
    failures = run.failures()
    compiled = [
        LoggedCompile(
            name, took, basis in _BOUNDS, classify(run.retried[name]).kind.name if name in run.retried else ""
        )
        for name, (took, basis) in run.compiled.items()
    ]
    compiled += [LoggedCompile(part, took, at_most=True) for part, took in run.exported]
    compiled += [LoggedCompile("")] * run.unnamed
    lost, at_most = _lost(run, spans)
    return Logged(
        of="export" if run.exported and not any(cached) else "run",
        compilers=tuple(sorted(run.compilers)),
        found=len(found),
        extracted=len(later),
        compiled=_longest_first(compiled),
        failed=tuple(
            _failure(name, failure, *_longest(run.failed_seconds.get(name)), earlier=name in run.remembered)
            for name, failure in failures.items()
        )
        + tuple(_of_nobody(run)),
        waits={name: minutes * 60 for name, minutes in run.waits.items()},
        lost_seconds=lost,
        lost_at_most=at_most,
        workers={name: int(code) for name, code in run.exits.items()},
        unfinished=max(0, len(run.unfinished) - run.unnamed),
        groups=reader.groups(),
        counted=tuple(_counted(run, several=reader.groups() > 1)),
    )


def _counted(run: Log, *, several: bool) -> Iterator[str]:
    """What `neuron_parallel_compile` counts where its lines show something else, in sentences.

    Args:
        run: What its lines show.
        several: Other runs are in the log too, so that its lines may show more than the last one counts.
    """
    counts = [("failed", len(run.failed), len(run.failed) + len(run.remembered))]  # it may count what it skipped
    counts.append(("success", len(run.compiled), len(run.compiled)))
    said = [(name, int(run.summary[name]), least, most) for name, least, most in counts if name in run.summary]
    if any(number > most or (number < least and not several) for _, number, least, most in said):
        words = {"failed": "failed", "success": "compiled"}
        theirs = " and ".join(f"{number} {words[name]}" for name, number, _, _ in said)
        ours = " and ".join(f"{least} {words[name]}" for name, _, least, _ in said)
        yield f"neuron_parallel_compile itself counts {theirs}; the lines of this log show {ours}"
    named = len({*run.failed, *run.remembered, *run.retried} - set(run.compiled))
    if (failed := int(run.entries.get("failed", 0))) > named:
        yield (
            f"neuron_parallel_compile counts {failed} failed in its cache, where those of earlier runs are too; "
            f"this log names {named or 'none'} of them"
        )


def _lost(run: Log, spans: _Spans) -> tuple[float | None, bool]:
    """By the log's own times, and the seconds of what has none; whether that is an upper bound.

    `neuron_parallel_compile` reports seconds at its end, and does not say what went on at the same time.
    """
    took = {name: _longest(told) for name, told in run.failed_seconds.items()}
    took |= {name: (seconds, basis in _BOUNDS) for name, (seconds, basis) in run.compiled.items()}
    untimed = [seconds for name, (seconds, _) in took.items() if seconds and name not in spans.modules]
    seconds = spans.seconds()
    if seconds is None and (run.whole or run.exported):
        exported = sum(took for _, took in run.exported)
        return round(sum(run.whole.values()) + exported, 3), bool(exported)
    at_most = any(bound for _, bound in took.values()) or len(untimed) + (seconds is not None) > 1
    return round((seconds or 0.0) + sum(untimed), 3) or None, at_most


def _of_compiler(runs: Iterable[CompilerRun]) -> Logged | None:
    runs = list(runs)
    if not runs:
        return None
    spans = _Spans()
    for one in runs:
        spans.between(one.begun, one.ended)
    failed = [(one, failure) for one in runs if (failure := one.failure) is not None]
    return Logged(
        of="compiler",
        compilers=tuple(dict.fromkeys(one.version for one in runs if one.version)),
        compiled=_longest_first([LoggedCompile(one.module, one.seconds) for one in runs if one.exit_code == 0]),
        failed=tuple(_failure(one.module, failure, one.seconds) for one, failure in failed),
        lost_seconds=spans.seconds(),
        unfinished=sum(one.exit_code is None and one.failure is None for one in runs),
    )


def _longest(took: Mapping[str, tuple[float, bool]] | None) -> tuple[float | None, bool]:
    """Of the processes that report a failure, the one that was at it longest."""
    return max(took.values()) if took else (None, False)


def _longest_first(compiled: list[LoggedCompile]) -> tuple[LoggedCompile, ...]:
    return tuple(sorted(compiled, key=lambda one: -(one.seconds or 0.0)))


def _failure(
    module: str, failure: CompileFailure, seconds: float | None, at_most: bool = False, *, earlier: bool = False
) -> LoggedFailure:
    said = failure.kind.name, failure.code, failure.message, failure.advice
    return LoggedFailure(module, *said, seconds=seconds, at_most=at_most, earlier=earlier)


class _Spans:
    """Times in which something was going on, of several processes at once."""

    def __init__(self) -> None:
        self._known: list[tuple[datetime, datetime]] = []
        self.modules: set[str] = set()  # those whose compile is among the times

    def add(self, event: Event) -> None:
        """The time of a compile or of a wait that the event tells."""
        if event.at is None or event.kind not in {"compiled", "failed", "waiting"}:
            return
        seconds = event.numbers.get("minutes", 0.0) * 60 if event.kind == "waiting" else event.seconds
        if seconds:
            if event.kind != "waiting":
                self.modules.add(event.module)
            with suppress(OverflowError):  # since before the year 1: nobody waited so long
                self.between(event.at - timedelta(seconds=seconds), event.at)

    def between(self, begun: datetime | None, ended: datetime | None) -> None:
        """Something took from here to there."""
        if begun is not None and ended is not None and begun <= ended:
            self._known.append((begun, ended))

    def seconds(self) -> float | None:
        """How long anything was going on; None where no time is known."""
        if not self._known:
            return None
        total, until = 0.0, min(self._known)[0]
        for begun, ended in sorted(self._known):
            total += max(0.0, (ended - max(begun, until)).total_seconds())
            until = max(until, ended)
        return round(total, 3)
