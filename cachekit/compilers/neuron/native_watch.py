"""One run on TorchNeuron, of the worker or of a user's own command.

What compiled is told by new NEFFs, whichever process wrote them, and by what the first worker counts; what was found,
by the NEFFs that were read, and where the file system does not tell that, by the worker's count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cachekit.compilers.neuron import native
from cachekit.compilers.neuron.processes import compiles_below
from cachekit.compilers.neuron.reads import Reads
from cachekit.compilers.port import Observed, Sink, Unwatched
from cachekit.errors import MissError

LOOK = 1.0  # seconds between two looks at processes and files


class NativeWatch(Unwatched):
    """See `compilers.port.Watch`.

    Args:
        environment: Changes to variables.
        tree: Where TorchNeuron looks and writes in this run.
        prefix: What stands before the worker's command line.
        workers: How many it starts here.
        found: See the port; so for `strict`.
        clock: Seconds.
    """

    def __init__(
        self,
        environment: Mapping[str, str | None],
        tree: Path,
        *,
        prefix: Sequence[str] = (),
        workers: int = 1,
        found: bool,
        strict: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(environment)
        self.prefix, self.workers = prefix, workers
        self._tree, self._found, self._strict, self._clock = tree, found, strict, clock
        self._phase = ""
        self._counted: dict[str, int] = {}
        self._compiled_in: dict[str, None] = {}
        self._before: frozenset[str] = frozenset()
        self._reads: Reads | None = None
        self._seconds = 0.0
        self._looked: float | None = None

    def begin(self, tell: Sink) -> None:  # noqa: ARG002 - the port's
        """See the port."""
        self._before = native.contents(self._tree)
        self._reads = Reads(self._tree, self._before)

    def event(self, event: Mapping[str, Any]) -> None:
        """See the port.

        Raises:
            MissError: A graph compiles, under `strict`.
        """
        if event.get("event") == "at":
            self._phase = str(event.get("phase", ""))
        elif event.get("event") == "graphs":
            now = {name: int(event.get(name, 0)) for name in ("found", "compiled")}
            if now["compiled"] > self._counted.get("compiled", 0):
                self._compiles(str(event.get("phase") or self._phase))
            self._counted = now

    def look(self, pid: int) -> Sequence[Mapping[str, Any]]:
        """See the port: other workers than the first one tell nothing of what they compile.

        Raises:
            MissError: Something compiles, under `strict`.
        """
        now = self._clock()
        if self._looked is not None and now - self._looked < LOOK:
            return ()
        if compiles_below(pid):
            self._seconds += now - self._looked if self._looked is not None else 0.0
            if self._strict:
                self._compiles(self._phase)
        self._looked = now
        if self._strict and native.contents(self._tree) - self._before:
            self._compiles(self._phase)
        return ()

    def _compiles(self, phase: str) -> None:
        self._compiled_in.setdefault(phase or "start")
        if self._strict:
            raise MissError(
                "a graph is not warm, although its record was found",
                cause=f"it began to compile in: {phase or 'start'}",
                hint="train without --require-warm once, which adds it to the record",
            )

    def observed(self) -> Observed:
        """See the port."""
        new = len(native.contents(self._tree) - self._before)
        compiled = max(new, self._counted.get("compiled", 0))
        used = self.used()
        found = min(self._counted.get("found", 0), len(self._before)) if used is None else len(used)
        if compiled and not self._compiled_in:
            self._compiled_in[self._phase or "start"] = None
        return Observed(
            found=found,
            compiled=compiled,
            compile_seconds=round(self._seconds, 3) if compiled else 0.0,
            surprises=tuple(self._compiled_in) if self._found else (),
            exact=bool(self._counted) or used is not None,
            timed=bool(self._seconds),
        )

    def used(self) -> frozenset[str] | None:
        """See the port."""
        return self._reads.read() if self._reads is not None else None
