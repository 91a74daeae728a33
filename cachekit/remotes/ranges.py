"""The bytes of one large file in order, while several ranges of it are on the line at once.

One connection is often slower than the line: of a CDN that limits each, over a long way, or where one thread takes the
bytes out of TLS. What comes is held in memory until what lies before it has come, so that whoever takes it can hash and
write it once, from its beginning to its end, and an unfinished file is always the beginning of the whole one.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from cachekit.errors import InterruptedRunError
from cachekit.remotes.budget import lanes

RANGE = 4 << 20  # bytes: what a request waits for is little beside it, and so is what a killed pull has in memory
HANDED = 512 << 10  # bytes that are handed from one thread to another at once, or what came in so many seconds
HANDED_AFTER = 1.0
# Gives the bytes from one place of a file to another, or to its end, in order.
Chunks = Callable[[int, "int | None"], Iterator[bytes]]


class _Window:
    """How far whoever takes the bytes has come, in ranges: nobody may be further ahead than there are connections.

    Args:
        ahead: How many ranges may be held beside the one that is being taken.
    """

    def __init__(self, ahead: int) -> None:
        self._ahead, self._taken = ahead, 0
        self._moved = threading.Condition()

    def enter(self, number: int, stop: threading.Event) -> None:
        """Wait until a range may be fetched.

        Raises:
            InterruptedRunError: Nobody wants it any more.
        """
        with self._moved:
            while number > self._taken + self._ahead and not stop.is_set():
                self._moved.wait(0.2)
        if stop.is_set():
            raise InterruptedRunError("stopped")

    def take(self) -> None:
        """Note that a range was taken whole."""
        with self._moved:
            self._taken += 1
            self._moved.notify_all()


def in_order(chunks: Chunks, start: int, end: int, count: int) -> Iterator[bytes]:
    """The bytes of a file from a place to its end, in order; at most `count + 1` ranges are in memory.

    Args:
        chunks: Asks for a range.
        start: The first byte.
        end: How many bytes the file has.
        count: Ranges that are fetched at once; with 1 all of it is one.

    Raises:
        Exception: Whatever `chunks` raises for the first range that fails; what lies before was given.
    """
    if count <= 1 or end - start < 2 * RANGE:
        yield from chunks(start, None)
        return
    window, stop = _Window(count), threading.Event()
    places = [(at, min(at + RANGE, end)) for at in range(start, end, RANGE)]
    came: list[queue.SimpleQueue[list[bytes] | None]] = [queue.SimpleQueue() for _ in places]

    def fetch(number: int) -> None:
        pieces: list[bytes] = []
        size = 0
        try:
            window.enter(number, stop)
            since = time.monotonic()
            for piece in chunks(*places[number]):
                pieces.append(piece)
                size += len(piece)
                if size >= HANDED or time.monotonic() - since >= HANDED_AFTER:
                    came[number].put(pieces)
                    pieces, size, since = [], 0, time.monotonic()
                if stop.is_set():
                    return
        finally:
            came[number].put(pieces)
            came[number].put(None)

    with lanes([partial(fetch, number) for number in range(len(places))], count, stop) as futures:
        for handed, future in zip(came, futures, strict=True):
            while (pieces := handed.get()) is not None:
                yield from pieces
            future.result()
            window.take()
