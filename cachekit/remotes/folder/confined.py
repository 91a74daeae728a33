"""Files below one folder, and never outside of it: each step is opened by itself, and no link is followed.

Paths come from records that others wrote. Every function works on the open folder above a file, so that nothing can
be put in between.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from cachekit import whose
from cachekit.errors import UntrustedError, UsageError
from cachekit.remotes import layout
from cachekit.remotes.judging import HINT_BARE, refusal
from cachekit.text import cut
from cachekit.whose import Standing

OURS = ".cachekit-"  # how the names start of what is cachekit's own business
SCRATCH = f"{OURS}tmp"
STALE = 3600.0  # seconds, by the file system's own clock, after which a file of a writer is taken for abandoned
_SWEPT = 256  # files that one sweep looks at, chosen by chance: it must not take long on a slow mount
ABSENT_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ESTALE)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def steps_of(path: str) -> tuple[str, ...]:
    """The steps of a path that may be used.

    Raises:
        UsageError: It is absolute, goes up, or is a name that cachekit keeps for itself.
    """
    layout.check([path])
    steps = tuple(path.split("/"))
    if any(step.startswith(OURS) for step in steps):
        raise UsageError(
            f"{cut(path, 200)!r} cannot be the path of a file in a shared folder",
            cause=f"cachekit keeps names that begin with {OURS} for itself",
            hint="rename it",
        )
    return steps


class FolderOwners:
    """Those to whom a folder belongs, and whether what is opened in it is theirs.

    Whoever may write to one folder below can put a file there. Until somebody asks whose the folder is, such a file
    makes it a stranger's; from then on it is refused.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._standing: Standing | None = None
        self._lock = threading.Lock()
        self._outsider = ""
        self._trusted = False

    def ask(self) -> str:
        """Why others than these can have made what is read there; empty where they cannot.

        Raises:
            OSError: It cannot be looked at.
        """
        with self._lock:
            found = self._found()
            why = found.why if found.whose == "others" else self._outsider
            self._trusted = not why
            return why

    def check(self, handle: int, place: Path) -> None:
        """Look at a folder or a file.

        Args:
            handle: Its descriptor.
            place: Its path in the folder.

        Raises:
            OSError: It cannot be looked at.
            UntrustedError: Somebody else can have made it, and what lies in the folder was said to be trusted.
        """
        with self._lock:
            found = self._found()
            if found.whose == "others" or not (why := whose.outsider(handle, self._path / place, found)):
                return
            self._outsider = self._outsider or why
            if self._trusted:
                raise refusal(str(self._path), why, HINT_BARE)

    def _found(self) -> Standing:
        if self._standing is None:
            self._standing = whose.standing(self._path)
        return self._standing


class ConfinedFolder(Struct, frozen=True):
    """The folder.

    Attributes:
        path: Where it is; may itself be a link, and one that another user made is only read through. It is never made:
            where a mount is missing, nothing may be written to the disk below it.
        owners: Sees that what is opened is of those to whom the folder belongs.
    """

    path: Path
    owners: FolderOwners

    @contextmanager
    def folder(self, steps: Sequence[str], *, make: bool = False) -> Iterator[int]:
        """Open a folder; yields its descriptor.

        Args:
            steps: From the root on.
            make: Make what is missing, with the root's own permissions: a team's folder stays a team's.

        Raises:
            OSError: It is not there, or one step is a link or a file.
            UntrustedError: Somebody else can write to it; see `FolderOwners`. Something is to be made, and a link of
                another user's leads to the root.
        """
        handle = self._root_to_write() if make else os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            mode, place = stat.S_IMODE(os.fstat(handle).st_mode), Path()
            for step in steps:
                below = _enter(handle, step, mode if make else None)
                os.close(handle)
                handle = below
                place /= step
                self.owners.check(handle, place)
            yield handle
        finally:
            os.close(handle)

    def _root_to_write(self) -> int:
        try:
            return whose.open_to_write(self.path)
        except whose.StrangersLinkError as error:
            raise UntrustedError(
                f"{self.path} is not written to: another user decides where its name leads",
                cause=str(error.strerror),
                hint=f"if you trust that user, name the folder itself: {os.path.realpath(self.path)}",
            ) from error

    def opened(self, steps: Sequence[str]) -> int:
        """Open a file to be read; gives its descriptor.

        Raises:
            OSError: It is not there, or one step is a link, or no file lies at the end.
            UntrustedError: Somebody else can have made it; see `FolderOwners`.
        """
        with self.folder(steps[:-1]) as folder:
            return self.opened_in(folder, steps)

    def opened_in(self, folder: int, steps: Sequence[str]) -> int:
        """The same, in a folder that is open already."""
        handle = open_file(folder, steps[-1])
        try:
            self.owners.check(handle, Path(*steps))
        except BaseException:
            os.close(handle)
            raise
        return handle

    def look(self) -> None:
        """Raise OSError where the folder is gone: a remote that is gone is an error, not an empty remote."""
        with self.folder(()):
            return

    def file_mode(self, handle: int, *, fixed: bool) -> None:
        """Give an open new file the permissions of the root; nobody may write to it where it is `fixed`."""
        mode = self.path.stat().st_mode & (0o444 if fixed else 0o666)
        with suppress(PermissionError):  # some servers decide that themselves
            os.fchmod(handle, mode)


