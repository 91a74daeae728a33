"""Clocks for tests: that pass where somebody sleeps; that jump once nobody has anything left to do but wait; and one of
a machine that sleeps."""

from __future__ import annotations

import threading

from cachekit.remotes.budget import Clock


class Passing(Clock):
    """Time passes where somebody sleeps."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds


class JumpingClock(Clock):
    """Time that passes only while all threads wait, and then at once: to the moment when the first of them goes on.

    Threads are those that were begun by `start`, and the one that made the clock.
    """

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._now = 1_000_000.0
        self._running = 1
        self._alarms: dict[object, float] = {}

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + 1_700_000_000.0

    def sleep(self, seconds: float) -> None:
        self.wait(threading.Event(), seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        with self._turn:
            me = object()
            self._alarms[me] = self._now + max(0.0, seconds)
            self._running -= 1
            self._jump()
            while me in self._alarms and not event.is_set():
                self._turn.wait(0.002)  # an event is set without this clock
                self._jump()
            if self._alarms.pop(me, None) is not None:
                self._running += 1
        return event.is_set()

    def start(self, work, name: str) -> threading.Thread:
        with self._turn:
            self._running += 1

        def run() -> None:
            try:
                work()
            finally:
                with self._turn:
                    self._running -= 1
                    self._jump()

        return super().start(run, name)

    def join(self, threads) -> None:
        """Wait for threads, while time passes for them."""
        with self._turn:
            self._running -= 1
            self._jump()
        for thread in threads:
            thread.join()
        with self._turn:
            self._running += 1

    def _jump(self) -> None:
        if self._running == 0 and self._alarms:
            first = min(self._alarms, key=self._alarms.__getitem__)
            self._now = max(self._now, self._alarms.pop(first))
            self._running += 1
            self._turn.notify_all()


class OfMachine(Clock):
    """The clock of one machine of several that share a jumping one.

    Args:
        clock: The shared one.
        off: Seconds that its wall clock is off.
        stops: Seconds from now when the machine stops, as by SIGSTOP, and when it goes on.
    """

    def __init__(self, clock: JumpingClock, *, off: float = 0.0, stops: tuple[float, float] | None = None) -> None:
        self._clock, self._off = clock, off
        self._stops = tuple(clock.now() + moment for moment in stops) if stops else (float("inf"),) * 2
        self.start = clock.start

    def now(self) -> float:
        return self._clock.now()

    def wall(self) -> float:
        return self._clock.wall() + self._off

    def sleep(self, seconds: float) -> None:
        self.wait(threading.Event(), seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        ends = self.now() + max(0.0, seconds)
        if self._stops[0] <= ends < self._stops[1]:
            self._clock.sleep(self._stops[1] - self.now())
            return event.is_set()
        return self._clock.wait(event, seconds)
