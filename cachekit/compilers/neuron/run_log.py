"""Add up what a Neuron run reported: which modules it found, compiled, waited for, failed on, and how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cachekit.compilers.neuron import log_events as ev
from cachekit.compilers.neuron.failures import Failure, classify

# How `Compiled.seconds` came about, the more exact first; `report` is npc's own measurement.
_BASES = ("report", "command", "worker", "next-line", "gap", "")
EXACT = frozenset({"report", "command", "worker"})
_TEXT = 8000  # characters of a failure's text that are kept


@dataclass(slots=True)
class RunLog:
    """The sum of a run's events so far; a run that still goes on may be asked at any time.

    Attributes:
        hits: Lines by module that was found in the cache.
        extracted: Lines by graph that was written for a later compile; every rank writes its own line.
        listed: Lines by graph in the list that `neuron_parallel_compile` works on.
        compiled: Seconds and their basis by module that was compiled.
        waits: Longest wait in minutes by module whose lock somebody else held.
        cached_failures: What is known by module that was skipped because an earlier run had failed on it.
        retried: Modules with an earlier failure that were compiled again.
        failed: What the compiler said by module that failed in this run.
        not_found: Modules that optimum-neuron's Hub cache did not have.
        errors: Lines with error codes that no module could be found for.
        by_process: The modules that each process (`rank 0`, `pid 10142`) found, compiled or extracted.
        exits: Exit codes of failed workers as torchrun reports them, by rank (by process where it names none).
        exported: Lines by module that optimum-neuron's export put into the cache.
        export_seconds: What its compiles took, in their order.
    """

    hits: dict[str, int] = field(default_factory=dict)
    extracted: dict[str, int] = field(default_factory=dict)
    listed: dict[str, int] = field(default_factory=dict)
    compiled: dict[str, tuple[float | None, str]] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    cached_failures: dict[str, str] = field(default_factory=dict)
    retried: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    not_found: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    by_process: dict[str, set[str]] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)
    exported: dict[str, int] = field(default_factory=dict)
    export_seconds: list[float] = field(default_factory=list)
    compilers: set[str] = field(default_factory=set)
    cache_paths: set[str] = field(default_factory=set)
    remaining: ev.Remaining | None = None
    summary: ev.Summary | None = None
    passed: int = 0
    first: datetime | None = None
    last: datetime | None = None

    def add_all(self, events: Iterable[ev.Event]) -> RunLog:
        """Take several events; gives itself."""
        for event in events:
            self.add(event)
        return self

    def add(self, event: ev.Event) -> None:
        """Take one event."""
        if event.at is not None:
            self.first = min(self.first or event.at, event.at)
            self.last = max(self.last or event.at, event.at)
        if compiler := ev.compiler_in(event.path):
            self.compilers.add(compiler)
        module = event.module
        match event:
            case ev.Hit():
                self._count(self.hits, event)
            case ev.Extracted():
                self._count(self.extracted, event)
            case ev.Listed():
                self.listed[module] = self.listed.get(module, 0) + 1
            case ev.NotFoundRemote():
                self.not_found[module] = self.not_found.get(module, 0) + 1
            case ev.Compiled(seconds=seconds, basis=basis):
                self._compiled(event, seconds, basis)
            case ev.Reported(success=True, seconds=seconds):
                self._compiled(event, seconds, "report")
            case ev.Reported():
                self._failed(module, "")
            case ev.Waiting(minutes=minutes):
                self.waits[module] = max(minutes, self.waits.get(module, 0.0))
            case ev.CachedFailure() if module in self.failed:
                pass  # another rank of this run met the failure first
            case ev.CachedFailure(text=text):
                self.retried.discard(module)
                self.cached_failures[module] = text
            case ev.Retrying():
                self.cached_failures.pop(module, None)
                self.retried.add(module)
            case ev.Failed(quoted=True) if module not in self.cached_failures:
                pass
            case ev.Failed(text=text):
                self._failed(module, text)
            case ev.CompilerError(text=text):
                self._error(module, text)
            case ev.CompilerStatus(passed=passed):
                self.passed += passed
            case ev.CachePath(path=path):
                self.cache_paths.add(path)
            case ev.Remaining():
                self.remaining = event
            case ev.Exported():
                self.exported[module] = self.exported.get(module, 0) + 1
            case ev.ExportSeconds(seconds=spent):
                self.export_seconds.append(spent)
            case ev.Summary():
                self._summary(event)
            case ev.ChildExit(code=code):
                self.exits[_process(event)] = code
            case _:
                pass

    @property
    def modules(self) -> list[str]:
        """Every module that the run itself reported as needed: found, compiled or extracted, in no other order."""
        return list(dict.fromkeys([*self.extracted, *self.hits, *self.compiled]))

    @property
    def unfinished(self) -> list[str]:
        """Extracted graphs of which the log says neither that they were there nor that they were compiled."""
        return [module for module in self.extracted if module not in self.hits and module not in self.compiled]

    @property
    def compile_seconds(self) -> float:
        """Seconds of all compiles, each counted for itself also where they ran at once."""
        return sum(seconds or 0.0 for seconds, _ in self.compiled.values())

    @property
    def seconds(self) -> float | None:
        """From the first to the last line with a time; None where there are no two."""
        return (self.last - self.first).total_seconds() if self.first and self.last else None

    @property
    def failed_before(self) -> int:
        """Failures in the cache root that are older than this run: its own summary leaves them out.

        A run without a line of what remains knows only those that it was stopped by.
        """
        if self.remaining is None:
            return len(self.cached_failures)
        own = self.summary.failed if self.summary and self.summary.failed is not None else len(self.failed)
        return max(self.remaining.failed - own, len(self.cached_failures))

    def failures(self) -> dict[str, Failure]:
        """The class of each module's failure, in this run or an earlier one; `unknown` where nothing was said."""
        return {module: classify(text) for module, text in {**self.cached_failures, **self.failed}.items()}

    def as_dict(self) -> dict[str, Any]:
        """The same facts for programs: JSON types only, modules by name."""
        failures = self.failures()
        return {
            "hits": {"modules": len(self.hits), "lines": sum(self.hits.values())},
            "compiled": [
                {"module": module, "seconds": seconds, "exact": basis in EXACT, "basis": basis}
                for module, (seconds, basis) in self.compiled.items()
            ],
            "compile_seconds": round(self.compile_seconds, 3),
            "extracted": {"graphs": len(self.extracted), "lines": sum(self.extracted.values())},
            "unfinished": self.unfinished,
            "waits": [{"module": module, "minutes": minutes} for module, minutes in self.waits.items()],
            "failed": [{"module": module, **failures[module].as_dict()} for module in self.failed],
            "cached_failures": [{"module": module, **failures[module].as_dict()} for module in self.cached_failures],
            "failed_before": self.failed_before,
            "retried": sorted(self.retried),
            "not_found_remotely": list(self.not_found),
            "errors": self.errors,
            "remaining": _numbers(self.remaining, "items", "locked", "failed", "done", "total"),
            "summary": _numbers(self.summary, "total", "success", "failed"),
            "exported": list(self.exported),
            "export_seconds": self.export_seconds,
            "compiler_passes": self.passed,
            "processes": {name: sorted(modules) for name, modules in sorted(self.by_process.items())},
            "worker_exits": self.exits,
            "compilers": sorted(self.compilers),
            "cache_paths": sorted(self.cache_paths),
            "seconds": self.seconds,
        }

    def _count(self, lines: dict[str, int], event: ev.Event) -> None:
        lines[event.module] = lines.get(event.module, 0) + 1
        self._used(event)

    def _used(self, event: ev.Event) -> None:
        if event.module and (event.rank is not None or event.pid is not None):
            self.by_process.setdefault(_process(event), set()).add(event.module)

    def _compiled(self, event: ev.Event, seconds: float | None, basis: str) -> None:
        if not event.module:
            return
        known = self.compiled.get(event.module)
        if known is None or _BASES.index(basis) < _BASES.index(known[1]):
            self.compiled[event.module] = (seconds, basis)
        self.failed.pop(event.module, None)  # a retry that ended well
        if not isinstance(event, ev.Reported):  # npc's report is written by the parent, which compiles nothing
            self._used(event)

    def _failed(self, module: str, text: str) -> None:
        # A skipped module cannot fail anew: what is said of it is the old failure.
        known = self.cached_failures if module in self.cached_failures else self.failed
        known[module] = f"{known.get(module, '')}\n{text}".strip()[:_TEXT]

    def _error(self, module: str, text: str) -> None:
        if module in self.cached_failures or module in self.failed:
            self._failed(module, text)
        elif len(self.errors) < 100:  # noqa: PLR2004 - enough for people
            self.errors.append(text)

    def _summary(self, event: ev.Summary) -> None:
        """Older versions spread it over three lines."""
        known = self.summary or ev.Summary()
        self.summary = ev.Summary(
            total=known.total if event.total is None else event.total,
            success=known.success if event.success is None else event.success,
            failed=known.failed if event.failed is None else event.failed,
        )


def _process(event: ev.Event) -> str:
    return f"rank {event.rank}" if event.rank is not None else f"pid {event.pid}"


def _numbers(event: ev.Event | None, *names: str) -> dict[str, int | None] | None:
    return None if event is None else {name: getattr(event, name) for name in names}
