"""Add up what a Neuron run reported: which modules it found, compiled, waited for, failed on, and how long."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from cachekit.compilers.neuron.failures import CompileFailure, classify
from cachekit.compilers.neuron.log.event import Event, compiler_in

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
    whole_seconds: float = 0.0  # what all compiles of a model took together, as NxD's model builder says it
    # The modules that each process (`rank 0`, `pid 10142`) found, compiled or extracted.
    by_process: dict[str, set[str]] = {}
    # Exit codes of failed workers as torchrun reports them, by rank (by process where it names none).
    exits: dict[str, float] = {}
    compilers: set[str] = set()  # the compilers' directories (`neuronxcc-…`) that were named
    # `neuron_parallel_compile`'s count of this run's compiles: `total`, `success`, `failed`, as far as it said them.
    summary: dict[str, float] = {}
    # Its last count of the root's entries by state (`failed`, `done`, …), those of earlier runs too.
    entries: dict[str, float] = {}
    alone: str = ""  # error codes of the compiler, with their lines, that are told of no module
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
            case "compiled":
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
                self.alone = _joined(self.alone, event.text)
            case "whole":  # once for each model, and by each of its processes
                self.whole_seconds = max(self.whole_seconds, event.numbers["seconds"])
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
