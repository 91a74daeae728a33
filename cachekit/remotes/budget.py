"""Time on a remote: the clock, how often something is tried again, and several calls at once; see also `calls`."""

from __future__ import annotations

import contextvars
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from cachekit.errors import RemoteError

if TYPE_CHECKING:
    from concurrent.futures import Future  # imported where calls begin: it loads `logging`, and many a plan asks nobody

T = TypeVar("T")
ENDING = 2.0  # seconds in which calls beside one that failed may end


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
        tries: How often it is tried; 0 is as often as the time allows.
    """

    seconds: float
    first: float
    factor: float
    most: float
    tries: int = 0

    def pause(self, error: Exception, attempt: int, spent: float) -> float | None:
        """Seconds to wait before the next try; None where time or tries are used up.

        Args:
            error: What the last try failed with. The remote may have said how long to wait: it is never asked sooner.
            attempt: How often it was tried, from 1 on.
            spent: Seconds since the first try began.
        """
        if self.tries and attempt >= self.tries:
            return None
        asked = error.wait if isinstance(error, RemoteError) else 0.0
        # Spread, so that those who collided do not meet again; beyond what was asked for, never before.
        own = min(self.first * self.factor ** min(attempt - 1, 64), self.most) * random.uniform(0.5, 1.5)  # noqa: S311
        pause = max(own, asked * random.uniform(1.0, 1.3))  # noqa: S311
        return None if spent + pause > self.seconds else pause


def _in_this_context(work: Callable[[], T]) -> Callable[[], T]:
    """For another thread: until when calls must have ended, say, holds there too."""
    context = contextvars.copy_context()
    return lambda: context.run(work)


@contextmanager
def lanes(works: Sequence[Callable[[], T]], count: int, stop: threading.Event) -> Iterator[list[Future[T]]]:
    """Begin several calls, at most so many at once; after an error `stop` is set, and further calls never begin.

    The threads are daemons, as those of an executor are not: a call that hangs must not keep the process from ending.
    After an error those that end soon are waited for, so that what writes into the store does not go on behind the
    caller's back; after Ctrl-C nothing is.
    """
    from concurrent.futures import Future

    futures: list[Future[T]] = [Future() for _ in works]
    todo = deque(zip(map(_in_this_context, works), futures, strict=True))

    def serve() -> None:
        while not stop.is_set():
            try:
                work, future = todo.popleft()
            except IndexError:
                return
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                future.set_exception(error)

    threads: list[threading.Thread] = []
    try:
        for _ in range(min(count, len(works))):
            thread = threading.Thread(target=serve, name="cachekit-lane", daemon=True)
            thread.start()
            threads.append(thread)
        yield futures
    except Exception:
        stop.set()
        deadline = time.monotonic() + ENDING
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        raise
    except BaseException:
        stop.set()
        raise


def each(works: Sequence[Callable[[], T]], count: int) -> list[T]:
    """What several calls return, in their order, with at most so many at once.

    Raises:
        Exception: The first error of one; calls that had not begun by then never do.
    """
    if len(works) == 1:
        return [works[0]()]
    stop = threading.Event()

    def run(work: Callable[[], T]) -> T:
        try:
            return work()
        except BaseException:
            stop.set()
            raise

    from concurrent.futures import as_completed

    with lanes([partial(run, work) for work in works], count, stop) as futures:
        for future in as_completed(futures):
            future.result()
    return [future.result() for future in futures]
