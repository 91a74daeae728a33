"""Export records: as one file for a machine that no remote reaches, or as the tree that a compiler's own cache is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from msgspec import Struct

from cachekit.compilers import registry
from cachekit.compilers.cachedir import note_origin
from cachekit.compilers.foreign import ForeignCache
from cachekit.compilers.port import Restored
from cachekit.errors import CachekitError, IntegrityError, UnknownNameError, UsageError
from cachekit.remotes.bundle_out import write_bundle
from cachekit.store import IndexRow, Store
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import Module, Record
from cachekit.text import cause_of
from cachekit.values import Answer
from cachekit.verbs.entry import find
from cachekit.verbs.session import Session, using_store

ARCHIVES = frozenset({".tar", ".gz", ".tgz", ".xz", ".zst", ".bz2", ".zip"})  # of which a bundle is none but the first


class BundledRecord(Struct, frozen=True):
    """A record in a bundle."""

    key: str
    recipe: str
    directory: str
    bytes: int


class BundledFile(Struct, frozen=True):
    """A file in a bundle."""

    path: str
    bytes: int
    sha256: str


class Bundled(Answer, frozen=True, tag="cachekit/export-bundle/1"):
    """What an export wrote, or would write.

    Attributes:
        bundle: The file; `-` is standard output.
        dry_run: Nothing was written.
        bytes: Of the files in the bundle.
        size: Bytes of the bundle itself; 0 in a dry run.
        sha256: Of the bundle itself; empty in a dry run.
        signed: Each of its records has a signature, so that it is taken where its signers are known.
        seconds: Wall time.
    """

    bundle: str
    dry_run: bool
    records: tuple[BundledRecord, ...]
    files: tuple[BundledFile, ...]
    bytes: int
    size: int
    sha256: str
    signed: bool
    seconds: float


def is_bundle(path: Path, said: str) -> bool:
    """Whether a target means a bundle; otherwise it is the folder of a compiler's own cache.

    Raises:
        UsageError: It is called as another kind of archive is.
    """
    if path.suffix != ".tar" and path.suffix.lower() in ARCHIVES and not path.is_dir():
        raise UsageError(
            f"{said} would be a folder",
            cause="a bundle's name ends in .tar",
            hint="cachekit store export NAME.tar ...",
        )
    return path.suffix == ".tar" and not path.is_dir()


def chosen(store: Store, keys: Sequence[str], all_of: str = "") -> list[Record]:
    """What a bundle is to carry.

    Args:
        store: The store.
        keys: Of records, or their first digits; none means all.
        all_of: Of these those of one compiler's folder.

    Raises:
        UnknownNameError: Nothing is called that.
    """
    if keys:
        return list({record.key: record for record in (find(store, key) for key in keys)}.values())
    records = list(store.records(lambda one: not all_of or one.directory == all_of))
    if not records:
        raise UnknownNameError(
            f"the store has no records{f' of {all_of}' if all_of else ''}", hint="`cachekit store ls` lists the records"
        )
    return records


@using_store
def export_bundle(
    session: Session, records: Sequence[Record], target: Path | None, *, dry_run: bool = False
) -> Bundled:
    """Write records and their files as a bundle; see `Cache.export_bundle`.

    Raises:
        UntrustedError: A record is not given to others: nobody vouches for where it came from. Nothing was written.
    """
    start = time.monotonic()
    done = write_bundle(session.store, records, target, session.remotes.trust, dry_run=dry_run)
    return Bundled(
        bundle=str(target or "-"),
        dry_run=dry_run,
        records=tuple(BundledRecord(one.key, one.recipe, one.directory, one.size) for one in done.records),
        files=tuple(BundledFile(one.path, one.size, one.sha256) for one in done.members),
        bytes=sum(one.size for one in done.members),
        size=done.totals.size if done.totals else 0,
        sha256=done.totals.sha256 if done.totals else "",
        signed=done.signed,
        seconds=round(time.monotonic() - start, 3),
    )


class ExportedModule(Struct, frozen=True):
    """A module, and what became of it; `reason` says why it was left."""

    module: str
    outcome: Literal["restored", "replaced", "present", "left"]
    bytes: int
    reason: str


class DamagedModule(Struct, frozen=True):
    """A module whose bytes in the store are not those of its record."""

    module: str
    reason: str


class Exported(Answer, frozen=True, tag="cachekit/export-cache/1"):
    """What an export did, or would do.

    Attributes:
        folder: The cache that was written.
        dry_run: Nothing was written.
        records: The keys of the records that the modules belong to.
        restored: How many modules were written; so for the next three.
        bytes: Of what was written.
        damaged: Modules that were not exported.
    """

    folder: Path
    dry_run: bool
    records: tuple[str, ...]
    restored: int
    replaced: int
    present: int
    left: int
    bytes: int
    modules: tuple[ExportedModule, ...]
    damaged: tuple[DamagedModule, ...]

    def error(self) -> CachekitError | None:
        """What to raise where something could not be exported."""
        if self.damaged:
            first = self.damaged[0]
            return IntegrityError(
                f"{len(self.damaged)} modules in the store are damaged and were not exported",
                cause=f"{first.module}: {first.reason}",
                hint="import or warm them again",
            )
        # Nothing of what was asked for is there: whoever goes on to use the folder finds nothing.
        if not self.modules or self.left < len(self.modules):
            return None
        return UsageError(
            f"none of {len(self.modules)} modules could be put into {self.folder}",
            cause=f"{self.modules[0].module}: {self.modules[0].reason}",
            hint="see what is there, or name another folder",
        )


def export_cache(
    store: Store,
    folder: Path,
    *,
    keys: Sequence[str] = (),
    compiler: str = "",
    dry_run: bool = False,
) -> Exported:
    """Write modules of the store into a compiler's own cache; see `Cache.export_neuron_cache`.

    Args:
        store: The store.
        folder: The cache's root.
        keys: Records by the beginning of their keys; none means all of compilers that have such a cache.
        compiler: Only those of one compiler's folder, or of the version in its name.
        dry_run: Only say what would be written.
    """
    with store.using():
        records = [record for record in _records(store, keys, compiler) if store.keep(record)]
        return _export(store, records, folder, dry_run=dry_run)


def _export(store: Store, records: Sequence[Record], folder: Path, *, dry_run: bool) -> Exported:
    caches = {record.directory: _cache_of(record) for record in records}
    for cache in {id(one): one for one in caches.values()}.values() if not dry_run else ():
        cache.sweep(folder)
    done: dict[str, Restored] = {}
    damaged: list[DamagedModule] = []
    for record in records:
        if not dry_run:
            try:
                note_origin(store, folder, record, store.origins.of(record))
            except OSError as error:
                raise _unwritable(folder, error) from error
        for module in record.modules:
            if module.name in done:
                continue
            try:
                done[module.name] = _put(store, caches[record.directory], module, folder, dry_run=dry_run)
            except IntegrityError as error:
                damaged.append(DamagedModule(module.name, error.cause or error.message))
            except OSError as error:
                raise _unwritable(folder, error) from error
    counts = Counter(result.outcome for result in done.values())
    return Exported(
        folder=folder,
        dry_run=dry_run,
        records=tuple(record.key for record in records),
        restored=counts["restored"],
        replaced=counts["replaced"],
        present=counts["present"],
        left=counts["left"],
        bytes=sum(result.size for result in done.values()),
        modules=tuple(ExportedModule(name, one.outcome, one.size, one.reason) for name, one in sorted(done.items())),
        damaged=tuple(one for one in damaged if one.module not in done),
    )


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"{folder} cannot be written", cause=cause_of(error), hint="name another folder")


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
        raise UnsafeArchiveError(f"{record.directory} is not a folder of such a cache")
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
                f"record {record.key[:16]} belongs to no cache that other tools read",
                cause=str(error),
                hint="to make a bundle of it, name a file: cachekit store export NAME.tar KEY",
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
