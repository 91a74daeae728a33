"""Import records: a bundle, or the finished units of a compiler's own cache that was made without cachekit."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, Literal

from msgspec import Struct, structs

from cachekit import files
from cachekit.compilers import registry
from cachekit.compilers.adapter import Adapter
from cachekit.compilers.foreign import ForeignCache, Taken, Unfit, Units
from cachekit.compilers.imported import known_units, record_of
from cachekit.compilers.port import Sink
from cachekit.config_trust import Mode
from cachekit.errors import Helps, UntrustedError, UsageError
from cachekit.remotes.address import asked_of_folder
from cachekit.remotes.bundle_in import State, read_bundle
from cachekit.remotes.judging import HINT_BUNDLE, HINT_FOLDER, advice, beside_found, none_used, not_used, refusal
from cachekit.store import Store
from cachekit.store.bundle import unpacked
from cachekit.store.durable import store_error
from cachekit.store.origin import Origin
from cachekit.text import cause_of, one_line, spelled
from cachekit.values import Answer
from cachekit.verbs.session import Session, using_store
from cachekit.whose import OWN, Standing, open_judged, standing


class UnbundledRecord(Struct, frozen=True):
    """A record of a bundle, and what became of it.

    Attributes:
        modules: Their names.
        state: `added`; `merged` with modules that the store's own record has; `present` as a whole; `kept` where the
            store has another build, which stays.
        untrusted: Why it may not be used, so that the import would take nothing; only in a dry run.
        helps: And what helps; see `Planned`.
    """

    key: str
    recipe: str
    directory: str
    modules: tuple[str, ...]
    bytes: int
    state: State
    untrusted: str = ""
    helps: Helps | Literal[""] = ""


class Unbundled(Answer, frozen=True, tag="cachekit/import-bundle/1"):
    """What an import took, or would take.

    Attributes:
        dry_run: Nothing was written.
        bytes: That the store lacked.
        size: Bytes of the bundle itself.
        sha256: Of the bundle itself.
        seconds: Wall time.
    """

    bundle: str
    dry_run: bool
    records: tuple[UnbundledRecord, ...]
    bytes: int
    size: int
    sha256: str
    seconds: float

    def error(self) -> UntrustedError | None:
        """The error that the import would end with, where this dry run found that it would take nothing."""
        refused = next((one for one in self.records if one.untrusted), None)
        if refused is None:
            return None
        why = f"{one_line(refused.recipe)} ({refused.key[:12]}) in it is {refused.untrusted}"
        hint = advice(refused.helps, otherwise=HINT_BUNDLE)
        return refusal(self.bundle, f"anybody can make a bundle, and {why}", hint)


@contextmanager
def opened(path: Path | None) -> Iterator[tuple[IO[bytes], str]]:
    """A bundle's bytes, and its name for messages; None is standard input.

    Raises:
        UsageError: It cannot be opened, or is a pipe or a device, which is not waited for.
    """
    if path is None:
        yield sys.stdin.buffer, "standard input"
        return
    try:
        source = files.opened(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read",
            cause=cause_of(error),
            hint="name a file that you may read, or - for standard input",
        ) from error
    with source:
        yield source, str(path)


@using_store
def import_bundle(session: Session, source: IO[bytes], name: str, *, dry_run: bool = False) -> Unbundled:
    """Take the records of a bundle, which is called `name` in messages, into the store; see `Cache.import_bundle`.

    Raises:
        UntrustedError: A record of it is signed by nobody whom the settings name. Nothing was taken.
    """
    start = time.monotonic()
    read = read_bundle(session.store, source, name, session.remotes.trust, dry_run=dry_run)
    records = [
        UnbundledRecord(
            one.key,
            one.recipe,
            one.directory,
            tuple(module.name for module in one.modules),
            one.size,
            state,
            *read.untrusted.get(one.key, ()),
        )
        for one, state in read.records
    ]
    done = Unbundled(
        bundle=name,
        dry_run=dry_run,
        records=tuple(records),
        bytes=read.size,
        size=read.totals.size,
        sha256=read.totals.sha256,
        seconds=round(time.monotonic() - start, 3),
    )
    session.journal.emit("import.end", **done.as_dict())
    return done


class Group(Struct, frozen=True):
    """What was imported of one compiler version.

    Attributes:
        compiler: Its folder.
        key: Of the record; empty where nothing was added.
        added: Modules that the store did not have, sorted.
        known: Modules that the store had.
        bytes: Of what was added.
    """

    compiler: str
    key: str
    added: tuple[str, ...]
    known: tuple[str, ...]
    bytes: int


class UnfitModule(Struct, frozen=True):
    """A module that was not imported; `state` is `failed`, `locked`, `unfinished` or `damaged`."""

    module: str
    state: str
    path: Path
    reason: str


class UnknownFile(Struct, frozen=True):
    """Something in a cache that is not a module."""

    path: Path
    reason: str


class Imported(Answer, frozen=True, tag="cachekit/import-cache/1"):
    """What an import did, or would do.

    Attributes:
        folder: The cache.
        dry_run: Nothing was written.
        added: How many modules the store did not have.
        known: How many it had.
        bytes: Of what was added.
        records: By compiler version.
        left: Modules that were not taken.
        unknown: What else lies in the cache.
    """

    folder: Path
    dry_run: bool
    added: int
    known: int
    bytes: int
    records: tuple[Group, ...]
    left: tuple[UnfitModule, ...] = ()
    unknown: tuple[UnknownFile, ...] = ()


def import_into(session: Session, folder: Path, *, dry_run: bool = False) -> Imported:
    """`import_cache` as one run, whose journal tells of it.

    Raises:
        UntrustedError: Others can write to the folder, and the user does not say to trust them; the settings ask for
            signatures there; or they revoke what lies there.
    """
    trust = session.remotes.trust
    said = asked_of_folder(folder, session.config)
    source = CacheSource(folder, trust.asks(said), trust.signs)
    if said != "owner":
        source.judge(_standing_of_bundle(folder))

    def tell(event: dict[str, Any]) -> None:
        session.journal.show(**event)

    imported = import_cache(session.store, folder, dry_run=dry_run, tell=tell, source=source)
    session.journal.emit("import.end", **imported.as_dict())
    return imported


def _standing_of_bundle(folder: Path) -> Standing:
    """As far as anybody can know, others made what lies in an unpacked bundle, or in one compiler's folder of one."""
    place = folder.resolve()
    why = unpacked(place) or unpacked(place.parent)
    return Standing("others", why) if why else OWN


