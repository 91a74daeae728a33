"""What is known of the records on a remote, all but their modules; remembered in the store, so that little is asked.

What a record is made from never changes (its key is the digest of it), so that is remembered for ever; a listing for a
moment, or as long as the remote has the same revision.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cachekit.errors import AuthError, IntegrityError, RemoteError, TooLargeError, UnknownNameError
from cachekit.remotes import document, layout
from cachekit.remotes.notes import Notes, short
from cachekit.remotes.port import Entry, Storage
from cachekit.store import Store
from cachekit.store.record import DamagedRecordError, Record

if TYPE_CHECKING:
    from cachekit.remotes.remote import Remote
    from cachekit.remotes.remotes import Remotes

REMEMBERED_SECONDS = 60.0  # of a listing
MOST_REMEMBERED = 4096  # records' ingredients
LISTED = 4000  # entries of one listing; a page of a Hub, or of S3, has 1,000
LARGEST = 8 << 20  # bytes of a record that is read
FEW = 5  # records that are told apart by more digits of their keys


class Known(Struct, frozen=True):
    """What is known of a record, all but its modules.

    Attributes:
        size: Bytes of its files.
        by: Who made it.
    """

    key: str
    directory: str
    model_type: str
    recipe: str
    compiler: str
    hard: dict[str, Any]
    graphs: int
    size: int
    compile_seconds: float
    cold_seconds: float
    created: str
    by: str

    @classmethod
    def of(cls, record: Record) -> Known:
        """What of a record is remembered."""
        made = record.provenance
        return cls(
            record.key,
            record.directory,
            record.model_type,
            record.recipe,
            record.compiler,
            record.hard,
            record.graphs,
            record.size,
            record.compile_seconds,
            record.cold_seconds,
            made.created,
            f"{made.user}@{made.host}",
        )


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
        if known is not None and age is not None:
            fresh = age < REMEMBERED_SECONDS
            if fresh or (known.revision and known.revision == self._remote.revision()):
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
        """A record's ingredients; that they give its key is to be seen by who uses them, which takes longer."""
        key = key_in(path)
        known = self._records.read(f"{key}.json", Known)
        return known if known and known.key == key else None

    def read(self, storage: Storage, path: str, revision: str, largest: int = LARGEST) -> Known | None:
        """A record's ingredients, as they lie there; None for a damaged one: who wants to fetch it is told.

        Raises:
            RemoteError, AuthError: It cannot be asked.
        """
        with suppress(DamagedRecordError, TooLargeError, IntegrityError):
            found = storage.read(path, revision, largest)
            shared = document.read(found.data) if found else None
            if shared is not None and layout.path_of(shared.record) == path:
                known = Known.of(shared.record)
                self._records.write(f"{known.key}.json", known)
                return known
        return None


def key_in(path: str) -> str:
    """The key of the record at a path."""
    return path.rpartition("/")[2].removesuffix(".json")


def by_key(beginning: str, store: Store, remotes: Remotes) -> tuple[Known | None, str]:
    """The one record on the remotes whose key begins so, and where; nothing where there is none.

    Raises:
        UnknownNameError: Several begin so.
    """
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
                if known is not None:
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
