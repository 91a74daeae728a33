"""Import a cache of TorchNeuron's that was made without cachekit; see `neuron_import`, whose records these are like.

Its names do not say which compiler made a file; the files themselves do. So a folder that several compilers wrote into
comes in as a record each, one archive of what the store does not have yet.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from cachekit.compilers import archived
from cachekit.compilers.neuron import facts, host, native
from cachekit.compilers.neuron.fit import NOTHING, Check
from cachekit.compilers.neuron.modules import Skipped
from cachekit.compilers.neuron.neff import NeffError, read
from cachekit.compilers.port import Sink
from cachekit.store import Store, archive
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.durable import store_error
from cachekit.verbs.neuron_import import Group, Imported, known_modules, record_of

COMPILER = "neuron-native"


def graphs(folder: Path) -> list[str]:
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
                yield path.relative_to(folder).as_posix(), "it is a link, which TorchNeuron makes none of"
            elif not facts.NATIVE_NAME.fullmatch(name):
                yield path.relative_to(folder).as_posix(), "its name is no graph's of TorchNeuron's"


def import_native(
    store: Store, folder: Path, check: Check, *, dry_run: bool = False, tell: Sink = lambda _: None
) -> Imported:
    """Take the finished graphs of a cache of TorchNeuron's into the store; it may be in use.

    Args:
        store: The store.
        folder: The cache's root, or what an export wrote.
        check: Judges each graph.
        dry_run: Only say what would be taken; graphs are checked all the same.
        tell: See `import_cache`.

    Raises:
        StoreError: The store cannot be written.
    """
    folder = folder.resolve()
    known = known_graphs(store)
    left: list[tuple[str, Skipped]] = []
    found: dict[tuple[str, Path], dict[str, str]] = defaultdict(dict)
    names = graphs(folder)
    for number, name in enumerate(names):
        tell({"event": "import.reading", "compiler": COMPILER, "done": number, "of": len(names)})
        path = folder / name
        version, reason = _judge(path, check)
        above, inside = native.split(name)
        if not reason and above and above != native.directory(version):
            reason = f"{version} compiled it, and it lies in {above}"
        if reason:
            left.append(("refused", Skipped(name, path, reason)))
        else:
            found[version, folder / above][inside] = f"{native.directory(version)}/{inside}"
    left += [("refused", Skipped(name, folder / name, reason)) for name, reason in _others(folder)]
    groups = []
    for (version, root), these in sorted(found.items()):
        fresh = {inside: name for inside, name in these.items() if name not in known}
        had = tuple(sorted(name for name in these.values() if name in known))
        groups.append(replace(_take(store, version, root, fresh, tell, dry_run=dry_run), known=had))
    return Imported(folder, dry_run, tuple(groups), tuple(left))


def _judge(path: Path, check: Check) -> tuple[str, str]:
    """Which compiler made a graph, and why it is not taken."""
    try:
        if reason := check(path, NOTHING):
            return "", reason
        version = host.public(read(path, leaks=False).compiler)
        native.directory(version)
    except NeffError as error:
        return "", error.reason
    except ValueError:
        return "", "nothing in it says which compiler made it"
    except OSError as error:
        return "", f"it cannot be read: {error.strerror}"
    return version, ""


def _take(store: Store, version: str, root: Path, fresh: dict[str, str], tell: Sink, *, dry_run: bool) -> Group:
    directory, names = native.directory(version), tuple(sorted(fresh.values()))
    if dry_run or not fresh:
        return Group(directory, "", names, (), sum((root / inside).stat().st_size for inside in fresh))
    with store.workspace() as workspace:
        try:
            harvest = archived.harvest(root, fresh, directory, workspace)
        except OSError as error:
            raise store_error(store.layout.home, error) from error
        record = record_of(directory, harvest.modules, name=COMPILER, version=version, graphs=len(fresh))
        tell({"event": "import.storing", "compiler": directory, "modules": len(fresh), "bytes": record.size})
        store.publish(record, harvest.files)
    return Group(directory, record.key, names, (), record.size)


def known_graphs(store: Store) -> frozenset[str]:
    """The graphs in archives of whole records of the store: `torchneuron-<version>/ab/cd/….neff`."""
    names: set[str] = set()
    archives = {name for name in known_modules(store) if native.is_name(name)}
    for record in store.records():
        for module in record.modules:
            if module.name in archives:
                archives.discard(module.name)
                names |= set(members(store.layout.blob(module.files[0].sha256), module.name))
    return frozenset(names)


def members(packed: Path, module: str) -> Iterator[str]:
    """The graphs in a module's archive, with its folder in front; none where it cannot be read."""
    folder = PurePosixPath(module).parent
    with suppress(OSError, UnsafeArchiveError):
        for stored in archive.members(packed):
            yield f"{folder}/{stored.name}"
