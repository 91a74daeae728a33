"""The cache of native TorchNeuron: a flat, sharded tree of NEFFs, `ab/cd/<32 hex>.neff`, thousands of small files.

One archive a warm. The compiler's version is not in the names, so each version has a folder of its own, in the compiler
cache dir and in the store: a NEFF of one compiler is never found by another. The layout is from an unofficial copy of
the source (`facts`); nothing here depends on how deep the tree is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from cachekit.compilers.adapter import Judged
from cachekit.compilers.neuron import facts, place
from cachekit.compilers.neuron.fit import Check, Claimed, misfit
from cachekit.compilers.neuron.neff import NeffError, NeffLimits, Slice, read
from cachekit.compilers.tree import check_archive
from cachekit.errors import IntegrityError
from cachekit.files import Sink, digest_of, pieces
from cachekit.store import archive
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import Module

PREFIX = "torchneuron-"
# An archive may hold thousands of graphs, so a tiny one may not become as much as a file of its own may.
LIMITS = NeffLimits(inflated_base=256 << 10)
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]*")


def directory(version: str) -> str:
    """The folder of a compiler's version: below the compiler cache dir, and for records and modules.

    Raises:
        ValueError: It is not a version.
    """
    if VERSION.fullmatch(version) is None or ".." in version:
        raise ValueError(f"{version!r} is not a version")
    return PREFIX + version


def is_name(module: str) -> bool:
    """Whether a module is called as those of TorchNeuron are: `torchneuron-<version>/<digest>.tar`."""
    folder, _, name = module.rpartition("/")
    return folder.startswith(PREFIX) and "/" not in folder and name.endswith(".tar")


def split(name: str) -> tuple[str, str]:
    """A graph's path below a root: the compiler version's folder, if it lies in one, and the rest."""
    folder, _, rest = name.partition("/")
    return (folder, rest) if folder.startswith(PREFIX) and rest else ("", name)


def contents(cache_dir: Path) -> frozenset[str]:
    """The finished NEFFs in a compiler cache dir, by relative path.

    Writers rename them into place, so what has its final name is whole. Links and hidden names are none of them.
    """
    found = set()
    for folder, folders, names in os.walk(cache_dir):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(folder, name)
            if _is_neff(name) and not path.is_symlink():
                found.add(path.relative_to(cache_dir).as_posix())
    return frozenset(found)


def is_graph(path: str) -> bool:
    """Whether a path in an archive is one of a graph, as they are packed."""
    parts = path.split("/")
    return all(part.isprintable() and not part.startswith(".") for part in parts) and _is_neff(parts[-1])


def _is_neff(name: str) -> bool:
    return name.endswith(facts.NATIVE_SUFFIX) and not name.startswith(".") and name.isprintable()


def judge(packed: Path, folder: str) -> Judged:
    """Whether the graphs of an archive are whole, and of the compiler of its module's folder. Nothing is unpacked.

    An archive whose bytes are those of its record can be bad all the same: it may have been packed from damaged files,
    by another program, or to do harm. Memory does not grow with it, and time not faster than its bytes.

    Raises:
        OSError: It cannot be read.
    """
    seen: set[PurePosixPath] = set()
    harm, odd = list[str](), list[str]()
    try:
        for stored in archive.members(packed):
            name = PurePosixPath(stored.name)
            if name in seen or not is_graph(str(name)):
                harm.append(f"{stored.name!r} {'is listed twice' if name in seen else 'is not a NEFF'}")
                break
            seen.add(name)
            try:
                found = read(packed, leaks=False, limits=LIMITS, part=Slice(stored.offset, stored.size))
            except NeffError as error:
                (harm if error.damaged else odd).append(f"{stored.name}: {error.reason}")
            else:
                if reason := misfit(found, Claimed(compiler=folder.removeprefix(PREFIX))):
                    harm.append(f"{stored.name}: {reason}")
    except UnsafeArchiveError as error:
        harm.append(str(error))
    if not seen and not harm:
        harm.append(f"it holds no {facts.NATIVE_SUFFIX} file")
    return Judged(len(seen), _first(harm, len(seen)), _first(odd, len(seen)))


def _first(flaws: list[str], graphs: int) -> str:
    """The first of what is wrong with graphs of an archive, and how many more there are."""
    more = f" (and {len(flaws) - 1} more of {graphs} graphs)" if len(flaws) > 1 else ""
    return flaws[0] + more if flaws else ""


def restore(
    module: Module,
    packed: Path,
    cache_dir: Path,
    version: str,
    *,
    check: Check | None = None,
    read: Callable[[Sink], None] | None = None,
) -> int:
    """Put the NEFFs of an archive into the folder of one compiler version; those that are there stay.

    `check` judges each NEFF. `read` gives all bytes of the archive and checks them, as `archive.unpack` has it; they
    are checked here where it is left out. Gives the bytes that were written.

    Raises:
        UnsafeArchiveError: It is not such an archive, is of another compiler version, or holds more than NEFFs.
        IntegrityError: The bytes are not those of the module, or a NEFF is damaged. Nothing was put anywhere.
        OSError: The root cannot be written.
    """
    check_archive(module, directory(version))
    cache_dir.mkdir(parents=True, exist_ok=True)
    with place.building(cache_dir) as hidden:
        tree = hidden / "tree"
        tree.mkdir()
        archive.unpack(packed, tree, read)
        if read is None:
            _check_digest(module, packed)
        names = sorted(_files(tree))
        for name in names:
            if not is_graph(name):
                raise UnsafeArchiveError(f"{module.name}: {name!r} is not a NEFF")
            if check is not None and (reason := check(tree / name, Claimed(compiler=version))):
                raise IntegrityError(f"{name} of {module.name} is damaged", cause=reason)
        return sum(_move(tree / name, cache_dir / name, cache_dir) for name in names)


def _files(tree: Path) -> list[str]:
    start = len(os.path.join(tree, ""))  # noqa: PTH118 - there may be thousands
    return [f"{folder}/{name}"[start:] for folder, _, names in os.walk(tree) for name in names]


def _check_digest(module: Module, packed: Path) -> None:
    with packed.open("rb") as source:
        found = digest_of(pieces(source))
    if found != (module.files[0].sha256, module.files[0].size):
        raise IntegrityError(f"{module.name} is not what its record says", cause="its size or its digest differs")


def _move(source: Path, target: Path, root: Path) -> int:
    """Give a finished file its place, unless there is one; never through a link."""
    folder = root
    for part in target.parent.relative_to(root).parts:
        folder /= part
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise UnsafeArchiveError(f"{folder} is a link")
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
