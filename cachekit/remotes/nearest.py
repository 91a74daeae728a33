"""The record nearest to what is wanted, and the nearest that a compile can begin with: in the store and on the remotes.

A remote is asked little: one listing of the records of the same compiler and model type, a second one of all records
only where nothing near is among them, and then the records themselves, in bounded number, bytes and time. What a record
is made from never changes (its key is the digest of it), so that is remembered in the store for ever, and the listing
for a moment: whoever asks again soon asks nobody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

from msgspec import Struct, structs

from cachekit.errors import AuthError, IntegrityError, RemoteError, TooLargeError, UnknownNameError
from cachekit.key.canonical import Change, difference, key_of
from cachekit.key.nearest import LEAST, distance, nearest, reusable
from cachekit.remotes import document, layout
from cachekit.remotes.chain import Chain
from cachekit.remotes.deadline import parallel
from cachekit.remotes.nearest_memory import Known, Memory
from cachekit.remotes.port import Entry, Tier
from cachekit.remotes.remote import Found, Remote
from cachekit.store import Store
from cachekit.store.record import COMMAND, IMPORTED, DamagedRecordError, Record
from cachekit.values import by_value

# Less cannot be between records of two model types, or of two compilers (see `key.nearest`): what is that near in the
# folder of the wanted one's kind is the nearest of all.
NEAR = 30
ASKED = 128  # records of the store, the nearest ones, of which the first that can be reused is taken
LANES = 16  # records that are read at once
FEW = 5  # records that are told apart by more digits of their keys


class Wanted(Struct, frozen=True):
    """What is sought for; its own record is never the nearest.

    Attributes:
        foreign: See `Compiler.foreign`.
        reuse_bytes: The largest record that a compile may begin with, and the most to fetch; 0 seeks for none.
    """

    key: str
    directory: str
    model_type: str
    hard: Mapping[str, Any]
    foreign: tuple[str, ...] = ()
    reuse_bytes: int = 0

    def comparable(self, model_type: str) -> bool:
        """Recipes and commands have no ingredients in common; what was imported has none at all."""
        return model_type != IMPORTED and (model_type == COMMAND) == (self.model_type == COMMAND)

    def can_reuse(self, known: Known, changes: Sequence[Change]) -> bool:
        """Whether a compile can begin with a record."""
        return (
            known.size <= self.reuse_bytes
            and known.directory == self.directory
            and known.model_type != COMMAND
            and reusable(changes, self.foreign)
        )


class Near(Struct, frozen=True):
    """A record near to what is wanted.

    Attributes:
        known: What it is.
        changes: From it to what is wanted.
        record: The record whole, where it is in the store or was read on its remote.
        remote: The remote that has it, where the store has not.
        found: The record as it was read there, to be fetched.
        fetch: Of that, the bytes that the store lacks.
    """

    known: Known
    changes: tuple[Change, ...]
    record: Record | None = None
    remote: Remote | None = None
    found: Found | None = None
    fetch: int = 0

    __hash__ = by_value

    @property
    def place(self) -> str:
        """Where it is: `local`, or the name of a remote."""
        return self.remote.name if self.remote else layout.LOCAL

    @property
    def distance(self) -> int:
        """How far away it is; see `key.nearest.WEIGHTS`."""
        return distance(self.changes)

    @property
    def rank(self) -> tuple[int, int]:
        """What near records are sorted by."""
        return self.distance, len(self.changes)


class Budget(Struct, frozen=True):
    """What a search on one remote may cost.

    Attributes:
        listed: Entries of one listing; a page of a Hub, or of S3, has 1,000.
        read: Records.
        size: Bytes of all of them.
        largest: Bytes of one: a larger one is left out.
        seconds: After that no other read is begun.
    """

    listed: int = 4000
    read: int = 256
    size: int = 32 << 20
    largest: int = 8 << 20
    seconds: float = 10.0


DEFAULT = Budget()


class Looked(Struct, frozen=True):
    """How far one remote was searched.

    Attributes:
        tier: Its name.
        records: Records of this kind that it lists, as far as the listing went.
        compared: Those whose ingredients were compared.
        problem: Why it was not searched to the end; empty where it was.
    """

    tier: str
    records: int
    compared: int
    problem: str = ""


class Search(Struct, frozen=True):
    """What a search found.

    Attributes:
        near: The nearest record of all.
        reuse: The nearest one that a compile can begin with: whole in the store, or to be fetched.
        looked: How far each remote was searched; one that was not asked is not among them.
        seconds: What the search took.
    """

    near: Near | None = None
    reuse: Near | None = None
    looked: tuple[Looked, ...] = ()
    seconds: float = 0.0


def search(wanted: Wanted, store: Store, chain: Chain | None = None, *, budget: Budget = DEFAULT) -> Search:
    """Find the nearest records; of equally near ones those in the store.

    A remote that cannot be asked is told to the chain, and passed over.

    Args:
        wanted: What for.
        store: The local store.
        chain: The remotes; those that can be read are asked.
        budget: What each remote may cost.
    """
    begun = time.monotonic()
    near = next(_here(wanted, store), None)
    reuse = _reusable_here(wanted, store, near)
    looked = []
    for remote in chain.readable if chain else ():
        if _settled(wanted, near, reuse, LEAST):
            break
        seen = _Seen(remote, wanted, store, budget)
        failure = seen.look()
        looked.append(seen.looked)
        if failure is not None and chain is not None:
            chain.failed(remote, failure)
        if seen.near is not None and (near is None or seen.near.rank < near.rank):
            near = seen.near
        if seen.reuse is not None and (reuse is None or seen.reuse.rank < reuse.rank):
            reuse = _to_fetch(seen.reuse, wanted, store, chain) or reuse
    return Search(near, reuse, tuple(looked), time.monotonic() - begun)


def _settled(wanted: Wanted, near: Near | None, reuse: Near | None, limit: int) -> bool:
    """Whether nothing that is sought can lie nearer than this elsewhere."""
    if near is None or near.distance > limit:
        return False
    return not wanted.reuse_bytes or (reuse is not None and reuse.distance <= limit)


def _here(wanted: Wanted, store: Store) -> Iterator[Near]:
    """The records of the store that can be read, the nearest first."""
    for one in store.nearest(wanted.hard):
        if wanted.comparable(one.row.model_type) and one.row.key != wanted.key:
            record = store.read(one.row.directory, one.row.model_type, one.row.key)
            if record is not None:
                yield Near(Known.of(record), tuple(difference(record.hard, wanted.hard)), record)


def _reusable_here(wanted: Wanted, store: Store, near: Near | None) -> Near | None:
    """The nearest record that can be reused, whole as far as looking at its files tells."""
    if not wanted.reuse_bytes or wanted.model_type == COMMAND:
        return None
    if near is not None and _is_reusable(near, wanted, store):
        return near
    for one in islice(store.nearest(wanted.hard, directory=wanted.directory), ASKED):
        changes = tuple(difference(one.hard, wanted.hard))
        if one.row.key == wanted.key or one.row.bytes > wanted.reuse_bytes or not reusable(changes, wanted.foreign):
            continue
        record = store.read(one.row.directory, one.row.model_type, one.row.key)
        found = None if record is None else Near(Known.of(record), changes, record)
        if found is not None and _is_reusable(found, wanted, store):
            return found
    return None


def _is_reusable(near: Near, wanted: Wanted, store: Store) -> bool:
    record = near.record
    return wanted.can_reuse(near.known, near.changes) and record is not None and not _lacking(store, record)


def _lacking(store: Store, record: Record) -> int:
    """Bytes of a record that the store has not: files are looked at, and not read, which would take long."""
    files = {file.sha256: file.size for file in record.files}
    lacking = 0
    for sha256, size in files.items():
        try:
            there = store.layout.blob(sha256).stat().st_size == size
        except OSError:
            there = False
        lacking += 0 if there else size
    return lacking


def _to_fetch(near: Near, wanted: Wanted, store: Store, chain: Chain | None) -> Near | None:
    """A record on a remote, read there now; None where it is gone, damaged, or too much to fetch."""
    remote, known = near.remote, near.known
    assert remote is not None  # it was found there
    try:
        found = remote.find(known.directory, known.model_type, known.key, anew=True)
    except DamagedRecordError:
        return None
    except (RemoteError, AuthError) as error:
        if chain is not None:
            chain.failed(remote, error)
        return None
    if found is None:
        return None
    record = found.shared.record
    fetch = _lacking(store, record)
    changes = tuple(difference(record.hard, wanted.hard))
    if fetch > wanted.reuse_bytes or not wanted.can_reuse(Known.of(record), changes):
        return None
    return structs.replace(near, changes=changes, record=record, found=found, fetch=fetch)


class _Seen:
    """The records of one remote that the store has not, as far as they were looked at."""

    def __init__(self, remote: Remote, wanted: Wanted, store: Store, budget: Budget) -> None:
        self._remote, self._wanted, self._store = remote, wanted, store
        self._budget, self._memory = budget, Memory(store.layout.remotes, remote.name)
        self._left = budget.read, budget.size
        self._deadline = time.monotonic() + budget.seconds
        self._listed: set[str] = set()
        self._compared = 0
        self._here: dict[tuple[str, str], frozenset[str]] = {}
        self._problem = ""
        self.near: Near | None = None
        self.reuse: Near | None = None

    @property
    def looked(self) -> Looked:
        """How far it was searched."""
        return Looked(self._remote.name, len(self._listed), self._compared, self._problem)

    def look(self) -> RemoteError | AuthError | None:
        """Search; returns what ended the search, where something did: what was read before is as good as ever."""
        wanted = self._wanted
        try:
            self._folder(f"{layout.RECORDS}/{wanted.directory}/{wanted.model_type}")
            if not _settled(wanted, self.near, self.reuse, NEAR):
                self._folder(layout.RECORDS)
        except (RemoteError, AuthError) as error:
            self._problem = error.cause or error.message
            return error
        return None

    def _folder(self, folder: str) -> None:
        """Compare the records below a folder, those of the wanted one's kind first."""
        listing = _listing(self._remote, self._memory, folder, self._budget.listed)
        entries = [entry for entry in listing if entry.path not in self._listed and self._is_record(entry)]
        if not entries:
            return
        entries.sort(key=self._order)
        self._listed.update(entry.path for entry in entries)
        remembered = {entry.path: known for entry in entries if (known := self._memory.known(_key(entry.path)))}
        spoilt = self._compare(remembered.values())
        unknown = [entry for entry in entries if entry.path not in remembered or _key(entry.path) in spoilt]
        chosen = self._afford(unknown)
        fresh: list[Known] = []
        try:
            self._read(chosen, fresh)
        finally:
            self._compare(fresh)
        if len(chosen) < len(unknown) or len(listing) >= self._budget.listed:
            self._problem = "it has more records than are read for one search"
        elif time.monotonic() > self._deadline:
            self._problem = f"it took more than {self._budget.seconds:g} s"

    def _is_record(self, entry: Entry) -> bool:
        """Whether it is a record that comes into question, and none that the store has as well."""
        above, *names = entry.path.removeprefix(layout.RECORDS).split("/")
        if above or len(names) != 3 or not names[2].endswith(".json"):  # noqa: PLR2004 - directory, model type, key
            return False
        directory, model_type, name = names
        if not self._wanted.comparable(model_type) or _key(entry.path) == self._wanted.key:
            return False
        if (directory, model_type) not in self._here:
            here: list[str] = []
            with suppress(OSError):
                here = os.listdir(self._store.layout.records / directory / model_type)  # noqa: PTH208 - names only
            self._here[directory, model_type] = frozenset(here)
        return name not in self._here[directory, model_type]

    def _order(self, entry: Entry) -> tuple[bool, bool, str]:
        directory, model_type, _ = entry.path.rsplit("/", 2)
        wanted = self._wanted
        return model_type != wanted.model_type, not directory.endswith(f"/{wanted.directory}"), entry.path

    def _afford(self, entries: Iterable[Entry]) -> list[Entry]:
        number, size = self._left
        chosen = []
        for entry in entries:
            if number and entry.size <= min(size, self._budget.largest):
                chosen.append(entry)
                number, size = number - 1, size - entry.size
        self._left = number, size
        return chosen

    def _read(self, entries: Sequence[Entry], found: list[Known]) -> None:
        """Read records side by side; what came before an error is in `found`."""
        if not entries:
            return
        revision = self._remote.revision()

        def one(entry: Entry, tier: Tier) -> None:
            if time.monotonic() <= self._deadline and (known := _known(tier, entry.path, revision, self._budget)):
                self._memory.keep(known)
                found.append(known)

        with self._remote.call() as tier:
            parallel([partial(one, entry, tier) for entry in entries], LANES, f"{self._remote.name}: read")

    def _compare(self, known: Iterable[Known]) -> set[str]:
        """Look for nearer ones; returns the keys of those that were remembered wrongly."""
        candidates = {one.key: one for one in known}
        near, spoilt = self._nearest(candidates)
        if near is not None and (self.near is None or near.rank < self.near.rank):
            self.near = near
        self._compared += len(candidates)
        if self._wanted.reuse_bytes:
            can = {
                key: one
                for key, one in candidates.items()
                if self._wanted.can_reuse(one, difference(one.hard, self._wanted.hard))
            }
            reuse, wrong = self._nearest(can)
            spoilt |= wrong
            if reuse is not None and (self.reuse is None or reuse.rank < self.reuse.rank):
                self.reuse = reuse
        return spoilt

    def _nearest(self, candidates: dict[str, Known]) -> tuple[Near | None, set[str]]:
        """The nearest of some, and the keys of those whose ingredients do not give them, which are taken out."""
        spoilt: set[str] = set()
        while near := nearest(self._wanted.hard, {key: one.hard for key, one in candidates.items()}):
            one = candidates[near[0]]
            if key_of(one.hard) == one.key:
                return Near(one, tuple(near[1]), remote=self._remote), spoilt
            spoilt.add(candidates.pop(one.key).key)
        return None, spoilt


