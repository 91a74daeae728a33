"""What the log of a run tells of its compiles, whoever ran it: found, compiled, failed, waited for, and time lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct


class LoggedCompile(Struct, frozen=True):
    """A graph that the run compiled.

    Attributes:
        module: The compiler's name for it; empty where the log does not say.
        seconds: What it took; None where the log does not tell.
        at_most: The log tells only between which lines it happened, so that `seconds` hold more than the compile.
        failed_before: The class of an earlier try's failure, as a `LoggedFailure` has it; empty where there was none.
    """

    module: str
    seconds: float | None = None
    at_most: bool = False
    failed_before: str = ""


class LoggedFailure(Struct, frozen=True):
    """A graph that did not compile.

    Attributes:
        module: See `LoggedCompile`; so for `seconds` and `at_most`.
        kind: The class of the failure, one word: `device-oom`, `internal`, …
        code: The compiler's error code; empty where it gave none.
        message: What it said.
        advice: What helps.
        earlier: It failed in an earlier run, and was skipped in this one.
    """

    module: str
    kind: str
    code: str
    message: str
    advice: str
    seconds: float | None = None
    at_most: bool = False
    earlier: bool = False


class Logged(Struct, frozen=True, kw_only=True):
    """What a log tells.

    Attributes:
        of: `run` for the output of a training, a serving process or a pre-compile; `compiler` for the compiler's own
            log, which knows of no cache.
        compilers: The folders of the compiler cache, or the versions, that were named.
        found: Graphs that were in the cache.
        extracted: Graphs that were written down to be compiled later.
        compiled: Graphs that were compiled, the longest first.
        failed: Graphs that were not.
        waits: Seconds that the run waited for somebody else's lock, by module.
        lost_seconds: How long something compiled or waited, what happened at once counted once. None where the log
            tells no time.
        lost_at_most: `lost_seconds` is an upper bound.
        workers: Exit codes of workers that failed, by their names.
        unfinished: Compiles whose end is not in the log: they went on, or were killed.
        counted: What the log itself counts, a sentence each, where its lines show something else.
        groups: How many groups of processes wrote it, each after those before had ended: several where a log holds
            several runs, which are added up here.
    """

    of: Literal["run", "compiler"]
    compilers: tuple[str, ...] = ()
    found: int = 0
    extracted: int = 0
    compiled: tuple[LoggedCompile, ...] = ()
    failed: tuple[LoggedFailure, ...] = ()
    waits: Mapping[str, float] = {}
    lost_seconds: float | None = None
    lost_at_most: bool = False
    workers: Mapping[str, int] = {}
    unfinished: int = 0
    counted: tuple[str, ...] = ()
    groups: int = 1
