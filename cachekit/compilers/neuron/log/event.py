"""What a line in the log of a Neuron run says, as a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache

from msgspec import Struct

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
            earlier run's failure. `error`: a line that begins with an error code, of the module whose failure is told.
            `cached-failure`: a compile was skipped as it failed in an earlier run. `retrying`: it is compiled again.
            `waiting`: somebody else has the module's lock, since `minutes`; said once a minute.
            `worker-started`, `worker-done`: a compile worker of `neuron_parallel_compile`. `remaining`: the root's
            entries by state, those of earlier runs too. `report`: what it says of one module at its end (`success`,
            `retries`, `seconds`). `summary`: its counts of this run (`total`, `success`, `failed`, not always all).
            `whole`: how long NxD's model builder took for all graphs of a model together.
            `not-found`: optimum-neuron's Hub cache, `text`, has no such file.
            `child-exit`: torchrun reports a worker that failed with `code`; a negative one is a signal.
        at: The log's own time, which has no time zone; None where the line has none.
        pid: The process that wrote the line, where it says so.
        rank: The worker's number, where torchrun or the like put it in front.
        worker: A name that a launcher put in front (`EngineCore_DP0`).
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
