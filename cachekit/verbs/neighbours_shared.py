"""The nearest record on one shared cache, for few questions."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from cachekit.errors import AuthError, IntegrityError, RemoteError, TooLargeError
from cachekit.key.canonical import key_of, nearest
from cachekit.remotes import document, layout
from cachekit.remotes.budget import each
from cachekit.remotes.port import Entry, Tier
from cachekit.remotes.remote import Remote
from cachekit.store import Store
from cachekit.store.record import DamagedRecordError
from cachekit.verbs.neighbours_known import Fits, Known, Memory, Neighbour, Wanted, comparable

# Less cannot be between records of two model types, or of two compilers (see key.WEIGHTS): what is that near in the
# folder of the wanted one's kind is the nearest of all.
NEAR = 30
LANES = 16  # records that are read at once
FEW = 5  # records that are told apart by more digits of their keys


@dataclass(frozen=True, slots=True)
class Budget:
    """What a search on one shared cache may cost.

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


@dataclass(frozen=True, slots=True)
class Looked:
    """How far one shared cache was searched.

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


def on(
    remote: Remote, wanted: Wanted, store: Store, budget: Budget, fits: Fits | None
) -> tuple[Neighbour | None, Looked, RemoteError | AuthError | None]:
    """The nearest record on one of them that the store has not, how far it was searched, and what ended the search."""
    seen = _Seen(remote, wanted, store, budget, fits)
    failure: RemoteError | AuthError | None = None
    try:
        seen.folder(f"{layout.RECORDS}/{wanted.directory}/{wanted.model_type}")
        if seen.best is None or seen.best.distance > NEAR:
            seen.folder(layout.RECORDS)
    except (RemoteError, AuthError) as error:
        failure = error  # what was read before is as good as ever
        seen.problem = error.cause or error.message
    return seen.best, Looked(remote.name, len(seen.listed), seen.compared, seen.problem), failure


class _Seen:
    """The records of one shared cache, as far as they were looked at."""

    def __init__(self, remote: Remote, wanted: Wanted, store: Store, budget: Budget, fits: Fits | None) -> None:
        self._remote, self._wanted, self._store, self._fits = remote, wanted, store, fits
        self._budget, self._memory = budget, Memory(store.layout.remotes, remote.name)
        self._left = budget.read, budget.size
        self._deadline = time.monotonic() + budget.seconds
        self.best: Neighbour | None = None
        self.listed: set[str] = set()
        self.compared = 0
        self._here: dict[tuple[str, str], frozenset[str]] = {}
        self.problem = ""

    def folder(self, folder: str) -> None:
        """Compare the records below a folder, those of the wanted one's kind first."""
        listing = _listing(self._remote, self._memory, folder, self._budget.listed)
        entries = [entry for entry in listing if entry.path not in self.listed and self._is_record(entry)]
        if not entries:
            return
        entries.sort(key=self._order)
        self.listed.update(entry.path for entry in entries)
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
            self.problem = "it has more records than are read for one search"
        elif time.monotonic() > self._deadline:
            self.problem = f"it took more than {self._budget.seconds:g} s"

    def _is_record(self, entry: Entry) -> bool:
        """Whether it is a record that comes into question, and none that the store has as well."""
        above, *names = entry.path.removeprefix(layout.RECORDS).split("/")
        if above or len(names) != 3 or not names[2].endswith(".json"):  # noqa: PLR2004 - directory, model type, key
            return False
        directory, model_type, name = names
        if not comparable(model_type, self._wanted) or _key(entry.path) == self._wanted.key:
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
            each([partial(one, entry, tier) for entry in entries], LANES)

    def _compare(self, known: Iterable[Known]) -> set[str]:
        """Look for a nearer one; returns the keys of those that were remembered wrongly."""
        fitting = {one.key: one for one in known if self._fits is None or self._fits(one.hard)}
        spoilt: set[str] = set()
        while near := nearest(self._wanted.hard, {key: one.hard for key, one in fitting.items()}):
            one = fitting[near[0]]
            if key_of(one.hard) != one.key:
                spoilt.add(fitting.pop(one.key).key)
                continue
            neighbour = Neighbour(one, tuple(near[1]), remote=self._remote)
            if self.best is None or neighbour.rank < self.best.rank:
                self.best = neighbour
            break
        self.compared += len(fitting)
        return spoilt


def with_key(remote: Remote, store: Store, beginning: str, budget: Budget = DEFAULT) -> list[Known]:
    """The first few records on a shared cache whose keys begin so.

    Raises:
        RemoteError, AuthError: It cannot be asked.
    """
    memory = Memory(store.layout.remotes, remote.name)
    found: list[Known] = []
    for entry in _listing(remote, memory, layout.RECORDS, budget.listed):
        if _key(entry.path).startswith(beginning.lower()) and len(found) < FEW:
            known = memory.known(_key(entry.path))
            if known is None:
                revision = remote.revision()
                with remote.call() as tier:
                    known = _known(tier, entry.path, revision, budget)
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
