"""The records on one remote, for few questions: which of them is the nearest, and which has a key.

What is known of them stands in the remote's index. Where that may lack some, they are listed: those of the same
compiler and model type, and all only where nothing near is among these; and those of which nothing is known are read,
in bounded number, bytes and time. What was found out is remembered in the store: for a moment, or as long as the remote
has the same revision; and what a record says need not be read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from cachekit.errors import AuthError, RemoteError, UnknownNameError, UntrustedError
from cachekit.key.canonical import Change, difference
from cachekit.key.nearest import LEAST
from cachekit.remotes import index, layout
from cachekit.remotes.budget import each
from cachekit.remotes.history import after
from cachekit.remotes.index import DIGITS, Known, RemoteIndex
from cachekit.remotes.judging import named
from cachekit.remotes.nearest import Nearest, Wanted, settled
from cachekit.remotes.notes import Notes, short
from cachekit.remotes.port import Entry
from cachekit.remotes.survey import Budget, Survey
from cachekit.store import Store
from cachekit.store.layout import Place
from cachekit.store.record import DamagedRecordError
from cachekit.text import first_of

if TYPE_CHECKING:
    from cachekit.remotes.remote import Found, Remote
    from cachekit.remotes.remotes import Remotes

# Less cannot be between records of two model types, or of two compilers (see `key.nearest`): what is that near in the
# folder of the wanted one's kind is the nearest of all.
NEAR = 30
REMEMBERED_SECONDS = 60.0
LANES = 8  # remotes that are asked at once
FEW = 5  # records that are told apart by more digits of their keys
JUDGED = 8  # records of one search that are read to be judged: the nearest first
_NOTE = "index.json"


class _Remembered(Struct, frozen=True):
    """What was known of the records below a folder, in which state of the remote; the index as it is written.

    Attributes:
        change: The mark of the remote's own index, where the records were listed in spite of it.
        listed: When, in seconds since the epoch; 0 where they were not.
    """

    revision: str
    folder: str
    index: str
    change: str = ""
    listed: float = 0.0


class Catalogue:
    """What is known of the records on one remote.

    Args:
        remote: The remote.
        memory: The store's folder for what is remembered of remotes.
        budget: What reading records may cost.

    Attributes:
        known: What is known so far, also where an error kept the rest from being read.
        folder: Below which.
        problem: Why the remote's own index is not used.
        by_index: What is known is the word of the remote's index alone; asked once more, the records are listed.
    """

    def __init__(self, remote: Remote, memory: Path, budget: Budget | None = None) -> None:
        self._remote, self._budget = remote, budget or Budget()
        self._notes = Notes(memory / short(remote.name))
        self._stale: RemoteIndex | None = None  # what the remote's own index says, where it may lack records
        self._doubted = False
        self.known = RemoteIndex()
        self.folder = self.problem = ""
        self.by_index = False

    def doubt(self) -> None:
        """Believe the remote's index, and what is remembered of it, no more: it says what cannot be."""
        self._stale, self._doubted = RemoteIndex(), True

    def look(
        self,
        folder: str = layout.RECORDS,
        first: Callable[[Entry], Any] = lambda _: 0,
        *,
        enough: Callable[[RemoteIndex], bool] = lambda _: False,
        anew: bool = False,
    ) -> RemoteIndex:
        """What is known of the records below a folder, and of others perhaps.

        Args:
            folder: Which, where they must be listed.
            first: The order in which those are read of which nothing is known.
            enough: Whether an index answers what is asked, whatever records it lacks.
            anew: Ask the remote, whatever is remembered.

        Raises:
            RemoteError, AuthError: It cannot be asked.
        """
        note, before = (None, RemoteIndex()) if self._doubted else self._remembered()
        again, self.by_index = self.by_index, False
        if note and not before.unread and f"{folder}/".startswith(f"{note.folder}/") and not (anew or again):
            age = self._notes.age(_NOTE)
            if (age is not None and age < REMEMBERED_SECONDS) or (
                note.revision and note.revision == self._remote.revision()
            ):
                self.known, self.folder, self.by_index = before, note.folder, self._speaks_for_all(before)
                return before
        revision = self._remote.revision()
        there: RemoteIndex | None = None
        if self._stale is None and not again:
            with self._remote.call() as storage:
                there, _ = index.read(storage, revision)
            self.problem = there.problem if there is not None else ""
            self._stale, self.by_index = there or RemoteIndex(), self._speaks_for_all(there)
            if there is not None and note and not anew and self._was_listed(note, before, there, folder):
                self.known, self.folder, self.by_index = before, note.folder, True
                return before
            if there and (self.by_index or enough(there)):
                self.known, self.folder = there, layout.RECORDS
                if self.by_index:
                    self._note(revision)
                return there
        with self._remote.call() as storage:
            present = after(there, storage.latest(revision)) if there is not None and there.change else None
            if present is not None:
                self.known, self.folder = present, layout.RECORDS
            else:
                said = self._stale or RemoteIndex()  # what it says now counts, and not what it said before
                more = before.only(before.paths.keys() - said.paths.keys())
                before = said.with_(more.rows()) if said else before
                most = self._budget.listed
                listing = sorted(islice(storage.list(folder, revision), most), key=first)
                survey, self.folder = Survey(storage, revision, self._budget, before), folder
                try:
                    survey.read(listing, whole=len(listing) < most)
                finally:
                    self.known, self._budget = survey.known, survey.budget
        self._note(revision, listed=0.0 if present is not None or self.known.unread else time.time())
        return self.known

    def _note(self, revision: str, listed: float = 0.0) -> None:
        change = self._stale.change if self._stale is not None else ""
        document = index.encode(self.known).decode()
        self._notes.write(_NOTE, _Remembered(revision, self.folder, document, change, listed))

    def _was_listed(self, note: _Remembered, before: RemoteIndex, there: RemoteIndex, folder: str) -> bool:
        """Whether this store listed the records within a day, and nobody has pushed since: so its index says."""
        fits = f"{folder}/".startswith(f"{note.folder}/") and note.change == there.change != ""
        listed = structs.replace(before, listed=note.listed)
        return fits and len(before) > 0 and listed.speaks_for_all(self._remote.storage)

    def _speaks_for_all(self, known: RemoteIndex | None) -> bool:
        return known is not None and len(known) > 0 and known.speaks_for_all(self._remote.storage)

    def _remembered(self) -> tuple[_Remembered | None, RemoteIndex]:
        note = self._notes.read(_NOTE, _Remembered)
        with suppress(index.DamagedIndexError):
            if note and (before := index.decode(note.index.encode())) is not None:
                return note, before
        return None, RemoteIndex()


