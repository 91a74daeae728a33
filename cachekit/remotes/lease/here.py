"""Whether another process of this machine still lives: then nobody needs to wait until its lease runs out.

A host's name says little: containers and clones of an image share names, and a container does not see the processes of
another. So a claim names the boot of the kernel and the space of process numbers that its own stands in, by a digest.
Where both are the same, a process that cannot be found is dead, and one that began at another time is somebody else.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_BOOT, _NUMBERS = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
_STATE, _BEGAN = 0, 19  # fields after the name in /proc/PID/stat, see proc(5)


def place() -> str:
    """What only processes that see this one under the same number have; empty where the system does not tell."""
    try:
        text = f"{_BOOT.read_text().strip()} {_NUMBERS.readlink()}"
    except OSError:
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def began(pid: int) -> int:
    """When a process began, in ticks since the boot; 0 where it is not known.

    Raises:
        ProcessLookupError: It is dead.
    """
    os.kill(pid, 0) if pid != os.getpid() else None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        if fields[_STATE] in {"Z", "X"}:  # it is dead, and its parent has not looked yet
            raise ProcessLookupError
        return int(fields[_BEGAN])
    except (FileNotFoundError, PermissionError, IndexError, ValueError):  # hidden from other users
        return 0


def is_dead(where: str, pid: int, since: int) -> bool:
    """Whether it is certain that a process is dead.

    Args:
        where: `place` as it saw it.
        pid: Its number.
        since: `began` as it saw it.
    """
    if not where or where != place() or pid <= 0:
        return False
    try:
        now = began(pid)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):  # it lives, and is another user's; or no number of a process
        return False
    return bool(now and since and now != since)
