"""The read-write lock of a store, read for a publish and written for a removal; and what running processes use.

Removal has to know that no record comes to name a blob in the moment between looking and unlinking. So whoever
publishes holds the read lock for that long, and removal the write lock, for a fraction of a second at a time. It is a
lock on the store's own folder, and no file: it needs no room on a full disk, and nothing to write.

A process that uses a record for longer than a moment (a restore, a push, a pull that relies on blobs that are here)
notes the blobs in a file of its own (`InUse`), under a lock that the kernel frees when the process ends: removal leaves
them alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from cachekit.errors import StoreError, WaitedTooLongError
from cachekit.files import DIGEST, hold, read
from cachekit.store.layout import Layout
from cachekit.text import cause_of

PATIENCE = 60.0  # seconds to wait for removal, which may hang; then one goes on unprotected: at worst to meet a miss
BLOCKED = 5.0  # seconds that removal makes newcomers wait for those who are inside; then it lets them by
PAUSE = 0.5  # seconds until it tries again
TELL = 2.0  # seconds until somebody is told what is waited for; and then once a second
OFTEN = 0.02  # seconds between two looks at a lock that is taken
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF})


class RWLock:
    """The lock of one store, as one process holds it; its threads hold it together.

    Args:
        layout: The store's paths.
        tell: Called with the process that removes, as far as the system says, the seconds waited so far, and whether
            the wait was given up.
    """

    def __init__(self, layout: Layout, tell: Callable[[str, float, bool], object] = lambda *_: None) -> None:
        self._layout = layout
        self._tell = tell
        self._mutex = threading.Lock()
        self._inside = 0
        self._handle: int | None = None
        self._in_vain = False  # the last wait was given up, so the next one does not wait again

    @contextmanager
    def read_lock(self) -> Iterator[None]:
        """Keep removal out for the moment that the block takes; may be nested.

        A store that is not there yet, or a file system without locks, is passed as if nobody else were there; and so is
        a removal that does not come to an end: one that was suspended, or hangs on a dead disk.
        """
        with self._mutex:
            if self._inside == 0:
                self._handle = self._enter()
            self._inside += 1
        try:
            yield
        finally:
            with self._mutex:
                self._inside -= 1
                if self._inside == 0 and self._handle is not None:
                    os.close(self._handle)
                    self._handle = None

    def _enter(self) -> int | None:
        # The blobs' folder first, and only in passing: a removal that waits has locked it, so that nobody new comes in.
        start = time.monotonic()
        deadline, told = start + (0.0 if self._in_vain else PATIENCE), start + TELL - 1.0

        def waiting() -> None:
            nonlocal told
            if (now := time.monotonic()) - told >= 1.0:
                told = now
                self._tell(_remover(self._layout.root, self._layout.blobs), now - start, False)

        if (blobs := _opened(self._layout.blobs)) is not None:
            try:
                _lock(blobs, fcntl.LOCK_SH, deadline, waiting=waiting)
            finally:
                os.close(blobs)
        handle = _opened(self._layout.root)
        if handle is None:
            return None
        if _lock(handle, fcntl.LOCK_SH, deadline, waiting=waiting):
            self._in_vain = False
            return handle
        if time.monotonic() >= deadline:
            if not self._in_vain:
                self._tell(_remover(self._layout.root), time.monotonic() - start, True)
            self._in_vain = True
        else:
            self._in_vain = False
        os.close(handle)
        return None

    @contextmanager
    def write_lock(self, wait_seconds: float) -> Iterator[None]:
        """Be alone in the store for the block, which must be short.

        Raises:
            WaitedTooLongError: Others were inside for all that time.
            StoreError: There is no store, or its file system has no locks.
        """
        deadline = time.monotonic() + wait_seconds
        while (handles := self._alone(min(deadline, time.monotonic() + BLOCKED))) is None:
            if time.monotonic() >= deadline:
                raise WaitedTooLongError(
                    "other processes keep writing to the store",
                    cause=f"waited {wait_seconds:.0f} s for writers to finish",
                    hint="try again later",
                )
            time.sleep(PAUSE)
        try:
            yield
        finally:
            _close(handles)

    def _alone(self, until: float) -> list[int] | None:
        """Both folders, locked; None where others were inside all the time."""
        handles: list[int] = []
        alone = False
        try:
            for folder in (self._layout.blobs, self._layout.root):
                if (handle := _opened(folder)) is None:
                    raise StoreError(
                        f"the store at {self._layout.home} cannot be locked", hint="check that the folder exists"
                    )
                handles.append(handle)
            alone = all(_lock(handle, fcntl.LOCK_EX, until, strict=True) for handle in handles)
        except OSError as error:
            raise StoreError(
                f"the store at {self._layout.home} cannot be locked",
                cause=cause_of(error),
                hint="run the command on the machine that has the store on a local disk",
            ) from error
        finally:
            if not alone:
                _close(handles)
        return handles if alone else None


def _close(handles: Iterable[int]) -> None:
    for handle in handles:
        os.close(handle)


def _opened(folder: Path) -> int | None:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _remover(*folders: Path) -> str:
    """Who holds one of these folders alone, in words."""
    from cachekit.process import described, locking

    number = locking(folders)
    return "another process" if number is None else described(number)


def has_locks(folder: Path) -> bool:
    """Whether files of a folder can be locked; of a folder that cannot be opened, another call says what is wrong."""
    if (handle := _opened(folder)) is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # another process may have one
        return error.errno not in _NO_LOCKS
    else:
        return True
    finally:
        os.close(handle)


def _lock(
    handle: int,
    kind: int,
    deadline: float,
    *,
    strict: bool = False,
    waiting: Callable[[], object] = lambda: None,
) -> bool:
    """Lock a folder; False where the deadline passed first, or, unless strict, where there are no locks."""
    try:
        pause = 0.0005
        while True:
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                waiting()
                time.sleep(pause)
                pause = min(pause * 1.5, OFTEN)
            else:
                return True
    except OSError as error:
        if strict or error.errno not in _NO_LOCKS:
            raise
        return False


_NAME = re.compile(r"\d+-[0-9a-f]+")
_NOTED = re.compile(rf"^(key )?({DIGEST})$", re.MULTILINE)


class UsedNow(Struct, frozen=True):
    """What running processes use.

    Attributes:
        keys: Of records that somebody uses now.
        blobs: Digests that must stay.
        processes: Whose.
        dead: Notes of processes that are gone.
    """

    keys: frozenset[str] = frozenset()
    blobs: frozenset[str] = frozenset()
    processes: tuple[int, ...] = ()
    dead: tuple[Path, ...] = ()


class InUse:
    """What this process uses of a store, from the first `scope` that it enters to the end of the last one."""

    def __init__(self, layout: Layout, rwlock: RWLock) -> None:
        self._layout = layout
        self._rwlock = rwlock
        self._mutex = threading.Lock()
        self._depth = 0
        self._handle: int | None = None
        self._path: Path | None = None
        self._noted: set[str] = set()

    @property
    def active(self) -> bool:
        """Whether a scope is open."""
        return self._depth > 0

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is used in the block stays until its end, however the process ends."""
        with self._mutex:
            self._depth += 1
        try:
            yield
        finally:
            with self._mutex:
                self._depth -= 1
                if self._depth == 0:
                    self._release()

    def add(self, digests: Iterable[str], key: str = "") -> None:
        """Note that blobs, and a key's record, are in use; only inside of a scope, where the store can be written."""
        if not self._depth:
            return
        lines = [*([f"key {key}"] if key else []), *digests]
        with self._mutex:
            fresh = [line for line in dict.fromkeys(lines) if line not in self._noted]
            if fresh:
                self._write(fresh)

    def _write(self, fresh: list[str]) -> None:
        with self._rwlock.read_lock(), suppress(OSError):
            if self._handle is None:
                self._open()
            assert self._handle is not None
            raw = memoryview("".join(f"{line}\n" for line in fresh).encode("ascii"))
            while raw:
                raw = raw[os.write(self._handle, raw) :]
            self._noted.update(fresh)

    def _open(self) -> None:
        with self._layout.inside.folder(self._layout.in_use, make=True) as folder:
            for path in used_now(self._layout).dead:
                with suppress(OSError):
                    os.unlink(path.name, dir_fd=folder)
            while self._handle is None:
                name = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
                self._handle = hold(name, above=folder)
                self._path = self._layout.in_use / name

    def _release(self) -> None:
        if self._path is not None:
            with suppress(OSError):
                self._layout.inside.unlink(self._path)
        if self._handle is not None:
            os.close(self._handle)
        self._handle, self._path, self._noted = None, None, set()


def used_now(layout: Layout) -> UsedNow:
    """What is in use now, by the notes whose owners live; to be asked under the write lock, or as a guess."""
    keys: set[str] = set()
    blobs: set[str] = set()
    processes: list[int] = []
    dead: list[Path] = []
    with suppress(OSError), layout.inside.folder(layout.in_use) as folder:
        names = os.listdir(folder)  # noqa: PTH208 - an open folder has no path
        for note in sorted(filter(_NAME.fullmatch, names)):
            try:
                handle = hold(note, os.O_RDONLY, above=folder)
                if handle is not None:
                    is_note = not stat.S_ISDIR(os.fstat(handle).st_mode)
                    os.close(handle)
                    dead += [layout.in_use / note] * is_note
                    continue
                text = read(layout.in_use / note).decode("ascii", "replace")
            except OSError:
                continue  # gone meanwhile
            for is_key, name in _NOTED.findall(text):
                (keys if is_key else blobs).add(name)
            processes.append(int(note.partition("-")[0]))
    return UsedNow(frozenset(keys), frozenset(blobs), tuple(processes), tuple(dead))
