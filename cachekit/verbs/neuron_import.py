"""Import a Neuron cache that was made without cachekit: its finished modules, and a report of the rest.

Such a cache has no recipe, so its modules become records of their own, one a compiler, named `import`. Their key is
made of the compiler's folder and the modules' names. No plan hits it; it makes the modules visible, exportable, and
shared: a later warm that makes the same bytes stores them once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from cachekit.compilers.neuron import facts, modules, native
from cachekit.compilers.neuron.entries import Entry, Scan, scan
from cachekit.compilers.neuron.fit import Check
from cachekit.compilers.neuron.modules import Collected, Skipped
from cachekit.compilers.port import Sink
from cachekit.errors import UsageError
from cachekit.key.canonical import canonical_json, key_of
from cachekit.recipe.ingredients import Fingerprint
from cachekit.store import Store
from cachekit.store.durable import store_error
from cachekit.store.record import IMPORTED, Module, Record
from cachekit.verbs.provenance import provenance
from cachekit.verbs.session import Session

RECIPE = "import"


@dataclass(frozen=True, slots=True)
class Group:
    """One compiler's part of an import.

    Attributes:
        compiler: Its folder.
        key: Of the record; empty where nothing was added.
        added: Modules that the store did not have, sorted.
        known: Modules that it had.
        size: Bytes of what was added.
    """

    compiler: str
    key: str
    added: tuple[str, ...]
    known: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did, or would do.

    Attributes:
        folder: The cache.
        dry_run: Nothing was written.
        groups: By compiler.
        left: Modules that were not taken, each with its state and the reason; `refused` are finished ones that are
            damaged, changed while they were read, or cannot be read.
        strangers: What else lies in the cache.
    """

    folder: Path
    dry_run: bool
    groups: tuple[Group, ...]
    left: tuple[tuple[str, Skipped], ...] = ()
    strangers: tuple[tuple[Path, str], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "folder": str(self.folder),
            "dry_run": self.dry_run,
            "added": sum(len(group.added) for group in self.groups),
            "known": sum(len(group.known) for group in self.groups),
            "bytes": sum(group.size for group in self.groups),
            "records": [
                {
                    "compiler": group.compiler,
                    "key": group.key,
                    "added": list(group.added),
                    "known": list(group.known),
                    "bytes": group.size,
                }
                for group in self.groups
            ],
            "left": [
                {"module": item.module, "state": state, "path": str(item.path), "reason": item.reason}
                for state, item in self.left
            ],
            "strangers": [{"path": str(path), "reason": reason} for path, reason in self.strangers],
        }


def import_into(session: Session, folder: Path, check: Check, *, dry_run: bool = False) -> Imported:
    """`import_cache` as one run, whose journal tells of it."""
    journal = session.journal
    imported = import_cache(session.store, folder, check, dry_run=dry_run, tell=lambda event: journal.show(**event))
    journal.emit("import.end", **imported.as_dict())
    return imported


def import_cache(
    store: Store, folder: Path, check: Check, *, dry_run: bool = False, tell: Sink = lambda _: None
) -> Imported:
    """Take the finished modules of a Neuron cache into the store.

    What the store has already is not read again, so a second import of the same cache adds nothing. The cache may be
    in use: what is locked, unfinished or changes meanwhile is left, and reported.

    Args:
        store: The store.
        folder: A cache's root, or one compiler's folder in it.
        check: Judges each NEFF.
        dry_run: Only say what would be taken; the NEFFs are checked all the same.
        tell: Told how far it is: `import.reading` for each module that is read, `import.storing` for each compiler.

    Raises:
        UsageError: The folder cannot be read, or holds no Neuron cache.
        StoreError: The store cannot be written.
    """
    found = _scan(folder)
    if found is None:
        from cachekit.verbs.native_import import import_native

        return import_native(store, folder, check, dry_run=dry_run, tell=tell)
    known = known_modules(store)
    left: list[tuple[str, Skipped]] = []
    fit: list[Entry] = []
    for entry in found.entries:
        if reason := modules.unfit(entry):
            state = "locked" if entry.state == "success" else entry.state
            left.append((state, Skipped(entry.module, entry.path, reason)))
        else:
            fit.append(entry)
    strangers = [(stranger.path, stranger.reason) for stranger in found.strangers]
    groups = []
    for compiler, entries in groupby(fit, lambda entry: entry.compiler):
        candidates = list(entries)
        had = tuple(sorted({entry.module for entry in candidates if entry.module in known}))
        fresh = [entry for entry in candidates if entry.module not in known]
        reading = _told(fresh, tell)
        group, rest = _look(compiler, reading, check) if dry_run else _take(store, compiler, reading, check, tell)
        groups.append(Group(compiler, group.key, group.added, had, group.size))
        left += [("refused", item) for item in rest.skipped]
        strangers += [(path, "in a module's folder, and none of its files") for path in rest.beside]
    left.sort(key=lambda pair: (pair[1].module, str(pair[1].path)))
    return Imported(folder, dry_run, tuple(groups), tuple(left), tuple(strangers))


