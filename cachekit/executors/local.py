"""This machine as an engine: so many commands at once, and no more than its memory bears.

A process of its own starts the commands, so that they outlive who submitted them: `start.py cachekit.executors.local
FOLDER N`. If it is killed, its commands end, too.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from cachekit import files, private, process, start
from cachekit.config import Config
from cachekit.decode import from_json
from cachekit.errors import EngineError, UsageError
from cachekit.executors import fleet as fleets
from cachekit.executors import unit
from cachekit.executors.port import Fleet, Places, Seen
from cachekit.text import cause_of

NOTE = "local.json"
POLL = 0.1  # seconds
# What a command is taken to need before one was seen to need more: a small trial run has torch and a model in memory.
NEEDS = 2 << 30  # bytes


class _Starter(Struct, frozen=True):
    """The process that starts the commands, and those of them that it has started."""

    where: str
    pid: int
    began: int

    @property
    def dead(self) -> bool:
        return process.is_dead(self.where, self.pid, self.began)


class _Local:
    rents = spot = False
    places: Places | None = None

    def check(self, queue: str, config: Config, verb: str) -> Mapping[str, Any]:
        if queue:
            raise UsageError("this machine has no queues", hint="--on local")
        return {}

    def together(self, nodes: int, options: Mapping[str, Any]) -> tuple[str, ...]:
        raise UsageError(
            f"this is one machine, but the training is for {nodes}",
            hint="--nnodes 1; or the same command on each machine, with --node-rank and --master-addr",
        )

    def machine(self, queue: str) -> str:
        return ""

    def request(self, fleet: Fleet) -> str:
        return "\n".join(shlex.join(one.argv) for one in fleet.units)

    def submit(self, fleet: Fleet) -> None:
        command = [*start.COMMAND, "cachekit.executors.local", fleet.folder, str(fleet.jobs)]
        log = fleet.path / "local.log"
        try:
            with open(log, "wb", opener=private.opened) as told:
                done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=told, stderr=told, check=False)
            said = files.read(log, 1 << 20).decode(errors="replace").strip()
        except OSError as error:
            raise EngineError("the commands cannot be started", cause=cause_of(error)) from error
        if done.returncode:
            raise EngineError("the commands cannot be started", cause=said.rpartition("\n")[2])

    def look(self, fleet: Fleet) -> Mapping[int, Seen]:
        starter = files.noted(fleet.path / NOTE, _Starter)
        dead = starter is None or starter.dead
        seen = {}
        for number in range(len(fleet.units)):
            if stopped := files.noted(fleets.stopped(fleet.path, number), Seen):
                seen[number] = stopped
            elif not (fleet.path / f"{number}.ended").exists():  # else its note says how
                begun = (fleet.path / f"{number}.begun").exists()
                seen[number] = (
                    Seen("lost", reason="the process that starts the commands is gone, and it left no exit code")
                    if dead
                    else Seen("running" if begun else "waiting")
                )
        return seen

    def fetch(self, fleet: Fleet, number: int) -> None:
        """Nothing: the commands write there."""

    def cancel(self, fleet: Fleet) -> None:
        starter = files.noted(fleet.path / NOTE, _Starter)
        if starter is not None and not starter.dead:
            with suppress(ProcessLookupError):
                os.kill(starter.pid, signal.SIGTERM)


ENGINE = _Local()


# The process that starts the commands


def _resident(pid: int) -> int:
    """Bytes of memory that a process and those below it have."""
    return sum(process.resident(one) for one in (pid, *process.below(pid)))


def _available() -> int:
    """Bytes of memory that new processes can have."""
    for line in (process.PROC / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62


def _how(code: int) -> str:
    """How a command ended that could not note it: it was killed, for want of memory perhaps, or its disk is full."""
    killed = -code if code < 0 else code - 128
    return f"it was killed by signal {killed}" if killed > 0 else f"it ended with {code} and noted no exit code"


class _Commands:
    """Commands of a fleet, so many at once."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._fleet = from_json((folder / "fleet.json").read_bytes(), Fleet)
        self._jobs = jobs
        self._running: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
        self._most = NEEDS
        self._begun = 0

    def run(self) -> None:
        """Run all of them."""
        for number in range(len(self._fleet.units)):
            while not self._may_begin():
                self._look()
            command = [*process.SUBREAPER, sys.executable, unit.__file__, self._fleet.folder, str(number)]
            self._running[number] = (subprocess.Popen(command, stdin=subprocess.DEVNULL), time.monotonic())
            self._begun = number + 1
        while self._running:
            self._look()

    def _may_begin(self) -> bool:
        """Whether another command would fit beside those that run, once each of them has grown as large as any was."""
        if not self._running:
            return True
        if len(self._running) >= self._jobs:
            return False
        sizes = [_resident(command.pid) for command, _ in self._running.values()]
        self._most = max(self._most, *sizes)
        return _available() - sum(self._most - size for size in sizes) >= self._most

    def _look(self) -> None:
        time.sleep(POLL)
        for number, (command, began) in list(self._running.items()):
            if (code := command.poll()) is not None:
                del self._running[number]
                if not (self._fleet.path / f"{number}.ended").exists():
                    self._end(number, Seen("failed", reason=_how(code)))
            elif self._fleet.seconds is not None and time.monotonic() - began > self._fleet.seconds:
                self._end(number, Seen("timed-out"))

    def _end(self, number: int, why: Seen) -> None:
        note = fleets.stopped(self._fleet.path, number)
        if not note.exists():
            files.note(note, msgspec.json.encode(why), mode=private.FILE)
            if number in self._running:
                self._running[number][0].terminate()

    def cancel(self) -> None:
        """End what runs, and begin nothing more."""
        for number in (*self._running, *range(self._begun, len(self._fleet.units))):
            self._end(number, Seen("cancelled"))
        for command, _ in self._running.values():
            command.wait()


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main(folder: Path, jobs: int) -> int:
    """Leave a process behind that runs all commands of a fleet to their end, or until it is asked to end.

    Returns:
        0 once that process has noted itself, and can be found.
    """
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        return 0 if os.read(reading, 1) else 1
    os.setsid()  # whoever submitted may end, with all that it started
    signal.signal(signal.SIGTERM, _stop)
    myself = _Starter(process.namespace(), os.getpid(), process.began(os.getpid()))
    commands = _Commands(folder, jobs)
    files.replace(folder / NOTE, msgspec.json.encode(myself), mode=private.FILE)
    os.write(writing, b"1")
    try:
        commands.run()
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        commands.cancel()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
