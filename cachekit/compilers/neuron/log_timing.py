"""From the log's own times to the seconds of each compile.

What a log offers differs by version: a command and a completion line (a debug level), only completion lines (SDK 2.31),
only commands with an unnamed `Compiler status PASS` (SDK 2.9 to 2.2x), or commands and an unnamed completion (older).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cachekit.compilers.neuron.log_events import CompileCommand, Compiled, Event


class Timing:
    """Follows the compiles of every process of a run."""

    def __init__(self) -> None:
        self._last: dict[str, datetime] = {}
        self._open: dict[str, dict[str, datetime | None]] = {}
        self._workers: set[str] = set()
        # "PASS" lines that no compile was found for yet, by the rank in front of them.
        self._passes: dict[int | None, int] = {}

    def started(self, process: str, module: str, at: datetime | None) -> None:
        """The compiler was called."""
        if module:
            self._open.setdefault(process, {})[module] = at

    def worker(self, process: str) -> None:
        """This process does nothing but compile from now on."""
        self._workers.add(process)

    def passed(self, rank: int | None) -> None:
        """Some compile ended well."""
        self._passes[rank] = self._passes.get(rank, 0) + 1

    def failed(self, process: str, module: str) -> None:
        """A compile ended badly."""
        self._take(process, module)

    def completed(self, process: str, module: str, fields: dict[str, Any]) -> Compiled:
        """A compile ended well; an empty module is the only one that the process compiles, if it is the only one."""
        if not module and len(self._open.get(process, {})) == 1:
            module = next(iter(self._open[process]))
        at: datetime | None = fields["at"]
        begun, known = self._take(process, module)
        basis = "command"
        if not known:
            begun, basis = self._last.get(process), "worker" if process in self._workers else "gap"
        self._spend(fields["rank"])
        seconds = _seconds(begun, at)
        return Compiled(module=module, seconds=seconds, basis=basis if seconds is not None else "", **fields)

    def before(self, process: str, at: datetime | None, found: Sequence[Event]) -> list[Event]:
        """A process writes a new line, so that its only open compile has ended, if a PASS was seen meanwhile."""
        busy = self._open.get(process, {})
        begun = [event.module for event in found if isinstance(event, CompileCommand)]
        waiting = [module for module in busy if module not in begun]
        if len(waiting) != 1 or not any(self._passes.values()):
            return []
        module = waiting[0]
        rank = next((event.rank for event in found), None)
        if not self._spend(rank):
            return []
        seconds = _seconds(busy.pop(module), at)
        pid = next((event.pid for event in found), int(process[4:]) if process.startswith("pid ") else None)
        return [
            Compiled(at=at, pid=pid, rank=rank, module=module, seconds=seconds, basis="next-line" if seconds else "")
        ]

    def after(self, process: str, at: datetime | None) -> None:
        """The process wrote a line at this time."""
        if at is not None:
            self._last[process] = at

    def close(self) -> list[Event]:
        """At the end: if there are as many PASS lines as open compiles, each of them ended well."""
        names = [module for busy in self._open.values() for module in busy]
        if not names or sum(self._passes.values()) < len(names):
            return []
        self._open = {}
        return [Compiled(module=module) for module in names]

    def _spend(self, rank: int | None) -> bool:
        """Take one PASS that this rank, or nobody in particular, has said."""
        for name in (rank, None):
            if self._passes.get(name, 0):
                self._passes[name] -= 1
                return True
        return False

    def _take(self, process: str, module: str) -> tuple[datetime | None, bool]:
        """Close a compile; gives its begin and whether it was open."""
        if not module:
            return None, False
        for name in (process, *self._open):
            if module in self._open.get(name, {}):
                return self._open[name].pop(module), True
        return None, False


def _seconds(begun: datetime | None, at: datetime | None) -> float | None:
    if begun is None or at is None or at < begun:  # a clock that was set back tells nothing
        return None
    return (at - begun).total_seconds()