def _scan(folder: Path) -> Scan | None:
    """What is in a cache; None where it is one of TorchNeuron's."""
    # A path that ends in `.` or `..` would hide that it is a compiler's own folder.
    folder = folder.resolve()
    try:
        found = scan(folder)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be read", cause=error.strerror or str(error), hint="name the folder of a Neuron cache"
        ) from error
    if not found.compilers:
        from cachekit.verbs.native_import import graphs

        if graphs(folder):
            return None
        raise UsageError(
            f"{folder} holds no Neuron cache",
            cause="there is no neuronxcc-<version> folder in it, and no graph of TorchNeuron's",
            hint=f"name the cache's root; defaults are {facts.DEFAULT_ROOT} and, of TorchNeuron, "
            f"{facts.NATIVE_DEFAULT_ROOT}",
        )
    return found


def known_modules(store: Store) -> frozenset[str]:
    """The modules that whole records of the store hold."""
    names: set[str] = set()
    for record in store.records(lambda one: native.is_neurons(one.directory)):
        fresh = {module.name for module in record.modules} - names
        if fresh and store.lookup(record.key, record.directory, record.model_type) is not None:
            names |= fresh
    return frozenset(names)


def _told(entries: Sequence[Entry], tell: Sink) -> Iterator[Entry]:
    for number, entry in enumerate(entries):
        tell({"event": "import.reading", "compiler": entry.compiler, "done": number, "of": len(entries)})
        yield entry


def _look(compiler: str, entries: Iterable[Entry], check: Check) -> tuple[Group, Collected]:
    """What `_take` would take."""
    fit: dict[str, int] = {}
    skipped: list[Skipped] = []
    beside: list[Path] = []
    for entry in entries:
        if entry.module in fit:
            reason = "another of the same name was taken"
        elif not (reason := modules.unreadable(entry)) and (problem := modules.damage(entry, check)):
            reason = f"{facts.NEFF} cannot be used: {problem}"
        if reason:
            skipped.append(Skipped(entry.module, entry.path, reason))
        else:
            fit[entry.module] = sum(file.size for file in entry.files() if file.name in facts.MODULE_FILES)
            beside += modules.strange(entry)
    key = key_of(_ingredients(compiler, fit)) if fit else ""
    group = Group(compiler, key, tuple(sorted(fit)), (), sum(fit.values()))
    return group, Collected(None, tuple(skipped), tuple(beside))


def _take(store: Store, compiler: str, entries: Iterable[Entry], check: Check, tell: Sink) -> tuple[Group, Collected]:
    with store.workspace() as workspace:
        try:
            taken = modules.collect(entries, workspace, check)
        except OSError as error:
            raise store_error(store.layout.home, error) from error
        if taken.harvest is None:
            return Group(compiler, "", (), (), 0), taken
        record = record_of(compiler, taken.harvest.modules)
        tell({"event": "import.storing", "compiler": compiler, "modules": len(record.modules), "bytes": record.size})
        store.publish(record, taken.harvest.files)
    names = tuple(module.name for module in record.modules)
    return Group(compiler, record.key, names, (), record.size), taken


def record_of(
    compiler: str, found: Sequence[Module], *, name: str = "neuron", version: str = "", graphs: int = 0
) -> Record:
    """The record of modules that no recipe is known of, all of one compiler's folder.

    Args:
        compiler: The folder.
        found: The modules.
        name: Whose they are.
        version: The compiler's; that in the folder's name by default.
        graphs: How many are in them; one each by default.
    """
    hard = _ingredients(compiler, (module.name for module in found))
    if not version:
        match = facts.COMPILER_DIRECTORY.fullmatch(compiler)
        assert match is not None
        version = match["version"]
    fingerprint = Fingerprint(name, compiler, {facts.COMPILER_PACKAGE: version}, {}, {}, bf16=True)
    return Record(
        key=key_of(hard),
        compiler=name,
        directory=compiler,
        model_type=IMPORTED,
        recipe=RECIPE,
        hard=hard,
        soft={},
        modules=tuple(found),
        graphs=graphs or len(found),
        compile_seconds=0.0,  # nobody measured it
        provenance=provenance(fingerprint),
    )


def _ingredients(compiler: str, names: Iterable[str]) -> dict[str, Any]:
    digest = hashlib.sha256(canonical_json(sorted(names))).hexdigest()
    return {"import.compiler": compiler, "import.modules": digest}
