"""The records on one remote, for few questions: which of them is the nearest, and which has a key.

A remote is asked little: one listing of the records of the same compiler and model type, a second one of all records
only where nothing near is among them, and then the records themselves, in bounded number, bytes and time. What a record
is made from never changes (its key is the digest of it), so that is remembered in the store for ever; a listing for a
moment, or as long as the remote has the same revision.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cachekit.errors import AuthError, RemoteError, UnknownNameError, UntrustedError
from cachekit.key.canonical import difference, key_of
from cachekit.key.nearest import nearest
from cachekit.remotes import document, layout
from cachekit.remotes.budget import each
from cachekit.remotes.nearest import LARGEST, LISTED, Budget, Known, Nearest, Wanted, settled
from cachekit.remotes.notes import Notes, short
from cachekit.remotes.port import Entry, Storage
from cachekit.store import Store
from cachekit.store.layout import Place
from cachekit.store.record import DamagedRecordError

if TYPE_CHECKING:
    from cachekit.remotes.remote import Remote
    from cachekit.remotes.remotes import Remotes

# Less cannot be between records of two model types, or of two compilers (see `key.nearest`): what is that near in the
# folder of the wanted one's kind is the nearest of all.
NEAR = 30
LANES = 16  # records that are read at once
REMEMBERED_SECONDS = 60.0  # of a listing
MOST_REMEMBERED = 4096  # records' ingredients
FEW = 5  # records that are told apart by more digits of their keys
JUDGED = 8  # records of one search that are read for who signed them: the nearest first


class _Listing(Struct, frozen=True):
    """What a folder had, in which state of the remote."""

    revision: str
    entries: list[Entry]


class Catalogue:
    """The records on one remote, as far as they were asked for.

    Args:
        remote: The remote.
        memory: The store's folder for what is remembered of remotes.
    """

    def __init__(self, remote: Remote, memory: Path) -> None:
        self._remote = remote
        self._records = Notes(memory / "records")
        self._listings = Notes(memory / short(remote.name) / "listings")

    def listing(self, folder: str, most: int = LISTED) -> Sequence[Entry]:
        """What lies in a folder, or lay there a moment ago.

        Raises:
            RemoteError, AuthError: It cannot be asked.
        """
        name = f"{short(folder)}.json"
        known, age = self._listings.read(name, _Listing), self._listings.age(name)
        if known is not None and age is not None and age < REMEMBERED_SECONDS:
            return known.entries
        if known is not None and age is not None and known.revision and known.revision == self._remote.revision():
            return known.entries
        revision = self._remote.revision()
        with self._remote.call() as storage:
            entries = list(islice(storage.list(folder, revision), most))
        self._listings.write(name, _Listing(revision, entries))
        kept = self._records.names()
        for oldest in kept[: max(0, len(kept) - MOST_REMEMBERED)]:
            self._records.remove(oldest)
        return entries

    def remembered(self, path: str) -> Known | None:
        """A record's ingredients as remembered; the caller must check that they give the key."""
        key = key_in(path)
        known = self._records.read(f"{key}.json", Known)
        return known if known and known.key == key else None

    def read(self, storage: Storage, path: str, revision: str, largest: int = LARGEST) -> Known | None:
        """A record's ingredients as the remote has them; None for a damaged record, which a fetch would report.

        Raises:
            RemoteError, AuthError: It cannot be asked.
        """
        shared = document.listed(storage, path, revision, largest)
        if shared is None:
            return None
        known = Known.of(shared.record)
        if not self._remote.picks:  # else what anybody wrote would be told of another remote's record
            self._records.write(f"{known.key}.json", known)
        return known


def key_in(path: str) -> str:
    """The key of the record at a path."""
    return path.rpartition("/")[2].removesuffix(".json")


