"""A compiler whose cache is a tree of files: each run has a folder of its own, and a record has one archive a warm.

What is finished is known by its name. An adapter says which files those are, and everything else follows: what a run
made is packed, what a record has is unpacked, and which units a run read, and made, is seen from outside.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from cachekit.compilers.port import (
    UNTOLD,
    ComparedBuilds,
    Compiler,
    Harvest,
    Observed,
    Restored,
    Run,
    Sink,
    Watch,
    not_warm,
)
from cachekit.files import Opener
from cachekit.recipe.ingredients import Fingerprint
from cachekit.store.blobs import Blob
from cachekit.store.record import File, Module


class TreeCompiler(Compiler):
    """What adapters of such compilers share."""

    def unit(self, path: str) -> str:
        """The unit of a file, given relative to the tree: files of one unit are kept and restored together.

        Empty for a file that is not finished, or does not belong to the cache. By default each file is a unit.
        """
        return path

    def tells(self, path: str) -> bool:
        """Whether a run that reads this file of a unit, given relative to the tree, uses the unit."""
        return True

    def torn(self, path: Path) -> bool:
        """Whether a file with a finished name is not whole: then a record does not get its unit."""
        return False

    def alike(self, old: Path, new: Path) -> bool:
        """Whether two compiles of one unit gave the same file."""
        return old.read_bytes() == new.read_bytes()

    def tree(self, cache_dir: Path) -> Path:
        """The folder that the compiler itself is given, inside a run's own."""
        return cache_dir

    def folder(self, fingerprint: Fingerprint) -> str:
        """What the archives of this machine lie in, in the store and on remotes."""
        return fingerprint.directory

    def units(self, cache_dir: Path) -> dict[str, list[str]]:
        """The finished files by unit, relative to the tree. Links are none of them."""
        found: dict[str, list[str]] = {}
        tree = self.tree(cache_dir)
        start = len(os.path.join(tree, ""))  # noqa: PTH118 - there may be thousands
        for folder, _, names in os.walk(tree):
            for name in names:
                path = f"{folder}/{name}"
                if (unit := self.unit(path[start:])) and not os.path.islink(path):  # noqa: PTH114
                    found.setdefault(unit, []).append(path[start:])
        return found

    def contents(self, cache_dir: Path) -> frozenset[str]:
        """The names of the finished units."""
        return frozenset(self.units(cache_dir))

    def harvest(
        self,
        cache_dir: Path,
        before: frozenset[str],
        fingerprint: Fingerprint,
        workspace: Path,
        observed: Observed | None = None,
    ) -> Harvest | None:
        """One archive of the new units. Call it only after the run has ended: then files are whole."""
        tree = self.tree(cache_dir)
        new = [files for unit, files in self.units(cache_dir).items() if unit not in before]
        names = [name for files in new if not any(self.torn(tree / name) for name in files) for name in files]
        return pack(tree, names, self.folder(fingerprint), workspace) if names else None

    def restore(self, module: Module, files: Sequence[Blob], cache_dir: Path) -> Restored:
        """Unpack an archive. The folder is the run's own: what lies there came from another archive of the record.

        Two may have the same units: of two runs that compiled them at the same time.
        """
        from cachekit.store import archive  # with Python's compressors; a plan does without

        check_archive(module)
        (blob,) = files
        return Restored(size=archive.unpack(blob.location, self.tree(cache_dir), blob.through, joins=True))

    def compare(self, old: Path, new: Path) -> ComparedBuilds:
        """Unit by unit, file by file."""
        before, after = self.units(old), self.units(new)

        def alike(unit: str) -> bool:
            names = before[unit]
            return sorted(names) == sorted(after[unit]) and all(
                self.alike(self.tree(old) / name, self.tree(new) / name) for name in names
            )

        return ComparedBuilds.of(before, after, alike)


def pack(tree: Path, names: Iterable[str], folder: str, workspace: Path | None, opener: Opener = os.open) -> Harvest:
    """Pack files of a tree, named relative to it, into one archive.

    Args:
        tree: The tree.
        names: The files.
        folder: The module's folder in the store and on remotes.
        workspace: A private folder for the archive; without one it is only measured.
        opener: Opens the files.

    Raises:
        OSError: A file cannot be read, or the workspace cannot be written.
    """
    from cachekit.store import archive

    unnamed = workspace / "archive.tar" if workspace else Path(os.devnull)
    with unnamed.open("wb") as target:
        sha256, size = archive.pack(tree, names, target, opener)
    module = Module(f"{folder}/{sha256}.tar", (File(f"{sha256}.tar", size, sha256),))
    return Harvest((module,), {sha256: unnamed})


def check_archive(module: Module, folder: str = "") -> None:
    """Make sure that a module is one archive, in this folder if one is given.

    Raises:
        UnsafeArchiveError: The module is something else.
    """
    from cachekit.store.archive import UnsafeArchiveError

    name = PurePosixPath(module.name)
    if len(module.files) != 1 or name.suffix != ".tar":
        raise UnsafeArchiveError(f"{module.name} is not a single archive")
    if folder and str(name.parent) != folder:
        raise UnsafeArchiveError(f"{module.name} is not an archive of {folder}")