class RemoteSearch:
    """A search among the records of one remote that the store has not.

    Attributes:
        nearest, reuse: As in `Search`, of those that were compared.
        records: How many records come into question.
        compared: How many of them were compared.
        problem: Why others were not.
        untrusted: Why the nearest of those that may not be used may not.
    """

    def __init__(self, remote: Remote, wanted: Wanted, store: Store, budget: Budget) -> None:
        self._remote, self._wanted, self._store, self._budget = remote, wanted, store, budget
        self._catalogue = Catalogue(remote, store.layout.remotes, budget)
        self._own = {key[:DIGITS] for key in wanted.own()}
        self._picks = True  # each is read: see `Remote.picks`
        self._judged: dict[str, Found | None] = {}  # those that may be used, by their keys
        self._here: dict[Path, set[str]] = {}  # the first digits of the keys in folders of the store
        self.nearest: Nearest | None = None
        self.reuse: Nearest | None = None
        self.records = 0
        self.compared = 0
        self.problem = ""
        self.untrusted = ""

    def look(self) -> None:
        """Search; what was known before an error counts.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        wanted, self._picks = self._wanted, self._remote.picks
        self._look_in(f"{layout.RECORDS}/{wanted.place.directory}/{wanted.place.model_type}")
        if self._catalogue.folder != layout.RECORDS and not settled(wanted, self.nearest, self.reuse, NEAR):
            self._look_in(layout.RECORDS)

    def _look_in(self, folder: str) -> None:
        begun = time.monotonic()
        try:
            known = self._catalogue.look(folder, self._order, enough=self._is_settled)
        finally:
            true = self._compare(self._catalogue.known)
        if not true:
            self._catalogue.doubt()
            self._look_in(folder)
        elif known.unread:
            late = time.monotonic() - begun > self._budget.seconds
            late_problem = f"it took more than {self._budget.seconds:g} s"
            more = self._catalogue.problem or "it has more records than are read for one search"
            self.problem = late_problem if late else more

    def _is_settled(self, known: RemoteIndex) -> bool:
        """Whether no record that an index lacks can be nearer than those that it has."""
        return self._compare(known) and settled(self._wanted, self.nearest, self.reuse, LEAST)

    def _order(self, entry: Entry) -> tuple[bool, bool, str]:
        """The order in which records are read: those of the wanted one's kind first."""
        directory, _, model_type = entry.path.rpartition("/")[0].rpartition("/")
        wanted = self._wanted
        return model_type != wanted.place.model_type, not directory.endswith(f"/{wanted.place.directory}"), entry.path

    def _compare(self, known: RemoteIndex) -> bool:
        """Look for the nearest ones; whether what was looked at can be true."""
        wanted = self._wanted
        counted = {path for path in known.paths if self._counts(path)}
        self.compared, self.records = len(counted), len(counted) + known.unread
        self.nearest = self.reuse = None
        for row in known.nearest(wanted.hard):
            if self.nearest and (self.reuse or not wanted.reuse_bytes):
                break
            path = known.in_order[row]
            may_help = wanted.reuse_bytes > 0 and path.startswith(f"{wanted.place.directory}/")
            if path not in counted or not (may_help or self.nearest is None):
                continue
            one = known.known(row)
            if one is None:
                return False
            if one.compiler != wanted.compiler:
                continue
            changes = tuple(difference(one.hard, wanted.hard))
            reusable = may_help and wanted.can_reuse(one, changes)
            if (self.nearest is None or reusable) and (near := self._trusted(one, changes)):
                self.nearest = self.nearest or near
                self.reuse = near if reusable else self.reuse
        return True

    def _counts(self, path: str) -> bool:
        """Whether a record is worth comparing: comparable, not wanted itself, and not in the store."""
        directory, model_type, digits = path.split("/")
        wanted = self._wanted
        if not wanted.comparable(model_type) or digits in self._own:
            return False
        folder = self._store.layout.record(wanted.place._replace(directory=directory, model_type=model_type)).parent
        if folder not in self._here:
            self._here[folder] = set()
            with suppress(OSError):  # no such folder, or a stranger's name that no folder can have
                self._here[folder].update(file.name[:DIGITS] for file in folder.iterdir())
        return digits not in self._here[folder]

    def _trusted(self, one: Known, changes: tuple[Change, ...]) -> Nearest | None:
        """A record, read where some may not be used; None for one of these, as far as that is known."""
        if reason := self._remote.withdrawn(one):
            self.untrusted = self.untrusted or f"{named(one)} on {self._remote.name} is not used: it is {reason}"
            return None
        if not self._picks:
            return Nearest(one, changes, remote=self._remote, fetch=one.size)
        if one.key not in self._judged:
            if len(self._judged) >= JUDGED:
                self.problem = f"its {JUDGED} nearest records may not be used"
                return None
            self._judged[one.key] = None
            try:
                self._judged[one.key] = self._remote.find(one.place, anew=True)
            except UntrustedError as error:
                self.untrusted = self.untrusted or f"{error.message}: {error.cause}"
            except DamagedRecordError:
                pass
        found = self._judged[one.key]
        if found is None:
            return None
        known = Known.of(found.shared.record)
        return Nearest(known, changes, remote=self._remote, found=found, fetch=known.size)


