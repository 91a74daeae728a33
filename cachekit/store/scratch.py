"""A folder of one running process, which disappears with it: at exit, or swept by the next process after a kill.

The owner holds a lock on a file beside the folder for as long as it lives. The kernel frees the lock when the process
dies, however it dies, so a free lock is proof that the folder has no owner.
"""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from cachekit.files import hold
from cachekit.inside import Inside, remove_tree
from cachekit.private import CLOSED

_LOCK = re.compile(r"(.+-\d+-[0-9a-f]{12})\.lock")


class Scratch:
    """A folder that only this user can look into; use it as a context manager.

    Args:
        base: The folder of such folders; folders without an owner are swept from it on entry.
        prefix: How the folder's name starts, for people who look.
        inside: Opens the base; by default nobody else can change the way to it.
    """

    def __init__(self, base: Path, prefix: str = "run", inside: Inside | None = None) -> None:
        self.path = base / f"{prefix}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._base = base
        self._inside = inside or Inside(base)
        self._lock: int | None = None

    def __enter__(self) -> Path:
        with self._inside.folder(self._base, make=True) as base:
            _swept(base)
            # The lock first: a folder is never seen without its owner's lock.
            while self._lock is None:
                self._lock = hold(f"{self.path.name}.lock", above=base)
            os.mkdir(self.path.name, CLOSED, dir_fd=base)
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Where it fails, the next sweep tries again; the work inside is done.
        with suppress(OSError), self._inside.folder(self._base) as base:
            _remove(self.path.name, base)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove(name: str, base: int) -> bool:
    if not remove_tree(name, base):
        return False  # it keeps its lock file, so that a later sweep finds it again
    with suppress(FileNotFoundError):
        os.unlink(f"{name}.lock", dir_fd=base)
    return True


def sweep(base: Path, inside: Inside | None = None) -> list[Path]:
    """Remove the folders whose owner is gone; returns which. For the arguments see `Scratch`."""
    with suppress(OSError), (inside or Inside(base)).folder(base) as handle:
        return [base / name for name in _swept(handle)]
    return []


def folder_of(lock: str) -> str:
    """The name of the folder that a lock file is for; empty where a file of this name is none."""
    found = _LOCK.fullmatch(lock)
    return found[1] if found else ""


def _swept(base: int) -> list[str]:
    swept = []
    for lock in os.listdir(base):
        name = folder_of(lock)
        try:
            handle = hold(lock, os.O_RDWR, above=base) if name else None
        except OSError:
            continue  # gone, or not ours to touch
        if handle is None:
            continue
        try:
            with suppress(OSError):
                if _remove(name, base):
                    swept.append(name)
        finally:
            os.close(handle)
    return swept
