"""A remote in a shared folder: EFS, FSx, NFS, or a disk that several processes share.

Artifacts are written beside, made durable, and linked to their place, which fails where something is already.
Documents are swapped as `documents` says: each by itself, in the order of the change, after all of them were found in
the state that they are built on. There is no lock: on NFS and Lustre `flock` may do nothing. So of two changes of the
same documents at once one may write a part of its documents and then fail, as on an object store; each document is
whole and true by itself, and whoever builds on them again finds them as they are.

The folder must exist. What is made in it gets the folder's own permissions, whatever the umask: a team makes it once
with `mkdir -m 2775 FOLDER; chgrp TEAM FOLDER`. Everything that cachekit needs for itself is called `.cachekit-…`: files
there that were left by killed writers are removed after an hour.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import stat as stat_module
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cachekit.calls import Calls
from cachekit.disk import named
from cachekit.errors import AuthError, ConflictError, IntegrityError, RemoteError, UncertainError, UsageError
from cachekit.remotes.folder.confined import (
    OURS,
    SCRATCH,
    ConfinedFolder,
    FolderOwners,
    is_absent,
    link_new,
    new_file,
    remove,
    state_of,
    steps_of,
    sweep,
    write_all,
)
from cachekit.remotes.folder.documents import FOLDER, Generations
from cachekit.remotes.port import Commit, Document, Entry, Limits, Storage, Tell, Upload, reads_as
from cachekit.store.bundle import unpacked
from cachekit.text import cause_of, first_of

if TYPE_CHECKING:
    from cachekit.health import Finding

T = TypeVar("T")

_PIECE = 4 << 20
_BATCH = 256  # files that one bounded call looks at
_EVERY = 64  # changes of this process between two sweeps
_HINTS = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "the quota there is used up: free some space, or have it raised",
    errno.EROFS: "the folder is mounted read-only: use the remote with `:r`, or mount the folder for writing",
    errno.EACCES: "you may not do that there: `mkdir -m 2775` the folder for your group, or use the remote with `:r`",
    errno.EPERM: "you may not do that there, or FAT has no hard links: use the remote with `:r`, or another folder",
    errno.ENOENT: "mount or make the folder: cachekit makes none, so that nothing lands below a missing mount",
    errno.ENOTDIR: "its path must lead to a folder, and must not contain links",
    errno.ELOOP: "its path must not contain links",
    errno.EXDEV: "all of it must be one file system",
    errno.EOPNOTSUPP: "this file system has no hard links: use another file system, or an object store",
    errno.ENOSYS: "this file system has no hard links: use another file system, or an object store",
    errno.ENAMETOOLONG: "the name is too long for this file system",
}


class FolderStorage(Storage):
    """The folder at `path`.

    Args:
        path: An existing folder.
        limits: How long each step may take.
    """

    compares = True

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.name = str(path)
        self._path = path
        self._root = ConfinedFolder(path, FolderOwners(path))
        self._limits = limits or Limits()
        self._calls = Calls(self.name, hint="check whether its mount is alive: `ls` hangs on a dead one, too")
        self._changes = 0

    def revision(self) -> str:
        """Empty: a folder has no versions. Says whether it is there, and finds out whether it is an unpacked bundle."""

        def look() -> str:
            self._root.look()
            return unpacked(self._path)

        self.untold = self._do(look)
        return ""

    def stranger(self, memory: Path | None = None) -> str:
        """What owners, groups and modes say, of the folder and of those above it.

        So say those of the files that were read, and of the folders on the way to them.
        """

        def look() -> str:
            self._root.look()
            return self._root.owners.ask()

        return self._do(look)

    def place(self) -> str:
        """The folder itself, where a link to it is named."""
        return self._do(lambda: os.path.realpath(self._path))

    def check(self, paths: Sequence[str]) -> None:
        """Open each file that exists, as whoever reads it does."""
        for asked in _batches(paths):
            self._do(partial(self._open, asked))

    def _open(self, asked: Sequence[tuple[str, ...]]) -> None:
        for above, files in groupby(asked, lambda steps: steps[:-1]):
            with _absent_is_fine(), self._root.folder(above) as folder:
                for steps in files:
                    with _absent_is_fine():
                        os.close(self._root.opened_in(folder, steps))

    def stat(self, paths: Sequence[str], revision: str) -> dict[str, Entry]:
        """Those of the files that exist."""
        found: dict[str, Entry] = {}
        for asked in _batches(paths):
            found |= self._do(partial(self._look, asked))
        if not found:
            self.revision()
        return found

    def _look(self, asked: Sequence[tuple[str, ...]]) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for above, files in groupby(asked, lambda steps: steps[:-1]):
            with _absent_is_fine(), self._root.folder(above) as folder:
                entries = [self._entry(folder, steps) for steps in files]
                found |= {entry.path: entry for entry in entries if entry is not None}
        return found

    def _entry(self, folder: int, steps: tuple[str, ...]) -> Entry | None:
        path, name = "/".join(steps), steps[-1]
        state = state_of(folder, name)
        if state is not None and stat_module.S_ISREG(state.st_mode):
            return Entry(path, state.st_size)
        if state_of(folder, FOLDER + name) is None:
            return None
        # A document whose writer was killed before it made the copy for people.
        document = Generations(self._root, steps).read(1 << 30)
        return None if document is None else Entry(path, len(document.data))

    def list(self, folder: str, revision: str) -> Iterator[Entry]:
        """All files below a folder, without links and cachekit's own files."""
        waiting = [steps_of(folder) if folder else ()]
        self.revision()
        while waiting:
            above = waiting.pop()
            names = self._do(partial(self._names, above))
            for start in range(0, len(names), _BATCH):
                entries, folders = self._do(partial(self._kinds, above, names[start : start + _BATCH]))
                yield from entries
                waiting.extend(folders)

    def _names(self, above: tuple[str, ...]) -> Sequence[str]:
        try:
            with self._root.folder(above) as folder:
                names = os.listdir(folder)  # noqa: PTH208 - an open folder has no path
        except OSError as error:
            if is_absent(error):
                return []
            raise
        documents = {name[len(FOLDER) :] for name in names if name.startswith(FOLDER)}
        return sorted({name for name in names if not name.startswith(OURS)} | documents)

    def _kinds(self, above: tuple[str, ...], names: Sequence[str]) -> tuple[Sequence[Entry], Sequence[tuple[str, ...]]]:
        entries, folders = [], []
        with suppress(FileNotFoundError), self._root.folder(above) as folder:
            for name in names:
                steps = (*above, name)
                state = state_of(folder, name)
                if state is not None and stat_module.S_ISDIR(state.st_mode):
                    folders.append(steps)
                elif _can_be_held(steps) and (entry := self._entry(folder, steps)):
                    entries.append(entry)
        return entries, folders

    def read(self, path: str, revision: str, limit: int) -> Document | None:
        """A document whole."""
        document = Generations(self._root, steps_of(path))
        return self._do(lambda: document.read(limit))

    def chunks(self, path: str, revision: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes of a file."""
        steps = steps_of(path)

        def more() -> bytes:
            return os.pread(handle, _PIECE if end is None else min(_PIECE, end - start), start)

        try:
            handle = self._do(partial(self._root.opened, steps), absent=True)
        except FileNotFoundError:
            self.revision()
            raise FileNotFoundError(errno.ENOENT, "no such file in the remote", path) from None
        hangs = False
        try:
            while True:
                try:
                    piece = self._do(more)
                except RemoteError:
                    hangs = True
                    raise
                if not piece:
                    return
                start += len(piece)
                yield piece
        finally:
            if not hangs:  # closing may hang as well, and a number in use by a thread is not ours to free
                os.close(handle)

    def upload(self, files: Sequence[Upload], revision: str, tell: Tell) -> None:
        """Link the files to their places, each whole; those that are there already are compared."""
        taken = []
        folders: set[tuple[str, ...]] = set()
        for file in files:
            steps = steps_of(file.path)
            there = self._in_use(file, steps)
            if there is None and not self._put(file, steps, tell):
                there = self._in_use(file, steps)  # somebody else was faster
            if there is False:
                taken.append(file.path)
            else:
                folders.add(steps[:-1])
        for folder in sorted(folders):
            self._do(partial(self._sync, folder), self._limits.commit)
        if files:
            self._sweep()
        if taken:
            raise ConflictError(f"there are different bytes at {first_of(taken, 1)}")

    def _sync(self, steps: tuple[str, ...]) -> None:
        with self._root.folder(steps) as folder:
            os.fsync(folder)

    def _in_use(self, file: Upload, steps: tuple[str, ...]) -> bool | None:
        """Whether exactly these bytes lie at the path; None where nothing does."""

        def size() -> int | None:
            try:
                with self._root.folder(steps[:-1]) as folder:
                    found = os.stat(steps[-1], dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ESTALE):
                    return None
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                self._root.look()  # that one is a folder; so something else lies on the way
                return -1
            return found.st_size if stat_module.S_ISREG(found.st_mode) else -1

        there = self._do(size)
        if there != file.size:
            return None if there is None else False
        return reads_as(self, file.path, file.sha256)

    def _put(self, file: Upload, steps: tuple[str, ...], tell: Tell) -> bool:
        """Write a file; False where somebody else was faster."""
        scratch, name, handle = self._do(self._begin)
        try:
            digest, size = hashlib.sha256(), 0
            for piece in file.pieces(_PIECE):
                self._do(partial(write_all, handle, piece))
                digest.update(piece)
                size += len(piece)
                tell(len(piece))
            if (size, digest.hexdigest()) != (file.size, file.sha256):
                raise IntegrityError(f"the bytes for {file.path} are not those of its record")

            def finish() -> bool:
                self._root.file_mode(handle, fixed=True)
                os.fsync(handle)
                with self._root.folder(steps[:-1], make=True) as folder:
                    return link_new(scratch, name, folder, steps[-1])

            return self._do(finish, self._limits.commit)
        finally:
            # In a worker, and not waited for long: on a dead mount these hang as well.
            with suppress(RemoteError, AuthError):
                self._do(lambda: _end(scratch, name, handle))

    def _begin(self) -> tuple[int, str, int]:
        with self._root.folder((SCRATCH,), make=True) as folder:
            scratch = os.dup(folder)
        try:
            name, handle = new_file(scratch)
        except BaseException:
            os.close(scratch)
            raise
        return scratch, name, handle

    def commit(self, change: Commit, revision: str) -> str:
        """Swap the documents, one after the other, when all of them are in the state that they are built on."""
        documents = [(Generations(self._root, steps_of(write.path)), write) for write in change.writes]

        def swap() -> None:
            for document, write in documents:
                document.check(write.token)
            for document, write in documents:
                document.swap(write.token, write.data)

        # What comes too late is a swap that wins or fails like any other.
        self._do(swap, self._limits.commit, late=UncertainError)
        self._sweep()
        return ""

    def trouble(self, *, writable: bool) -> Finding | None:
        """Whether the folder is there, may be written, and has links."""
        from cachekit import disk
        from cachekit.health import Finding

        folder = shlex.quote(self.name)

        def look() -> Finding | None:
            if not self._path.exists():
                make = f"mkdir -p -m 2775 {folder}"
                return Finding("problem", f"{self.name} is not there", _HINTS[errno.ENOENT], make)
            if writable and not disk.may_write(self._path):
                run = f"sudo chmod g+ws {folder}"
                return Finding(
                    "problem", f"{self.name} cannot be written by this user", "use the remote with :r, or run:", run
                )
            if (kind := disk.file_system(self._path).kind) in disk.POOR:
                return Finding("problem", f"{self.name} is on {kind}, which has no hard links", "name another folder")
            return None

        return self._do(look)

    def _do(
        self,
        work: Callable[[], T],
        seconds: float = 0.0,
        *,
        absent: bool = False,
        late: type[RemoteError] = RemoteError,
    ) -> T:
        """Make system calls in time, with errors as the port has them.

        Args:
            work: What to do.
            seconds: How long it may take; `Limits.read` where it is not given.
            absent: Let errors that say that a file is not there through, as FileNotFoundError.
            late: The error where it took too long.
        """
        try:
            return self._calls.run(work, seconds or self._limits.read, late=late)
        except OSError as error:
            if absent and is_absent(error):
                raise FileNotFoundError(errno.ENOENT, "no such file") from None
            message, cause = f"{self.name} cannot be used", cause_of(error)
            hint = _HINTS.get(error.errno or 0, "check whether the folder is mounted, and what `dmesg` says")
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise AuthError(message, cause=cause, hint=hint) from error
            raise RemoteError(message, cause=cause, hint=hint, lasting=error.errno in _HINTS) from error

    def _sweep(self) -> None:
        """Remove what killed writers left: after a remote's first change, and now and then."""
        self._changes += 1
        if self._changes % _EVERY != 1:
            return

        def clean() -> None:
            scratch, name, handle = self._begin()
            try:
                sweep(scratch, os.fstat(handle).st_mtime, OURS)
            finally:
                _end(scratch, name, handle)

        with suppress(RemoteError, AuthError):  # what was asked for is done
            self._do(clean)


@contextmanager
def _absent_is_fine() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_absent(error):
            raise


def _batches(paths: Sequence[str]) -> Iterator[Sequence[tuple[str, ...]]]:
    """The steps of paths, folder by folder, as many as one bounded call looks at."""
    asked = sorted({steps_of(path) for path in paths}, key=lambda steps: (steps[:-1], steps))
    for start in range(0, len(asked), _BATCH):
        yield asked[start : start + _BATCH]


def opened(address: str, options: Mapping[str, str]) -> FolderStorage:  # noqa: ARG001 - as every kind of remote
    """The remote in a folder: a path, or `file://` and one, noted whole; it has no options.

    Raises:
        UsageError: It is in a home directory that is not known.
    """
    return FolderStorage(named(address.removeprefix("file://")).absolute())


def _can_be_held(steps: tuple[str, ...]) -> bool:
    """Whether a record can name this file."""
    try:
        steps_of("/".join(steps))
    except UsageError:
        return False
    return True


def _end(scratch: int, name: str, handle: int) -> None:
    os.close(handle)
    remove(scratch, name)
    os.close(scratch)
