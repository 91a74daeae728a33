"""Start the worker in its own process, pass its events on, and let nothing of it outlive us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import RawIOBase
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cachekit import config_trust, private, redact, start
from cachekit.compilers.port import Sink, Watch
from cachekit.decode import from_json
from cachekit.errors import InterruptedRunError, TrainingError, from_code
from cachekit.files import PIECE
from cachekit.process import die_with
from cachekit.redact import Stream
from cachekit.redact.names import secrets_of
from cachekit.text import cause_of
from cachekit.training.checkpoints import checkpoints
from cachekit.training.job import Job, Result

POLL = 0.1  # seconds between two looks at the worker
TICK = 1.0  # seconds between two signs that a run goes on, for whoever shows the time
_LONGEST = 1 << 24  # bytes of one line of events that are read into memory
GRACE = 10.0  # seconds that a worker gets to end after it was asked to


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
        """Run a job to its end.

        Args:
            job: What to do; `job.events` and `job.result` name files in an existing folder.
            environment: Changes to this process's environment; None unsets.
            log: Where the worker's output goes, without secrets; see `cachekit.redact`.
            sink: Called with each event.
            watch: Looks after the run; may end it.

        Raises:
            CachekitError: The worker failed, by its own word; or `watch` stopped it.
            TrainingError: The worker died without a word, or could not be started.
            InterruptedRunError: Ctrl-C; the worker has ended.
        """
        watch = watch or Watch({})
        job_path = Path(job.events).with_name("job.json")
        said = job_path.with_name("output")
        variables = merged(environment)
        secrets = tuple(secrets_of(variables).values())
        try:
            private.write(job_path, msgspec.json.encode(job))
            log.parent.mkdir(parents=True, exist_ok=True)
            kept = open(log, "ab", buffering=0, opener=private.opened)  # noqa: SIM115
            output = open(said, "w+b", opener=private.opened)  # noqa: SIM115
            said.unlink()  # it has no name: whatever ends us leaves nothing but the log
        except OSError as error:
            raise TrainingError(
                "the training worker cannot be started",
                cause=cause_of(error),
                hint="free some space, or set CACHEKIT_HOME and CACHEKIT_COMPILER_CACHE_DIR to other disks",
            ) from error
        told = _Output(output.fileno(), kept, Stream(secrets))
        with output, kept:
            printed = log.stat().st_size  # the bytes before are another run's
            try:
                child = subprocess.Popen(
                    [*watch.prefix, *self._command, str(job_path)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=variables,
                    # A group of its own: Ctrl-C reaches us first, and the compilers that it started end with it.
                    start_new_session=True,
                    preexec_fn=partial(die_with, os.getpid()) if sys.platform == "linux" else None,  # noqa: PLW1509
                )
            except FileNotFoundError as error:
                raise TrainingError(
                    "the training worker cannot be started",
                    cause=f"there is no {error.filename}",
                    hint="is the environment's bin folder on PATH?",
                ) from error
            ended_by_us = False
            try:
                plain = partial(_told, sink, secrets)
                ended_by_us = _follow(child, told, _Tail(Path(job.events)), plain, watch)
            except KeyboardInterrupt as error:
                raise InterruptedRunError(
                    "stopped",
                    cause=f"{str(error) or 'Ctrl-C'} while the worker ran; its output is in {log}",
                    hint=_again(job),
                ) from None
            finally:
                end(child)
                told.close()
        code = 0 if ended_by_us else child.returncode
        result = _outcome(job, failed=watch.failed(code), workers=watch.workers, log=log, secrets=secrets)
        if result is None:
            folders = (
                [job_path.parent, Path(job.output_dir), Path(job.checkpoints)]
                if job.mode == "train"
                else [job_path.parent]
            )
            from cachekit.training.failure import of_death

            raise of_death(code, log, printed, folders)
        return result


def _again(job: Job) -> str:
    """How a run that was stopped goes on."""
    if job.mode == "train" and checkpoints(Path(job.checkpoints)):
        return "--resume auto continues from the last checkpoint"
    return "run the command again"


def merged(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment with changes; None unsets. The signing key is for nobody else."""
    environment = dict(os.environ)
    environment.pop(config_trust.KEY, None)
    for name, value in changes.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment


class _Tail(Struct):
    """A file that grows: what comes after `position`, which may be inside of a line that is skipped."""

    path: Path
    position: int = 0
    skipping: bool = False

    def lines(self) -> Iterator[bytes]:
        """Whole lines that are new, but for those of more than `_LONGEST` bytes."""
        with suppress(FileNotFoundError), self.path.open("rb") as stream:
            stream.seek(self.position)
            while line := stream.readline(_LONGEST):
                whole = line.endswith(b"\n")
                if not whole and len(line) < _LONGEST:
                    break  # the worker is still writing the line
                self.position += len(line)
                if whole and not self.skipping:
                    yield line
                self.skipping = not whole


class _Output(Struct):
    """What a worker prints, and the log that keeps it without secrets. A disk that is full ends the log, and no run."""

    said: int  # a descriptor
    log: RawIOBase
    stream: Stream
    position: int = 0

    def read(self) -> bytes:
        """What is new."""
        block = os.pread(self.said, PIECE, self.position)
        self.position += len(block)
        self._keep(self.stream.feed(block))
        return block

    def close(self) -> None:
        """Keep the rest; there is no more."""
        while self.read():
            pass
        self._keep(self.stream.close())

    def _keep(self, block: bytes) -> None:
        with suppress(OSError):
            while block:
                block = block[self.log.write(block) or 0 :]


def _told(sink: Sink, secrets: Sequence[str], event: dict[str, Any]) -> None:
    sink(redact.document(event, secrets))


def _follow(child: subprocess.Popen[bytes], output: _Output, events: _Tail, sink: Sink, watch: Watch) -> bool:
    """Pass on what the run tells and prints until it ends; returns whether it has to be ended."""
    ticked = time.monotonic()
    while True:
        running = child.poll() is None
        while block := output.read():  # first: a compile is told before the step that it belongs to ends
            for event in watch.output(block):
                sink(dict(event))
        for line in events.lines():
            with suppress(ValueError):
                sink(json.loads(line))
        if not running:
            return False
        if watch.finished():
            return True
        for event in watch.look(child.pid):
            sink(dict(event))
        if time.monotonic() - ticked >= TICK:
            ticked = time.monotonic()
            sink({"event": "tick"})
        time.sleep(POLL)


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


def _outcome(job: Job, *, failed: bool, workers: int, log: Path, secrets: Sequence[str]) -> Result | None:
    """What the workers say; None where one of them did not come to say it."""
    first = Path(job.result)
    result = _read_result(first)
    others = [_read_result(path) for path in sorted(first.parent.glob(f"{first.name}.rank*"))]
    # The first rank may have said nothing, or nothing bad; another may know why.
    failure = next((one.failure for one in (result, *others) if one is not None and one.failure is not None), None)
    if failure is not None:
        message, cause, hint = (
            redact.printed(words, secrets) for words in (failure.message, failure.cause, failure.hint)
        )
        raise from_code(failure.code, message, cause=cause, hint=hint or f"see {log}")
    if failed or result is None or sum(one is not None for one in others) + 1 < workers:
        return None
    return result


def _read_result(path: Path) -> Result | None:
    try:
        return from_json(path.read_bytes(), Result)
    except (OSError, msgspec.DecodeError):
        return None
