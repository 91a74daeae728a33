"""The compile lock: of all processes of a host that want one key compiled, one compiles and the others wait.

The lock is the kernel's, freed when its holder dies. It saves work and guards nothing: two compiles of one key would
publish the same record twice, which is harmless.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from cachekit import files
from cachekit.errors import WaitedTooLongError
from cachekit.process import user_name
from cachekit.store.durable import store_error
from cachekit.store.layout import Layout
from cachekit.store.rwlock import RWLock

POLL = 0.2  # seconds between two looks at a held lock


class Holder(Struct, frozen=True):
    """Who compiles, and since when (seconds since the epoch)."""

    pid: int
    host: str
    user: str
    since: float
    recipe: str

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user}@{self.host}, for {max(0, time.time() - self.since):.0f} s"


class CompileLock:
    """The lock of one key.

    Args:
        layout: The store's paths.
        key: The key.
        recipe: What the holder works on, for those who wait.
        rwlock: The store's: locks of keys without a record are removed under its write lock.
    """

    def __init__(self, layout: Layout, key: str, recipe: str, rwlock: RWLock) -> None:
        self._layout = layout
        self._rwlock = rwlock
        self._lock_path = layout.locks / f"{key}.lock"
        self._note = layout.locks / f"{key}.json"
        self._recipe = recipe

    def holder(self) -> Holder | None:
        """Who holds the key by the note it left; None where there is no readable note."""
        return files.noted(self._note, Holder)

    @contextmanager
    def hold(self, wait_seconds: float, on_wait: Callable[[Holder | None, float], None]) -> Iterator[float]:
        """Hold the key; wait for it as long as is allowed.

        Args:
            wait_seconds: The deadline; 0 does not wait.
            on_wait: Called while waiting, with the holder and the seconds waited so far.

        Yields:
            Seconds waited. Whoever waited should look again whether there is still something to do.

        Raises:
            WaitedTooLongError: The deadline passed.
            StoreError: The lock cannot be made.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(str(self._lock_path))
        start = time.monotonic()
        while True:
            try:
                with self._layout.inside.folder(self._layout.locks, make=True):
                    files.refuse_link(self._lock_path)
                with self._rwlock.read_lock():
                    lock.acquire(timeout=0)
                break
            except OSError as error:
                if isinstance(error, Timeout):  # filelock's is one by inheritance
                    self._wait(start, wait_seconds, on_wait)
                    continue
                raise store_error(self._layout.locks, error) from error
        try:
            note = Holder(os.getpid(), socket.gethostname(), user_name(), time.time(), self._recipe)
            self._layout.inside.note(self._note, msgspec.json.encode(note))  # only those who wait read it
            yield time.monotonic() - start
        finally:
            # The lock file itself stays: removing it would let two processes hold two files of one name.
            with suppress(OSError):
                self._layout.inside.unlink(self._note)
            lock.release()

    def _wait(self, start: float, wait_seconds: float, on_wait: Callable[[Holder | None, float], None]) -> None:
        waited = time.monotonic() - start
        holder = self.holder()
        if waited >= wait_seconds:
            raise WaitedTooLongError.of("process", self._recipe, holder, waited)
        on_wait(holder, waited)
        time.sleep(POLL)
