"""Neuron's own caches as folders that other tools read and fill: what `import`, `export` and `pull --module` see.

Modules of torch-neuronx on XLA go in and out verbatim, one folder each. TorchNeuron's graphs lie in a flat tree; their
names do not say which compiler made them, the files themselves do: so a folder that several compilers wrote into comes
in as an archive for each. vLLM-Neuron's cache is only looked at: an entry names kernels of NKI by their paths, and its
key leaves their source out (`facts`), so it is not carried.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path, PurePosixPath

from msgspec import Struct

from cachekit import disk
from cachekit.compilers.foreign import Scanned, Taken, Unfit, Units
from cachekit.compilers.neuron import entries as on_disk
from cachekit.compilers.neuron import facts, fit, installed, modules, native, neff, place
from cachekit.compilers.neuron.entries import CacheEntry
from cachekit.compilers.port import Restored, Sink
from cachekit.compilers.tree import check_archive, pack
from cachekit.errors import UsageError
from cachekit.files import DIGEST, Opener
from cachekit.store import archive
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import File, Module
from cachekit.text import cause_of

LARGEST = 64 << 30  # bytes of one file


class ModuleCache:
    """AWS's cache of torch-neuronx on XLA; its units are modules. See `compilers.port.ForeignCache`."""

    holds = "neuronxcc-<version> folder"
    default = facts.DEFAULT_ROOT
    example = "neuronxcc-2.26.6360.0+6f180f47/MODULE_14529842170341812+f7f529f3"

    def finds(self, folder: Path) -> bool:
        return bool(on_disk.scan(folder).compilers)

    def scan(self, folder: Path, known: frozenset[str], tell: Sink) -> Scanned:
        found = on_disk.scan(folder)
        left: list[Unfit] = []
        finished: list[CacheEntry] = []
        for entry in found.entries:
            if reason := modules.unfit(entry):
                state = "locked" if entry.state == "success" else entry.state
                left.append(Unfit(entry.module, entry.path, reason, state))
            else:
                finished.append(entry)
        groups = []
        for compiler, several in groupby(finished, lambda entry: entry.compiler):
            entries = list(several)
            had = tuple(sorted({entry.module for entry in entries if entry.module in known}))
            fresh = [entry for entry in entries if entry.module not in known]
            groups.append(Units(compiler, tuple(entry.module for entry in fresh), had, fresh))
        unknown = tuple((one.path, one.reason) for one in found.unknown)
        return Scanned(tuple(groups), tuple(left), unknown)

    def take(self, group: Units, workspace: Path | None, tell: Sink, opener: Opener) -> Taken:
        found = modules.collect(self._told(group, tell), workspace, fit.check, opener=opener)
        unknown = tuple((path, _AMONG) for path in found.beside)
        if found.harvest is None:
            return Taken((), 0, None, found.left, unknown)
        names = tuple(module.name for module in found.harvest.modules)
        size = sum(file.size for one in found.harvest.modules for file in one.files)
        return Taken(names, size, found.harvest, found.left, unknown)

    def _told(self, group: Units, tell: Sink) -> Iterator[CacheEntry]:
        for number, entry in enumerate(group.found):
            tell({"event": "import.reading", "compiler": group.directory, "done": number, "of": len(group.found)})
            yield entry

    def units(self, module: Module, path: Callable[[File], Path]) -> Iterable[str]:
        return (module.name,)

    def check(self, module: Module) -> None:
        modules.check_module(module)

    def sweep(self, folder: Path) -> None:
        place.sweep(folder)

    def put(self, module: Module, path: Callable[[File], Path], folder: Path, *, dry_run: bool) -> Restored:
        modules.check_module(module)
        if not dry_run:
            return modules.restore(module, [path(file) for file in module.files], folder, check=fit.check)
        found, reason = place.standing(folder / module.name)
        return modules.outcome(found, sum(file.size for file in module.files), reason)

    def names(self, name: str) -> bool:
        compiler, separator, module = name.partition("/")
        return facts.COMPILER_DIRECTORY.fullmatch(compiler) is not None and (
            not separator or facts.MODULE_DIRECTORY.fullmatch(module) is not None
        )

    def asked(self, name: str) -> Sequence[str]:
        locks = (file + facts.LOCK_SUFFIX for file in facts.HLO_FILES)
        return [f"{name}/{file}" for file in (*sorted(facts.MODULE_FILES), facts.FAILURE_LOG, *locks)]

    def module_of(self, path: str) -> str:
        parts = PurePosixPath(path).parts
        whole = len(parts) == 3 and facts.MODULE_DIRECTORY.fullmatch(parts[1])  # noqa: PLR2004 - compiler, module, file
        return "/".join(parts[:2]) if whole else ""

    def unfit(self, name: str, sizes: Mapping[str, int], *, versions: bool) -> str:
        """Why a module is left, as optimum-neuron judges that.

        A push of optimum-neuron's deletes nothing: a lock or a log that an earlier push took along stays beside what
        was finished since. Where a remote has versions nobody compiles in it, and such a lock means nothing.
        """
        if any(size > LARGEST for size in sizes.values()):
            return _TOO_LARGE
        names = tuple(file for file in sorted(sizes) if not (versions and file.endswith(facts.LOCK_SUFFIX)))
        state = on_disk.classify(names)
        if state == "empty" and len(names) < len(sizes):
            return "a compile was running when it was pushed"
        compiler, _, module = name.partition("/")
        return modules.unfit(CacheEntry(compiler, module, name, state, names))

    def wanted(self, name: str, file: str) -> bool:
        return on_disk.belongs(file)


