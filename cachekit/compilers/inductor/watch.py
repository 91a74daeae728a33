"""One run on Inductor, of the worker or of a user's own command: variables, and the end where nothing may compile."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachekit.compilers.inductor import facts, used
from cachekit.compilers.port import Observed, Run, Sink, Watch
from cachekit.errors import MissError

HOOK = Path(__file__).parent / "hook"  # on PYTHONPATH of commands; see there


class InductorWatch(Watch):
    """See `compilers.port.Watch`. The worker itself counts graphs, and tells of each as its compile begins.

    Args:
        environment: Variables for the worker.
        strict: Stop at the first compile.
        reads: The compiler cache dir, where it matters which of its files are read.
    """

    def __init__(self, environment: Mapping[str, str | None], *, strict: bool, reads: Path | None = None) -> None:
        super().__init__(environment)
        self._strict = strict
        self._root = reads
        self._restored: frozenset[str] = frozenset()
        if reads is not None:
            self._reads = reads.with_name("reads")
            self.environment = {**environment, facts.USED: str(self._reads)}

    def begin(self, tell: Sink) -> None:  # noqa: ARG002 - the port's
        """See the port."""
        if self._root is not None:
            self._restored = frozenset(
                Path(folder, name).relative_to(self._root).as_posix()
                for folder, _, names in os.walk(self._root)
                for name in names
            )

    def used(self) -> frozenset[str] | None:
        """See the port."""
        return used.read(self._reads, self._restored) if self._root is not None else None

    def event(self, event: Mapping[str, Any]) -> None:
        """See the port.

        Raises:
            MissError: A graph compiles, under `strict`.
        """
        if self._strict and event.get("event") == "graphs" and event.get("compiled"):
            raise MissError(
                "a graph is not warm, although its record was found",
                cause=f"it began to compile in: {event.get('phase') or 'start'}",
                hint="train without --require-warm once, which adds it to the record",
            )


class CommandWatch(Watch):
    """See `compilers.port.Watch`. A command tells nothing itself: what it did is seen from files.

    Args:
        run: The run; counters go into a folder beside its compiler cache dir.
    """

    def __init__(self, run: Run) -> None:
        self._root, self._strict = run.cache_dir, run.strict
        self._reports = run.cache_dir.with_name("reports")
        self._reports.mkdir(exist_ok=True)
        self._sources = self._files(facts.SOURCE_SUFFIXES) if run.strict else frozenset()
        self._graphs = self._count()
        path = [str(HOOK), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        super().__init__(
            {
                **{name: value for name, value in facts.FORCED.items() if name not in facts.OWN},
                facts.CACHE_DIR: str(run.cache_dir),
                facts.TRITON_CACHE_DIR: str(run.cache_dir / "triton"),
                facts.PRECOMPILE_HEADERS: "0" if run.found else "1",
                facts.REPORTS: str(self._reports),
                "PYTHONPATH": os.pathsep.join(path),
            }
        )

    def look(self, pid: int) -> Sequence[Mapping[str, Any]]:  # noqa: ARG002 - the protocol's
        """See the port.

        Raises:
            MissError: Something compiles, under `strict`.
        """
        if self._strict and self._files(facts.SOURCE_SUFFIXES) - self._sources:
            raise MissError(
                "a graph is not warm, although its record was found",
                cause="the command began to compile",
                hint="run it without --require-warm once, which adds it to the record",
            )
        return ()

    def observed(self) -> Observed:
        """See the port. A process that was killed left no counters: then its finished graphs are counted."""
        found = compiled = 0
        seconds = 0.0
        reports = sorted(self._reports.glob("*.json"))
        for path in reports:
            with suppress(OSError, ValueError, KeyError, TypeError):
                numbers = json.loads(path.read_bytes())
                found, compiled = found + int(numbers["found"]), compiled + int(numbers["compiled"])
                seconds = max(seconds, float(numbers["seconds"]))  # ranks compile at the same time
        compiled = max(compiled, self._count() - self._graphs)
        return Observed(found, compiled, seconds, exact=bool(reports))

    def _files(self, suffixes: tuple[str, ...]) -> frozenset[str]:
        return frozenset(
            str(Path(folder, name))
            for folder, _, names in os.walk(self._root)
            for name in names
            if name.endswith(suffixes)
        )

    def _count(self) -> int:
        return sum(1 for path in (self._root / facts.GRAPHS).glob("*/*") if path.is_dir())
