"""The nearest records on one remote, for few questions.

A remote is asked little: one listing of the records of the same compiler and model type, a second one of all records
only where nothing near is among them, and then the records themselves, in bounded number, bytes and time. What a record
is made from never changes (its key is the digest of it), so that is remembered in the store for ever, and the listing
for a moment: whoever asks again soon asks nobody.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cachekit.errors import AuthError, IntegrityError, RemoteError, TooLargeError, UnknownNameError
from cachekit.key.canonical import difference, key_of
from cachekit.key.nearest import nearest
from cachekit.remotes import document, layout
from cachekit.remotes.budget import each
from cachekit.remotes.near import Known, Looked, Near, Wanted, settled
from cachekit.remotes.notes import Notes, short
from cachekit.remotes.port import Entry, Storage
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.store.record import DamagedRecordError

if TYPE_CHECKING:
    from cachekit.remotes.remote import Remote

# Less cannot be between records of two model types, or of two compilers (see `key.nearest`): what is that near in the
# folder of the wanted one's kind is the nearest of all.
NEAR = 30
LANES = 16  # records that are read at once
REMEMBERED_SECONDS = 60.0  # of a listing
MOST_REMEMBERED = 4096  # records' ingredients
FEW = 5  # records that are told apart by more digits of their keys


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


class _Listing(Struct, frozen=True):
    """What a folder had, in which state of the remote, and when, in seconds since the epoch."""

    time: float
    revision: str
    entries: list[Entry]


class Memory:
    """What this store remembers of the records on a remote.

    Args:
        folder: Where, for all remotes.
        name: The remote's.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._records = Notes(folder / "records")
        self._listings = Notes(folder / short(name) / "listings")

    def known(self, key: str) -> Known | None:
        """A record's ingredients; that they give its key is to be seen by who uses them, which takes longer."""
        known = self._records.read(f"{key}.json", Known)
        return known if known and known.key == key else None

    def keep(self, known: Known) -> None:
        """Remember a record."""
        self._records.write(f"{known.key}.json", known)

    def listing(self, folder: str, remote: Remote) -> list[Entry] | None:
        """What lay in a folder a moment ago; None where that must be asked."""
        known = self._listings.read(f"{short(folder)}.json", _Listing)
        if known is None:
            return None
        if 0 <= time.time() - known.time < REMEMBERED_SECONDS:
            return known.entries
        return known.entries if known.revision and known.revision == remote.revision() else None

    def keep_listing(self, folder: str, revision: str, entries: Sequence[Entry]) -> None:
        """Remember what lies in a folder, and forget the oldest records where they have become many."""
        self._listings.write(f"{short(folder)}.json", _Listing(time.time(), revision, list(entries)))
        kept = self._records.names()
        for name in kept[: max(0, len(kept) - MOST_REMEMBERED)]:
            self._records.remove(name)


class Seen:
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
            if not settled(wanted, self.near, self.reuse, NEAR):
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

        def one(entry: Entry, storage: Storage) -> None:
            if time.monotonic() <= self._deadline and (known := _known(storage, entry.path, revision, self._budget)):
                self._memory.keep(known)
                found.append(known)

        with self._remote.call() as storage:
            each([partial(one, entry, storage) for entry in entries], LANES)

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


def by_key(beginning: str, store: Store, remotes: Remotes) -> tuple[Known | None, str]:
    """The one record on the remotes whose key begins so, and where; nothing where there is none.

    Raises:
        UnknownNameError: Several begin so.
    """
    found: dict[str, tuple[Known, str]] = {}
    for remote in remotes.readable:
        try:
            for known in _with_key(remote, store, beginning):
                found.setdefault(known.key, (known, remote.name))
        except (RemoteError, AuthError) as error:
            remotes.failed(remote, error)
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
                with remote.call() as storage:
                    known = _known(storage, entry.path, revision, DEFAULT)
            found += [known] if known else []
    return found


def _listing(remote: Remote, memory: Memory, folder: str, most: int) -> Sequence[Entry]:
    remembered = memory.listing(folder, remote)
    if remembered is not None:
        return remembered
    revision = remote.revision()
    with remote.call() as storage:
        entries = list(islice(storage.list(folder, revision), most))
    memory.keep_listing(folder, revision, entries)
    return entries


def _known(storage: Storage, path: str, revision: str, budget: Budget) -> Known | None:
    """A record's ingredients, as they lie there; a damaged one is none of a search's business: who wants it is told."""
    with suppress(DamagedRecordError, TooLargeError, IntegrityError):
        read = storage.read(path, revision, budget.largest)
        shared = document.read(read.data) if read else None
        if shared is not None and layout.path_of(shared.record) == path:
            return Known.of(shared.record)
    return None


def _key(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json")