class GraphCache:
    """TorchNeuron's tree; its units are graphs, `torchneuron-<version>/ab/cd/….neff`. See `ForeignCache`."""

    holds = "graph of TorchNeuron's"
    default = facts.NATIVE_DEFAULT_ROOT
    example = "torchneuron-2.28.7631.0/<sha256>.tar"
    _FOLDER = re.compile(rf"{re.escape(native.PREFIX)}(?!.*\.\.){native.VERSION.pattern}")
    _ARCHIVE = re.compile(rf"{_FOLDER.pattern}/{DIGEST}\.tar")

    def finds(self, folder: Path) -> bool:
        return bool(_graphs(folder))

    def scan(self, folder: Path, known: frozenset[str], tell: Sink) -> Scanned:
        left: list[Unfit] = []
        found: dict[tuple[str, Path], dict[str, str]] = defaultdict(dict)
        names = _graphs(folder)
        for number, name in enumerate(names):
            tell({"event": "import.reading", "compiler": "neuron-native", "done": number, "of": len(names)})
            version, reason = _compiled_by(folder / name)
            above, inside = native.split(name)
            if not reason and above and above != native.directory(version):
                reason = f"{version} compiled it, and it is in {above}"
            if reason:
                left.append(Unfit(name, folder / name, reason))
            else:
                found[version, folder / above][inside] = f"{native.directory(version)}/{inside}"
        left += [Unfit(name, folder / name, reason) for name, reason in _others(folder)]
        groups = []
        for (version, root), these in sorted(found.items()):
            fresh = {inside: name for inside, name in these.items() if name not in known}
            had = tuple(sorted(name for name in these.values() if name in known))
            groups.append(Units(native.directory(version), tuple(sorted(fresh.values())), had, (root, fresh)))
        return Scanned(tuple(groups), tuple(left))

    def take(self, group: Units, workspace: Path | None, tell: Sink, opener: Opener) -> Taken:
        root, fresh = group.found
        if not fresh:
            return Taken((), 0)
        harvest = pack(root, fresh, group.directory, workspace, opener)
        (module,) = harvest.modules
        return Taken(group.fresh, module.files[0].size, harvest)

    def units(self, module: Module, path: Callable[[File], Path]) -> Iterable[str]:
        if not native.is_name(module.name) or not module.files:
            return
        folder = PurePosixPath(module.name).parent
        with suppress(OSError, UnsafeArchiveError):
            for stored in archive.members(path(module.files[0])):
                yield f"{folder}/{stored.name}"

    def check(self, module: Module) -> None:
        check_archive(module)

    def sweep(self, folder: Path) -> None:
        place.sweep(folder)

    def put(self, module: Module, path: Callable[[File], Path], folder: Path, *, dry_run: bool) -> Restored:
        """Put an archive's graphs into a folder for their compiler's version, which no name of theirs has."""
        directory = module.name.partition("/")[0]
        packed = path(module.files[0])
        if dry_run:
            absent = [name for name in self.units(module, path) if not (folder / name).exists()]
            return Restored("restored", module.files[0].size) if absent else Restored("present")
        (folder / directory).mkdir(parents=True, exist_ok=True)
        version = directory.removeprefix(native.PREFIX)
        try:
            size = native.restore(module, packed, folder / directory, version, check=fit.check)
        except UnsafeArchiveError as error:
            return Restored("left", reason=str(error))
        return Restored("restored", size) if size else Restored("present")

    def names(self, name: str) -> bool:
        return (self._ARCHIVE if "/" in name else self._FOLDER).fullmatch(name) is not None

    def asked(self, name: str) -> Sequence[str]:
        return [name]

    def module_of(self, path: str) -> str:
        return path if self._ARCHIVE.fullmatch(path) else ""

    def unfit(self, name: str, sizes: Mapping[str, int], *, versions: bool) -> str:
        return _TOO_LARGE if any(size > LARGEST for size in sizes.values()) else ""

    def wanted(self, name: str, file: str) -> bool:
        return True


