"""A blob on its way in: what arrived stays if the process is killed, and the next process goes on from there.

The owner holds a lock on the file. A process that finds the file locked fetches into a file of its own: the bytes come
twice then, which is harmless. So it does where the file is not this user's alone: whoever wrote it, or holds it open,
would say what the bytes are. Where nobody knows the digest of a blob, and others can move files about in the store, it
resumes nothing. Nor does it where somebody else took the place of this user's unfinished files.

The digest of the whole is computed in a thread beside whoever receives and writes the bytes: it takes longer than both.
The disk writes meanwhile, too: the sync at the end would write all of it, with the line idle.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from cachekit import path_steps, whose
from cachekit.files import hold, is_digest
from cachekit.private import FILE, closed_folder
from cachekit.store.blobs import PIECE, Digester, read_into
from cachekit.store.layout import Layout
from cachekit.text import DAY

_NAME = re.compile(r"(unknown-)?[0-9a-f]{64}(\.[0-9a-f]{8})?")
OLDEST = 7 * DAY  # seconds; what nobody went on with by then is removed
BLOCK = 512 << 10  # bytes that are handed over at once: each time costs a change of threads
AHEAD = 8  # blocks that may wait to be hashed
ALONE = 8 << 20  # bytes up to which no thread is started: there are other files beside


class Partial:
    """The file for a blob that is being fetched; made by `receiving`.

    Attributes:
        path: The file.
        size: Bytes that were taken; the last of them may not be in the file yet.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle
        self._digester = Digester()
        self._lane: ThreadPoolExecutor | None = None  # computes the digest of the whole, block by block
        self._ahead: deque[Future[None]] = deque()
        self._block: list[bytes] = []
        self._waiting = 0  # bytes of the block
        self._taken = 0  # bytes since it was opened
        read_into(self._digester, handle)
        self.size = self._begun = self._digester.size  # the second: what the disk was told to write

    def write(self, data: bytes) -> None:
        """Append, and hash.

        Raises:
            OSError: It cannot be written: a full disk. That may also be said by the next call.
        """
        self._block.append(data)
        self._waiting += len(data)
        self._taken += len(data)
        self.size += len(data)
        if self._waiting >= BLOCK:
            self._hand_over()

    def finish(self) -> tuple[str, tuple[str, ...]]:
        """The digest of it all, and those of its pieces; all of it is in the file then.

        Raises:
            OSError: It cannot be written.
        """
        self._settle()
        return self._digester.finish()

    def restart(self) -> None:
        """Throw away what is there.

        Raises:
            OSError: It cannot be written.
        """
        self._settle()
        os.ftruncate(self._handle, 0)
        self._digester = Digester()
        self.size = self._begun = 0

    def close(self) -> None:
        """Put what was taken into the file, as far as that works, and end the thread."""
        with suppress(OSError):
            self._settle()
        if self._lane is not None:
            self._lane.shutdown()

    def _hand_over(self) -> None:
        data, self._block, self._waiting = b"".join(self._block), [], 0
        if self._taken > ALONE and self._lane is None:
            self._lane = ThreadPoolExecutor(1, thread_name_prefix="pull-hash")
        if self._lane is None:
            self._digester.update_whole(data)
        else:
            if len(self._ahead) >= AHEAD:
                self._ahead.popleft().result()
            self._ahead.append(self._lane.submit(self._digester.update_whole, data))
        view = memoryview(data)
        while view:
            count = os.pwrite(self._handle, view, self._digester.size)
            self._digester.update_pieces(view[:count])
            view = view[count:]
        if self._digester.size - self._begun >= PIECE:
            _begin_writing(self._handle, self._begun, self._digester.size)
            self._begun = self._digester.size

    def _settle(self) -> None:
        if self._block:
            self._hand_over()
        while self._ahead:
            self._ahead.popleft().result()


def _begin_writing(handle: int, start: int, end: int) -> None:
    """Have the disk write a part of a file, without waiting for it.

    Linux begins to write what it is told not to keep, and keeps what is not written yet [mm/fadvise.c]: all of a part
    that has just come.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # it is for speed only
            os.posix_fadvise(handle, start, end - start, os.POSIX_FADV_DONTNEED)


@contextmanager
def receiving(layout: Layout, name: str, aside: Path | None = None) -> Iterator[Partial]:
    """Open the file for a blob, with what is there already.

    Args:
        layout: The store's paths.
        name: The blob's SHA-256; where that is not known, `unknown-` and 64 hex digits.
        aside: A private folder in the store, where the file is made if somebody else took the place of such files.

    Raises:
        OSError: It cannot be made.
    """
    shared = not is_digest(name) and whose.standing(layout.partial).whose == "others"
    place = _place(layout, aside)
    path = place / name
    with layout.inside.folder(place, make=True) as folder:
        handle = None if shared else _held(name, folder)
        own = handle is None
        if handle is None:
            path = path.with_name(f"{name}.{uuid.uuid4().hex[:8]}")
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(path.name, flags, FILE, dir_fd=folder)
    try:
        part = Partial(path, handle)
        try:
            yield part
        finally:
            part.close()
    except BaseException:
        if own:  # nobody would go on with it
            with suppress(OSError):
                layout.inside.unlink(path)
        raise
    finally:
        os.close(handle)


def _place(layout: Layout, aside: Path | None) -> Path:
    try:
        layout.inside.check(layout.partial.parent)
        # Bytes of strangers in a file of this user's: nobody else gives them another name in the store.
        closed_folder(layout.partial)
        layout.inside.check(layout.partial)
    except OSError:
        if aside is None:
            raise
        return aside
    return layout.partial


def taken(layout: Layout) -> Path | None:
    """What somebody else made in the place of this user's unfinished files; None where nobody did."""
    for path in (layout.partial.parent, layout.partial):
        with suppress(OSError):  # it is not there, or the way to it is told of itself
            state = path.lstat()
            if stat.S_ISLNK(state.st_mode) and path_steps.is_mine(state):  # this user's own arrangement
                continue
            if not stat.S_ISDIR(state.st_mode) or (path == layout.partial and state.st_uid != os.geteuid()):
                return path
    return None


def _held(name: str, folder: int) -> int | None:
    """The file in an open folder, locked; None if another process holds it, or others can write to it."""
    try:
        handle = hold(name, mode=FILE, above=folder)
    except PermissionError:
        # Whole and read-only, and whoever was about to publish it died; or another user's.
        try:
            _writable(name, folder)
            handle = hold(name, os.O_RDWR, above=folder)
        except OSError:
            return None
    if handle is None or whose.wrote(handle):
        return handle
    os.close(handle)
    return None


def _writable(name: str, folder: int) -> None:
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fchmod(handle, FILE)
    finally:
        os.close(handle)


def sweep(layout: Layout) -> None:
    """Remove files that nobody continued for a week."""
    with suppress(OSError), layout.inside.folder(layout.partial) as folder:
        names = os.listdir(folder)  # noqa: PTH208 - an open folder has no path
        for name in filter(_NAME.fullmatch, names):
            with suppress(OSError):
                if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < time.time() - OLDEST:
                    os.unlink(name, dir_fd=folder)
