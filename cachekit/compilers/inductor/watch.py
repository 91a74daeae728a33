"""One run on Inductor, of the worker or of a user's own command: variables, and the end where nothing may compile."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from msgspec import structs

from cachekit.compilers.inductor import facts
from cachekit.compilers.port import UNTOLD, Node, Observed, Run, Sink, Watch, not_warm
from cachekit.compilers.tree import AccessTimes
from cachekit.store.layout import temporary_folder

# From when to when a process ran, in seconds, and what compiling took of the graphs that it found, in microseconds.
_Life = tuple[float, float, Mapping[str, int]]

HOOK = Path(__file__).parent / "hook"  # on PYTHONPATH of commands; see there


class InductorWatch(Watch):
    """A run of the worker, which counts graphs itself, and tells of each as its compile begins.

    Args:
        run: The run.
        threads: How many the worker has.
        restored: The finished files in the compiler cache dir, if it matters which of them the run reads.
        node: This machine's place, where several train together.
    """

    def __init__(self, run: Run, threads: int, restored: frozenset[str], node: Node) -> None:
        counts = {facts.THREADS: str(threads), facts.MKL_THREADS: str(threads)}
        super().__init__({**facts.FORCED, **_places(run), **counts, **_ranks(run, node)})
        self._run, self._restored = run, restored
        self._reads: AccessTimes | None = None

    def begin(self, tell: Sink) -> None:
        self._reads = AccessTimes(self._run.cache_dir, self._restored)

    def observed(self, told: Observed = UNTOLD) -> Observed:
        """What the worker counted, and which files were read, with those of the same stem.

        Inductor asks for a kernel's source by its existence only, and writes it anew where it is not there.
        """
        read = self._reads.read() if self._reads else None
        stems = {_stem(name) for name in read or ()}
        used = None if read is None else frozenset(name for name in self._restored if _stem(name) in stems)
        return structs.replace(told, used=used)

    def event(self, event: Mapping[str, Any]) -> None:
        if self._run.strict and event.get("event") == "graphs" and event.get("compiled"):
            raise not_warm(f"a graph began to compile in: {event.get('phase') or 'start'}")


def _ranks(run: Run, node: Node) -> dict[str, str | None]:
    """What torchrun would tell the one worker of this machine. A trial's graphs name no other one: it runs alone."""
    nodes = run.recipe.parallel.nodes
    if nodes == 1 or run.kind != "train":
        return {}
    numbers = {"RANK": node.rank, "LOCAL_RANK": 0, "WORLD_SIZE": nodes, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": node.port}
    return {"MASTER_ADDR": node.address, **{name: str(one) for name, one in numbers.items()}}


def _places(run: Run) -> dict[str, str | None]:
    shared: Path | None = None
    if not run.found:  # what finds everything need not prepare the header that compiling needs
        with suppress(OSError):  # compiling takes longer without it
            shared = temporary_folder("torchinductor")
    return {
        facts.CACHE_DIR: str(run.cache_dir),
        facts.TRITON_CACHE_DIR: str(run.cache_dir / "triton"),
        facts.PRECOMPILE_HEADERS: "0",
        facts.SHARED: str(shared) if shared else None,
    }


def _stem(name: str) -> str:
    folder, _, last = name.rpartition("/")
    return f"{folder}/{last.partition('.')[0]}"


class CommandWatch(Watch):
    """A run of a user's own command, which tells nothing itself: what it did is seen from files.

    Args:
        run: The run; counters go into a folder beside its compiler cache dir.
    """

    def __init__(self, run: Run) -> None:
        self._root, self._strict = run.cache_dir, run.strict
        self._reports = run.cache_dir.with_name("reports")
        self._reports.mkdir(exist_ok=True)
        self._before = self._sources() if run.strict else frozenset()
        self._graphs = self._count()
        path = [str(HOOK), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        super().__init__(
            {
                **{name: value for name, value in facts.FORCED.items() if name not in facts.OWN},
                **_places(run),
                facts.REPORTS: str(self._reports),
                facts.RESTORED: str(time.time_ns()) if run.restored else None,
                "PYTHONPATH": os.pathsep.join(path),
            }
        )

    def look(self, pid: int) -> Sequence[Mapping[str, Any]]:
        if self._strict and self._sources() - self._before:
            raise not_warm("the command began to compile a graph")
        return ()

    def observed(self, told: Observed = UNTOLD) -> Observed:
        """A process that was killed may have left no counters: then its finished graphs are counted."""
        found = compiled = 0
        spans: list[tuple[float, float]] = []
        lives: list[_Life] = []
        notes: dict[str, None] = {}  # of several ranks the same
        reports = sorted(self._reports.glob("*.json"))
        for path in reports:
            with suppress(OSError, ValueError, KeyError, TypeError):
                numbers = json.loads(path.read_bytes())
                found, compiled = found + int(numbers["found"]), compiled + int(numbers["compiled"])
                spans += [(float(start), float(end)) for start, end in numbers["spans"]]
                notes |= {str(numbers["note"]): None} if numbers.get("note") else {}
                if "found_ms" in numbers:
                    lives.append((*map(float, numbers["lived"]), numbers["graphs"]))
        compiled = max(compiled, self._count() - self._graphs)
        if found or compiled:
            notes = {}
        carried = _in_turn(lives) if lives else None
        return Observed(
            found, compiled, _covered(spans), notes=tuple(notes), exact=bool(reports), found_seconds=carried
        )

    def _sources(self) -> frozenset[str]:
        return frozenset(
            str(Path(folder, name))
            for folder, _, names in os.walk(self._root)
            for name in names
            if name.endswith(facts.SOURCE_SUFFIXES)
        )

    def _count(self) -> int:
        return sum(1 for path in (self._root / facts.GRAPHS).glob("*/*") if path.is_dir())


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The seconds in which any of several processes compiled: those of a run compile at once, or one after another."""
    seconds = last = 0.0
    for start, end in sorted(spans):
        seconds += max(end - max(start, last), 0.0)
        last = max(last, end)
    return round(seconds, 3)


def _in_turn(lives: Iterable[_Life]) -> float:
    """The seconds of compiling that several processes found: of those that ran at once, what one of them found.

    A graph that several found counts once, as the first would have compiled it for the others. Of all processes it is
    those of which each began when the one before had ended, so chosen that they come to the most.
    """
    known: set[str] = set()
    sums: list[tuple[float, float]] = [(-math.inf, 0.0)]  # when a process ended, and what came up to then
    for began, ended, graphs in sorted(lives, key=itemgetter(0)):
        fresh = sum(took for graph, took in graphs.items() if graph not in known)
        known |= graphs.keys()
        sums.append((ended, max(so_far for end, so_far in sums if end <= began) + fresh / 1e6))
    return max(so_far for _, so_far in sums)
