"""Start the worker in its own process, pass its events on, and let nothing of it outlive us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Protocol

import msgspec

from cachekit import start
from cachekit.compilers.port import Sink, Watch
from cachekit.errors import InterruptedRunError, TrainingError, from_code
from cachekit.process import die_with
from cachekit.training.job import Job, Result

POLL = 0.1  # seconds between two looks at the worker
TICK = 1.0  # seconds between two signs that a run goes on, for whoever shows the time
GRACE = 10.0  # seconds that a worker gets to end after it was asked to


class Launcher(Protocol):
    """Runs a job somewhere."""

    def run(
        self, job: Job, environment: Mapping[str, str | None], log: Path, sink: Sink, watch: Watch | None = None
    ) -> Result:
        """Run the job to its end.

        Args:
            job: What to do; `job.events` and `job.result` name files in an existing folder.
            environment: Changes to this process's environment; None unsets.
            log: Where the worker's output goes.
            sink: Called with each event.
            watch: Looks after the run; may end it.

        Raises:
            CachekitError: The worker failed, by its own word; or `watch` stopped it.
            TrainingError: It died without a word.
            InterruptedRunError: Ctrl-C; the worker has ended.
        """


class ProcessLauncher:
    """Runs the worker as a child process on this machine.

    Args:
        command: The worker's command line; the job file is appended.
    """

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._command = list(command or [*start.COMMAND, "cachekit.training.worker"])

    def run(
        self, job: Job, environment: Mapping[str, str | None], log: Path, sink: Sink, watch: Watch | None = None
    ) -> Result:
        """See `Launcher`."""
        watch = watch or Watch({})
        job_path = Path(job.events).with_name("job.json")
        try:
            job_path.write_bytes(msgspec.json.encode(job))
            log.parent.mkdir(parents=True, exist_ok=True)
            output = log.open("ab")
        except OSError as error:
            raise TrainingError(
                "the training worker cannot be started",
                cause=error.strerror or str(error),
                hint="free some space, or set CACHEKIT_HOME and CACHEKIT_COMPILER_CACHE_DIR to other disks",
            ) from error
        with output:
            printed = log.stat().st_size  # what stands there already is another run's
            try:
                child = self._start([*watch.prefix, *self._command, str(job_path)], output, environment)
            except FileNotFoundError as error:
                raise TrainingError(
                    "the training worker cannot be started",
                    cause=f"there is no {error.filename}",
                    hint="is the environment's bin folder on PATH?",
                ) from error
            ended_by_us = False
            try:
                ended_by_us = _follow(child, _Tail(log, printed, watch), Path(job.events), sink)
            except KeyboardInterrupt as error:
                raise InterruptedRunError(
                    "stopped",
                    cause=f"{str(error) or 'Ctrl-C'} while the worker ran; its output is in {log}",
                    hint="run it again",
                ) from None
            finally:
                end(child)
        code = 0 if ended_by_us else child.returncode
        result = _outcome(job, failed=watch.failed(code), workers=watch.workers, log=log)
        if result is None:
            folders = [job_path.parent, Path(job.output_dir)] if job.mode == "train" else [job_path.parent]
            from cachekit.training.failure import of_death

            raise of_death(code, log, printed, folders)
        return result

    def _start(
        self, command: list[str], output: IO[bytes], environment: Mapping[str, str | None]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=merged(environment),
            # A group of its own, so that Ctrl-C reaches us first and the compilers it started end with it.
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()) if sys.platform == "linux" else None,  # noqa: PLW1509
        )


def merged(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment with changes; None unsets."""
    environment = dict(os.environ)
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment


@dataclass(slots=True)
class _Tail:
    """What a run prints, as it comes: `position` bytes of the log are read, or were there before."""

    log: Path
    position: int
    watch: Watch

    def read(self, sink: Sink) -> None:
        with self.log.open("rb") as stream:
            stream.seek(self.position)
            while block := stream.read(1 << 20):
                self.position += len(block)
                for event in self.watch.output(block):
                    sink(dict(event))

    def look(self, pid: int, sink: Sink) -> None:
        for event in self.watch.look(pid):
            sink(dict(event))


def _follow(child: subprocess.Popen[bytes], tail: _Tail, events: Path, sink: Sink) -> bool:
    """Pass on what the run tells and prints until it ends; returns whether it has to be ended."""
    position, ticked = 0, time.monotonic()
    while True:
        running = child.poll() is None
        tail.read(sink)  # first: a compile is told before the step that it belongs to ends
        position = _read_events(events, position, sink)
        if not running:
            return False
        if tail.watch.finished():
            return True
        tail.look(child.pid, sink)
        if time.monotonic() - ticked >= TICK:
            ticked = time.monotonic()
            sink({"event": "tick"})
        time.sleep(POLL)


def _read_events(path: Path, position: int, sink: Sink) -> int:
    try:
        with path.open("rb") as stream:
            stream.seek(position)
            block = stream.read()
    except FileNotFoundError:
        return position
    whole, newline, _ = block.rpartition(b"\n")
    for line in whole.splitlines():
        with suppress(ValueError):
            sink(json.loads(line))
    return position + len(whole) + len(newline)


def end(child: subprocess.Popen[bytes], *, alone: bool = True) -> None:
    """End a process that must not go on, asked first.

    Args:
        child: The process.
        alone: It has a group of its own, which ends with it: the worker may be dead and its compile pool not.
    """
    kill = os.killpg if alone else os.kill
    try:
        if child.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                kill(child.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
    finally:  # a second Ctrl-C cuts the grace short, and nothing else
        if alone or child.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                kill(child.pid, signal.SIGKILL)
        child.wait()


def _outcome(job: Job, *, failed: bool, workers: int, log: Path) -> Result | None:
    """What the workers say; None where one of them did not come to say it."""
    first = Path(job.result)
    result = _read_result(first)
    others = [_read_result(path) for path in sorted(first.parent.glob(f"{first.name}.rank*"))]
    # The first rank may have said nothing, or nothing bad; another may know why.
    failure = next((one.failure for one in (result, *others) if one is not None and one.failure is not None), None)
    if failure is not None:
        raise from_code(failure.code, failure.message, cause=failure.cause, hint=failure.hint or f"see {log}")
    if failed or result is None or sum(one is not None for one in others) + 1 < workers:
        return None
    return result


def _read_result(path: Path) -> Result | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError):
        return None