class CacheSource:
    """A compiler's own cache, whose files no record names: whose each is, is asked of the very file that is read.

    Args:
        folder: The cache.
        mode: `owner` refuses what others than this user, root and the user's groups can have put there, `signed` all.
        signs: Who asks for signatures, where `mode` does.
    """

    def __init__(self, folder: Path, mode: Mode, signs: str = "") -> None:
        self._folder, self._mode, self._signs, self._strange = str(folder), mode, signs, False

    @property
    def origin(self) -> Origin:
        """Of what was opened so far."""
        return Origin(spelled(str(Path(self._folder).absolute())), "all" if self._strange else "owner")

    def open(self, path: Path, flags: int) -> int:
        """Open a file to be read.

        Raises:
            OSError: It cannot be opened.
            UntrustedError: Others can have put it there.
        """
        handle, found = open_judged(path, flags)
        try:
            self.judge(found)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def judge(self, found: Standing) -> None:
        """Refuse what others can have put there.

        Raises:
            UntrustedError: They can, or all is refused.
        """
        if self._mode == "signed":
            raise refusal(self._folder, self._signs, HINT_FOLDER)
        if found.whose == "others":
            self._strange = True
            if self._mode == "owner":
                raise refusal(self._folder, found.why, HINT_FOLDER)


