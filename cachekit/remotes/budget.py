"""Time on a remote: the clock, how often something is tried again, and several calls at once; see also `calls`."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from cachekit.errors import BusyError

T = TypeVar("T")


class Clock:
    """The one seam for time in what waits for others: tests pass a clock that jumps."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward; they mean nothing to other processes."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch, as this machine has them."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for an event of another thread, at most so many seconds; whether it happened."""
        return event.wait(seconds)

    def start(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Begin work in a daemon thread, which waits by this clock."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread


CLOCK = Clock()


class Retry(Struct, frozen=True):
    """How long something is tried again, and after which pauses.

    Attributes:
        seconds: All tries and pauses together.
        first: The first pause, in seconds.
        factor: By which each pause is longer than the one before.
        most: The longest pause, unless the remote asks for a longer one.
    """

    seconds: float
    first: float
    factor: float
    most: float

    def pause(self, error: Exception, attempt: int, spent: float) -> float | None:
        """Seconds to wait before the next try; None where the time is used up.

        Args:
            error: What the last try failed with. A BusyError may say how long to wait: it is never asked sooner.
            attempt: How often it was tried, from 1 on.
            spent: Seconds since the first try began.
        """
        asked = error.wait if isinstance(error, BusyError) else 0.0
        # Spread, so that those who collided do not meet again; beyond what was asked for, never before.
        own = min(self.first * self.factor ** min(attempt - 1, 64), self.most) * random.uniform(0.5, 1.5)  # noqa: S311
        pause = max(own, asked * random.uniform(1.0, 1.3))  # noqa: S311
        return None if spent + pause > self.seconds else pause


def each(works: Sequence[Callable[[], T]], lanes: int) -> list[T]:
    """What several calls return, in their order, with at most so many at once.

    Raises:
        Exception: The first error of one; calls that had not begun by then never do.
    """
    if len(works) == 1:
        return [works[0]()]
    outcomes: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()
    todo = iter(enumerate(works))
    lock, stop = threading.Lock(), threading.Event()

    def work() -> None:
        while not stop.is_set():
            with lock:
                number, call = next(todo, (-1, None))
            if call is None:
                return
            try:
                outcomes.put((number, call(), None))
            except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
                stop.set()
                outcomes.put((number, None, error))

    for _ in range(min(lanes, len(works))):
        threading.Thread(target=work, name="cachekit-lane", daemon=True).start()
    found: dict[int, T] = {}
    try:
        while len(found) < len(works):
            number, value, error = outcomes.get()
            if error is not None:
                raise error
            found[number] = value  # type: ignore[assignment]  # a call without an error returned one
    finally:
        stop.set()
    return [found[number] for number in range(len(works))]
