"""Who is at work in a store while something is removed from it: a gate that all pass, and what each of them holds.

Removal has to know that no record comes to name a blob in the moment between looking and unlinking, and that nobody
is about to read it. So whoever publishes holds the gate's shared side for that long, and removal its exclusive side,
for a fraction of a second at a time. Whoever uses a record for longer (a restore, a push, a pull that counts on what
is here already) notes its blobs in a file of his own, under a lock that ends with him: those are left alone.

The gate is a lock on the store's own folder, and no file: it needs no room on a full disk, and nothing to write.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from cachekit.errors import StoreError, WaitedTooLongError
from cachekit.store.layout import Layout
from cachekit.store.scratch import hold

PATIENCE = 60.0  # seconds to wait for removal, which may hang; then one goes on unprotected: at worst to meet a miss
TURN = 5.0  # seconds that removal makes newcomers wait for those who are inside; then it lets them by
PAUSE = 0.5  # seconds until it tries again
TELL = 2.0  # seconds until somebody is told what is waited for; and then once a second
OFTEN = 0.02  # seconds between two looks at a lock that is taken
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF})
_HELD = re.compile(r"^(key )?([0-9a-f]{64})$", re.MULTILINE)


class Gate:
    """The gate of one store, as one process passes it; its threads pass it together.

    Args:
        layout: The store's paths.
        tell: Told whom removal is done by, as far as the system says, and how many seconds it was waited for; and
            whether that was in vain.
    """

    def __init__(self, layout: Layout, tell: Callable[[str, float, bool], object] = lambda *_: None) -> None:
        self._layout = layout
        self._tell = tell
        self._mutex = threading.Lock()
        self._inside = 0
        self._handle: int | None = None
        self._in_vain = False  # whether the last one waited to no end: the next one does not wait again

    @contextmanager
    def shared(self) -> Iterator[None]:
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
        # Through the turnstile first: while somebody waits for the exclusive side, nobody new comes in.
        start = time.monotonic()
        deadline, told = start + (0.0 if self._in_vain else PATIENCE), start + TELL - 1.0

        def waiting() -> None:
            nonlocal told
            if (now := time.monotonic()) - told >= 1.0:
                told = now
                self._tell(_remover(self._layout.root, self._layout.blobs), now - start, False)

        if (turnstile := _opened(self._layout.blobs)) is not None:
            try:
                _lock(turnstile, fcntl.LOCK_SH, deadline, waiting=waiting)
            finally:
                os.close(turnstile)
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
    def exclusive(self, wait_seconds: float) -> Iterator[None]:
        """Be alone in the store for the block, which must be short.

        Raises:
            WaitedTooLongError: Others were inside for all that time.
            StoreError: There is no store, or its file system has no locks.
        """
        deadline = time.monotonic() + wait_seconds
        while (handles := self._alone(min(deadline, time.monotonic() + TURN))) is None:
            if time.monotonic() >= deadline:
                raise WaitedTooLongError(
                    "others are writing to the store all the time",
                    cause=f"waited {wait_seconds:.0f} s for a moment without",
                    hint="try again later",
                )
            time.sleep(PAUSE)
        try:
            yield
        finally:
            _close(handles)

    def _alone(self, until: float) -> list[int] | None:
        """Both sides, locked; None where others were inside all the time."""
        handles: list[int] = []
        alone = False
        try:
            for folder in (self._layout.blobs, self._layout.root):
                if (handle := _opened(folder)) is None:
                    raise StoreError(f"the store at {self._layout.home} cannot be locked", hint="is it there?")
                handles.append(handle)
            alone = all(_lock(handle, fcntl.LOCK_EX, until, strict=True) for handle in handles)
        except OSError as error:
            raise StoreError(
                f"the store at {self._layout.home} cannot be locked",
                cause=error.strerror or str(error),
                hint="run this on the machine whose local disk it is",
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
    """The process that holds one of these folders alone: its number, name, and whether it stands still."""
    wanted = set()
    for folder in folders:
        with suppress(OSError):
            wanted.add(str(folder.stat().st_ino))
    with suppress(OSError, ValueError):
        # `1: FLOCK  ADVISORY  WRITE 4242 fd:01:1835017 0 EOF` [proc_locks(5)]; who waits has `->` before FLOCK.
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[1:4:2] == ["FLOCK", "WRITE"] and words[5].rpartition(":")[2] in wanted:
                return _process(int(words[4]))
    return "another process"


def _process(number: int) -> str:
    """A process in words; what the system does not show is left out."""
    try:
        name, _, rest = Path(f"/proc/{number}/stat").read_text(errors="replace").partition("(")[2].rpartition(")")
    except OSError:
        return f"process {number}"
    stands = ", which is suspended" if rest.split()[:1] == ["T"] else ""
    return f"process {number} ({name}{stands})"


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


class Held(Struct, frozen=True):
    """What running processes hold.

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


class Holds:
    """What this process holds of a store, from the first `scope` that it enters to the end of the last one."""

    def __init__(self, layout: Layout, gate: Gate) -> None:
        self._layout = layout
        self._gate = gate
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
        """What is held in the block stays until its end, however the process ends."""
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
        """Hold blobs, and a key's record; nothing outside of a scope, and where the store cannot be written."""
        if not self._depth:
            return
        lines = [*([f"key {key}"] if key else []), *digests]
        with self._mutex:
            fresh = [line for line in dict.fromkeys(lines) if line not in self._noted]
            if fresh:
                self._write(fresh)

    def _write(self, fresh: list[str]) -> None:
        with self._gate.shared(), suppress(OSError):
            if self._handle is None:
                self._open()
            assert self._handle is not None
            raw = memoryview("".join(f"{line}\n" for line in fresh).encode("ascii"))
            while raw:
                raw = raw[os.write(self._handle, raw) :]
            self._noted.update(fresh)

    def _open(self) -> None:
        folder = self._layout.holds
        folder.mkdir(parents=True, exist_ok=True)
        for path in held(self._layout).dead:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        while self._handle is None:
            path = folder / f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
            self._handle = hold(path, os.O_RDWR | os.O_CREAT)
            self._path = path

    def _release(self) -> None:
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
        if self._handle is not None:
            os.close(self._handle)
        self._handle, self._path, self._noted = None, None, set()


def held(layout: Layout) -> Held:
    """What is held now, by the notes whose owners live; to be asked at the gate's exclusive side, or as a guess."""
    keys: set[str] = set()
    blobs: set[str] = set()
    processes: list[int] = []
    dead: list[Path] = []
    try:
        notes = sorted(layout.holds.iterdir())
    except OSError:
        return Held()
    for path in notes:
        try:
            handle = hold(path, os.O_RDONLY)
            if handle is not None:
                os.close(handle)
                dead.append(path)
                continue
            text = path.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # gone meanwhile
        for is_key, name in _HELD.findall(text):
            (keys if is_key else blobs).add(name)
        owner = path.name.partition("-")[0]
        processes += [int(owner)] if owner.isdecimal() else []
    return Held(frozenset(keys), frozenset(blobs), tuple(processes), tuple(dead))
