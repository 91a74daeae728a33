"""The compiler's own log, `log-neuron-cc.txt`: module, version, exit code, errors.

A log may hold several compiles, one after another (the file is appended to) or at once. A compile begins with the
command in a line of `[root]` and ends with `Subcommand returned with exitcode=N` of the same process; what other
processes write in between belongs to the one that began last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone

from msgspec import Struct

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.failures import CompileFailure, classify
from cachekit.compilers.neuron.log.event import codes_in, has_failure_words, module_in

_LINE = 1 << 16  # characters of a line that are read
_ERRORS = 1 << 15  # characters of a compile's error lines that are kept: the last ones
_TIMES = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%m/%d/%Y %I:%M:%S %p")
_TIME = 26  # characters of a time that are read: to the microsecond
_BAD = frozenset({"ERROR", "CRITICAL", "FATAL"})
_PEOPLE = "USER"  # the level of what a person should read: progress, and the reason of a failure


class CompilerRun(Struct, frozen=True):
    """One compile as the compiler's log tells it."""

    # The module that was compiled (`MODULE_<graph>+<flags>`); empty for a file of another name, and where the log
    # begins after the command.
    module: str
    version: str  # the compiler's full version; empty where the log does not say
    exit_code: int | None  # none where the log breaks off: the compile still runs, or was killed
    codes: tuple[str, ...]  # the error codes it gave, each once
    begun: datetime | None  # the time of its first line, and of its last one
    ended: datetime | None
    errors: str  # the lines of errors and for people, without their beginnings, bounded
    killed: bool = False  # a shell says after its lines that it was killed

    @property
    def seconds(self) -> float | None:
        """From its first line to its last; None where the lines have no time, or clocks were set back."""
        if self.begun is None or self.ended is None or self.ended < self.begun:
            return None
        return (self.ended - self.begun).total_seconds()

    @property
    def failure(self) -> CompileFailure | None:
        """The class of its failure; None for a compile that ended well or has not ended and names no error."""
        if self.exit_code == 0 or (self.exit_code is None and not self.codes and not self.killed):
            return None
        return classify(self.errors, exit_code=self.exit_code)


class _Open:
    """A compile whose lines are being read."""

    def __init__(self, pid: str, module: str) -> None:
        self.pid, self.module = pid, module
        self.version = ""
        self.exit_code: int | None = None
        self.begun = ""  # the times of its first line and of its last one, as they stand there
        self.ended = ""
        self.codes: dict[str, None] = {}
        self.errors: deque[str] = deque()
        self.size = 0
        self.killed = False
        self.bad = False  # the last line was an error's, and lines without a beginning go on with it

    def note(self, line: str, error: str) -> None:
        """Keep what matters of a line: the version, error codes, and the text of errors."""
        if not self.version and (version := facts.COMPILER_VERSION.search(line)):
            self.version = version["version"]
        if "WARN" not in line:
            for found in codes_in(line):
                self.codes[found["code"]] = None
                error = error or line
        if error.strip(" *"):
            self.errors.append(error[:_ERRORS])
            self.size += len(self.errors[-1])
            while self.size > _ERRORS:
                self.size -= len(self.errors.popleft())

    def closed(self) -> CompilerRun:
        codes, errors = tuple(self.codes), "\n".join(self.errors)
        begun, ended = _time(self.begun), _time(self.ended)
        return CompilerRun(self.module, self.version, self.exit_code, codes, begun, ended, errors, self.killed)


def _time(text: str) -> datetime | None:
    """The time of a line; its zone is told by some versions only, and is the same in all of a log."""
    for form in _TIMES:
        with suppress(ValueError):
            return datetime.strptime(text.removesuffix("Z")[:_TIME], form).replace(tzinfo=timezone.utc)
    return None


def read_compiler_log(lines: Iterable[str]) -> list[CompilerRun]:
    """Read a log, line by line, so that one of any size may be given as an open file.

    Returns:
        Its compiles in the order of their beginnings; none for a text that is not such a log.
    """
    runs: list[_Open] = []
    current: _Open | None = None
    for raw in lines:
        line = raw[:_LINE].rstrip("\r\n")
        parsed = facts.COMPILER_LOG_LINE.search(line)
        if not parsed:
            if current:
                current.killed = current.killed or bool(facts.KILLED.match(line))
                telling = current.bad or current.killed or has_failure_words(line)
                current.note(line, line if telling else "")
            continue
        pid, text = parsed["pid"] or "", parsed["text"]
        root = parsed["who"] == facts.COMPILER_LOG_ROOT
        command = facts.COMPILER_LOG_COMMAND.match(text) if root else None
        if command or current is None:
            current = _Open(pid, module_in(text) if command else "")
            runs.append(current)
        # The end is written by the process that got the command, also when another compile began since.
        run = current
        if root:
            run = next((run for run in reversed(runs) if run.pid == pid and run.exit_code is None), current)
        run.ended = parsed["time"]
        run.begun = run.begun or run.ended
        level = parsed["level"]
        run.bad = level in _BAD or (level == _PEOPLE and bool(facts.COMPILER_LOG_PEOPLE.search(parsed["who"])))
        if not command:
            run.note(line, text if run.bad else "")
        if root and (found := facts.COMPILER_LOG_EXIT.search(text)):
            run.exit_code = int(found["code"])
    return [run.closed() for run in runs]