def _enter(above: int, step: str, mode: int | None) -> int:
    try:
        return os.open(step, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if mode is None:
            raise
    with suppress(FileExistsError):
        os.mkdir(step, 0o777, dir_fd=above)
        # Not what a person's umask says: the others of the team must be able to write here too.
        with suppress(PermissionError):
            os.chmod(step, mode & 0o2777, dir_fd=above)
        os.fsync(above)
    return os.open(step, _FOLDER, dir_fd=above)


def is_absent(error: OSError) -> bool:
    """Whether the error means that no such file is there (a link counts as none)."""
    return error.errno in ABSENT_ERRNOS


def state_of(folder: int, name: str) -> os.stat_result | None:
    """The state of what lies under a name, without following a link; None where nothing does."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if is_absent(error):
            return None
        raise


def open_file(folder: int, name: str) -> int:
    """Open a regular file for reading.

    Raises:
        OSError: It is not there; a link, a pipe or a folder is not a file.
    """
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "not a file", name)
    return handle


def read_all(handle: int, limit: int) -> bytes:
    """What is left of an open file, at most `limit` bytes."""
    pieces = []
    while limit > 0 and (piece := os.read(handle, min(limit, 4 << 20))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def write_all(handle: int, data: bytes | memoryview) -> None:
    """Write everything; a write may take less than it was given."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def new_file(folder: int) -> tuple[str, int]:
    """A new file under a name that nobody else has; returns both."""
    name = f"{OURS}new-{uuid.uuid4().hex}"
    return name, os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=folder)


def link_new(source: int, source_name: str, target: int, target_name: str) -> bool:
    """Give a finished file a second name that was free; False where it was not.

    A link is the one exclusive create that shows a file whole, and that NFS keeps exclusive.

    Raises:
        OSError: It cannot be linked.
    """
    try:
        os.link(source_name, target_name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except FileExistsError:
        # An answer that was lost on its way makes NFS ask again, and say that it was there already.
        mine = os.stat(source_name, dir_fd=source, follow_symlinks=False)
        with suppress(FileNotFoundError):
            return os.path.samestat(mine, os.stat(target_name, dir_fd=target, follow_symlinks=False))
        return False
    return True


def remove(folder: int, name: str) -> None:
    """Remove a file, if it is there and may be removed."""
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


def sweep(folder: int, now: float, prefix: str = "") -> None:
    """Remove files that writers left who were killed.

    Args:
        folder: Where.
        now: The file system's time: that of a file just written there. Clocks of other machines are not asked.
        prefix: Of the names.
    """
    names = [name for name in os.listdir(folder) if name.startswith(prefix)]
    for name in random.sample(names, min(len(names), _SWEPT)):
        with suppress(OSError):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and now - found.st_mtime > STALE:
                os.unlink(name, dir_fd=folder)