_AMONG = "in a module's folder, and not one of its files"
_TOO_LARGE = "one of its files is too large"


def _graphs(folder: Path) -> list[str]:
    """The graphs in a folder that are called as TorchNeuron calls them, sorted."""
    return sorted(name for name in native.contents(folder) if facts.NATIVE_NAME.fullmatch(name.rpartition("/")[2]))


def _others(folder: Path) -> Iterator[tuple[str, str]]:
    """What is called as a graph is, or nearly so, and is not taken: its path and why."""
    for above, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(above, name)
            if not name.endswith(facts.NATIVE_SUFFIX) or name.startswith("."):
                continue
            if path.is_symlink():
                yield path.relative_to(folder).as_posix(), "it is a link, and TorchNeuron makes no links"
            elif not facts.NATIVE_NAME.fullmatch(name):
                yield path.relative_to(folder).as_posix(), "TorchNeuron gives no graph such a name"


def _compiled_by(path: Path) -> tuple[str, str]:
    """Which compiler made a graph, and why the graph is not taken."""
    try:
        if reason := fit.check(path, fit.NOTHING):
            return "", reason
        version = installed.public(neff.read(path, leaks=False).compiler)
        native.directory(version)
    except neff.NeffError as error:
        return "", error.reason
    except ValueError:
        return "", "nothing in it says which compiler made it"
    except OSError as error:
        return "", f"it cannot be read: {cause_of(error)}"
    return version, ""


class VllmEntry(Struct, frozen=True):
    """A compiled graph, or what a compile left of one."""

    path: Path
    marked: bool  # vLLM takes it for a hit
    damage: str = ""  # why it should not


def vllm_folders() -> list[Path]:
    """The folders of entries on this host, of vLLM's own and of its library's alone."""
    found = []
    for name, usual in facts.VLLM_ROOTS.items():
        with suppress(UsageError):  # the machine knows no such home directory: vLLM has nothing there either
            folder = disk.named(os.environ.get(name) or usual) / facts.VLLM_FOLDER
            found += [folder] if folder.is_dir() else []
    return found


def vllm_entries(folder: Path) -> Iterator[VllmEntry]:
    """The entries of a folder; what is called otherwise is none."""
    for path in sorted(folder.iterdir()):
        if facts.VLLM_ENTRY.fullmatch(path.name) and path.is_dir():
            mark = path / facts.VLLM_MARK
            yield VllmEntry(path, mark.exists(), _damage(path, mark))


def _damage(entry: Path, mark: Path) -> str:
    """The mark says how large the graph must be."""
    with suppress(OSError):
        said = facts.VLLM_SIZE.search(mark.read_text("utf-8", "replace"))
        sizes = [path.stat().st_size for path in entry.glob(facts.VLLM_GRAPH)]
        if said and sizes != [int(said["size"])]:
            return f"its graph has {sum(sizes)} bytes, and its mark says {said['size']}"
    return ""
