"""Make a file appear whole or not at all, and stay: write, fsync, rename, fsync the folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cachekit.errors import StoreError
from cachekit.files import create
from cachekit.inside import Inside
from cachekit.text import cause_of

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

    A folder that is there already is made durable all the same: whoever made it may have died before that. Somebody
    else's link in the place of one is refused.
    """
    with Inside(root).folder(folder, make=True):
        pass
    while True:
        with suppress(PermissionError):  # the root's parent may be somebody else's
            sync_folder(folder.parent)
        if folder == root:
            return
        folder = folder.parent


def publish(moves: Mapping[Path, Path], root: Path, *, mode: int = 0o444) -> set[Path]:
    """Move finished files to their places, durably.

    The files' bytes and then their names reach the disk before this returns; a crash at any moment leaves the old state
    or the new one of each. Replaces what is there: concurrent writers of one name each leave a whole file.

    Args:
        moves: Closed files on the same file system, gone afterwards; and their final paths, below `root`.
        root: The store's folder; what lies above it is not ours to make durable.
        mode: Permission bits; read-only by default, so that nothing writes to a published file by mistake.

    Returns:
        The final paths of those that were there.
    """
    folders: set[Path] = set()
    moved: set[Path] = set()
    try:
        for finished in _synced(list(moves), mode):
            target = moves[finished]
            if target.parent not in folders:
                make_folder(target.parent, root)
                folders.add(target.parent)
            if _move(finished, target, root):
                moved.add(target)
    finally:
        for folder in folders:
            with suppress(FileNotFoundError):
                sync_folder(folder)
    return moved


def _synced(finished: Sequence[Path], mode: int) -> list[Path]:
    """Make the bytes of files durable, several at once: a disk writes many in little more time than one.

    Returns:
        Those that are there.
    """

    def sync(path: Path) -> bool:
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            os.fchmod(handle, mode)
            os.fsync(handle)
        finally:
            os.close(handle)
        return True

    if len(finished) == 1:
        return [path for path in finished if sync(path)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=LANES) as pool:
        return [path for path, there in zip(finished, pool.map(sync, finished), strict=True) if there]


def _move(finished: Path, target: Path, root: Path) -> bool:
    """Give a file its place; whether it was there."""
    try:
        finished.replace(target)
    except FileNotFoundError:
        if not finished.exists():
            return False
        make_folder(target.parent, root)  # somebody removed it meanwhile
        finished.replace(target)
    return True


def write_bytes(scratch: Path, target: Path, root: Path, data: bytes, *, mode: int = 0o444) -> None:
    """Publish bytes under a name; `scratch` is an own folder on the same file system."""
    finished = scratch / f"{target.name}.new"
    create(finished, data)
    publish({finished: target}, root, mode=mode)


def store_error(home: Path, error: OSError) -> StoreError:
    """An error of the operating system as one that says what to do."""
    no_folder = f"{error.filename or home} must be a folder: move away what is there, or set CACHEKIT_HOME"
    hints = {
        errno.ENOSPC: "free some space, or set CACHEKIT_HOME to another disk",
        errno.EDQUOT: "your quota is used up; set CACHEKIT_HOME to another disk",
        errno.EFBIG: "files may not be as large as this: see `ulimit -f`, or the file system's own limit",
        errno.EROFS: "the file system is read-only; set CACHEKIT_HOME to a writable folder",
        errno.EACCES: "set CACHEKIT_HOME to a folder that you may write to",
        errno.EPERM: "set CACHEKIT_HOME to a folder that you may write to",
        errno.ENOTDIR: no_folder,
        errno.EEXIST: no_folder,
    }
    return StoreError(
        f"the store at {home} cannot be written",
        cause=cause_of(error),
        hint=hints.get(error.errno or 0, "check CACHEKIT_HOME with `cachekit config`"),
    )
