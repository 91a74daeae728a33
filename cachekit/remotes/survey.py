"""What lies on a remote and is in no index: the records of which nothing is known are read, within a budget."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile

from msgspec import Struct, structs

from cachekit.remotes import document, layout
from cachekit.remotes.budget import each
from cachekit.remotes.index import Known, RemoteIndex, short_path
from cachekit.remotes.port import Entry, Storage

LANES = 16  # records that are read at once


class Budget(Struct, frozen=True):
    """What it may cost to read the records of which nothing is known.

    Attributes:
        listed: Entries of one listing.
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


class Survey:
    """Finds out what there is to know of the records that a remote lists.

    Args:
        storage: The remote.
        revision: Its state.
        budget: What reading records may cost.
        known: What was known before.

    Attributes:
        known: What is known now, also where an error came in the middle.
        budget: What is left of it.
    """

    def __init__(self, storage: Storage, revision: str, budget: Budget, known: RemoteIndex) -> None:
        self._storage, self._revision = storage, revision
        self.budget, self.known = budget, known
        self._turn = threading.Lock()

    def read(self, listing: Iterable[Entry], *, whole: bool = True) -> RemoteIndex:
        """Forget the records that are not listed, and read those of which nothing is known.

        Args:
            listing: The files there; those first that are to be read first.
            whole: Those are all. Else no record is forgotten.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        budget = self.budget
        listed = {short_path(place): entry for entry in listing if (place := layout.record_place(entry.path))}
        known = self.known.only(listed.keys()) if whole else self.known
        unknown = [entry for path, entry in listed.items() if path not in known.paths and entry.size <= budget.largest]
        chosen = list(takewhile(_room(budget), unknown))
        left = budget.read - len(chosen), budget.size - sum(entry.size for entry in chosen)
        self.budget = structs.replace(budget, read=left[0], size=left[1])
        deadline = time.monotonic() + budget.seconds
        found: list[Known] = []
        late: list[Entry] = []

        def one(entry: Entry) -> None:
            if time.monotonic() > deadline:
                late.append(entry)
            elif shared := document.listed(self._storage, entry.path, self._revision, budget.largest, self._turn):
                found.append(Known.of(shared.record))

        try:
            if chosen:
                each([partial(one, entry) for entry in chosen], LANES)
        finally:
            unread = len(unknown) - len(chosen) + len(late)
            self.known = structs.replace(known.with_(found), change="", unread=unread, listed=0.0)
        return self.known


def _room(budget: Budget) -> Callable[[Entry], bool]:
    """Whether another record may be read."""
    number, size = budget.read, budget.size

    def fits(entry: Entry) -> bool:
        nonlocal number, size
        number, size = number - 1, size - entry.size
        return number >= 0 and size >= 0

    return fits
