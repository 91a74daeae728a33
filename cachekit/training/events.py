"""The worker's side of the event file: one JSON line an event, flushed at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from cachekit.private import opened

POLL = 0.5  # seconds between two looks at the counters


class Events:
    """Writes events, and keeps the time of phases."""

    def __init__(self, path: Path) -> None:
        self._stream = open(path, "a", encoding="utf-8", buffering=1, opener=opened)  # noqa: SIM115
        self._lock = threading.Lock()
        self.seconds: dict[str, float] = {}
        self._phase = ""
        self._failed_in = ""

    @property
    def phase(self) -> str:
        """What is going on: what a compile is booked to."""
        return self._phase

    @phase.setter
    def phase(self, name: str) -> None:
        if name != self._phase:
            self._phase = name
            self.emit("at", phase=name)

    @property
    def failed_in(self) -> str:
        """What was going on when the innermost phase was left by an exception; what is going on, without one."""
        return self._failed_in or self._phase or "start"

    def emit(self, event: str, **fields: Any) -> None:
        """Write one event; a full disk loses it, and is somebody else's failure."""
        with self._lock, suppress(OSError):
            self._stream.write(json.dumps({"event": event, **fields}) + "\n")

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self._stream.close()

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Announce a phase and add its wall time up."""
        outer, self.phase = self.phase, phase
        self.emit("phase", name=phase)
        start = time.perf_counter()
        try:
            yield
        except BaseException:
            self._failed_in = self._failed_in or self._phase
            raise
        finally:
            self.seconds[phase] = round(self.seconds.get(phase, 0.0) + time.perf_counter() - start, 3)
            self.phase = outer


class CounterWatch:
    """Reports the compiler's counters while they change: compiling blocks the main thread for minutes."""

    def __init__(self, events: Events, read: Callable[[], dict[str, int]]) -> None:
        self._events = events
        self._read = read
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._last: tuple[int, int] = (0, 0)
        self.compiled_in: list[str] = []

    def __enter__(self) -> CounterWatch:  # noqa: PYI034 - Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.look()

    def look(self) -> None:
        """Read the counters now; called at the end of each phase as well, so that a compile is booked where it was."""
        counters = self._read()
        now = (counters["found"], counters["compiled"])
        if now == self._last:
            return
        if now[1] > self._last[1]:
            self.compiled_in.append(self._events.phase)
        self._last = now
        self._events.emit("graphs", found=now[0], compiled=now[1], phase=self._events.phase)

    def _watch(self) -> None:
        while not self._stop.wait(POLL):
            self.look()
