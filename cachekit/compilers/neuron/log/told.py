"""What a whole log tells, of whichever kind: a run's output, `neuron_parallel_compile`'s, or the compiler's own."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import BinaryIO

from cachekit.compilers.logged import Logged, LoggedCompile, LoggedFailure
from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.failures import CompileFailure, classify
from cachekit.compilers.neuron.log.compiler import CompilerRun, read_compiler_log
from cachekit.compilers.neuron.log.event import Event
from cachekit.compilers.neuron.log.reader import LogReader
from cachekit.compilers.neuron.log.summary import Log

_PIECE = 1 << 20
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
    # What somebody has cut out of either: the code alone.
    if told is None and (facts.ERROR_CODE.search(run.alone) or facts.CRASH_CODE.search(run.alone)):
        return Logged(of="run", failed=(_failure("", classify(run.alone), None),))
    return told


def _of_run(log: BinaryIO, run: Log) -> Logged | None:
    reader, spans = LogReader(), _Spans()
    while piece := log.read(_PIECE):
        for event in reader.feed(piece):
            run.add(event)
            spans.add(event)
    for event in reader.close():
        run.add(event)
        spans.add(event)
    known = (run.modules, run.waits, run.remembered, run.failed, run.summary, run.entries, run.exits, run.unfinished)
    if not any(known) and not run.whole_seconds:
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
    lost, at_most = _lost(run, spans)
    return Logged(
        of="run",
        compilers=tuple(sorted(run.compilers)),
        found=len(found),
        extracted=len(later),
        compiled=_longest_first(compiled),
        failed=tuple(
            _failure(name, failure, *_longest(run.failed_seconds.get(name)), earlier=name in run.remembered)
            for name, failure in failures.items()
        ),
        waits={name: minutes * 60 for name, minutes in run.waits.items()},
        lost_seconds=lost,
        lost_at_most=at_most,
        workers={name: int(code) for name, code in run.exits.items()},
        unfinished=len(run.unfinished),
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
    if seconds is None and run.whole_seconds:
        return run.whole_seconds, False
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
