"""One call to the Hub: its limits, what it has done so far, and the thread that it runs in.

The client of the Hub has no limit of its own for most calls, tries five times where it has one, and its Rust part
(`hf_xet`) tries for ever. So a call runs in a thread that can be left behind, every request that it makes is bounded
(`session`), and an upload that does not move is given up. Threads are daemons: one that hangs keeps nobody alive.

Unlike `tiers.deadline` this gives each request the `Call` that it belongs to, by its thread's context, and uses threads
again, since the client of 0.36 keeps its connections by thread; a call that was given up refuses its next request.
"""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Generic, TypeVar

from cachekit.remotes.port import Limits, Tell

T = TypeVar("T")
ANSWER_LIMIT = 64 << 20  # bytes of an answer that is read whole; a page of a tree has a few hundred KB
POLL = 0.05  # seconds between looks at an upload
SLOW = 100_000  # bytes a second: the pace of an upload that cannot be seen


class LostError(Exception):
    """No answer: the line could not be made, was cut, or nothing came in time. The client does not try this again.

    Args:
        text: What happened.
        sent: Whether anything of the request can have reached the other side.
    """

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


@dataclass
class Call:
    """What the requests of one call may do, and have done.

    Attributes:
        limits: Of each request.
        streams: The caller reads the body of a good answer itself, with bounds of its own.
        uploads: It sends files, maybe from threads of the client's own.
        patience: How often the client may try again, together, once a line has been made.
        again: Methods of requests that it may try again.
        committing: A request for a commit was begun: from now on, whatever goes wrong, it may have happened.
        moved: When something last went over the line.
        sent: Bytes of files that went over the line.
        over: Nobody waits for it any more.
        blind: What it sends cannot be seen moving; then `slack`, in bytes, is what it may send at a slow pace.
        answer: To a commit, as far as the session shows it (0.x).
    """

    limits: Limits
    streams: bool = False
    uploads: bool = False
    patience: int = 0
    again: frozenset[str] = frozenset({"PUT"})
    committing: bool = False
    moved: float = field(default_factory=time.monotonic)
    sent: int = 0
    over: bool = False
    blind: bool = False
    slack: int = 0
    answer: bytes = b""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def progress(self, size: int = 0) -> None:
        """Something moved."""
        with self._lock:
            self.sent += size
            self.moved = time.monotonic()

    def tolerates(self, method: str) -> bool:
        """Whether the client may try this once more; counts. Where bytes go, S3 is known to fail now and then."""
        if method not in self.again:
            return False
        with self._lock:
            self.patience -= 1
            return self.patience >= 0

    def answer_seconds(self, method: str, path: str) -> float:
        """How long the answer to a request may take to begin."""
        if method == "POST" and ("/commit/" in path or (path.startswith("/api/buckets/") and path.endswith("/batch"))):
            return self.limits.commit
        return self.limits.commit if self.uploads and "/api/" not in path else self.limits.read


_CURRENT: contextvars.ContextVar[Call | None] = contextvars.ContextVar("cachekit_hub_call", default=None)
_UPLOADS: list[Call] = []  # calls whose requests may come from threads that the client starts


def current() -> Call | None:
    """The call that this request belongs to; None for requests of others."""
    return _CURRENT.get() or (_UPLOADS[-1] if _UPLOADS else None)


class entered:  # noqa: N801
    """`with entered(call):` requests of this thread, and of threads that the client starts for an upload, are its."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> Call:
        self._token = _CURRENT.set(self._call)
        if self._call.uploads:
            _UPLOADS.append(self._call)
        return self._call

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)
        if self._call.uploads:
            _UPLOADS.remove(self._call)


class _Job(Generic[T]):
    """A function, and what it gave."""

    def __init__(self, call: Call, function: Callable[[], T]) -> None:
        self._call, self._function = call, function
        self._context = contextvars.copy_context()
        self.done = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._value = self._context.run(self._inside)
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error
        finally:
            self.done.set()

    def _inside(self) -> T:
        with entered(self._call):
            return self._function()

    def result(self) -> T:
        if self._error:
            raise self._error
        return self._value  # type: ignore[return-value]


class _Worker:
    """A thread that does one job after the other: the client of 0.36 keeps its connections by thread."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job[object]] = SimpleQueue()
        threading.Thread(target=self._work, name="cachekit-hub", daemon=True).start()

    def _work(self) -> None:
        while True:
            self.jobs.get().run()


_IDLE: list[_Worker] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)  # a child has none of its parent's threads
    os.register_at_fork(after_in_child=_UPLOADS.clear)


def run(call: Call, function: Callable[[], T], *, seconds: float | None = None, tell: Tell | None = None) -> T:
    """Run a function in a thread of ours, until it ends or its time is over.

    Args:
        call: What it belongs to.
        function: Calls the client.
        seconds: That it may take; where None, as long as something moves in `Limits.commit` seconds.
        tell: Told what went over the line, in the caller's thread.

    Raises:
        LostError: It took too long; the thread is left behind, and its next request fails.
        Exception: Whatever the function raised.
    """
    job = _Job(call, function)
    try:
        worker = _IDLE.pop()
    except IndexError:
        worker = _Worker()
    begun, told = time.monotonic(), 0
    call.moved = begun
    worker.jobs.put(job)  # type: ignore[arg-type]
    try:
        while not job.done.wait(POLL if seconds is None else seconds):
            if tell and call.sent > told:
                told = _tell(tell, call, told)
            quiet = time.monotonic() - call.moved
            if seconds is not None or quiet > call.limits.commit + (call.slack / SLOW if call.blind else 0):
                raise LostError(f"nothing happened for {seconds or quiet:.0f} s", sent=True)
    finally:
        if job.done.is_set():
            _IDLE.append(worker)
        else:
            call.over = True
            if call in _UPLOADS:  # it must not stand for the requests of others
                _UPLOADS.remove(call)
    if tell and call.sent > told:
        _tell(tell, call, told)
    return job.result()


def _tell(tell: Tell, call: Call, told: int) -> int:
    sent = call.sent
    tell(sent - told)
    return sent