UNCOUNTED = (
    "what was found is not counted: the file system of the compiler cache dir does not record that a file was read"
)
LOOK = 1.0  # seconds between two looks at processes and files


class AccessTimes:
    """Which files of a tree are read from now on, by any process: their times of access show it.

    Nothing inside of a run can be asked, as compilers open files unseen by Python. All files get a time of access that
    is long past; the kernel moves it at the next read, also under `relatime`. If the kernel does not (`noatime`, some
    network file systems), a file of our own shows that, and the answer is unknown.

    Args:
        tree: The folder.
        names: The files, relative to the folder. Whatever reads them in order to check them must have done so before.
    """

    def __init__(self, tree: Path, names: Iterable[str]) -> None:
        self._tree = tree
        self._names = frozenset(names)
        self._told = bool(self._names) and keeps_access_times(tree)
        for name in self._names if self._told else ():
            with suppress(OSError):
                _forget(tree / name)

    def read(self) -> frozenset[str] | None:
        """The files that were read; None if that is unknown."""
        if not self._told:
            return None if self._names else frozenset()
        found = set()
        for name in self._names:
            with suppress(OSError):  # it is gone
                if (self._tree / name).stat().st_atime_ns:
                    found.add(name)
        return frozenset(found)


def _forget(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns))


def keeps_access_times(folder: Path) -> bool:
    """Whether the file system notes that a file was read; tried with a file in this folder."""
    probe = folder / f".cachekit-{uuid.uuid4().hex}"
    try:
        probe.write_bytes(b"read me")
        _forget(probe)
        before = probe.stat().st_atime_ns
        probe.read_bytes()
        return before == 0 and probe.stat().st_atime_ns != 0
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)


class TreeWatch(Watch):
    """One run, of the worker or of a user's own command.

    New units, whichever process wrote them, and the first worker's count show what compiled. The units that were read
    show what was found, or the worker's count if the file system notes no reads.

    Args:
        compiler: The run's compiler.
        run: The run.
        environment: Changes to variables.
        prefix: What stands before the worker's command line.
        workers: How many the prefix starts here.
    """

    def __init__(
        self,
        compiler: TreeCompiler,
        run: Run,
        environment: Mapping[str, str | None],
        *,
        prefix: Sequence[str] = (),
        workers: int = 1,
    ) -> None:
        super().__init__(environment)
        self.prefix, self.workers = prefix, workers
        self._compiler, self._root = compiler, run.cache_dir
        self._found, self._strict = run.found, run.strict
        self._phase = ""
        self._counted: dict[str, int] = {}
        self._compiled_in: dict[str, None] = {}
        self._before: dict[str, list[str]] = {}
        self._used: AccessTimes | None = None
        self._seconds = 0.0
        self._looked: float | None = None

    def busy(self, pid: int) -> bool:
        """Whether a compiler works now below this process, the first one of the run, as far as processes show it."""
        return False

    def begin(self, tell: Sink) -> None:
        self._before = self._compiler.units(self._root)
        names = [name for files in self._before.values() for name in files if self._compiler.tells(name)]
        self._used = AccessTimes(self._compiler.tree(self._root), names)

    def event(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == "at":
            self._phase = str(event.get("phase", ""))
        elif event.get("event") == "graphs":
            now = {name: int(event.get(name, 0)) for name in ("found", "compiled")}
            if now["compiled"] > self._counted.get("compiled", 0):
                self._compiles(str(event.get("phase") or self._phase))
            self._counted = now

    def look(self, pid: int) -> Sequence[Mapping[str, Any]]:
        # Only the first worker tells what it compiles.
        now, before = time.monotonic(), self._looked
        if before is not None and now - before < LOOK:
            return ()
        self._looked = now
        busy = self.busy(pid)
        if busy and before is not None:
            self._seconds += now - before
        if self._strict and (busy or self._new()):
            self._compiles(self._phase)
        return ()

    def _new(self) -> Collection[str]:
        return self._compiler.contents(self._root) - self._before.keys()

    def _compiles(self, phase: str) -> None:
        self._compiled_in.setdefault(phase or "start")
        if self._strict:
            raise not_warm(f"a graph began to compile in: {phase or 'start'}")

    def observed(self, told: Observed = UNTOLD) -> Observed:
        compiled = max(len(self._new()), self._counted.get("compiled", 0))
        used = self._units_read()
        found = min(self._counted.get("found", 0), len(self._before)) if used is None else len(used)
        known = bool(self._counted) or used is not None
        if compiled and not self._compiled_in:
            self._compiled_in[self._phase or "start"] = None
        return Observed(
            found=found,
            compiled=compiled,
            compile_seconds=round(self._seconds, 3) if compiled else 0.0,
            surprises=tuple(self._compiled_in) if self._found else (),
            exact=known,
            used=used,
            timed=bool(self._seconds),
            notes=() if known or not self._before else (UNCOUNTED,),
        )

    def _units_read(self) -> frozenset[str] | None:
        """The units of which a file was read; None if that is unknown."""
        read = self._used.read() if self._used is not None else None
        if read is None:
            return None
        return frozenset(unit for unit, files in self._before.items() if not read.isdisjoint(files))
