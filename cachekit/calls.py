"""Calls that end in time, even if the client of a remote hangs.

A client of a remote may never come back: a system call on a dead mount, a name that does not resolve, the Rust behind
`hf_xet` and `obstore`. No signal and no exception reaches any of these. So each call runs in a daemon thread. When the
call's time is up, the caller goes on with an error, and the thread is left to itself: it ends with the client's call,
or with the process, which never waits for it. What such a call was about to do may still happen later. So only calls
belong here whose late effect is harmless, or is looked for: an artifact at its own path, a swap that wins or fails.
"""

from __future__ import annotations

import contextvars
import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from cachekit.errors import RemoteError

T = TypeVar("T")
LEAST = 4_000  # bytes a second: what comes more slowly is given up as if nothing came
HANGING = 8  # threads of one remote that may hang before further calls are refused at once
_WAITING = 64  # pieces of a stream that were read and not yet taken: a few MB
_LOOK = 0.2  # seconds between two looks whether anybody still wants a stream


_END: contextvars.ContextVar[float] = contextvars.ContextVar("cachekit_calls_end", default=math.inf)


@contextmanager
def ending(seconds: float) -> Iterator[None]:
    """Every call that is made in the block ends within so many seconds from now, whatever it is allowed itself."""
    token = _END.set(min(_END.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _END.reset(token)


def left() -> float:
    """Seconds until calls of this context must have ended; infinite where nothing ends them all."""
    return _END.get() - time.monotonic()


class CallProgress:
    """Extends the time of a call: the work calls this whenever data went over the line."""

    def __init__(self) -> None:
        self._at = time.monotonic()

    def __call__(self, size: int = 0) -> None:
        """Note that the work goes on; so many bytes count for as long as they take at the least rate, 0 for enough."""
        now = time.monotonic()
        self._at = min(now, self._at + size / LEAST) if size else now

    def taken(self, seconds: float) -> None:
        """Note that whoever reads took so long, for which the line is not to blame."""
        self._at = min(time.monotonic(), self._at + seconds)

    @property
    def idle(self) -> float:
        """Seconds since anything moved, or moved fast enough."""
        return time.monotonic() - self._at


def paced(pieces: Iterator[bytes], seconds: float, who: str) -> Iterator[bytes]:
    """Bytes that come in this thread, for as long as they come at the least rate; a reader may take its time.

    Raises:
        RemoteError: Too few came for so many seconds, as long as each piece comes at all.
    """
    progress = CallProgress()
    for piece in pieces:
        progress(len(piece))
        if progress.idle > seconds or left() <= 0:
            raise RemoteError(f"{who} sends too slowly", cause=_too_late(seconds))
        before = time.monotonic()
        yield piece
        progress.taken(time.monotonic() - before)


class _Job:
    """A call, and what became of it."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._context = contextvars.copy_context()
        self.done = threading.Event()
        self.value: object = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self._context.run(self._work)
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self.error = error
        self.done.set()


_Box = queue.SimpleQueue["Callable[[], None] | None"]


class Calls:
    """The calls to one remote, each of which ends in time.

    Threads are used again: a call costs a hand-over, not a thread, and a client that keeps its connections by thread
    finds them again. What a caller has in its context variables, the call has too. Idle threads end with this object.

    Args:
        name: Of the remote, for errors.
        hint: What helps where it does not answer.
        hanging: How many calls may hang before further ones are refused at once.
    """

    def __init__(self, name: str, *, hint: str = "", hanging: int = HANGING) -> None:
        self._name = name
        self._hint = hint
        self._hanging = hanging
        self._lock = threading.Lock()
        self._idle: list[_Box] = []
        self._busy = self._stuck = 0
        self._pid = os.getpid()
        weakref.finalize(self, _dismiss, self._idle).atexit = False
        _made.add(self)

    def run(
        self,
        work: Callable[[], T],
        seconds: float,
        what: str = "",
        progress: CallProgress | None = None,
        late: type[RemoteError] = RemoteError,
    ) -> T:
        """What a call returns or raises, if it does so in time.

        Args:
            work: The call; it may go on when its time is up.
            seconds: How long it may take, from the start or from the last progress.
            what: What it does, for errors.
            progress: What the call tells its progress to.
            late: The error where the time is up: UncertainError for what may have happened, or happen still.

        Raises:
            RemoteError: The time is up; too many calls hang already, and this one never began; or the client's Rust
                panicked.
        """
        progress = progress or CallProgress()
        progress()
        job, leave = self._start(work, what)
        while (more := min(seconds - progress.idle, left())) > 0:
            if job.done.wait(more):
                if job.error is not None:
                    raise self._raised(job.error, what)
                return job.value  # type: ignore[return-value]  # a call without an error returned one
        leave()
        raise late(f"{self._said(what)}: no answer", cause=_too_late(seconds), hint=self._hint)

    def stream(self, pieces: Callable[[], Iterable[T]], seconds: float, what: str = "") -> Iterator[T]:
        """What a call yields, as long as no two pieces are further apart than so many seconds; see `CallProgress`.

        Raises:
            RemoteError: Nothing came for so long; too many calls hang already; or the client's Rust panicked.
        """
        came: queue.Queue[tuple[T] | None] = queue.Queue(_WAITING)
        gone = threading.Event()

        def hand(piece: tuple[T] | None) -> bool:
            while not gone.is_set():
                with suppress(queue.Full):
                    came.put(piece, timeout=_LOOK)
                    return True
            return False

        def work() -> None:
            try:
                for piece in pieces():
                    if not hand((piece,)):
                        return
            finally:
                hand(None)

        progress = CallProgress()
        job, leave = self._start(work, what)
        try:
            while True:
                try:
                    piece = came.get(timeout=max(0.0, min(seconds - progress.idle, left())))
                except queue.Empty:
                    leave()
                    cause = _too_late(seconds)
                    raise RemoteError(f"{self._said(what)}: no answer", cause=cause, hint=self._hint) from None
                if piece is None:
                    break
                progress(len(piece[0]) if isinstance(piece[0], bytes) else 0)
                before = time.monotonic()
                yield piece[0]
                progress.taken(time.monotonic() - before)
        finally:
            gone.set()
        job.done.wait()
        if job.error is not None:
            raise self._raised(job.error, what)

    def _start(self, work: Callable[[], object], what: str) -> tuple[_Job, Callable[[], None]]:
        """Begin a call; returns it, and what says that nothing waits for it any more."""
        job, box = _Job(work), self._box(what)
        given_up = False

        def run() -> None:
            job.run()
            with self._lock:
                self._busy -= 1
                self._idle.append(box)
                if given_up:
                    self._stuck -= 1

        def leave() -> None:
            nonlocal given_up
            with self._lock:
                if not job.done.is_set():
                    given_up = True
                    self._stuck += 1

        with self._lock:
            self._busy += 1
        box.put(run)
        return job, leave

    def _box(self, what: str) -> _Box:
        with self._lock:
            if self._pid != os.getpid():  # threads do not survive a fork
                self._idle.clear()
                self._busy = self._stuck = 0
                self._pid = os.getpid()
            if self._stuck >= self._hanging:
                cause = f"{self._stuck} calls to it are hanging already"
                raise RemoteError(f"{self._said(what)}: no answer", cause=cause, hint=self._hint)
            if self._idle:
                return self._idle.pop()
        box: _Box = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(box,), name="cachekit-call", daemon=True).start()
        return box

    def _raised(self, error: BaseException, what: str) -> BaseException:
        """The error to raise for one of a call; a panic of a client's Rust is not an Exception, and must end no run."""
        if type(error).__name__ == "PanicException":
            return RemoteError(
                f"{self._said(what)}: its client library failed", cause="it panicked; its own message is above"
            )
        return error

    def _said(self, what: str) -> str:
        return f"{self._name}: {what}" if what else self._name


def _too_late(seconds: float) -> str:
    if left() <= 0:
        return "the time limit for all of it passed"
    return f"nothing, or less than {LEAST // 1000} kB a second, came for {seconds:g} s"


_made: weakref.WeakSet[Calls] = weakref.WeakSet()


def under_way() -> bool:
    """Whether a thread of this process is inside a client's code: in a call that runs, or that was given up."""
    return any(one._busy for one in _made)  # noqa: SLF001


def _serve(box: _Box) -> None:
    while (run := box.get()) is not None:
        run()
        del run  # what it holds is not kept until the next one comes


def _dismiss(idle: list[_Box]) -> None:
    for box in idle:
        box.put(None)
