"""Start the worker in its own process, pass its events on, and let nothing of it outlive us."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from cachekit.errors import CachekitError, InterruptedRunError, TrainingError, from_code
from cachekit.training.job import Job, Result

POLL = 0.1  # seconds between two looks at the worker
GRACE = 10.0  # seconds that a worker gets to end after it was asked to
LONGEST = 300  # characters of the worker's last words that an error shows

Sink = Callable[[dict[str, Any]], None]


class Launcher(Protocol):
    """Runs a job somewhere."""

    def run(self, job: Job, environment: Mapping[str, str | None], log: Path, sink: Sink) -> Result:
        """Run the job to its end.

        Args:
            job: What to do; `job.events` and `job.result` name files in an existing folder.
            environment: Changes to this process's environment; None unsets.
            log: Where the worker's output goes.
            sink: Called with each event.

        Raises:
            CachekitError: The worker failed, by its own word.
            TrainingError: It died without a word.
            InterruptedRunError: Ctrl-C; the worker has ended.
        """


class ProcessLauncher:
    """Runs the worker as a child process on this machine.

    Args:
        command: The worker's command line; the job file is appended.
    """

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._command = list(command or [sys.executable, "-m", "cachekit.training.worker"])

    def run(self, job: Job, environment: Mapping[str, str | None], log: Path, sink: Sink) -> Result:
        """See `Launcher`."""
        job_path = Path(job.events).with_name("job.json")
        try:
            job_path.write_bytes(msgspec.json.encode(job))
            log.parent.mkdir(parents=True, exist_ok=True)
            output = log.open("ab")
        except OSError as error:
            raise TrainingError(
                "the training worker cannot be started",
                cause=error.strerror or str(error),
                hint="free some space, or set CACHEKIT_HOME and CACHEKIT_LIVE_DIR to other disks",
            ) from error
        with output:
            child = subprocess.Popen(
                [*self._command, str(job_path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_merged(environment),
                # A group of its own, so that Ctrl-C reaches us first and the compilers it started end with it.
                start_new_session=True,
                preexec_fn=partial(_die_with, os.getpid()) if sys.platform == "linux" else None,  # noqa: PLW1509
            )
            try:
                _follow(child, Path(job.events), sink)
            except KeyboardInterrupt:
                raise InterruptedRunError(
                    "stopped", cause=f"Ctrl-C while the worker ran; its output is in {log}", hint="run it again"
                ) from None
            finally:
                _end(child)
        return _outcome(job, child.returncode, log)


def _merged(changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = dict(os.environ)
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged


def _die_with(parent: int) -> None:
    """In the child, before it becomes the worker: have the kernel end it when `parent` ends, however that happens."""
    pr_set_pdeathsig = 1  # linux/prctl.h
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it ended meanwhile
        os._exit(1)


def _follow(child: subprocess.Popen[bytes], events: Path, sink: Sink) -> None:
    position = 0
    while True:
        running = child.poll() is None
        position = _read_events(events, position, sink)
        if not running:
            return
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


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the whole group: the worker may be dead and its compile pool not."""
    try:
        if child.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
    finally:  # a second Ctrl-C cuts the grace short, and nothing else
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _outcome(job: Job, code: int, log: Path) -> Result:
    try:
        result = msgspec.json.decode(Path(job.result).read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError):
        result = None
    if result is not None and result.failure is not None:
        failure = result.failure
        raise from_code(failure.code, failure.message, cause=failure.cause, hint=failure.hint or f"see {log}")
    if code != 0 or result is None:
        raise _died(code, log)
    return result


def _died(code: int, log: Path) -> CachekitError:
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    hint = f"see {log}"
    if code == -signal.SIGKILL:
        hint = f"most often the system ran out of memory: lower the batch size or the length; see {log}"
    # A signal comes from outside: whatever was printed last has nothing to do with it.
    return TrainingError(f"the training worker died ({how})", cause="" if code < 0 else _tail(log), hint=hint)


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:LONGEST] for line in reversed(lines) if line.strip()), "")
