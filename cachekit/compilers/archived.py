"""One archive a warm: how a compiler whose cache is a tree of small files has it in records, and gets it back.

What the adapters of such compilers share; each says itself which files are finished, and where the tree is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from cachekit.compilers.port import Harvest
from cachekit.store import archive
from cachekit.store.record import File, Module


def harvest(root: Path, names: Iterable[str], folder: str, workspace: Path) -> Harvest:
    """Pack files of a tree.

    Args:
        root: The tree.
        names: The files, relative to it.
        folder: What the module lies in, in the store and on shared caches.
        workspace: A private folder, which then has the archive.

    Raises:
        OSError: A file cannot be read, or the workspace not be written.
    """
    unnamed = workspace / "archive.tar"
    with unnamed.open("wb") as target:
        sha256, size = archive.pack(root, names, target)
    module = Module(f"{folder}/{sha256}.tar", (File(f"{sha256}.tar", size, sha256),))
    return Harvest((module,), {sha256: unnamed})


def check(module: Module, folder: str = "") -> None:
    """See that a module is one archive.

    Args:
        module: The module.
        folder: What it must lie in; empty for any.

    Raises:
        UnsafeArchiveError: It is not.
    """
    name = PurePosixPath(module.name)
    if len(module.files) != 1 or name.suffix != ".tar":
        raise archive.UnsafeArchiveError(f"{module.name} is not one archive")
    if folder and str(name.parent) != folder:
        raise archive.UnsafeArchiveError(f"{module.name} is no archive of {folder}")