def said_of(remote: Remote, places: Sequence[Place]) -> tuple[dict[str, Known], list[Place]]:
    """What a remote's index says of those of these records that are there: nothing is listed, and no record read.

    On a Hub these are four requests for a thousand records, and one more, once a day, where it is not known whose the
    token is: what is told as there is what may be used. On an object store it is one: see `speaks_for_all`.

    Returns:
        By key, what it says; and the records that are there of which it says nothing. It never says anything where
        records need a signature, or the settings revoke something.

    Raises:
        RemoteError, AuthError: The remote cannot be asked.
    """
    first = not remote.storage.scarce  # on a Hub repo, of which records are there is the shorter question
    known = _index_of(remote) if first else RemoteIndex()
    left = {index.short_path(place): place for place in places}
    if known.speaks_for_all(remote.storage):
        left = {path: place for path, place in left.items() if path in known.paths}
    else:
        there = remote.exist([layout.record_path(place) for place in places])
        left = {path: place for path, place in left.items() if layout.record_path(place) in there}
        known = _index_of(remote) if left and not first else known
    said: dict[str, Known] = {}
    for path in left.keys() & known.paths.keys():
        one = known.known(known.paths[path])
        if one is not None and one.modules and one.key == left[path].key:
            said[one.key] = one
    return said, [place for place in left.values() if place.key not in said]


