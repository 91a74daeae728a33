"""Make a file appear whole or not at all, and stay: write, fsync, rename, fsync the folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cachekit.errors import StoreError

LANES = 8  # files that are made durable at once


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path, root: Path) -> None:
    """Create a folder and its parents up to `root`, each durable in its own parent.

    A folder that is there already is made durable all the same: whoever made it may have died before that.
    """
    if folder != root:
        make_folder(folder.parent, root)
    folder.mkdir(exist_ok=True, parents=folder == root)
    with suppress(PermissionError):  # the root's parent may be somebody else's
        sync_folder(folder.parent)


def publish(finished: Path, target: Path, root: Path, *, mode: int = 0o444) -> None:
    """Move a finished file to its place, durably.

    The file's bytes and then its name reach the disk before this returns; a crash at any moment leaves the old state
    or the new one. Replaces what is there: concurrent writers of one name each leave a whole file.

    Args:
        finished: A closed file on the same file system; gone afterwards.
        target: Its final path, below `root`.
        root: The store's folder; what lies above it is not ours to make durable.
        mode: Permission bits; read-only by default, so that nothing writes to a published file by mistake.
    """
    with publishing(root, mode=mode) as one:
        if one.prepare([finished]) or not one.move(finished, target):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(finished))


class Publishing:
    """Publishes many files; see `publishing`."""

    def __init__(self, root: Path, mode: int) -> None:
        self._root = root
        self._mode = mode
        self._folders: set[Path] = set()

    def prepare(self, finished: Sequence[Path]) -> set[Path]:
        """Make the bytes of closed files durable, several at once: a disk writes many in little more time than one.

        Returns:
            Those that are not there.
        """
        if len(finished) == 1:
            return set() if self._prepare(finished[0]) else set(finished)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(max_workers=LANES) as pool:
            return {path for path, there in zip(finished, pool.map(self._prepare, finished), strict=True) if not there}

    def _prepare(self, path: Path) -> bool:
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            os.fchmod(handle, self._mode)
            os.fsync(handle)
        finally:
            os.close(handle)
        return True

    def move(self, finished: Path, target: Path) -> bool:
        """Give a prepared file its place; returns whether it was there."""
        folder = target.parent
        if folder not in self._folders:
            make_folder(folder, self._root)
            self._folders.add(folder)
        try:
            finished.replace(target)
        except FileNotFoundError:
            if not finished.exists():
                return False
            make_folder(folder, self._root)  # somebody removed it meanwhile
            finished.replace(target)
        return True

    def finish(self) -> None:
        """Make the names durable."""
        for folder in self._folders:
            with suppress(FileNotFoundError):
                sync_folder(folder)


@contextmanager
def publishing(root: Path, *, mode: int = 0o444) -> Iterator[Publishing]:
    """Publish many files: as `publish` does, but that their names are durable only when the block is left.

    Args:
        root: The store's folder.
        mode: Permission bits.
    """
    many = Publishing(root, mode)
    try:
        yield many
    finally:
        many.finish()


def write_bytes(scratch: Path, target: Path, root: Path, data: bytes, *, mode: int = 0o444) -> None:
    """Publish bytes under a name; `scratch` is an own folder on the same file system."""
    finished = scratch / f"{target.name}.new"
    finished.write_bytes(data)
    publish(finished, target, root, mode=mode)


def store_error(home: Path, error: OSError) -> StoreError:
    """An error of the operating system as one that says what to do."""
    hints = {
        errno.ENOSPC: "free some space, or set CACHEKIT_HOME to another disk",
        errno.EDQUOT: "your quota is used up; set CACHEKIT_HOME to another disk",
        errno.EFBIG: "files may not be as large as this: see `ulimit -f`, or the file system's own limit",
        errno.EROFS: "the file system is read-only; set CACHEKIT_HOME to a writable folder",
        errno.EACCES: "set CACHEKIT_HOME to a folder that you may write to",
        errno.EPERM: "set CACHEKIT_HOME to a folder that you may write to",
        errno.ENOTDIR: "CACHEKIT_HOME must be a folder",
        errno.EEXIST: "CACHEKIT_HOME must be a folder",
    }
    return StoreError(
        f"the store at {home} cannot be written",
        cause=error.strerror or str(error),
        hint=hints.get(error.errno or 0, "check CACHEKIT_HOME with `cachekit config`"),
    )
