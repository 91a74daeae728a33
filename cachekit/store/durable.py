"""Make a file appear whole or not at all, and stay; and folders of one running process, which disappear with it.

A file is written, fsynced and renamed, and then its folder is fsynced. A private folder (`Scratch`) goes at exit, or is
swept by the next process after a kill: the owner holds a lock on a file beside the folder for as long as it lives. The
kernel frees the lock when the process dies, however it dies, so a free lock is proof that the folder has no owner.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from cachekit.errors import StoreError
from cachekit.files import create, hold
from cachekit.inside import Inside, remove_tree
from cachekit.private import CLOSED
from cachekit.process import began
from cachekit.text import cause_of

LANES = 8  # files that are made durable at once


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folders(folders: Iterable[Path], root: Path) -> None:
    """Create folders and their parents up to `root`, each durable in its own parent.

    A folder that is there already is made durable all the same: whoever made it may have died before that. Somebody
    else's link in the place of one is refused.
    """
    parents: set[Path] = set()
    for folder in folders:
        with Inside(root).folder(folder, make=True):
            pass
        above = [*folder.parents]
        parents.update(above[: above.index(root.parent) + 1])
    for parent in parents:
        with suppress(PermissionError):  # the root's parent may be somebody else's
            sync_folder(parent)


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
    try:
        there = _synced(list(moves), mode)
        folders = {moves[finished].parent for finished in there}
        make_folders(folders, root)
        moved = {target for finished in there if _move(finished, target := moves[finished], root)}
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
        make_folders([target.parent], root)  # somebody removed it meanwhile
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


_LOCK = re.compile(r"(.+-\d+-[0-9a-f]{12})\.lock")
_CACHE_DIR = re.compile(r"[0-9a-f]{16}-(\d+)-[0-9a-f]{12}")


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
    """Remove the folders whose owner is gone, also those made again; returns which. For the arguments see `Scratch`."""
    with suppress(OSError), (inside or Inside(base)).folder(base) as handle:
        again = [name for name in made_again(handle) if remove_tree(name, handle)]
        return [base / name for name in (*_swept(handle), *again)]
    return []


def made_again(base: int) -> list[str]:
    """The names of the compiler cache dirs in an open folder that a child made again which outlived the owner.

    They have no lock: the owner's is there before its folder, and until that is gone. Only the names of compiler cache
    dirs count, as the folder may be one of the user's, with other things in it.
    """
    owners = {name: found[1] for name in os.listdir(base) if (found := _CACHE_DIR.fullmatch(name))}
    locks = set(os.listdir(base))  # listed after the folders: of a new one the lock is there
    return [name for name, pid in owners.items() if f"{name}.lock" not in locks and not _lives(int(pid))]


def _lives(pid: int) -> bool:
    try:
        began(pid)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


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
