"""Regular files: opened without waiting on a pipe, replaced whole, locked while their owner lives."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def opened(path: Path | str, *, buffering: int = -1) -> BinaryIO:
    """A file for reading. A pipe in its place is not waited for: that has no end.

    Raises:
        OSError: It cannot be read, or is a pipe, a socket or a device.
    """
    return open(path, "rb", buffering=buffering, opener=_opener)


def read(path: Path | str) -> bytes:
    """All of a file.

    Raises:
        OSError: See `opened`.
    """
    with opened(path, buffering=0) as source:
        return source.read()


def appending(path: Path | str) -> BinaryIO:
    """A file to append to, unbuffered; made where it is missing.

    Raises:
        OSError: It cannot be written, or is a pipe, a socket or a device.
    """
    return open(path, "ab", buffering=0, opener=_opener)


def _opener(path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # whoever opens a folder is told by `open` itself
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is not a regular file", path)


def replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: whoever reads sees what was there, or what is there now.

    A power cut may lose it; `store.durable` is for what must not be lost.

    Raises:
        OSError: It cannot be written. What was there stays.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}")
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def note(path: Path, data: bytes) -> bool:
    """Keep something small for later runs, in a folder that is made where needed, as `replace` does.

    Returns:
        Whether that worked: a note that cannot be kept is no reason to fail.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, data)
    except OSError:
        return False
    return True


def hold(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int | None:
    """Lock a file or folder, not waiting; the kernel frees it when its holder dies, however that dies.

    A lock file is removed by whoever holds it. So a process may come to hold a file that has lost its name meanwhile,
    and that says nothing: what is held must be what the name leads to. Not every version of filelock looks.

    Args:
        path: The file.
        flags: To open it with.

    Returns:
        A handle to close; None where another holds it, or the name leads elsewhere by now.

    Raises:
        OSError: It cannot be opened, or the file system has no locks.
    """
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None
