"""What compiles took on this host, seconds and memory: by that the next ones are ordered, and counted how many fit.

A line of JSON a compile, in one file that several processes append to. It is a help and no more: damaged lines are
passed over, what cannot be written is not, and old lines go.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from cachekit.compilers.neuron import facts
from cachekit.files import replace

# What a compile holds altogether, and what others need beside it, as a multiple of its largest process; ours.
SHARE = 2.0
_READ = 1 << 18  # bytes at the end of the file that are looked at: some thousand compiles
_LARGEST = 4 * _READ  # and then it is cut to them


class CompileNote(Struct, frozen=True, omit_defaults=True):
    """One compile that ended well.

    Attributes:
        compiler: The folder of its version, of which the commit does not count.
        module: `MODULE_<graph>+<flags>`.
        size: Bytes of the graph.
        seconds: What it took.
        peak: Bytes of memory that the largest of its processes held; 0 where nobody measured it.
    """

    compiler: str
    module: str
    size: int
    seconds: float
    peak: int = 0


class CompileNotes:
    """The compiles of a host.

    Args:
        path: The file; made when the first compile is noted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, *notes: CompileNote) -> None:
        """Write compiles down, each in one step."""
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lines = b"".join(msgspec.json.encode(note) + b"\n" for note in notes)
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(handle, lines)
                full = os.fstat(handle).st_size > _LARGEST
            finally:
                os.close(handle)
            if full:
                replace(self._path, self._tail())

    def seconds(self, compiler: str, module: str, size: int) -> float | None:
        """How long a graph will take: as it did, or as the one next in size did; None where none is known."""
        found = self._nearest(compiler, module, size)
        return found.seconds * _ratio(size, found) if found else None

    def peak(self, compiler: str, module: str, size: int) -> int | None:
        """How much memory its largest process will hold, likewise; of a smaller graph no less than was measured."""
        found = self._nearest(compiler, module, size, measured=True)
        return int(found.peak * max(1.0, _ratio(size, found))) if found else None

    def largest_peak(self, compiler: str) -> int | None:
        """The most that any compile of a version held; None where none was measured."""
        return max((note.peak for note in self._notes(compiler) if note.peak), default=None)

    def _nearest(self, compiler: str, module: str, size: int, *, measured: bool = False) -> CompileNote | None:
        notes = [note for note in self._notes(compiler) if note.peak or not measured]
        if own := [note for note in notes if note.module == module]:
            return own[-1]
        return min(reversed(notes), key=lambda note: abs(math.log(max(size, 1) / note.size)), default=None)

    def _notes(self, compiler: str) -> Iterator[CompileNote]:
        for line in self._tail().splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                note = msgspec.json.decode(line, type=CompileNote)
                if (
                    note.compiler.partition("+")[0] == compiler.partition("+")[0]
                    and note.size > 0
                    and note.seconds >= 0
                    and note.peak >= 0
                ):
                    yield note

    def _tail(self) -> bytes:
        try:
            with self._path.open("rb") as source:
                size = source.seek(0, os.SEEK_END)
                source.seek(max(0, size - _READ))
                data = source.read(_READ)
        except OSError:
            return b""
        return data if size <= _READ else data.partition(b"\n")[2]  # the first line is cut


def _ratio(size: int, note: CompileNote) -> float:
    return 1.0 if size == note.size else size / note.size


def host_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or the container's limit where that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text("ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            total = min(total, int(text))
    return total


def jobs_for_memory(total: int | None = None) -> int:
    """Compilers at once: one for each 64 GiB begun, as `neuron_parallel_compile` itself counts."""
    return max(1, math.ceil((host_memory() if total is None else total) / facts.MEMORY_PER_COMPILE))


def jobs_for_peak(peak: int, total: int | None = None, processors: int | None = None) -> int:
    """Compilers at once whose largest process holds `peak` bytes: what fits, and no more than there are processors."""
    fitting = int((host_memory() if total is None else total) // max(1, int(peak * SHARE)))
    return max(1, min(fitting, processors or os.cpu_count() or 1))
