"""Export modules of the store as a Neuron cache: the tree that libneuronxla and optimum-neuron read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachekit.compilers import archived
from cachekit.compilers.neuron import native, place
from cachekit.compilers.neuron.fit import Check
from cachekit.compilers.neuron.modules import Restored, check_module, restore
from cachekit.errors import CachekitError, IntegrityError, UnknownNameError, UsageError
from cachekit.store import Row, Store
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import Module, Record
from cachekit.verbs.inspect import find
from cachekit.verbs.native_import import members


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export did, or would do.

    Attributes:
        folder: The cache that was written.
        dry_run: Nothing was written.
        modules: Each with what became of it.
        damaged: Modules whose bytes in the store are not what they should be, with the reason.
        records: The keys of the records they are of.
    """

    folder: Path
    dry_run: bool
    modules: tuple[tuple[str, Restored], ...]
    damaged: tuple[tuple[str, str], ...]
    records: tuple[str, ...]

    def error(self) -> CachekitError | None:
        """What to raise where something could not be exported."""
        if self.damaged:
            name, reason = self.damaged[0]
            return IntegrityError(
                f"{len(self.damaged)} modules in the store are damaged and were not exported",
                cause=f"{name}: {reason}",
                hint="import or warm them again",
            )
        # Nothing of what was asked for is there: whoever goes on to use the folder finds nothing.
        if not self.modules or any(result.outcome != "left" for _, result in self.modules):
            return None
        name, result = self.modules[0]
        return UsageError(
            f"none of {len(self.modules)} modules could be put into {self.folder}",
            cause=f"{name}: {result.reason}",
            hint="see what stands there, or name another folder",
        )

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        counts = dict.fromkeys(("restored", "replaced", "present", "left"), 0)
        for _, result in self.modules:
            counts[result.outcome] += 1
        return {
            "folder": str(self.folder),
            "dry_run": self.dry_run,
            "records": list(self.records),
            **counts,
            "bytes": sum(result.size for _, result in self.modules),
            "modules": [
                {"module": name, "outcome": result.outcome, "bytes": result.size, "reason": result.reason}
                for name, result in self.modules
            ],
            "damaged": [{"module": name, "reason": reason} for name, reason in self.damaged],
        }


def export_cache(
    store: Store,
    folder: Path,
    check: Check,
    *,
    keys: Sequence[str] = (),
    compiler: str = "",
    dry_run: bool = False,
) -> Exported:
    """Write modules of the store into a Neuron cache, which may be in use.

    Args:
        store: The store.
        folder: The cache's root; made if need be.
        check: Judges each NEFF.
        keys: Records by the beginning of their keys; none means all of Neuron's.
        compiler: Only those of one compiler's folder, or of the version in its name.
        dry_run: Only say what would be written.

    Raises:
        UnknownNameError: No record is called that, or there is none of that compiler.
        UsageError: A record is not of Neuron's, or the folder cannot be written.
    """
    with store.holding():
        records = [record for record in _records(store, keys, compiler) if store.keep(record)]
        return _export(store, records, folder, check, dry_run=dry_run)


def _export(store: Store, records: Sequence[Record], folder: Path, check: Check, *, dry_run: bool) -> Exported:
    if not dry_run:
        place.sweep(folder)
    done: dict[str, Restored] = {}
    damaged: list[tuple[str, str]] = []
    for record in records:
        for module in record.modules:
            if module.name in done:
                continue
            try:
                done[module.name] = _one(store, module, folder, check, dry_run=dry_run)
            except IntegrityError as error:
                damaged.append((module.name, error.cause or error.message))
            except OSError as error:
                raise UsageError(
                    f"{folder} cannot be written", cause=error.strerror or str(error), hint="name another folder"
                ) from error
    whole = tuple((name, reason) for name, reason in damaged if name not in done)
    keys_of = tuple(record.key for record in records)
    return Exported(folder, dry_run, tuple(sorted(done.items())), whole, keys_of)


def _records(store: Store, keys: Sequence[str], compiler: str) -> list[Record]:
    if keys:
        records = [find(store, key) for key in keys]
        for record in records:
            for module in record.modules:
                try:
                    _check(module)
                except UnsafeArchiveError as error:
                    raise UsageError(
                        f"record {record.key[:16]} is no Neuron cache's",
                        cause=str(error),
                        hint="for a bundle of it name a file: cachekit export NAME.tar KEY",
                    ) from error
    else:
        records = _neurons(store, compiler)
    wanted = [record for record in records if _meant(record.directory, compiler)]
    if not wanted:
        others = records if keys else _neurons(store)
        known = ", ".join(sorted({record.directory for record in others}))
        raise UnknownNameError(
            f"the store has no modules of {compiler or 'Neuron'}",
            cause=f"it has those of {known}" if known else "",
            hint="`cachekit ls` lists the records",
        )
    return wanted


def _neurons(store: Store, compiler: str = "") -> list[Record]:
    def fits(one: Row) -> bool:
        return native.is_neurons(one.directory) and _meant(one.directory, compiler)

    return [record for record in store.records(fits) if _of_neuron(record)]


def _of_neuron(record: Record) -> bool:
    try:
        for module in record.modules:
            _check(module)
    except UnsafeArchiveError:
        return False
    return True


def _check(module: Module) -> None:
    """See that a module is one of Neuron's, on XLA or not.

    Raises:
        UnsafeArchiveError: It is not.
    """
    if native.is_name(module.name):
        archived.check(module)
    else:
        check_module(module)


def _meant(directory: str, compiler: str) -> bool:
    """Whether a compiler's folder is called that, or is of that version; nothing means all."""
    version = directory.partition("-")[2]
    return compiler in {"", directory, version, version.partition("+")[0]}


def _one(store: Store, module: Module, folder: Path, check: Check, *, dry_run: bool) -> Restored:
    if native.is_name(module.name):
        return _native(store, module, folder, check, dry_run=dry_run)
    return _look(module, folder) if dry_run else _write(store, module, folder, check)


def _native(store: Store, module: Module, folder: Path, check: Check, *, dry_run: bool) -> Restored:
    """An archive of TorchNeuron's: its graphs go into a folder for their compiler's version, which no name has."""
    directory = module.name.partition("/")[0]
    with store.reading(module.files[0]) as blob:
        if dry_run:
            absent = [name for name in members(blob.path, module.name) if not (folder / name).exists()]
            return Restored("restored", module.files[0].size) if absent else Restored("present")
        version = directory.removeprefix(native.PREFIX)
        (folder / directory).mkdir(parents=True, exist_ok=True)
        try:
            size = native.restore(module, blob.path, folder / directory, version, check=check)
        except UnsafeArchiveError as error:
            return Restored("left", reason=str(error))
    return Restored("restored", size) if size else Restored("present")


def _look(module: Module, folder: Path) -> Restored:
    check_module(module)
    found, reason = place.standing(folder / module.name)
    size = sum(file.size for file in module.files)
    if found == "absent":
        return Restored("restored", size)
    if found == "replaceable":
        return Restored("replaced", size, reason)
    return Restored("left" if found == "left" else "present", reason=reason)


def _write(store: Store, module: Module, folder: Path, check: Check) -> Restored:
    with ExitStack() as reading:
        files = [reading.enter_context(store.reading(file)).path for file in module.files]
        return restore(module, files, folder, check=check)