class RemoteSearch:
    """A search among the records of one remote that the store has not.

    Attributes:
        nearest, reuse: As in `Search`, of those that were compared.
        listed: Paths of the records that come into question.
        compared: How many of them were compared.
        problem: Why others were not.
        untrusted: Why the nearest of those that may not be used may not.
    """

    def __init__(self, remote: Remote, wanted: Wanted, store: Store, budget: Budget) -> None:
        self._remote, self._wanted, self._store, self._budget = remote, wanted, store, budget
        self._catalogue = Catalogue(remote, store.layout.remotes)
        self._left = budget.read, budget.size
        self._judged: dict[str, Known | None] = {}  # those that may be used, by their keys
        self._deadline = time.monotonic() + budget.seconds
        self.nearest: Nearest | None = None
        self.reuse: Nearest | None = None
        self.listed: set[str] = set()
        self.compared = 0
        self.problem = ""
        self.untrusted = ""

    def look(self) -> None:
        """Search; what was compared before an error counts.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        wanted = self._wanted
        self._look_in(f"{layout.RECORDS}/{wanted.place.directory}/{wanted.place.model_type}")
        if not settled(wanted, self.nearest, self.reuse, NEAR):
            self._look_in(layout.RECORDS)

    def _look_in(self, folder: str) -> None:
        """Compare the records below a folder, those of the wanted one's kind first."""
        listing = self._catalogue.listing(folder, self._budget.listed)
        here: dict[Path, set[str]] = {}
        paths = {entry.path: entry for entry in listing if entry.path not in self.listed}
        paths = {path: entry for path, entry in paths.items() if self._counts(path, here)}
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

    def _counts(self, path: str, here: dict[Path, set[str]]) -> bool:
        """Whether a path is a record worth comparing: comparable, not wanted itself, and not in the store.

        Args:
            path: Its path.
            here: Gets the names in each folder of the store that was looked into.
        """
        above, *names = path.removeprefix(layout.RECORDS).split("/")
        if above or len(names) != 3 or not names[2].endswith(".json"):  # noqa: PLR2004 - directory, model type, key
            return False
        place = Place(names[0], names[1], key_in(path))
        if not self._wanted.comparable(place.model_type) or place.key == self._wanted.place.key:
            return False
        mine = self._store.layout.record(place)
        if mine.parent not in here:
            here[mine.parent] = set()
            with suppress(OSError):  # no such folder, or a stranger's name that no folder can have
                here[mine.parent].update(path.name for path in mine.parent.iterdir())
        return mine.name not in here[mine.parent]

    def _order(self, entry: Entry) -> tuple[bool, bool, str]:
        directory, model_type, _ = entry.path.rsplit("/", 2)
        wanted = self._wanted
        return model_type != wanted.place.model_type, not directory.endswith(f"/{wanted.place.directory}"), entry.path

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
        candidates = {one.key: one for one in known if one.compiler == self._wanted.compiler}
        self.compared += len(candidates)
        near, spoilt = self._nearest(candidates)
        if near is not None and near.nearer(self.nearest):
            self.nearest = near
        if self._wanted.reuse_bytes:
            fits = self._wanted.can_reuse
            reuse, wrong = self._nearest(
                {key: one for key, one in candidates.items() if fits(one, difference(one.hard, self._wanted.hard))}
            )
            spoilt |= wrong
            if reuse is not None and reuse.nearer(self.reuse):
                self.reuse = reuse
        return spoilt

    def _nearest(self, candidates: dict[str, Known]) -> tuple[Nearest | None, set[str]]:
        """The nearest of some, and the keys of those whose ingredients do not give them, which are taken out."""
        spoilt: set[str] = set()
        while near := nearest(self._wanted.hard, {key: one.hard for key, one in candidates.items()}):
            one = candidates[near[0]]
            if key_of(one.hard) != one.key:
                spoilt.add(candidates.pop(one.key).key)
            elif (judged := self._trusted(one)) is None:
                candidates.pop(one.key)
            else:
                return Nearest(judged, tuple(near[1]), remote=self._remote), spoilt
        return None, spoilt

    def _trusted(self, one: Known) -> Known | None:
        """A record, read anew where some may not be used; None for such a one."""
        if not self._remote.picks:
            return one
        if one.key not in self._judged:
            if len(self._judged) >= JUDGED:
                self.problem = "its nearest records are signed by nobody you trust"
                return None
            self._judged[one.key] = None
            try:
                found = self._remote.find(one.place, anew=True)
                self._judged[one.key] = Known.of(found.shared.record) if found else None
            except UntrustedError as error:
                self.untrusted = self.untrusted or f"{error.message}: {error.cause}"
            except DamagedRecordError:
                pass
        return self._judged[one.key]


def by_key(beginning: str, store: Store, remotes: Remotes) -> tuple[Known | None, str]:
    """The one record on the remotes whose key begins so, and where; nothing where there is none.

    Raises:
        UnknownNameError: Several begin so.
        UntrustedError: There is one, and it may not be used.
    """
    refused = ""
    found: dict[str, tuple[Known, str]] = {}
    for remote in remotes.readable:
        catalogue = Catalogue(remote, store.layout.remotes)
        try:
            revision = remote.revision()
            paths = [entry.path for entry in catalogue.listing(layout.RECORDS)]
            for path in [path for path in paths if key_in(path).startswith(beginning.lower())][:FEW]:
                known = catalogue.remembered(path)
                if known is None:
                    with remote.call() as storage:
                        known = catalogue.read(storage, path, revision)
                if known is not None and (not remote.picks or remotes.find_on(remote, known.place)):
                    found.setdefault(known.key, (known, remote.name))
                elif known is not None:
                    refused = known.key
        except (RemoteError, AuthError) as error:
            remotes.failed(remote, error)
    if refused and not found:
        remotes.raise_failure(refused)
    if len(found) > 1:
        raise UnknownNameError(
            f"{len(found)} records begin with {beginning!r}",
            cause=", ".join(sorted(key[:16] for key in found)[:5]),
            hint="give more digits",
        )
    return next(iter(found.values()), (None, ""))
