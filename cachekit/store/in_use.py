"""What running processes use of a store, which removal leaves alone.

A process that uses a record for longer than a moment (a restore, a push, a pull that relies on blobs that are here)
notes the blobs in a file of its own, under a lock that the kernel frees when the process ends.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from cachekit.files import DIGEST, hold, read
from cachekit.store.layout import Layout
from cachekit.store.rwlock import RWLock

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
                    os.close(handle)
                    dead.append(layout.in_use / note)
                    continue
                text = read(layout.in_use / note).decode("ascii", "replace")
            except OSError:
                continue  # gone meanwhile
            for is_key, name in _NOTED.findall(text):
                (keys if is_key else blobs).add(name)
            processes.append(int(note.partition("-")[0]))
    return UsedNow(frozenset(keys), frozenset(blobs), tuple(processes), tuple(dead))
