"""Run things in a temporary folder: each in a session of its own, with a time limit, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cachekit import leash
from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.contract.check import UnknownError
from cachekit.compilers.neuron.log.event import Event
from cachekit.compilers.neuron.log.reader import LogReader
from cachekit.compilers.neuron.log.summary import Log

# The kernel ends what runs under it when this process ends, however it does.
LEASH = leash.COMMAND
QUICK = 180.0  # seconds for what compiles nothing; the first import on a new instance reads gigabytes
_POLL = 0.01
_NONE: Mapping[str, str | None] = {}
# Of the user's settings these would change what the experiments do, or where.
CLEARED = (
    facts.CC_FLAGS, facts.CACHE_URL, facts.EXTRACT_ONLY, facts.NPC_RETRIES, facts.NPC_IGNORE_SCRIPT_ERROR,
    facts.NPC_DUMP_RESULTS, facts.NATIVE_LEVEL, *facts.NATIVE_QUIET,
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A process that has ended.

    Attributes:
        code: Its exit code; negative for a signal.
        out: What it printed on stdout.
        err: What it printed on stderr.
    """

    code: int
    out: str
    err: str

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """What our reader of logs makes of both streams."""
        return (*read(self.out), *read(self.err))

    @cached_property
    def log(self) -> Log:
        """The sum of the events."""
        return Log().add_all(self.events)

    @property
    def end(self) -> str:
        """How it ended, in words: the code, and the last line that is no blank."""
        lines = [line for line in f"{self.out}\n{self.err}".splitlines() if line.strip()]
        return f"exit code {self.code}{f': {lines[-1].strip()[:200]}' if lines else ''}"

    def said(self, front: str) -> str | None:
        """The rest of the last line of stdout that begins with this; None where none does."""
        lines = [line for line in self.out.splitlines() if line.startswith(front)]
        return lines[-1].removeprefix(front) if lines else None

    def stream(self, kind: str) -> str:
        """Which stream has events of a kind: stdout, stderr, or both; empty for none."""
        there = [
            name
            for name, text in (("stdout", self.out), ("stderr", self.err))
            if any(event.kind == kind for event in read(text))
        ]
        return " and ".join(there)


def read(text: str) -> list[Event]:
    """The events of a text."""
    reader = LogReader()
    return reader.feed(text) + reader.close()


@dataclass(frozen=True, slots=True)
class Running:
    """A process that may still run; its output goes to files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def so_far(self) -> Run:
        """What it has printed; its code counts only where it has ended."""
        code = self.process.poll()
        return Run(0 if code is None else code, _text(self.out), _text(self.err))

    def until(self, done: Callable[[], bool], limit: float) -> bool:
        """Wait for something, or for its end; whether that something is so."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if done():
                return True
            if self.process.poll() is not None:
                return done()
            time.sleep(_POLL)
        return done()

    def tree(self) -> list[int]:
        """It and its descendants, as they are now: some may be in sessions of their own."""
        return tree(self.process.pid)

    def kill(self) -> None:
        """End it and all that it started, at once."""
        for pid in self.tree():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass(frozen=True, slots=True)
class Bench:
    """A folder to run things in, and the environment that they get.

    Attributes:
        folder: Temporary files, of those that run too.
        environ: Without what would change the experiments.
    """

    folder: Path
    environ: Mapping[str, str]

    @classmethod
    def make(cls, folder: Path, environ: Mapping[str, str]) -> Bench:
        """Set a folder up."""
        (folder / "tmp").mkdir(parents=True)
        changed = {name: value for name, value in environ.items() if name not in CLEARED}
        path, tools = environ.get("PATH", os.defpath), str(Path(sys.executable).parent)
        changed["PATH"] = path if tools in path.split(os.pathsep) else f"{tools}{os.pathsep}{path}"
        changed["TMPDIR"] = str(folder / "tmp")
        return cls(folder, changed)

    def which(self, *names: str) -> str:
        """The first of these programs that is there; empty where none is."""
        return next((found for name in names if (found := shutil.which(name, path=self.environ["PATH"]))), "")

    def run(
        self, what: str, command: Sequence[str], variables: Mapping[str, str | None] = _NONE, *, limit: float = QUICK
    ) -> Run:
        """Run a command to its end.

        Args:
            what: For people.
            command: The command.
            variables: Changes to its environment; None takes one away.
            limit: Seconds.

        Raises:
            UnknownError: It is not on PATH, or did not end in time.
        """
        with self.start(command, variables) as running:
            try:
                running.process.wait(limit)
            except subprocess.TimeoutExpired:
                raise UnknownError(f"{what} did not end within {limit:.0f} s") from None
            return running.so_far()

    @contextmanager
    def start(self, command: Sequence[str], variables: Mapping[str, str | None] = _NONE) -> Iterator[Running]:
        """Start a command; it is ended with all that it started when the block is left.

        Raises:
            UnknownError: It is not on PATH.
        """
        if not self.which(command[0]):
            raise UnknownError(f"{command[0]} is not on PATH")
        number = len(list(self.folder.glob("*.out")))
        out, err = self.folder / f"{number}.out", self.folder / f"{number}.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [*LEASH, *command],
                env={name: value for name, value in {**self.environ, **variables}.items() if value is not None},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        running = Running(process, out, err)
        try:
            yield running
        finally:
            running.kill()


def tree(pid: int) -> list[int]:
    """A process and its descendants, from /proc."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # The name, in brackets, may hold anything.
            parents[int(folder.name)] = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one and child not in found]
    return found


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")
