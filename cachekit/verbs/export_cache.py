"""Export modules of the store as a compiler's own cache: the tree that other tools read, optimum-neuron for one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachekit.compilers import registry
from cachekit.compilers.foreign import ForeignCache
from cachekit.compilers.port import Restored
from cachekit.errors import CachekitError, IntegrityError, UnknownNameError, UsageError
from cachekit.store import IndexRow, Store
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import Module, Record
from cachekit.verbs.inspect import find


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
    *,
    keys: Sequence[str] = (),
    compiler: str = "",
    dry_run: bool = False,
) -> Exported:
    """Write modules of the store into a compiler's own cache, which may be in use.

    Args:
        store: The store.
        folder: The cache's root; made if need be.
        keys: Records by the beginning of their keys; none means all of compilers that have such a cache.
        compiler: Only those of one compiler's folder, or of the version in its name.
        dry_run: Only say what would be written.

    Raises:
        UnknownNameError: No record is called that, or there is none of that compiler.
        UsageError: A record's compiler has no such cache, or the folder cannot be written.
    """
    with store.holding():
        records = [record for record in _records(store, keys, compiler) if store.keep(record)]
        return _export(store, records, folder, dry_run=dry_run)


def _export(store: Store, records: Sequence[Record], folder: Path, *, dry_run: bool) -> Exported:
    caches = {record.directory: _cache_of(record) for record in records}
    for cache in {id(one): one for one in caches.values()}.values() if not dry_run else ():
        cache.sweep(folder)
    done: dict[str, Restored] = {}
    damaged: list[tuple[str, str]] = []
    for record in records:
        for module in record.modules:
            if module.name in done:
                continue
            try:
                done[module.name] = _put(store, caches[record.directory], module, folder, dry_run=dry_run)
            except IntegrityError as error:
                damaged.append((module.name, error.cause or error.message))
            except OSError as error:
                raise UsageError(
                    f"{folder} cannot be written", cause=error.strerror or str(error), hint="name another folder"
                ) from error
    whole = tuple((name, reason) for name, reason in damaged if name not in done)
    keys_of = tuple(record.key for record in records)
    return Exported(folder, dry_run, tuple(sorted(done.items())), whole, keys_of)


def _put(store: Store, cache: ForeignCache, module: Module, folder: Path, *, dry_run: bool) -> Restored:
    with ExitStack() as reading:
        return cache.put(module, lambda file: reading.enter_context(store.reading(file)).path, folder, dry_run=dry_run)


def _cache_of(record: Record) -> ForeignCache:
    """The cache that a record's modules are of.

    Raises:
        UnsafeArchiveError: Its compiler has none, or a module is none of it.
    """
    cache = registry.of_directory(record.directory).foreign_cache
    if cache is None:
        raise UnsafeArchiveError(f"{record.directory} is no folder of such a cache")
    for module in record.modules:
        cache.check(module)
    return cache


def _records(store: Store, keys: Sequence[str], compiler: str) -> list[Record]:
    records = [find(store, key) for key in keys] if keys else _exportable(store, compiler)
    for record in records if keys else ():
        try:
            _cache_of(record)
        except UnsafeArchiveError as error:
            raise UsageError(
                f"record {record.key[:16]} is of no cache that other tools read",
                cause=str(error),
                hint="for a bundle of it name a file: cachekit store export NAME.tar KEY",
            ) from error
    wanted = [record for record in records if _meant(record.directory, compiler)]
    if not wanted:
        others = records if keys else _exportable(store)
        known = ", ".join(sorted({record.directory for record in others}))
        raise UnknownNameError(
            f"the store has no modules of {compiler or 'a cache that other tools read'}",
            cause=f"it has those of {known}" if known else "",
            hint="`cachekit store ls` lists the records",
        )
    return wanted


def _exportable(store: Store, compiler: str = "") -> list[Record]:
    prefixes = tuple(one.prefix for one in registry.every() if one.foreign_cache is not None)

    def fits(one: IndexRow) -> bool:
        return one.directory.startswith(prefixes) and _meant(one.directory, compiler)

    return [record for record in store.records(fits) if _is_of_a_cache(record)]


def _is_of_a_cache(record: Record) -> bool:
    try:
        _cache_of(record)
    except UnsafeArchiveError:
        return False
    return True


def _meant(directory: str, compiler: str) -> bool:
    """Whether a compiler's folder is called that, or is of that version; nothing means all."""
    version = directory.partition("-")[2]
    return compiler in {"", directory, version, version.partition("+")[0]}
