"""One call to the Hub: its limits, what it has done so far, and the thread that it runs in.

The client of the Hub has no limit of its own for most calls, tries five times where it has one, and its Rust part
(`hf_xet`) tries for ever. So a call runs in a thread that can be left behind (`calls.Calls`), every request that it
makes is bounded (`session`), and an upload that does not move is given up. A request finds its `Call` in the
context of its thread; a call that was given up refuses its next request.
"""

from __future__ import annotations

import contextvars
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from cachekit.calls import CallProgress, Calls
from cachekit.errors import RemoteError
from cachekit.remotes.port import Limits, Tell

T = TypeVar("T")
_COMMIT = re.compile(r"/commit/|/api/buckets/.*/batch$")  # to a repo; to a bucket
ANSWER_LIMIT = 64 << 20  # bytes of an answer that is read whole; a page of a tree has a few hundred KB
SLOW = 100_000  # bytes a second: the pace of an upload that cannot be seen


class _LateError(RemoteError):
    """The time of a call is up."""


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
class Call(CallProgress):
    """What the requests of one call may do, and have done.

    Attributes:
        limits: Of each request.
        host: The Hub's own: a page that leads elsewhere is asked for without the token.
        streams: The caller reads the body of a good answer itself, with bounds of its own.
        uploads: It sends files, maybe from threads of the client's own.
        patience: How often the client may try again, together, once a line has been made.
        again: Methods of requests that it may try again.
        committing: A request that changes the repo or bucket was begun: from now on, whatever goes wrong, it may have
            happened.
        tell: Told what of its files went over the line.
        over: Nobody waits for it any more.
        blind: What it sends cannot be seen moving; then `slack`, in bytes, is what it may send at a slow pace.
        answer: To a commit, as far as the session shows it (0.x).
        missing: A 404 that does not say what is missing means the file.
        whose: It asks whose the token is, and not of the place.
    """

    limits: Limits
    host: str = ""
    streams: bool = False
    uploads: bool = False
    patience: int = 0
    again: frozenset[str] = frozenset({"PUT"})
    committing: bool = False
    tell: Tell | None = None
    over: bool = False
    blind: bool = False
    slack: int = 0
    answer: bytes = b""
    missing: bool = False
    whose: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        super().__init__()

    def __call__(self, size: int = 0) -> None:
        """Note that something moved: so many bytes of its files."""
        super().__call__()
        if size and self.tell is not None and not self.over:
            self.tell(size)

    @property
    def idle(self) -> float:
        """Seconds since anything moved, beyond those that what cannot be seen may take."""
        return super().idle - (self.slack / SLOW if self.blind else 0.0)

    def tolerates(self, method: str) -> bool:
        """Whether the client may try this once more; counts. Where bytes go, S3 is known to fail now and then."""
        if method not in self.again:
            return False
        with self._lock:
            self.patience -= 1
            return self.patience >= 0

    def begin(self, method: str, path: str) -> float:
        """Note a request; the seconds that its answer may take to begin.

        Raises:
            LostError: Nobody waits for this call any more: nothing of it is sent.
        """
        if self.over:
            raise LostError("nothing waits for it any more", sent=False)
        self()
        if method == "POST" and _COMMIT.search(path):
            self.committing = True
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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_UPLOADS.clear)  # a child has none of its parent's threads


def run(calls: Calls, call: Call, function: Callable[[], T], *, seconds: float | None = None) -> T:
    """Run a function in a thread of ours, until it ends or its time is over.

    Args:
        calls: Of the remote.
        call: What it belongs to.
        function: Calls the client.
        seconds: That it may take; where None, as long as something moves in `Limits.commit` seconds.

    Raises:
        LostError: It took too long; the thread is left behind, and its next request fails.
        Exception: Whatever the function raised.
    """
    progress, begun = CallProgress() if seconds is not None else call, time.monotonic()
    try:
        with entered(call):
            return calls.run(function, seconds or call.limits.commit, progress=progress, late=_LateError)
    except _LateError:
        call.over = True
        raise LostError(f"no answer after {time.monotonic() - begun:.0f} s", sent=True) from None
