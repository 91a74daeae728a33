"""What a line in the log of a Neuron run can say, as values.

`logs.py` makes them from text, `run_log.py` adds them up. The words that they are recognised by stand in `facts.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cachekit.compilers.neuron.facts import COMPILER_IN_TEXT, MODULE_IN_TEXT


def module_in(text: str) -> str:
    """The first module's name (`MODULE_<graph>+<flags>`) in a path or a sentence; empty where there is none."""
    found = MODULE_IN_TEXT.search(text)
    return found["module"] if found else ""


def compiler_in(text: str) -> str:
    """The first compiler's directory (`neuronxcc-<version>`) in a path; empty where there is none."""
    found = COMPILER_IN_TEXT.search(text)
    return found[0] if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that a run reported.

    Attributes:
        at: The log's own time, which has no time zone; None where the line has none.
        pid: The process that wrote the line, where it says so.
        rank: The worker's number, where torchrun or the like put it in front.
        worker: A name that a launcher put in front (`EngineCore_DP0`).
        module: `MODULE_<graph>+<flags>`; empty where the line names none.
        path: The path in the line as it stands there; empty where it has none.
    """

    at: datetime | None = None
    pid: int | None = None
    rank: int | None = None
    worker: str = ""
    module: str = ""
    path: str = ""


class Hit(Event):
    """A NEFF was found in the cache and used."""

    __slots__ = ()


class Extracted(Event):
    """A graph was written into the cache for a later compile: `neuron_parallel_compile`'s trial run."""

    __slots__ = ()


class Listed(Event):
    """A graph that `neuron_parallel_compile` found in the output of its trial run and will see to."""

    __slots__ = ()


class Missed(Event):
    """Nothing was found for a graph (only versions before SDK 2.8 say so)."""

    __slots__ = ()


class CachePath(Event):
    """The root of the cache that a process uses."""

    __slots__ = ()


class Exported(Event):
    """optimum-neuron put an exported model into its cache."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled(Event):
    """A compile ended well.

    Attributes:
        seconds: How long it took; None where the log does not tell.
        basis: Where `seconds` comes from. `command`: from the compiler's command to the end. `worker`: since the last
            line of a worker that does nothing but compile. `next-line`: from the command to the process's next line,
            an upper bound. `gap`: since the process's last line, an upper bound that holds tracing too. Empty: unknown.
    """

    seconds: float | None = None
    basis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCommand(Event):
    """The compiler was called; `command` is its command line, split."""

    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRun(Event):
    """`neuron_parallel_compile` starts the user's command; `command` is as the log has it."""

    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Event):
    """Somebody else's lock is waited for, since `minutes`; said once a minute, with no end if the lock is stale."""

    minutes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedFailure(Event):
    """A failure of an earlier run lies in the cache, and the compile was skipped because of it."""

    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying(Event):
    """A failure of an earlier run lies in the cache, and is compiled again (`--retry_failed_compilation`)."""

    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Event):
    """A compile failed.

    Attributes:
        command: The compiler's command line, split.
        text: What the compiler said on the same line.
        quoted: It is the text of an earlier failure, as it follows a `CachedFailure` or `Retrying`.
    """

    command: tuple[str, ...] = ()
    text: str = ""
    quoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerError(Event):
    """A line with an error code of the compiler; `module` is the one whose failure is being reported, if known."""

    code: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerStatus(Event):
    """`Compiler status PASS`: says neither which module nor when."""

    passed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFoundRemote(Event):
    """optimum-neuron looked for a file in its Hub cache and did not find it."""

    repository: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(Event):
    """A compile worker of `neuron_parallel_compile` starts, with `graphs` in its list."""

    number: int = 0
    graphs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDone(Event):
    """A compile worker ended after `tasks` compiles."""

    number: int = 0
    tasks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerException(Event):
    """A compile worker ended with an exception."""

    number: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining(Event):
    """The cache root's entries by state, as a worker sees them: `failed` counts those of earlier runs too."""

    items: int = 0
    locked: int = 0
    failed: int = 0
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported(Event):
    """One line of `neuron_parallel_compile`'s JSON report (`NEURON_PARALLEL_COMPILE_DUMP_RESULTS`)."""

    success: bool = False
    retries: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Event):
    """What `neuron_parallel_compile` counts at its end, of this run alone; None for what the line does not say."""

    total: int | None = None
    success: int | None = None
    failed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSeconds(Event):
    """optimum-neuron's export says how long its compile took."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildExit(Event):
    """torchrun reports a worker that failed; a negative code is a signal."""

    code: int = 0
