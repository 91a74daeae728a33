"""Run work that may hang in the kernel, and give up on it in time: a dead NFS mount never answers a system call.

Unlike `tiers.deadline` this is for thousands of calls that take microseconds: threads are used again, only so many may
hang, for a thread in the kernel never ends by itself, and a write has a point after which giving up is "uncertain".
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, Optional, TypeVar

T = TypeVar("T")
STUCK = 8  # threads that may hang before further calls are refused at once


class OverdueError(Exception):
    """The work did not end in time; its thread may go on with it."""


class AbandonedError(Exception):
    """Raised inside work whose caller has given up on it."""


class Point:
    """A point of no return: either the caller gives up before the work passes it, or it does not give up in vain."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passed = False
        self._given_up = False

    def go(self) -> None:
        """Pass it, from inside the work.

        Raises:
            AbandonedError: The caller has given up.
        """
        with self._lock:
            if self._given_up:
                raise AbandonedError
            self._passed = True

    def give_up(self) -> bool:
        """Whether the work never passed it, and never will."""
        with self._lock:
            self._given_up = True
            return not self._passed


class _Job(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done = threading.Event()
        self._result: T
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._error = error
        self._done.set()

    def result(self, seconds: float) -> T:
        if not self._done.wait(seconds):
            raise OverdueError
        if self._error is not None:
            raise self._error
        return self._result


_Box = SimpleQueue[Optional[_Job[object]]]


class Workers:
    """Daemon threads that are used again: a call costs a hand-over, not a thread.

    A thread whose work hangs is left alone; it comes back when the kernel lets it. Daemons, so that a process can end
    while one hangs. Idle threads end with this object.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Box] = []
        self._stuck = 0
        self._pid = os.getpid()
        weakref.finalize(self, _dismiss, self._idle).atexit = False

    def call(self, work: Callable[[], T], seconds: float) -> T:
        """The result of the work, or what it raised.

        Raises:
            OverdueError: It did not end in so many seconds, or too much work hangs already.
        """
        job = _Job(work)
        box = self._box()
        overdue = False

        def run() -> None:
            job.run()
            with self._lock:
                self._idle.append(box)
                if overdue:
                    self._stuck -= 1

        box.put(_Job(run))
        try:
            return job.result(seconds)
        except OverdueError:
            with self._lock:
                if box not in self._idle:
                    overdue = True
                    self._stuck += 1
            raise

    def _box(self) -> _Box:
        with self._lock:
            if self._pid != os.getpid():  # threads do not survive a fork
                self._idle.clear()
                self._stuck, self._pid = 0, os.getpid()
            if self._stuck >= STUCK:
                raise OverdueError
            if self._idle:
                return self._idle.pop()
        box: _Box = SimpleQueue()
        threading.Thread(target=_serve, args=(box,), name="cachekit-folder", daemon=True).start()
        return box


def _serve(box: _Box) -> None:
    while (job := box.get()) is not None:
        job.run()
        del job  # what it holds is not kept until the next one comes


def _dismiss(idle: list[_Box]) -> None:
    for box in idle:
        box.put(None)