def by_key(beginning: str, store: Store, chain: Chain) -> tuple[Known | None, str]:
    """The one record on the remotes whose key begins so, and where; nothing where there is none.

    Raises:
        UnknownNameError: Several begin so.
    """
    found: dict[str, tuple[Known, str]] = {}
    for remote in chain.readable:
        try:
            for known in _with_key(remote, store, beginning):
                found.setdefault(known.key, (known, remote.name))
        except (RemoteError, AuthError) as error:
            chain.failed(remote, error)
    if len(found) > 1:
        raise UnknownNameError(
            f"{len(found)} records begin with {beginning!r}",
            cause=", ".join(sorted(key[:16] for key in found)[:5]),
            hint="give more digits",
        )
    return next(iter(found.values()), (None, ""))


def _with_key(remote: Remote, store: Store, beginning: str) -> list[Known]:
    """The first few records on a remote whose keys begin so."""
    memory = Memory(store.layout.remotes, remote.name)
    found: list[Known] = []
    for entry in _listing(remote, memory, layout.RECORDS, DEFAULT.listed):
        if _key(entry.path).startswith(beginning.lower()) and len(found) < FEW:
            known = memory.known(_key(entry.path))
            if known is None:
                revision = remote.revision()
                with remote.call() as tier:
                    known = _known(tier, entry.path, revision, DEFAULT)
            found += [known] if known else []
    return found


def _listing(remote: Remote, memory: Memory, folder: str, most: int) -> Sequence[Entry]:
    remembered = memory.listing(folder, remote)
    if remembered is not None:
        return remembered
    revision = remote.revision()
    with remote.call() as tier:
        entries = list(islice(tier.list(folder, revision), most))
    memory.keep_listing(folder, revision, entries)
    return entries


def _known(tier: Tier, path: str, revision: str, budget: Budget) -> Known | None:
    """A record's ingredients, as they lie there; a damaged one is none of a search's business: who wants it is told."""
    with suppress(DamagedRecordError, TooLargeError, IntegrityError):
        read = tier.read(path, revision, budget.largest)
        shared = document.read(read.data) if read else None
        if shared is not None and layout.path_of(shared.record) == path:
            return Known.of(shared.record)
    return None


def _key(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json")
