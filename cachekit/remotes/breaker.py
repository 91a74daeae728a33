"""An outage costs its time once: a tier that failed is left alone for a while, by every process of this host.

After that one process tries it again (the probe) while the others still leave it alone. The state is a small file in
the store; without a writable store each run finds out for itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cachekit.errors import BusyError, ConflictError, RemoteError, SkippedError, UncertainError

PAUSE = 60.0  # seconds that a tier is left alone after a failure


class Breaker:
    """Guards one tier.

    Args:
        folder: Where the state lies, in the store.
        name: The tier's.
        now: The clock, in seconds since the epoch.
    """

    def __init__(self, folder: Path, name: str, now: Callable[[], float] = time.time) -> None:
        self._path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
        self._name = name
        self._now = now
        self._broken = ""  # in this run: the reason; without a writable store it is all there is

    @property
    def broken(self) -> str:
        """Why the tier is left alone now; empty where it is in use."""
        until, reason = self._state()
        return self._broken or (reason if self._now() < until else "")

    @contextmanager
    def call(self) -> Iterator[None]:
        """Talk to the tier inside of the block.

        Raises:
            SkippedError: It failed a moment ago.
            RemoteError: It fails now; it is left alone from here on. What only concerns one change (a conflict, too
                many commits) passes through and leaves it in use.
        """
        if broken := self.broken:
            raise self._skipped(broken)
        until, reason = self._state()
        with self._probe(wanted=until > 0) as mine:
            if not mine:
                raise self._skipped(f"{reason}; another process is trying it")
            try:
                yield
            except (ConflictError, BusyError, UncertainError, SkippedError):
                raise
            except RemoteError as error:
                self._open(error.cause or error.message)
                raise
        if until:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def reset(self) -> None:
        """Try it again at once: a person asks for it."""
        self._broken = ""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _skipped(self, reason: str) -> SkippedError:
        return SkippedError(
            f"{self._name} is left alone for now", cause=reason, hint=f"it is tried again after {PAUSE:.0f} s"
        )

    def _state(self) -> tuple[float, str]:
        """Until when it is left alone, and why; 0 where it is in use."""
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            until, reason = float(document["until"]), str(document["reason"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return 0.0, ""
        # A clock that was set back must not shut a tier for a year.
        return (until, reason) if until <= self._now() + PAUSE else (0.0, "")

    def _open(self, reason: str) -> None:
        self._broken = reason
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps({"until": self._now() + PAUSE, "reason": reason}), encoding="utf-8")
            fresh.replace(self._path)

    @contextmanager
    def _probe(self, *, wanted: bool) -> Iterator[bool]:
        """Hold the right to try a tier again; whether it is ours."""
        if not wanted:
            yield True
            return
        try:
            handle = os.open(self._path.with_suffix(".probe"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            yield True
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
        finally:
            os.close(handle)