def _index_of(remote: Remote) -> RemoteIndex:
    """What a remote's index says, with the changes after it as far as these tell; nothing where it is not believed."""
    if remote.picks or remote.demands():
        return RemoteIndex()
    revision = remote.revision()
    with remote.call() as storage:
        known = index.read(storage, revision)[0] or RemoteIndex()
        return (after(known, storage.latest(revision)) if known.change else None) or known


def by_key(beginning: str, store: Store, remotes: Remotes) -> tuple[Known | None, str]:
    """The one record on the remotes whose key begins so, and where; nothing where there is none.

    Raises:
        UnknownNameError: Several begin so.
        UntrustedError: There is one, and it may not be used.
    """

    def ask(remote: Remote) -> list[Known] | RemoteError | AuthError:
        catalogue = Catalogue(remote, store.layout.remotes)
        try:
            found = _beginning(digits, catalogue.look(first=order))
            if not found and catalogue.by_index:
                found = _beginning(digits, catalogue.look(first=order))
        except (RemoteError, AuthError) as error:
            return error
        return found

    def order(entry: Entry) -> bool:
        return not _key_in(entry).startswith(digits)

    digits, refused = beginning.lower(), ""
    found: dict[str, tuple[Known, str]] = {}
    answers = each([partial(ask, remote) for remote in remotes.readable], LANES)  # a slow one keeps no other waiting
    for remote, answer in zip(remotes.readable, answers, strict=True):
        try:
            if isinstance(answer, Exception):
                raise answer
            for known in answer:
                if not remote.picks or remotes.find_on(remote, known.place):
                    found.setdefault(known.key, (known, remote.name))
                else:
                    refused = known.key
        except (RemoteError, AuthError) as error:
            remotes.failed(remote, error)
    if refused and not found:
        remotes.raise_failure(refused)
    if len(found) > 1:
        raise UnknownNameError(
            f"{len(found)} records begin with {beginning!r}",
            cause=first_of(sorted(key[:16] for key in found), 5),
            hint="give more digits",
        )
    return next(iter(found.values()), (None, ""))


def _key_in(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]


def _beginning(digits: str, known: RemoteIndex) -> list[Known]:
    """The first records whose keys begin with these digits."""
    rows = (row for path, row in known.paths.items() if path.rpartition("/")[2].startswith(digits[:DIGITS]))
    return list(islice((one for one in map(known.known, rows) if one and one.key.startswith(digits)), FEW))
