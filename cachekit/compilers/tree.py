"""A compiler whose cache is a tree of files: each run has a folder of its own, and a record has one archive a warm.

What is finished is known by its name. An adapter says which files those are, and everything else follows: what a run
made is packed, and what a record has is unpacked. `tree_watch` follows a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from cachekit.compilers.port import ComparedBuilds, Compiler, Harvest, Observed, Restored
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
        """Unpack an archive. The folder is the run's own: nothing stands in the way."""
        from cachekit.store import archive  # with Python's compressors; a plan does without

        check_archive(module)
        (blob,) = files
        return Restored(size=archive.unpack(blob.location, self.tree(cache_dir), blob.through))

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
