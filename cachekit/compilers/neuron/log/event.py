"""What a line in the log of a Neuron run says, as a value; and the seconds of each compile, from the log's own times.

What a log offers differs by version: a command and a completion line (a debug level), only completion lines (SDK 2.31),
only commands with an unnamed `Compiler status PASS` (SDK 2.9 to 2.2x), or commands and an unnamed completion (older).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from cachekit.compilers.neuron import facts


def module_in(text: str) -> str:
    """The first module's name (`MODULE_<graph>+<flags>`) in a path or a sentence; empty where there is none."""
    found = facts.MODULE_IN_TEXT.search(text)
    return found["module"] if found else ""


@lru_cache(4096)
def compiler_in(text: str) -> str:
    """The first compiler's directory (`neuronxcc-<version>`) in a path; empty where there is none."""
    found = facts.COMPILER_IN_TEXT.search(text)
    return found[0] if found else ""


def codes_in(text: str) -> list[re.Match[str]]:
    """Where the compiler's error codes stand, each the group `code` of its match."""
    if "[" not in text:
        return []
    patterns = (facts.ERROR_CODE, facts.CRASH_CODE, facts.OLD_ERROR_CODE)
    return [found for pattern in patterns for found in pattern.finditer(text)]


def has_failure_words(text: str) -> bool:
    """Whether a line says, without a code, that a compile fails."""
    if "WARN" in text or not any(mark in text for mark in facts.FAILURE_MARKS) or facts.LAUNCHER_REPORT.search(text):
        return False
    return facts.FAILURE_LINE.search(text) is not None


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a run reported.

    Attributes:
        kind: What it reported, one of these:

            `hit`: a NEFF was found in the cache and used.
            `extracted`: a graph was written into the cache for a later compile. `listed`: it stands in the list of
            `neuron_parallel_compile`. `command`: the compiler was called; `text` is its command line.
            `compiled`: a compile ended well; `text` is the basis of its `seconds`, which are missing where the log does
            not tell. `command`: from the compiler's command to the end. `worker`: since the last line of a worker that
            does nothing but compile. `next-line`: from the command to the process's next line, an upper bound. `gap`:
            since the process's last line, an upper bound that holds tracing too.
            `status`: `PASS`, `FAIL` or `ERROR` of a compile that is not named.
            `failed`: a compile failed; `text` is what the compiler said on the same line, `seconds` are
            from the compiler's command, or `at_most` since the process's last line. `quoted`: the same of an
            earlier run's failure. `error`: what the compiler says on a line of its own, of the module whose failure is
            told; at the end of the log also of none.
            `cached-failure`: a compile was skipped as it failed in an earlier run. `retrying`: it is compiled again.
            `waiting`: somebody else has the module's lock, since `minutes`; said once a minute.
            `worker-started`, `worker-done`: a compile worker of `neuron_parallel_compile`. `remaining`: the root's
            entries by state, those of earlier runs too. `report`: what it says of one module at its end (`success`,
            `retries`, `seconds`). `summary`: its counts of this run (`total`, `success`, `failed`, not always all).
            `whole`: how long NxD's model builder took for the graph that it compiles first (`priority`), or for all
            others of a model together (`seconds`).
            `exported`: optimum-neuron exported a part of a model, `text`; `seconds` hold the tracing too.
            `not-found`: optimum-neuron's Hub cache, `text`, has no such file.
            `child-exit`: torchrun reports a worker that failed with `code`; a negative one is a signal.
        at: The log's own time, which has no time zone; None where the line has none.
        pid: The process that wrote the line, where it says so.
        rank: The worker's number, where torchrun or the like put it in front.
        worker: What a launcher that names processes put in front (`EngineCore_DP0 pid=37707`).
        module: `MODULE_<graph>+<flags>`; empty where the line names none.
        path: The path in the line as it stands there; empty where it has none.
        text: Words of the line, by kind.
        numbers: Figures of the line by name.
    """

    kind: str
    at: datetime | None = None
    pid: int | None = None
    rank: int | None = None
    worker: str = ""
    module: str = ""
    path: str = ""
    text: str = ""
    numbers: Mapping[str, float] = {}

    @property
    def seconds(self) -> float | None:
        """How long something took; None where the line does not tell."""
        return self.numbers.get("seconds")

    @property
    def process(self) -> str:
        """A name for the process, as exact as the line allows: its pid, else its rank, else nothing."""
        return f"pid {self.pid}" if self.pid is not None else f"rank {self.rank}" if self.rank is not None else ""


def same_process(one: Event, other: Event) -> bool | None:
    """Whether two lines are of one process; None where they do not tell."""
    if one.rank is not None and other.rank is not None:
        return one.rank == other.rank
    if one.worker and other.worker:
        return one.worker == other.worker
    if one.pid is None or other.pid is None:
        return None
    # A launcher names its own process, whose child may have written the line.
    return one.pid == other.pid or (None if one.worker or other.worker else False)


# Between the last line of a run and the first of the next there is at least the start of a training script. Ranks of
# one run that write nothing but one line each are nearer.
_PAUSE = timedelta(seconds=10)


class Timing:
    """Follows the compiles of every process of a run."""

    def __init__(self) -> None:
        self._first: dict[str, datetime] = {}
        self._last: dict[str, datetime] = {}
        self._open: dict[str, dict[str, Event]] = {}  # the event that began it, by process and module
        self._workers: set[str] = set()
        # "PASS" lines that no compile was found for yet, by the rank in front of them.
        self._passes: dict[int | None, int] = {}

    def started(self, event: Event) -> None:
        """The compiler was called for a module."""
        if event.module:
            self._open.setdefault(event.process, {})[event.module] = event

    def worker(self, event: Event) -> None:
        """The process of this event does nothing but compile from now on."""
        self._workers.add(event.process)

    def passed(self, event: Event) -> None:
        """Some compile ended well."""
        self._passes[event.rank] = self._passes.get(event.rank, 0) + 1

    def failed(self, event: Event, *, again: bool = False) -> Event:
        """The compile of a module ended badly; gives the event with its seconds, as far as the log tells them.

        Args:
            event: What says so.
            again: Another line has said so before.
        """
        begun, known = self._take(event.process, event.module)
        begun = begun if known else None if again else self._last.get(event.process)
        if begun is None or event.at is None or event.at < begun:
            return event
        bound = not known and event.process not in self._workers
        took = {"seconds": (event.at - begun).total_seconds(), "at_most": int(bound)}
        return replace(event, numbers={**event.numbers, **took})

    def completed(self, event: Event) -> Event:
        """A compile ended well; where no module is named, it is the only one that the process compiles, if it is one.

        Gives the event with its module, its seconds and their basis.
        """
        process, module = event.process, event.module
        if not module and len(self._open.get(process, {})) == 1:
            module = next(iter(self._open[process]))
        begun, known = self._take(process, module)
        basis = "command"
        if not known:
            begun, basis = self._last.get(process), "worker" if process in self._workers else "gap"
        self._spend(event.rank)
        return _compiled(event, module, begun, basis)

    def busy(self) -> list[Event]:
        """What began the compiles of which nothing has told the end."""
        return [event for compiles in self._open.values() for event in compiles.values()]

    def before(self, source: Event, found: Sequence[Event]) -> list[Event]:
        """A process writes a new line, which says `found`: its one open compile has ended, if a PASS was seen."""
        if not (busy := self._open.get(source.process)):
            return []
        begun = [event.module for event in found if event.kind == "command"]
        waiting = [module for module in busy if module not in begun]
        if len(waiting) != 1 or not self._spend(source.rank):
            return []
        module = waiting[0]
        return [_compiled(source, module, busy.pop(module).at, "next-line")]

    def after(self, source: Event) -> None:
        """The process has written a line at this time."""
        if source.at is not None:
            self._first.setdefault(source.process, source.at)
            self._last[source.process] = source.at

    def groups(self) -> int:
        """How many groups of processes have written, each after all of those before it had ended."""
        spans = sorted((begun, self._last[process]) for process, begun in self._first.items())
        ends = accumulate((ended for _, ended in spans), max)
        return 1 + sum(begun - ended >= _PAUSE for (begun, _), ended in zip(spans[1:], ends, strict=False))

    def close(self) -> list[Event]:
        """At the end: if there are as many PASS lines as open compiles, each of them ended well."""
        names = [event.module for event in self.busy()]
        if not names or sum(self._passes.values()) < len(names):
            return []
        self._open = {}
        return [Event(kind="compiled", module=module) for module in names]

    def _spend(self, rank: int | None) -> bool:
        """Take one PASS that this rank, or nobody in particular, has said."""
        for name in (rank, None):
            if self._passes.get(name, 0):
                self._passes[name] -= 1
                return True
        return False

    def _take(self, process: str, module: str) -> tuple[datetime | None, bool]:
        """Close a compile; gives its begin and whether it was open."""
        if not module:
            return None, False
        for name in (process, *self._open):
            if module in self._open.get(name, {}):
                return self._open[name].pop(module).at, True
        return None, False


def _compiled(event: Event, module: str, begun: datetime | None, basis: str) -> Event:
    if begun is None or event.at is None or event.at < begun:  # a clock that was set back tells nothing
        return replace(event, kind="compiled", module=module, path="")
    seconds = (event.at - begun).total_seconds()
    return replace(event, kind="compiled", module=module, path="", text=basis, numbers={"seconds": seconds})
