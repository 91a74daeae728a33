"""An outage costs its time once: every process of this host skips a remote for a while after it failed.

Where a run asked it only once, as another remote may have the answer, it is skipped by that run alone; by all, once
that happens again within the pause. After the pause one process tries it again (the probe) while the others still leave
it alone. The state is a small file in the store; without a writable store each run finds out for itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from cachekit import files
from cachekit.errors import BusyError, ConflictError, RemoteError, SkippedError, UncertainError
from cachekit.remotes.notes import Notes, short

PAUSE = 60.0  # seconds that a remote is left alone after a failure


class _Pause(Struct, frozen=True):
    """Until when a remote is skipped, in seconds since the epoch, and why; 0 while it is in use.

    Attributes:
        doubted: It is still in use: it failed once at that time, and was not asked again.
    """

    until: float = 0.0
    reason: str = ""
    doubted: bool = False


class Breaker:
    """Guards one remote.

    Args:
        folder: Where the state lies, in the store.
        name: The remote's.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._notes, self._note = Notes(folder), f"{short(name)}.json"
        self._name = name
        self._broken = ""  # in this run: the reason; without a writable store it is all there is

    @property
    def broken(self) -> str:
        """Why the remote is skipped now; empty while it is in use."""
        return self._why(self._state())

    @contextmanager
    def call(self, *, once: bool = False) -> Iterator[None]:
        """Talk to the remote inside of the block.

        Args:
            once: A question that fails is not asked again for now, which says less of the remote.

        Raises:
            SkippedError: It failed a moment ago.
            RemoteError: It fails now; it is left alone from here on. What only concerns one change (a conflict, too
                many commits), or comes at once each time (a folder that is missing), leaves it in use.
        """
        state = self._state()
        if broken := self._why(state):
            raise self._skipped(broken)
        with self._probe(wanted=state.until > 0 and not state.doubted) as mine:
            if not mine:
                raise self._skipped(f"{state.reason}; another process is trying it")
            try:
                yield
            except (ConflictError, BusyError, UncertainError, SkippedError):
                raise
            except RemoteError as error:
                if error.lasting:
                    raise
                self._open(error.cause or error.message, doubted=once and time.time() - state.until > PAUSE)
                raise
        if state.until:
            self._notes.remove(self._note)

    def reset(self) -> None:
        """Try it again at once: a person asks for it."""
        self._broken = ""
        self._notes.remove(self._note)

    def _why(self, state: _Pause) -> str:
        return self._broken or (state.reason if time.time() < state.until else "")

    def _skipped(self, reason: str) -> SkippedError:
        return SkippedError(
            f"{self._name} failed a moment ago and is skipped",
            cause=reason,
            hint=f"cachekit asks it again after {PAUSE:.0f} s",
        )

    def _state(self) -> _Pause:
        state = self._notes.read(self._note, _Pause) or _Pause()
        # A clock that was set back must not shut a remote for a year.
        return state if state.until <= time.time() + PAUSE else _Pause()

    def _open(self, reason: str, *, doubted: bool) -> None:
        self._broken = reason
        self._notes.write(self._note, _Pause(time.time() + (0.0 if doubted else PAUSE), reason, doubted))

    @contextmanager
    def _probe(self, *, wanted: bool) -> Iterator[bool]:
        """Take the right to try a remote again; yields whether this process has it."""
        if not wanted:
            yield True
            return
        try:
            handle = files.hold(self._notes.folder / f"{short(self._name)}.probe")
        except OSError:
            yield True
            return
        try:
            yield handle is not None
        finally:
            if handle is not None:
                os.close(handle)
