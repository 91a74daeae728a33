"""One commit at a time in a shared folder, so that a change of several documents fails as a whole or not at all.

A lock file, and a courtesy only: the documents' own swap decides, whatever happens to the lock. So it may be taken
from whoever seems to be dead: a process of this host that is gone, or one that has held it, unchanged, for longer than
any commit takes, by the clock of the one who watches.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cachekit.remotes.folder.confined import (
    OURS,
    SCRATCH,
    Root,
    link_new,
    new_file,
    open_file,
    read_all,
    remove,
    write_all,
)
from cachekit.remotes.port import BusyError

_LOCK = f"{OURS}lock"
DEAD = 5.0  # seconds that a lock is seen unchanged before it is taken away
_POLL = 0.01


def _host() -> list[object]:
    """This kernel and its name space of process numbers; two containers may have one name."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return [boot, os.stat("/proc/self/ns/pid").st_ino]  # noqa: PTH116 - not a file
    return [socket.gethostname(), 0]


@contextmanager
def turn(root: Root, seconds: float) -> Iterator[None]:
    """Hold the lock.

    Args:
        root: The tier's folder.
        seconds: How long to wait for it.

    Raises:
        BusyError: Others committed all the while.
        OSError: It cannot be made.
    """
    me = json.dumps({"host": _host(), "pid": os.getpid(), "id": uuid.uuid4().hex}).encode()
    with root.folder((SCRATCH,), make=True) as scratch, root.folder(()) as top:
        name, handle = new_file(scratch)
        try:
            write_all(handle, me)
            os.close(handle)
            _acquire(top, scratch, name, seconds)
        finally:
            remove(scratch, name)
        try:
            yield
        finally:
            with suppress(OSError):
                if _owner(top) == me:
                    remove(top, _LOCK)


def _acquire(top: int, scratch: int, name: str, seconds: float) -> None:
    start = since = time.monotonic()
    seen = b""
    pause = _POLL
    while not link_new(scratch, name, top, _LOCK):
        owner = _owner(top)
        now = time.monotonic()
        if owner != seen:
            seen, since = owner, now
        if owner and (now - since > DEAD or _is_dead(owner)):
            with suppress(OSError):
                os.rename(_LOCK, f"{OURS}new-{uuid.uuid4().hex}", src_dir_fd=top, dst_dir_fd=scratch)
            seen = b""
            continue
        if now - start > seconds:
            raise BusyError("others write to this shared cache all the while", wait=1.0)
        time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads, guards nothing
        pause = min(0.1, pause * 1.3)


def _owner(top: int) -> bytes:
    """What stands in the lock; empty where there is none."""
    try:
        handle = open_file(top, _LOCK)
    except OSError:
        return b""
    try:
        return read_all(handle, 1024)
    finally:
        os.close(handle)


def _is_dead(owner: bytes) -> bool:
    try:
        claim = json.loads(owner)
        if claim["host"] != _host():
            return False
        # The name in parentheses may hold anything; the state follows it.
        state = Path(f"/proc/{int(claim['pid'])}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return Path("/proc/self/stat").exists()
    except (ValueError, KeyError, TypeError, IndexError, OSError, RecursionError):
        return False
    return state in "ZX"  # killed, and not buried yet
