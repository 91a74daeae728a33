"""Processes of this host: what the kernel tells of them, and how nothing outlives cachekit.

Whatever is read of /proc/PID is read here. The second half is the subreaper:

    python -I process.py COMMAND…

runs a command, and ends everything below it when the command ends, when this process is asked to (SIGTERM), or when
whoever started it is gone, killed too. Launchers and compilers start processes in sessions of their own, so killing a
group does not reach them all: here the kernel hands every orphan to this process. It is run as a file, with nothing
of cachekit or of the environment imported: so this module may import the standard library only.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
GRACE = 5.0  # seconds that a command gets to end after it was asked to
SUBREAPER = (sys.executable, "-I", __file__)
_LOST = 127  # a shell's exit code for a command that is not there
_ASKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Status(NamedTuple):
    """What /proc/PID/stat says of a process [proc(5)].

    Attributes:
        name: Its program, cut at 15 characters.
        state: One letter: `T` is suspended, `Z` has ended and its parent has not looked yet.
        parent: The number of the process that started it.
        began: When, in ticks since the boot.
    """

    name: str
    state: str
    parent: int
    began: int

    @property
    def dead(self) -> bool:
        """Whether it has ended, though it has its number still."""
        return self.state in {"Z", "X"}


def status(pid: int, proc: Path = PROC) -> Status | None:
    """What the kernel tells of a process; None where it does not: there is no such process, or it is hidden."""
    try:
        text = (proc / str(pid) / "stat").read_text("utf-8", "replace")
        # The name stands in parentheses, and may hold anything.
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        return Status(name, fields[0], int(fields[1]), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None


def numbers(proc: Path = PROC) -> list[int]:
    """All processes that can be seen, in order.

    Raises:
        OSError: The kernel does not tell.
    """
    return sorted(int(name) for name in os.listdir(proc) if name.isdecimal())  # noqa: PTH208 - only names


def arguments(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The command line of a process; nothing of a kernel's own.

    Raises:
        OSError: It has ended.
    """
    raw = (proc / str(pid) / "cmdline").read_bytes()
    return tuple(os.fsdecode(word) for word in raw.rstrip(b"\0").split(b"\0")) if raw else ()


def kernel_name(pid: int, proc: Path = PROC) -> str:
    """What the kernel calls a process: its program's name, cut at 15 characters.

    Raises:
        OSError: It has ended.
    """
    return (proc / str(pid) / "comm").read_text("utf-8", "replace").strip()


def owner(pid: int, proc: Path = PROC) -> int:
    """The number of the user whose process this is; -1 where it has ended."""
    try:
        return (proc / str(pid)).stat().st_uid
    except OSError:
        return -1


def resident(pid: int, proc: Path = PROC) -> int:
    """Bytes of memory that a process has; 0 where it has ended."""
    try:
        return int((proc / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        return 0


def environment(pid: int, proc: Path = PROC) -> dict[str, str] | None:
    """The variables that a process was started with; None where they cannot be seen."""
    try:
        raw = (proc / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    pairs = (os.fsdecode(part).partition("=") for part in raw.split(b"\0"))
    return {name: value for name, _, value in pairs}


def open_files(pid: int, proc: Path = PROC) -> tuple[str, ...] | None:
    """What a process has open; None where that cannot be seen."""
    folder, found = proc / str(pid) / "fd", []
    try:
        for handle in os.listdir(folder):  # noqa: PTH208 - only names
            with suppress(OSError):  # closed meanwhile
                found.append(os.readlink(folder / handle))  # noqa: PTH115 - any text
    except PermissionError:
        return None
    except OSError:
        return ()
    return tuple(found)


def has_loaded(pid: int, libraries: Iterable[str], proc: Path = PROC) -> bool | None:
    """Whether a process has one of these libraries loaded; None where that cannot be seen."""
    try:
        maps = (proc / str(pid) / "maps").read_text("utf-8", "replace")
    except PermissionError:
        return None
    except OSError:
        return False
    return any(library in maps for library in libraries)


def below(pid: int, proc: Path = PROC) -> Iterator[int]:
    """The processes that a process started, and those that these started, as far as they can be seen."""
    children: dict[int, list[int]] = {}
    with suppress(OSError):
        for number in numbers(proc):
            one = status(number, proc)
            if one is not None and one.state != "Z":
                children.setdefault(one.parent, []).append(number)
    found = [pid]
    for parent in found:
        for child in children.get(parent, ()):
            if child not in found:
                found.append(child)
                yield child


def described(pid: int) -> str:
    """A process in words; what the system does not show is left out."""
    one = status(pid)
    if one is None:
        return f"process {pid}"
    return f"process {pid} ({one.name}{', which is suspended' if one.state == 'T' else ''})"


def locking(folders: Iterable[Path]) -> int | None:
    """The process that holds one of these folders locked alone (flock); None where none does, or none can be seen."""
    wanted = set()
    for folder in folders:
        with suppress(OSError):
            wanted.add(str(folder.stat().st_ino))
    with suppress(OSError, ValueError, IndexError):
        # `1: FLOCK  ADVISORY  WRITE 4242 fd:01:1835017 0 EOF` [proc_locks(5)]; who waits has `->` before FLOCK.
        for line in (PROC / "locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1:4:2] == ["FLOCK", "WRITE"] and words[5].rpartition(":")[2] in wanted:
                return int(words[4])
    return None


def boot_time(proc: Path = PROC) -> float | None:
    """When this host started, seconds since 1970; None where that is unknown."""
    with suppress(OSError, ValueError, IndexError):
        for line in (proc / "stat").read_text("ascii", "replace").splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    return None


def answer(command: list[str]) -> str:
    """What a program prints that is asked for one answer, within 20 seconds.

    Raises:
        OSError: It cannot be run, failed, or did not answer in time.
    """
    import subprocess

    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=20, check=True)
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from error
    return run.stdout


def user_name() -> str:
    """This user's name; the number where the system has no name for it."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())


# Does another process of this machine still live? A host's name says little: containers and clones of an image share
# names, and a container does not see the processes of another. So what asks names the boot of the kernel and the space
# of process numbers that its own stands in, by a digest. Where both are the same, a process that cannot be found is
# dead, and one that began at another time is somebody else.


def namespace() -> str:
    """What only processes that see this one under the same number have; empty where the system does not tell."""
    import hashlib

    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        text = f"{boot} {(PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def began(pid: int) -> int:
    """When a process began, in ticks since the boot; 0 where it is not known.

    Raises:
        ProcessLookupError: It is dead.
        PermissionError: It is another user's.
        OverflowError: That is not a number of a process.
    """
    if pid != os.getpid():
        os.kill(pid, 0)
    one = status(pid)
    if one is not None and one.dead:
        raise ProcessLookupError
    return one.began if one is not None else 0


def is_dead(where: str, pid: int, since: int) -> bool:
    """Whether it is certain that a process is dead.

    Args:
        where: `namespace` as it saw it.
        pid: Its number.
        since: `began` as it saw it.
    """
    if not where or where != namespace() or pid <= 0:
        return False
    try:
        now = began(pid)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):  # it lives, and is another user's; or no number of a process
        return False
    return bool(now and since and now != since)


# The subreaper


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
    """Reap processes that have ended; returns the exit code of the command, once it is known."""
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
