"""Let nothing outlive cachekit: neither a worker, nor what launchers and compilers start below it.

    python -I leash.py COMMAND…

runs a command, and ends everything below it when the command ends, when this process is asked to (SIGTERM), or when
whoever started it is gone, killed too. Launchers and compilers start processes in sessions of their own, so killing a
group does not reach them all: here the kernel hands every orphan to this process. It is run as a file, with nothing
of cachekit or of the environment imported.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
GRACE = 5.0  # seconds that a command gets to end after it was asked to
COMMAND = (sys.executable, "-I", __file__)
_LOST = 127  # a shell's exit code for a command that is not there
_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def die_with(parent: int) -> None:
    """Have the kernel end this process when process `parent`, which started it, ends; at once if it has already."""
    if sys.platform != "linux":
        return
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended meanwhile
        os._exit(1)


def below(pid: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """The processes that a process started, and those that these started, as far as they can be seen."""
    children: dict[int, list[int]] = {}
    try:
        names = [name for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return
    for name in names:
        with suppress(OSError, ValueError, IndexError):
            # The name in parentheses may hold anything; the state and the parent follow it.
            state, above = (proc / name / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(above), []).append(int(name))
    found = [pid]
    for parent in found:
        for child in children.get(parent, ()):
            if child not in found:
                found.append(child)
                yield child


def main(command: list[str]) -> int:
    """Run a command to its end, or to that of whoever started this; returns its exit code, negative for a signal."""
    parent = os.getppid()
    # Waited for below; a signal that comes before that is not lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_ASKED, signal.SIGCHLD})
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    myself = os.getpid()
    child = os.fork()
    if child == 0:
        die_with(myself)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_ASKED, signal.SIGCHLD})
        try:
            os.execvp(command[0], command)  # noqa: S606 - the caller's own command line
        except OSError as error:
            sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
            sys.stderr.flush()
            os._exit(_LOST)
    code: int | None = None
    deadline = float("inf")
    while code is None and time.monotonic() < deadline and os.getppid() == parent:
        told = signal.sigtimedwait({*_ASKED, signal.SIGCHLD}, 0.5)
        if told is not None and told.si_signo in _ASKED and os.getppid() == parent:
            deadline = min(deadline, time.monotonic() + GRACE)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        code = _reap(child, code)
    return _end_all(child, code)


def _reap(child: int, code: int | None) -> int | None:
    """Bury who has ended; returns the command's own exit code, once it is known."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
    return code


def _end_all(child: int, code: int | None) -> int:
    """Kill until nothing is left: orphans come to this process, also those that were started meanwhile."""
    while True:
        for pid in below(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        code = _reap(child, code)
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return -signal.SIGKILL if code is None else code
        signal.sigtimedwait({signal.SIGCHLD}, 0.05)


def _end_as(code: int) -> None:
    """End as the command did, so that whoever waits sees its signal."""
    if code < 0:
        with suppress(OSError, ValueError):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    _end_as(main(sys.argv[1:]))
