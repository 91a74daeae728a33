"""What may be asked of a remote again, and for how long: the patience of a run.

A question that fails costs time, and so does a compile that an answer would have spared. So all questions of a run
together are asked again for a tenth of the compile time at stake. What a remote then has still not answered could not
be asked, which is not the same as that it has nothing. This is the only place where reads are repeated, and so is the
sending of files, whose bytes and places are the same each time: below it, a client tries once; above it, nobody tries
again. What writes documents (`publish`, `lease`) runs races, which is another matter.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, cast

from cachekit import calls
from cachekit.errors import ConflictError, RemoteError, SkippedError, UncertainError
from cachekit.remotes.budget import CLOCK, Clock, Retry
from cachekit.remotes.port import Entry, Storage, Tell, Upload
from cachekit.text import duration

SHARE = 0.1  # of the compile time at stake
LEAST = 20.0  # seconds; also where nobody knows what is at stake
MOST = 180.0
AGAIN = Retry(seconds=math.inf, first=0.3, factor=2.0, most=5.0)
QUESTIONS = frozenset({"revision", "stranger", "place", "check", "stat", "read", "latest"})
Told = Callable[[str, RemoteError, float], None]


class Patience:
    """How long one run asks failing remotes again, all its questions and all its remotes together.

    Args:
        most: The most, in seconds; 0 asks nothing again.
        told: Called before a pause, with the remote's name, what failed and the seconds to wait.
        clock: For waiting.

    Attributes:
        stake: Says how long the compile takes that answers may spare, in seconds, once a question failed: None where
            nobody knows. 0 where there is nothing to compile: then nothing is asked again.
    """

    def __init__(self, most: float = 0.0, told: Told = lambda *_: None, clock: Clock = CLOCK) -> None:
        self._most, self._told, self.clock = most, told, clock
        self._lock = threading.Lock()
        self._asked, self._lost = _Spent(), _Spent()
        self._once = False
        self.stake: Callable[[], float | None] = lambda: None

    @property
    def asked(self) -> float:
        """Seconds that questions took, with those that failed."""
        return self._asked.seconds

    @property
    def lost(self) -> float:
        """Seconds of these that were lost to questions that failed, and to the pauses after them."""
        return self._lost.seconds

    @property
    def left(self) -> float:
        """Seconds for which questions may still be asked again."""
        stake = self.stake()
        whole = 0.0 if stake == 0 else max(LEAST, SHARE * (stake or 0.0))
        return min(whole, self._most) - self.lost

    @property
    def is_once(self) -> bool:
        """Whether nothing is asked again just now."""
        return self._once

    @contextmanager
    def once(self) -> Iterator[None]:
        """Nothing is asked again in the block: another remote may have the answer."""
        self._once = True
        try:
            yield
        finally:
            self._once = False

    def answered(self, since: float) -> None:
        """Note a question that was answered now, and put at a moment of the clock."""
        with self._lock:
            self._asked.add(since, self.clock.now())

    def again(self, name: str, error: RemoteError, failed: int, since: float) -> bool:
        """Wait until a question that failed may be asked again; False where it may not, or where that would not help.

        Args:
            name: The remote's.
            error: What it failed with.
            failed: How often it failed, one time after the other.
            since: When it was put, or last gave something.
        """
        with self._lock:
            now = self.clock.now()
            self._add(since, now)
            if self._once or error.lasting or isinstance(error, (ConflictError, UncertainError, SkippedError)):
                return False
            left = min(self.left, calls.left())
            pause = AGAIN.pause(error, failed, 0.0)
            if pause is None or left <= 0 or error.wait > left:
                return False
            pause = min(pause, left)  # the last try comes when the time is up
            self._add(now, now + pause)
        self._told(name, error, pause)
        self.clock.sleep(pause)
        return True

    def _add(self, since: float, until: float) -> None:
        self._asked.add(since, until)
        self._lost.add(since, until)


class _Spent:
    """Seconds; what passes in several threads at once counts once."""

    def __init__(self) -> None:
        self.seconds = self._until = 0.0

    def add(self, since: float, until: float) -> None:
        self.seconds += max(0.0, until - max(since, self._until))
        self._until = max(until, self._until)


class _Tries:
    """One question that may be asked several times."""

    def __init__(self, patience: Patience, name: str) -> None:
        self._patience, self._name = patience, name
        self._failed, self._since = 0, patience.clock.now()
        self._begun = self._since

    def bounded(self) -> AbstractContextManager[None]:
        """Ends a try that is not the first with the run's patience."""
        return calls.ending(max(1.0, self._patience.left)) if self._failed else nullcontext()

    def moved(self, size: int = 0) -> None:
        """Note that the remote gave something: whatever fails from here on fails for the first time.

        What drips does not begin anew: so many bytes count for no longer than they take at the least rate.
        """
        now = self._patience.clock.now()
        self._failed, self._since = 0, min(now, self._since + size / calls.LEAST) if size else now
        self._begun = self._since

    def again(self, error: RemoteError) -> bool:
        """Wait until the question may be asked again; see `Patience.again`."""
        self._failed += 1
        allowed = self._patience.again(self._name, error, self._failed, self._since)
        self._since = self._patience.clock.now()
        if not allowed and not self._patience.is_once:
            took = duration(self._since - self._begun)
            tries = f"; asked {self._failed} times in {took}" if self._failed > 1 else ""
            error.cause = f"{error.cause}{tries}{error.asks}".removeprefix("; ")
        return allowed

    def done(self) -> None:
        """Note that the question was answered."""
        self._patience.answered(self._since)


def patient(storage: Storage, patience: Patience) -> Storage:
    """A remote whose questions are asked again, as long as a run's patience lasts; a file goes on where it was cut."""
    return cast("Storage", _Patient(storage, patience))


class _Patient:
    def __init__(self, storage: Storage, patience: Patience) -> None:
        self._storage, self._patience = storage, patience

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._storage, name)
        return partial(self._ask, value) if name in QUESTIONS else value

    def _ask(self, question: Callable[..., Any], *args: Any) -> Any:
        tries = _Tries(self._patience, self._storage.name)
        while True:
            try:
                with tries.bounded():
                    answer = question(*args)
            except RemoteError as error:
                if not tries.again(error):
                    raise
            else:
                tries.done()
                return answer

    def list(self, folder: str, revision: str) -> Iterator[Entry]:
        tries, seen = _Tries(self._patience, self._storage.name), set[str]()
        while True:
            try:
                for entry in self._storage.list(folder, revision):
                    if entry.path not in seen:
                        seen.add(entry.path)
                        yield entry
                        tries.moved()
            except RemoteError as error:
                if not tries.again(error):
                    raise
            else:
                return

    def chunks(self, path: str, revision: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        tries = _Tries(self._patience, self._storage.name)
        while True:
            try:
                for data in self._storage.chunks(path, revision, start, end):
                    start += len(data)
                    yield data
                    tries.moved(len(data))
            except RemoteError as error:
                if not tries.again(error):
                    raise
            else:
                return

    def upload(self, files: Sequence[Upload], revision: str, tell: Tell) -> None:
        tries = _Tries(self._patience, self._storage.name)

        def moved(size: int) -> None:
            tries.moved()
            tell(size)

        while True:
            try:
                return self._storage.upload(files, revision, moved)
            except RemoteError as error:
                if not tries.again(error):
                    raise
