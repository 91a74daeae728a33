"""A folder of one running process, which disappears with it: at exit, or swept by the next process after a kill.

The owner holds a lock on a file beside the folder for as long as it lives. The kernel frees the lock when the process
dies, however it dies, so a free lock is proof that the folder has no owner.
"""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from cachekit.files import hold
from cachekit.private import CLOSED


class Scratch:
    """A folder that only this user can look into; use it as a context manager.

    Args:
        base: The folder of such folders; folders without an owner are swept from it on entry.
        prefix: How the folder's name starts, for people who look.
    """

    def __init__(self, base: Path, prefix: str = "run") -> None:
        name = f"{prefix}-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.path = base / name
        self._base = base
        self._lock_path = base / f"{name}.lock"
        self._lock: int | None = None

    def __enter__(self) -> Path:
        self._base.mkdir(parents=True, exist_ok=True)
        sweep(self._base)
        # The lock first: a folder is never seen without its owner's lock.
        while self._lock is None:
            self._lock = hold(self._lock_path)
        self.path.mkdir(CLOSED)
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # the next sweep tries again; the work inside is done
            _remove(self.path, self._lock_path)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove(folder: Path, lock_path: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        return False  # it keeps its lock file, so that a later sweep finds it again
    lock_path.unlink(missing_ok=True)
    return True


def sweep(base: Path) -> list[Path]:
    """Remove the folders whose owner is gone; returns which."""
    swept = []
    try:
        locks = [path for path in base.iterdir() if path.suffix == ".lock"]
    except OSError:
        return []
    for lock_path in locks:
        try:
            handle = hold(lock_path, os.O_RDWR)
        except OSError:
            continue  # gone, or not ours to touch
        if handle is None:
            continue
        try:
            folder = lock_path.with_suffix("")
            if _remove(folder, lock_path):
                swept.append(folder)
        finally:
            os.close(handle)
    return swept
