"""The cache of native TorchNeuron: a flat, sharded tree of NEFFs, `ab/cd/<32 hex>.neff`, thousands of small files.

One archive a warm. The compiler's version is not in the names, so each version has a folder of its own, as the live
root and in the store: a NEFF of one compiler is never found by another. The layout is from an unofficial copy of the
source (`facts`); nothing here depends on how deep the tree is.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path, PurePosixPath

from cachekit import archive
from cachekit.compilers.neuron import facts, place
from cachekit.compilers.neuron.fit import Check, Claim
from cachekit.compilers.neuron.modules import Skipped
from cachekit.compilers.port import Harvest
from cachekit.errors import IntegrityError
from cachekit.record import File, Module

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
    unnamed = workspace / "native.tar"
    with unnamed.open("wb") as target:
        sha256, size = archive.pack(live_root, names, target)
    module = Module(f"{directory(version)}/{sha256}.tar", (File(f"{sha256}.tar", size, sha256),))
    return Harvest((module,), {sha256: unnamed}), tuple(skipped)


def restore(module: Module, packed: Path, live_root: Path, version: str, *, check: Check | None = None) -> int:
    """Put the NEFFs of an archive into a live root; those that are there stay. Returns bytes written.

    Args:
        module: The module.
        packed: Its archive.
        live_root: The folder of one compiler version; made if need be.
        version: The compiler's.
        check: Judges each NEFF.

    Raises:
        UnsafeArchiveError: It is no such archive, is of another compiler version, or holds something else than NEFFs.
        IntegrityError: The bytes are not those of the module, or a NEFF is damaged. Nothing was put anywhere.
        OSError: The root cannot be written.
    """
    name = PurePosixPath(module.name)
    if len(module.files) != 1 or name.suffix != ".tar" or str(name.parent) != directory(version):
        raise archive.UnsafeArchiveError(f"{module.name} is no archive of {directory(version)}")
    live_root.mkdir(parents=True, exist_ok=True)
    with place.building(live_root) as hidden:
        tree = hidden / "tree"
        tree.mkdir()
        archive.unpack(packed, tree)
        _check_digest(module, packed)
        names = sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*") if not path.is_dir())
        for neff in names:
            if not all(part.isprintable() and not part.startswith(".") for part in neff.split("/")) or not _is_neff(
                neff.rpartition("/")[2]
            ):
                raise archive.UnsafeArchiveError(f"{module.name}: {neff!r} is no NEFF")
            if check is not None and (reason := check(tree / neff, Claim(compiler=version))):
                raise IntegrityError(f"{neff} of {module.name} is damaged", cause=reason)
        return sum(_move(tree / neff, live_root / neff, live_root) for neff in names)


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
