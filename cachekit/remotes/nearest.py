"""The record nearest to what is wanted, and the nearest that a compile can begin with: here and on the remotes.

A remote is asked little: one listing of the records of the same compiler and model type, a second one of all records
only where nothing near is among them, and then the records themselves, in bounded number, bytes and time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from cachekit.errors import AuthError, RemoteError
from cachekit.key.canonical import Change, difference, key_of
from cachekit.key.nearest import LEAST, distance, nearest, reusable
from cachekit.remotes import layout
from cachekit.remotes.budget import each
from cachekit.remotes.known import LARGEST, LISTED, Catalogue, Known, key_in
from cachekit.remotes.port import Entry, Storage
from cachekit.store import Store
from cachekit.store.layout import LOCAL
from cachekit.store.record import COMMAND, IMPORTED, DamagedRecordError, Record
from cachekit.values import by_value

if TYPE_CHECKING:
    from cachekit.remotes.remote import Found, Remote
    from cachekit.remotes.remotes import Remotes

# Less cannot be between records of two model types, or of two compilers (see `key.nearest`): what is that near in the
# folder of the wanted one's kind is the nearest of all.
NEAR = 30
ASKED = 128  # records of the store, the nearest ones, of which the first that can be reused is taken
LANES = 16  # records that are read at once


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
        return self.remote.name if self.remote else LOCAL

    @property
    def distance(self) -> int:
        """How far away it is; see `key.nearest.WEIGHTS`."""
        return distance(self.changes)

    def nearer(self, other: Near | None) -> bool:
        """Whether it is nearer than another one; equally near is not nearer."""
        return other is None or (self.distance, len(self.changes)) < (other.distance, len(other.changes))


class Budget(Struct, frozen=True):
    """What a search on one remote may cost.

    Attributes:
        listed: Entries of one listing.
        read: Records.
        size: Bytes of all of them.
        largest: Bytes of one: a larger one is left out.
        seconds: After that no other read is begun.
    """

    listed: int = LISTED
    read: int = 256
    size: int = 32 << 20
    largest: int = LARGEST
    seconds: float = 10.0


class Looked(Struct, frozen=True):
    """How far one remote was searched.

    Attributes:
        remote: Its name.
        records: Records of this kind that it lists, as far as the listing went.
        compared: Those whose ingredients were compared.
        problem: Why it was not searched to the end; empty where it was.
    """

    remote: str
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


def search(wanted: Wanted, store: Store, remotes: Remotes | None = None, *, budget: Budget = Budget()) -> Search:  # noqa: B008
    """Find the nearest records; of equally near ones those in the store.

    A remote that cannot be asked is told to `remotes`, and passed over.

    Args:
        wanted: What for.
        store: The local store.
        remotes: The remotes; those that can be read are asked.
        budget: What each remote may cost.
    """
    begun = time.monotonic()
    near = next(_here(wanted, store), None)
    reuse = _reusable_here(wanted, store, near)
    looked = []
    for remote in remotes.readable if remotes else ():
        if _settled(wanted, near, reuse, LEAST):
            break
        there = _SearchOf(remote, wanted, store, budget)
        try:
            there.look()
            if there.reuse is not None and there.reuse.nearer(reuse):
                reuse = _to_fetch(there.reuse, wanted, store) or reuse
        except (RemoteError, AuthError) as error:
            there.problem = there.problem or error.cause or error.message
            if remotes is not None:
                remotes.failed(remote, error)
        looked.append(Looked(remote.name, len(there.listed), there.compared, there.problem))
        if there.near is not None and there.near.nearer(near):
            near = there.near
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
    files = {file.sha256: file for file in record.files}
    return sum(file.size for file in files.values() if store.blobs.check(file, "there"))


def _to_fetch(near: Near, wanted: Wanted, store: Store) -> Near | None:
    """A record on a remote, read there now; None where it is gone, damaged, or too much to fetch.

    Raises:
        RemoteError, AuthError: It cannot be read.
    """
    remote, known = near.remote, near.known
    assert remote is not None  # it was found there
    try:
        found = remote.find(known.directory, known.model_type, known.key, anew=True)
    except DamagedRecordError:
        return None
    if found is None:
        return None
    record = found.shared.record
    fetch = _lacking(store, record)
    changes = tuple(difference(record.hard, wanted.hard))
    if fetch > wanted.reuse_bytes or not wanted.can_reuse(Known.of(record), changes):
        return None
    return structs.replace(near, changes=changes, record=record, found=found, fetch=fetch)


class _SearchOf:
    """A search among the records of one remote that the store has not.

    Attributes:
        near, reuse: As in `Search`, of those that were compared.
        listed: Paths of the records that come into question.
        compared: How many of them were compared.
        problem: Why others were not.
    """

    def __init__(self, remote: Remote, wanted: Wanted, store: Store, budget: Budget) -> None:
        self._remote, self._wanted, self._store, self._budget = remote, wanted, store, budget
        self._catalogue = Catalogue(remote, store.layout.remotes)
        self._left = budget.read, budget.size
        self._deadline = time.monotonic() + budget.seconds
        self.near: Near | None = None
        self.reuse: Near | None = None
        self.listed: set[str] = set()
        self.compared = 0
        self.problem = ""

    def look(self) -> None:
        """Search; what was compared before an error counts.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        wanted = self._wanted
        self._look_in(f"{layout.RECORDS}/{wanted.directory}/{wanted.model_type}")
        if not _settled(wanted, self.near, self.reuse, NEAR):
            self._look_in(layout.RECORDS)

    def _look_in(self, folder: str) -> None:
        """Compare the records below a folder, those of the wanted one's kind first."""
        listing = self._catalogue.listing(folder, self._budget.listed)
        paths = {entry.path: entry for entry in listing if entry.path not in self.listed and self._counts(entry.path)}
        if not paths:
            return
        self.listed.update(paths)
        remembered = {path: known for path in paths if (known := self._catalogue.remembered(path))}
        spoilt = self._compare(remembered.values())
        unknown = [paths[path] for path in paths if path not in remembered or key_in(path) in spoilt]
        chosen = self._affordable(sorted(unknown, key=self._order))
        fresh: list[Known] = []
        try:
            self._read(chosen, fresh)
        finally:
            self._compare(fresh)
        if len(chosen) < len(unknown) or len(listing) >= self._budget.listed:
            self.problem = "it has more records than are read for one search"
        elif time.monotonic() > self._deadline:
            self.problem = f"it took more than {self._budget.seconds:g} s"

    def _counts(self, path: str) -> bool:
        """Whether it is a record that comes into question, and none that the store has as well."""
        above, *names = path.removeprefix(layout.RECORDS).split("/")
        if above or len(names) != 3 or not names[2].endswith(".json"):  # noqa: PLR2004 - directory, model type, key
            return False
        directory, model_type, _ = names
        key = key_in(path)
        if not self._wanted.comparable(model_type) or key == self._wanted.key:
            return False
        return not self._store.layout.record(directory, model_type, key).exists()

    def _order(self, entry: Entry) -> tuple[bool, bool, str]:
        directory, model_type, _ = entry.path.rsplit("/", 2)
        wanted = self._wanted
        return model_type != wanted.model_type, not directory.endswith(f"/{wanted.directory}"), entry.path

    def _affordable(self, entries: Iterable[Entry]) -> list[Entry]:
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

        def one(entry: Entry, storage: Storage) -> None:
            if time.monotonic() <= self._deadline:
                known = self._catalogue.read(storage, entry.path, revision, self._budget.largest)
                found.extend([known] if known else [])

        with self._remote.call() as storage:
            each([partial(one, entry, storage) for entry in entries], LANES)

    def _compare(self, known: Iterable[Known]) -> set[str]:
        """Look for nearer ones; returns the keys of those that were remembered wrongly."""
        candidates = {one.key: one for one in known}
        self.compared += len(candidates)
        near, spoilt = self._nearest(candidates)
        if near is not None and near.nearer(self.near):
            self.near = near
        if self._wanted.reuse_bytes:
            fits = self._wanted.can_reuse
            reuse, wrong = self._nearest(
                {key: one for key, one in candidates.items() if fits(one, difference(one.hard, self._wanted.hard))}
            )
            spoilt |= wrong
            if reuse is not None and reuse.nearer(self.reuse):
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
