"""The cache of native TorchNeuron: a flat, sharded tree of NEFFs, `ab/cd/<32 hex>.neff`, thousands of small files.

One archive a warm. The compiler's version is not in the names, so each version has a folder of its own, as the live
root and in the store: a NEFF of one compiler is never found by another. The layout is from an unofficial copy of the
source (`facts`); nothing here depends on how deep the tree is.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from cachekit.compilers.neuron import facts, place
from cachekit.compilers.neuron.fit import Check, Claim
from cachekit.compilers.neuron.modules import Skipped
from cachekit.compilers.port import Harvest
from cachekit.compilers.tree import check_archive, pack
from cachekit.errors import IntegrityError
from cachekit.store import archive
from cachekit.store.record import Module

PREFIX = "torchneuron-"
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]*")


def directory(version: str) -> str:
    """The folder of a compiler's version: below the live root, and for records and modules.

    Raises:
        ValueError: It is no version.
    """
    if VERSION.fullmatch(version) is None or ".." in version:
        raise ValueError(f"{version!r} is no version")
    return PREFIX + version


def is_neurons(directory: str) -> bool:
    """Whether a record's directory is one of Neuron's compilers', on XLA or not."""
    return directory.startswith(PREFIX) or facts.COMPILER_DIRECTORY.fullmatch(directory) is not None


def is_name(module: str) -> bool:
    """Whether a module is called as those of TorchNeuron are: `torchneuron-<version>/<digest>.tar`."""
    folder, _, name = module.rpartition("/")
    return folder.startswith(PREFIX) and "/" not in folder and name.endswith(".tar")


def split(name: str) -> tuple[str, str]:
    """A graph's path below a root: the compiler version's folder, if it lies in one, and the rest."""
    folder, _, rest = name.partition("/")
    return (folder, rest) if folder.startswith(PREFIX) and rest else ("", name)


def contents(live_root: Path) -> frozenset[str]:
    """The finished NEFFs in a live root, by relative path.

    Writers rename them into place, so what has its final name is whole. Links and hidden names are none of them.
    """
    found = set()
    for folder, folders, files in os.walk(live_root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(folder, name)
            if _is_neff(name) and not path.is_symlink():
                found.add(path.relative_to(live_root).as_posix())
    return frozenset(found)


def is_graph(path: str) -> bool:
    """Whether a path in an archive is one of a graph, as they are packed."""
    parts = path.split("/")
    return all(part.isprintable() and not part.startswith(".") for part in parts) and _is_neff(parts[-1])


def _is_neff(name: str) -> bool:
    return name.endswith(facts.NATIVE_SUFFIX) and not name.startswith(".") and name.isprintable()


def harvest(
    live_root: Path, before: frozenset[str], version: str, workspace: Path, *, check: Check | None = None
) -> tuple[Harvest | None, tuple[Skipped, ...]]:
    """Pack what is finished and was not there before.

    Args:
        live_root: The folder of one compiler version.
        before: What was there.
        version: The compiler's.
        workspace: A private folder.
        check: Judges each NEFF; damaged ones are left out.

    Returns:
        One module with one archive, or None where nothing is new; and what was left out.

    Raises:
        OSError: The workspace cannot be written.
    """
    names: list[str] = []
    skipped: list[Skipped] = []
    for name in sorted(contents(live_root) - before):
        try:
            reason = check(live_root / name, Claim(compiler=version)) if check else None
        except OSError as error:
            reason = f"it cannot be read: {error.strerror}"
        if reason:
            skipped.append(Skipped(name, live_root / name, reason))
        else:
            names.append(name)
    if not names:
        return None, tuple(skipped)
    return pack(live_root, names, directory(version), workspace), tuple(skipped)


def restore(
    module: Module,
    packed: Path,
    live_root: Path,
    version: str,
    *,
    check: Check | None = None,
    read: Callable[[archive.Sink], None] | None = None,
) -> int:
    """Put the NEFFs of an archive into a live root; those that are there stay. Returns bytes written.

    Args:
        module: The module.
        packed: Its archive.
        live_root: The folder of one compiler version; made if need be.
        version: The compiler's.
        check: Judges each NEFF.
        read: Gives all bytes of the archive and checks them, as `archive.unpack` has it; they are checked here where
            it is left out.

    Raises:
        UnsafeArchiveError: It is no such archive, is of another compiler version, or holds something else than NEFFs.
        IntegrityError: The bytes are not those of the module, or a NEFF is damaged. Nothing was put anywhere.
        OSError: The root cannot be written.
    """
    check_archive(module, directory(version))
    live_root.mkdir(parents=True, exist_ok=True)
    with place.building(live_root) as hidden:
        tree = hidden / "tree"
        tree.mkdir()
        archive.unpack(packed, tree, read)
        if read is None:
            _check_digest(module, packed)
        names = sorted(_files(tree))
        for neff in names:
            if not is_graph(neff):
                raise archive.UnsafeArchiveError(f"{module.name}: {neff!r} is no NEFF")
            if check is not None and (reason := check(tree / neff, Claim(compiler=version))):
                raise IntegrityError(f"{neff} of {module.name} is damaged", cause=reason)
        sizes = {neff: (tree / neff).stat().st_size for neff in names}
        left = _move_shards(tree, live_root)
        moved = sum(size for neff, size in sizes.items() if neff.partition("/")[0] not in left)
        return moved + sum(
            _move(tree / neff, live_root / neff, live_root) for neff in names if neff.partition("/")[0] in left
        )


def _files(tree: Path) -> list[str]:
    start = len(os.path.join(tree, ""))  # noqa: PTH118 - there may be thousands
    return [f"{folder}/{name}"[start:] for folder, _, names in os.walk(tree) for name in names]


def _move_shards(tree: Path, root: Path) -> frozenset[str]:
    """Give whole shards their places, where there is nothing yet; returns the names of the rest."""
    left = set()
    for name in os.listdir(tree):  # noqa: PTH208
        try:
            if (root / name).is_symlink() or not (tree / name).is_dir():
                raise FileExistsError
            (tree / name).rename(root / name)  # never over a folder with something in it
        except OSError:
            left.add(name)
    return frozenset(left)


def _check_digest(module: Module, packed: Path) -> None:
    digest, size = hashlib.sha256(), 0
    with packed.open("rb") as source:
        while block := source.read(1 << 20):
            digest.update(block)
            size += len(block)
    if (digest.hexdigest(), size) != (module.files[0].sha256, module.files[0].size):
        raise IntegrityError(f"{module.name} is not what its record says", cause="digest or size do not fit")


def _move(source: Path, target: Path, root: Path) -> int:
    """Give a finished file its place, unless there is one; never through a link."""
    folder = root
    for part in target.parent.relative_to(root).parts:
        folder /= part
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise archive.UnsafeArchiveError(f"{folder} is a link")
    size = source.stat().st_size
    try:
        os.link(source, target)  # not a rename: that would replace what another process just finished
    except FileExistsError:
        return 0
    except OSError:  # a file system without links
        if target.exists() or target.is_symlink():
            return 0
        source.rename(target)
    return size
