"""Calls into clients that may never come back, with an end to the waiting.

A call runs in a daemon thread. When its time is up, whoever asked goes on with an error, and the thread is left to
itself: it ends with the client's call, or with the process, which never waits for it. So it holds for code that no
signal and no exception reaches (the Rust behind `hf_xet` and `obstore`, a name that does not resolve). What a call
left behind may still happen later: only calls whose late effect is harmless, or is looked for, belong here.

A call here is a request or a stream over the network, so a thread for each costs nothing beside it, and it needs to
know nothing of its thread. Where that is not so there are `folder.bounded` (system calls) and `hub_client.call` (a
client that keeps connections by thread, and whose requests must know which call they are of).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from cachekit.errors import RemoteError

T = TypeVar("T")
_WAITING = 64  # chunks that were read and not yet taken: a few MB
_LOOK = 0.2  # seconds between two looks whether anybody still wants them
_Outcome = tuple[bool, T | None, BaseException | None]  # an end?, a value, an error


class Progress:
    """Moves a deadline on: whoever does the work calls it when something went over the line."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def __call__(self, *_: object) -> None:
        """It goes on."""
        self._at = time.monotonic()

    @property
    def idle(self) -> float:
        """Seconds without any."""
        return time.monotonic() - self._at


def _start(work: Callable[[], None], what: str) -> None:
    threading.Thread(target=work, name=f"cachekit: {what}", daemon=True).start()


def _late(what: str, seconds: float) -> RemoteError:
    return RemoteError(f"{what}: no answer", cause=f"nothing came for {seconds:g} s")


def _raised(error: BaseException, what: str) -> BaseException:
    """The error to raise for one of a call: a panic of a client's Rust is no Exception, and must not end a run."""
    if type(error).__name__ == "PanicException":
        return RemoteError(f"{what}: its client failed", cause="a panic; it printed where")
    return error


def bounded(call: Callable[[], T], seconds: float, what: str, progress: Progress | None = None) -> T:
    """What a call returns or raises, if it does so in time.

    Args:
        call: The call; it may go on when its time is up.
        seconds: How long to wait, from the start or from the last progress.
        what: What it does, for people.
        progress: What the call tells its progress to.

    Raises:
        RemoteError: The time is up.
    """
    outcomes: queue.SimpleQueue[_Outcome[T]] = queue.SimpleQueue()
    progress = progress or Progress()
    progress()

    def work() -> None:
        try:
            outcomes.put((True, call(), None))
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            outcomes.put((True, None, error))

    _start(work, what)
    while (left := seconds - progress.idle) > 0:
        with suppress(queue.Empty):
            _, value, error = outcomes.get(timeout=left)
            if error is not None:
                raise _raised(error, what)
            return value  # type: ignore[return-value]  # a call without an error returned one
    raise _late(what, seconds)


def streamed(chunks: Callable[[], Iterable[T]], seconds: float, what: str) -> Iterator[T]:
    """What a call yields, as long as no two pieces are further apart than so many seconds.

    Raises:
        RemoteError: Nothing came for so long.
    """
    outcomes: queue.Queue[_Outcome[T]] = queue.Queue(_WAITING)
    gone = threading.Event()

    def hand(outcome: _Outcome[T]) -> bool:
        while not gone.is_set():
            with suppress(queue.Full):
                outcomes.put(outcome, timeout=_LOOK)
                return True
        return False

    def work() -> None:
        try:
            for chunk in chunks():
                if not hand((False, chunk, None)):
                    return
            hand((True, None, None))
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            hand((True, None, error))

    _start(work, what)
    try:
        while True:
            try:
                end, chunk, error = outcomes.get(timeout=seconds)
            except queue.Empty:
                raise _late(what, seconds) from None
            if error is not None:
                raise _raised(error, what)
            if end:
                return
            yield chunk  # type: ignore[misc]  # neither an end nor an error
    finally:
        gone.set()


def parallel(calls: Sequence[Callable[[], T]], workers: int, what: str) -> list[T]:
    """What the calls return, in their order; each is to be bounded by itself.

    Raises:
        The first error; calls that had not begun by then never do.
    """
    if len(calls) == 1:
        return [calls[0]()]
    outcomes: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()
    todo = iter(enumerate(calls))
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

    for _ in range(min(workers, len(calls))):
        _start(work, what)
    found: dict[int, T] = {}
    try:
        while len(found) < len(calls):
            number, value, error = outcomes.get()
            if error is not None:
                raise _raised(error, what)
            found[number] = value  # type: ignore[assignment]  # a call without an error returned one
    finally:
        stop.set()
    return [found[number] for number in range(len(calls))]