def import_cache(
    store: Store,
    folder: Path,
    *,
    dry_run: bool = False,
    tell: Sink = lambda _: None,
    source: CacheSource | None = None,
) -> Imported:
    """Take the finished units of a compiler's own cache into the store.

    What the store has already is not read again, so a second import of the same cache adds nothing. The cache may be
    in use: what is locked, unfinished or changes meanwhile is left, and reported.

    Args:
        store: The store.
        folder: A cache's root, or one compiler's folder in it.
        dry_run: Only say what would be taken; files are judged all the same.
        tell: Told how far it is: `import.reading` for each unit that is read, `import.storing` for each record.
        source: Whose files are taken; by default all are, as `owner`.

    Raises:
        UsageError: The folder cannot be read, or holds no cache of a compiler that is known here.
        UntrustedError: Others can have put a file there, or the settings revoke one. What was taken of another
            compiler's folder stays.
        StoreError: The store cannot be written.
    """
    # A path that ends in `.` or `..` would hide that it is a compiler's own folder.
    named, folder = folder, folder.resolve()
    source = source or CacheSource(folder, "all")
    adapter, cache = _found(folder)
    source.judge(standing(named))
    scanned = cache.scan(folder, known_units(store, adapter, cache), tell)
    left, unknown = [*scanned.left], [*scanned.unknown]
    groups = []
    for group in scanned.groups:
        root = folder.parent if folder.name == group.directory else folder
        taken, key, size = _take(store, adapter, cache, group, tell, source=source, root=root, dry_run=dry_run)
        groups.append(Group(group.directory, key, taken.names, group.known, size))
        left += taken.left
        unknown += taken.unknown
    left.sort(key=lambda one: (one.name, str(one.path)))
    return Imported(
        folder=folder,
        dry_run=dry_run,
        added=sum(len(group.added) for group in groups),
        known=sum(len(group.known) for group in groups),
        bytes=sum(group.bytes for group in groups),
        records=tuple(groups),
        left=tuple(UnfitModule(one.name, one.state, one.path, one.reason) for one in left),
        unknown=tuple(UnknownFile(path, reason) for path, reason in unknown),
    )


def _found(folder: Path) -> tuple[Adapter, ForeignCache]:
    """The adapter whose cache a folder is."""
    caches = [(adapter, adapter.foreign_cache) for adapter in registry.every() if adapter.foreign_cache is not None]
    try:
        # The last registered first: a folder of a compiler's own name tells more than files that look like graphs.
        for adapter, cache in reversed(caches):
            if cache.finds(folder):
                return adapter, cache
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be read", cause=cause_of(error), hint="name a bundle, or the folder of a compiler's cache"
        ) from error
    raise UsageError(
        f"{folder} holds no compiler's cache",
        cause=f"there is no {', and no '.join(cache.holds for _, cache in reversed(caches))} in it",
        hint=f"name the cache's root; defaults are {', '.join(cache.default for _, cache in reversed(caches))}",
    )


def _without(taken: Taken, refused: Mapping[str, str], place: str) -> Taken:
    """What was taken, without modules that are not used.

    Raises:
        UntrustedError: Nothing is left; or the units are in one module, which is not used.
    """
    names = tuple(name for name in taken.names if name not in refused)
    if not names or len(names) + len(refused) > len(taken.names):
        raise none_used(place, refused)
    left = tuple(Unfit(name, Path(place) / name, why) for name, why in refused.items())
    return structs.replace(taken, names=names, left=(*taken.left, *left))


def _take(
    store: Store,
    adapter: Adapter,
    cache: ForeignCache,
    group: Units,
    tell: Sink,
    *,
    source: CacheSource,
    root: Path,
    dry_run: bool,
) -> tuple[Taken, str, int]:
    """What was taken of a group, the key of its record, and bytes."""
    with nullcontext(None) if dry_run else store.workspace() as workspace:
        try:
            taken = cache.take(group, workspace, tell, source.open)
            if taken.harvest is None:
                return taken, "", 0
            made, files = taken.harvest.modules, taken.harvest.files
            if refused := not_used(store, made, root):
                taken = _without(taken, refused, source.origin.remote)
                made = tuple(one for one in made if one.name not in refused)
                used = {file.sha256 for module in made for file in module.files}
                files = {sha256: path for sha256, path in files.items() if sha256 in used}
            record = record_of(adapter, group.directory, made, graphs=len(taken.names), files=files.values())
        except OSError as error:
            raise store_error(store.layout.home, error) from error
        beside = beside_found(store, record, source.origin, root)
        if not dry_run:
            what = {"compiler": group.directory, "modules": len(taken.names), "bytes": record.size}
            tell({"event": "import.storing", **what})
            store.publish(record, files, beside=beside)
    return taken, record.key, record.size
