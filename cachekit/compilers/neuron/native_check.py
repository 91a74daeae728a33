"""Are the graphs in an archive of TorchNeuron's whole, and of the compiler that its folder names? Nothing is unpacked.

An archive whose bytes are those of its record can be bad all the same: it may have been packed from damaged files, by
another program, or to do harm. Memory does not grow with it, and time not faster than its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cachekit.compilers.neuron import facts, native
from cachekit.compilers.neuron.fit import Claim, misfit
from cachekit.compilers.neuron.neff import Limits, NeffError, Part, read
from cachekit.store import archive
from cachekit.store.archive import UnsafeArchiveError

# There may be thousands, so a tiny one may not become as much as a file of its own may.
LIMITS = Limits(inflated_base=256 << 10)


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with a graph, or with the archive where none is named.

    Attributes:
        name: The graph's path.
        reason: What is wrong.
        damaged: Whether that is known to be damage.
    """

    name: str
    reason: str
    damaged: bool

    def __str__(self) -> str:
        """The reason, with the name."""
        return f"{self.name}: {self.reason}" if self.name else self.reason


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found in an archive: how many graphs, and what is wrong with some; damage first, as far as it is kept.

    Attributes:
        graphs: How many there are.
        flaws: What is wrong, the first of each kind; `damaged` and `odd` count them all.
        damaged: Graphs that are known to be damaged.
        odd: Graphs that are not understood.
    """

    graphs: int
    flaws: tuple[Flaw, ...]
    damaged: int
    odd: int

    @property
    def harm(self) -> str:
        """What is known to be damage, in words; empty where nothing is."""
        return self._words(self.damaged, damaged=True)

    @property
    def oddity(self) -> str:
        """What is not understood, in words; empty where all is."""
        return self._words(self.odd, damaged=False)

    def _words(self, count: int, *, damaged: bool) -> str:
        first = next((flaw for flaw in self.flaws if flaw.damaged is damaged), None)
        if first is None:
            return ""
        return f"{first}" + (f" (and {count - 1} more of {self.graphs} graphs)" if count > 1 else "")


def examine(packed: Path, folder: str) -> Examined:
    """Look at all graphs of an archive.

    Args:
        packed: The archive.
        folder: The one of its module: `torchneuron-<version>`.

    Raises:
        OSError: It cannot be read.
    """
    graphs, counts = 0, {True: 0, False: 0}
    first: dict[bool, Flaw] = {}
    for flaw in _flaws(packed, folder.removeprefix(native.PREFIX)):
        if flaw is None:
            graphs += 1
            continue
        graphs += bool(flaw.name)
        counts[flaw.damaged] += 1
        first.setdefault(flaw.damaged, flaw)
    flaws = tuple(first[damaged] for damaged in (True, False) if damaged in first)
    return Examined(graphs, flaws, counts[True], counts[False])


def _flaws(packed: Path, version: str) -> Iterator[Flaw | None]:
    """For each graph what is wrong with it; the archive's own flaw ends it."""
    seen: set[PurePosixPath] = set()
    try:
        for stored in archive.members(packed):
            name = PurePosixPath(stored.name)
            if name in seen or not native.is_graph(str(name)):
                yield Flaw("", f"{stored.name!r} {'stands twice' if name in seen else 'is no NEFF'}", damaged=True)
                return
            seen.add(name)
            yield _flaw(packed, stored, version)
    except UnsafeArchiveError as error:
        yield Flaw("", str(error), damaged=True)
        return
    if not seen:
        yield Flaw("", f"it holds no {facts.NATIVE_SUFFIX} file", damaged=True)


def _flaw(packed: Path, stored: archive.Stored, version: str) -> Flaw | None:
    try:
        found = read(packed, leaks=False, limits=LIMITS, part=Part(stored.offset, stored.size))
    except NeffError as error:
        return Flaw(stored.name, error.reason, error.damaged)
    reason = misfit(found, Claim(compiler=version))
    return Flaw(stored.name, reason, damaged=True) if reason else None
