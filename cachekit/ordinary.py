"""Open what should be an ordinary file, without waiting for what is none: a pipe in a blob's place has no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def opened(path: Path | str, *, buffering: int = -1) -> BinaryIO:
    """A file for reading.

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


def _opener(path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # whoever opens a folder is told by `open` itself
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is no ordinary file", path)
