"""Documents in a shared folder: compare-and-swap with nothing but exclusive creation.

    records/x/abc.json                                  what people and other tools read: a copy of the present state
    records/x/.cachekit-doc-abc.json/000000000007       the present state: the highest number
    records/x/.cachekit-doc-abc.json/000000000006       the one before it, for who is just reading

A swap on top of generation 7 is the creation of 8, whole, by a link: of two only one succeeds, whoever is stopped or
killed at whatever moment. There is no lock, no clock and no waiting in it.

Old generations are removed, so a writer that slept for long may find its number free again. Each generation therefore
names those before it, and a writer that finds a higher one than its own looks whether it is among them.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import uuid
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, structs

from cachekit.errors import ConflictError, TooLargeError, UncertainError, UntrustedError
from cachekit.remotes.folder.confined import (
    OURS,
    ConfinedFolder,
    is_absent,
    link_new,
    new_file,
    open_file,
    read_all,
    remove,
    sweep,
    write_all,
)
from cachekit.remotes.port import ABSENT, Document

FOLDER = f"{OURS}doc-"
_BEFORE = 32  # ids of earlier generations that each one names
_HEAD = 4096  # bytes that hold the first line
_TRIES = 64  # a head that is swept while it is read means that others made progress
_DIGITS = 12
_NO_DATA = -1  # as a limit: only what it is
_ANY = 1 << 30  # as a limit: cachekit's own documents are bounded when they are written
_HASHED = 64 << 20  # bytes of a file of others that name its state; a larger one is known by its number, size and time
# After these answers to a link it is certain that there is none.
_REFUSED = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.EXDEV,
    errno.EMLINK,
    errno.EOPNOTSUPP,
)


class Generation(Struct, frozen=True):
    """A generation.

    Attributes:
        number: 0 where there is none; then the plain file, if there is one, is the document.
        id: Its own.
        before: Ids of the ones before it, the last first.
        there: There is a document; False where it was removed, or never was.
        data: Its bytes, where they were asked for.
    """

    number: int
    id: str
    before: tuple[str, ...]
    there: bool
    data: bytes = b""

    @property
    def token(self) -> str:
        """What names it to a writer."""
        return f"{self.number}.{self.id}" if self.there else ABSENT


class Generations:
    """A document.

    Args:
        root: The remote's folder.
        steps: The document's path.
    """

    def __init__(self, root: ConfinedFolder, steps: tuple[str, ...]) -> None:
        self._root = root
        self._above = steps[:-1]
        self._name = steps[-1]
        self._steps = (*self._above, FOLDER + self._name)

    def read(self, limit: int) -> Document | None:
        """The document; None where there is none.

        Raises:
            TooLargeError: It is larger than `limit`.
            OSError: It cannot be read.
        """
        state = self._state(limit)
        if state.number:
            with suppress(OSError, UntrustedError):  # a reader may not be allowed to write
                self._heal(state)
        return Document(state.data, state.token) if state.there else None

    def check(self, token: str) -> Generation:
        """The present state, if it is the one that this token names.

        Raises:
            ConflictError: It is not.
        """
        state = self._state(_NO_DATA)
        if state.token != token:
            raise self._conflict()
        return state

    def _conflict(self) -> ConflictError:
        return ConflictError(f"{'/'.join((*self._above, self._name))} was changed by somebody else in the meantime")

    def swap(self, token: str, data: bytes | None) -> None:
        """Replace the document, or remove it (None).

        Args:
            token: Of the state that it replaces.
            data: The new bytes.

        Raises:
            ConflictError: It is not in that state any more; nothing was changed.
            UncertainError: The file system did not say what became of it, or this process slept for so long that
                nobody knows any more.
            OSError: It cannot be written; nothing was changed.
        """
        if data is None and token == ABSENT:
            self.check(token)
            return
        with self._root.folder(self._steps, make=True) as folder:
            # The new file comes first: it makes an NFS client forget what it remembers of this folder.
            fresh, handle = new_file(folder)
            try:
                state = self.check(token)
                before = (state.id, *state.before)[:_BEFORE]
                mine = Generation(state.number + 1, uuid.uuid4().hex[:16], before, data is not None, data or b"")
                write_all(handle, _encode(mine))
                self._root.file_mode(handle, fixed=True)
                os.fsync(handle)
                now = os.fstat(handle).st_mtime
                self._decide(folder, fresh, mine)
            finally:
                os.close(handle)
                remove(folder, fresh)
            for number in sorted(_numbers(folder)):  # upwards: whoever misses one misses all before it too
                if number < mine.number - 1:
                    remove(folder, _named(number))
            with suppress(OSError):
                sweep(folder, now, OURS)
            with suppress(OSError):  # it has happened; the copy is made good by the next reader
                self._show(folder, mine)

    def _decide(self, folder: int, fresh: str, mine: Generation) -> None:
        try:
            if not link_new(folder, fresh, folder, _named(mine.number)):
                raise self._conflict()
            os.fsync(folder)
            self._settle(folder, mine)
        except OSError as error:
            if error.errno in _REFUSED:
                raise
            raise UncertainError(
                f"it is not known whether {'/'.join((*self._above, self._name))} was changed", cause=str(error)
            ) from error

    def _settle(self, folder: int, mine: Generation) -> None:
        """Make sure that the new generation was the next one, and not a number that had become free again."""
        for _ in range(_TRIES):
            number = max(_numbers(folder), default=0)
            if number <= mine.number:
                return
            head = self._load(folder, number, _NO_DATA)
            if head is None:
                continue
            if mine.id in head.before:
                return
            if number - mine.number <= len(head.before):
                raise self._conflict()
            break
        raise UncertainError(f"{'/'.join((*self._above, self._name))} was changed many times while this process slept")

    def _state(self, limit: int) -> Generation:
        try:
            with self._root.folder(self._steps) as folder:
                for _ in range(_TRIES):
                    number = max(_numbers(folder), default=0)
                    if number == 0:
                        break
                    state = self._load(folder, number, limit)
                    if state is not None:
                        return state
                else:
                    raise _unread(still_there=number in _numbers(folder))
        except OSError as error:
            if not is_absent(error):
                raise
        return self._plain(limit)

    def _load(self, folder: int, number: int, limit: int) -> Generation | None:
        """Read a generation; None where it was removed meanwhile.

        Args:
            folder: Of generations.
            number: Which.
            limit: The largest document to read; `_NO_DATA` reads only what it is.
        """
        try:
            handle = open_file(folder, _named(number))
            try:
                self._root.owners.check(handle, Path(*self._steps, _named(number)))
                line, newline, _ = read_all(handle, _HEAD).partition(b"\n")
                try:
                    head = json.loads(line)
                    identity, removed = str(head["id"]), bool(head["removed"])
                    before = tuple(str(one) for one in head["before"])
                except (
                    ValueError,
                    KeyError,
                    TypeError,
                    RecursionError,
                ):  # not ours, or damaged: a document that others can replace
                    identity, removed, before, newline, line = "damaged", False, (), b"", b""
                if removed or limit == _NO_DATA:
                    return Generation(number, identity, before, not removed)
                skip = len(line) + len(newline)
                os.lseek(handle, skip, os.SEEK_SET)
                state = Generation(number, identity, before, there=True)
                size = os.fstat(handle).st_size - skip
                if size > limit:
                    raise _too_large(size, limit, state)
                return structs.replace(state, data=read_all(handle, size))
            finally:
                os.close(handle)
        except OSError as error:
            if is_absent(error):
                return None
            raise

    def _plain(self, limit: int) -> Generation:
        """The state of a document that another tool put there, by copying a cache repo into the folder."""
        try:
            handle = self._root.opened((*self._above, self._name))
            try:
                return _of_others(handle, limit)
            finally:
                os.close(handle)
        except OSError as error:
            if not is_absent(error):
                raise
            self._root.look()
            return Generation(0, "", (), there=False)

    def _heal(self, state: Generation) -> None:
        """Repair the plain copy where a writer was killed before it could update it."""
        with self._root.folder(self._above) as above:
            try:
                size = os.stat(self._name, dir_fd=above, follow_symlinks=False).st_size
            except FileNotFoundError:
                size = None
        if size != (len(state.data) if state.there else None):
            with self._root.folder(self._steps, make=True) as folder:
                self._show(folder, state)

    def _show(self, folder: int, state: Generation) -> None:
        """Copy a state to the plain path; whoever comes last finds that it is the present one, or copies again."""
        with self._root.folder(self._above) as above:
            for _ in range(_TRIES):
                if state.there:
                    self._copy(folder, above, state.data)
                else:
                    with suppress(FileNotFoundError):
                        os.unlink(self._name, dir_fd=above)
                now = self._state(_ANY)
                if now.number == state.number:
                    return
                state = now

    def _copy(self, folder: int, above: int, data: bytes) -> None:
        fresh, handle = new_file(folder)
        try:
            write_all(handle, data)
            self._root.file_mode(handle, fixed=False)
            os.fsync(handle)
            os.rename(fresh, self._name, src_dir_fd=folder, dst_dir_fd=above)
        except OSError:
            remove(folder, fresh)
            raise
        finally:
            os.close(handle)


def _named(number: int) -> str:
    return f"{number:0{_DIGITS}d}"


def _unread(*, still_there: bool) -> OSError:
    """Why no generation of a document could be read."""
    if still_there:
        return OSError(errno.EINVAL, "what lies there is not a regular file")
    return BlockingIOError(errno.EAGAIN, "it changes faster than it can be read")


def _numbers(folder: int) -> list[int]:
    names = os.listdir(folder)
    return [int(name) for name in names if len(name) == _DIGITS and name.isascii() and name.isdecimal()]


def _encode(state: Generation) -> bytes:
    head = {"cachekit": 1, "id": state.id, "before": state.before, "removed": not state.there}
    return json.dumps(head).encode() + b"\n" + state.data


def _of_others(handle: int, limit: int) -> Generation:
    """The state of a plain file."""
    found = os.fstat(handle)
    if found.st_size <= _HASHED:
        data = read_all(handle, _HASHED)
        state = Generation(0, hashlib.sha256(data).hexdigest(), (), there=True, data=data)
    else:
        state = Generation(0, f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}", (), there=True)
    if limit != _NO_DATA and found.st_size > limit:
        raise _too_large(found.st_size, limit, state)
    return state


def _too_large(size: int, limit: int, state: Generation) -> TooLargeError:
    return TooLargeError(f"a document of {size:,} bytes, of which {limit:,} are allowed", token=state.token)
