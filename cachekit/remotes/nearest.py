"""The record nearest to what is wanted, and the nearest that a compile can begin with: here and on the remotes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cachekit.errors import AuthError, RemoteError, UntrustedError
from cachekit.key.canonical import Change, difference, key_of
from cachekit.key.nearest import INTERRUPTED, LEAST, distance, reusable
from cachekit.remotes.index import Known
from cachekit.store import Store
from cachekit.store.index import Around
from cachekit.store.layout import LOCAL, Place
from cachekit.store.record import COMMAND, IMPORTED, DamagedRecordError, Record
from cachekit.values import by_value

if TYPE_CHECKING:
    from cachekit.remotes.remote import Found, Remote
    from cachekit.remotes.remotes import Remotes
    from cachekit.remotes.survey import Budget

ASKED = 128  # records of the store, the nearest ones, of which the first that can be reused is taken


class Wanted(Struct, frozen=True):
    """What is sought for; its own record is never the nearest.

    Attributes:
        place: Where its record lies, or would.
        foreign: See `Compiler.foreign`.
        reuse_bytes: The largest record that a compile may begin with, and the most to fetch; 0 seeks for none.
        whole: Its own record is there: then what a stopped run of it has left is no other record, either.
    """

    place: Place
    hard: Mapping[str, Any]
    foreign: tuple[str, ...] = ()
    reuse_bytes: int = 0
    whole: bool = False

    @property
    def compiler(self) -> str:
        """Which compiler it is for: two compilers share nothing, so a record of another one is not the nearest."""
        return str(self.hard.get("compiler.name", ""))

    def own(self) -> frozenset[str]:
        """The keys of its own records, of which none is the nearest."""
        part = {key_of({**self.hard, INTERRUPTED: True})} if self.whole else set[str]()
        return frozenset({self.place.key, *part})

    def comparable(self, model_type: str) -> bool:
        """Recipes and commands have no ingredients in common; what was imported has none at all."""
        return model_type != IMPORTED and (model_type == COMMAND) == (self.place.model_type == COMMAND)

    def can_reuse(self, known: Known, changes: Sequence[Change]) -> bool:
        """Whether a compile can begin with a record."""
        return (
            known.size <= self.reuse_bytes
            and known.directory == self.place.directory
            and known.model_type != COMMAND
            and reusable(changes, self.foreign)
        )


class Nearest(Struct, frozen=True):
    """A record near to what is wanted.

    Attributes:
        known: What it is.
        changes: From it to what is wanted.
        record: The record whole, where it is in the store.
        remote: The remote that has it, where the store has not.
        found: The record as it was read there, where that was needed to say that it may be used.
        fetch: Bytes to fetch, at most.
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

    def nearer(self, other: Nearest | None) -> bool:
        """Whether it is nearer than another one; equally near is not nearer."""
        return other is None or (self.distance, len(self.changes)) < (other.distance, len(other.changes))


class Looked(Struct, frozen=True):
    """How far one remote was searched.

    Attributes:
        remote: Its name.
        records: Records of this kind that it lists, as far as the listing went.
        compared: Those whose ingredients were compared.
        problem: Why it was not searched to the end; empty where it was.
        untrusted: Of the nearest record there that may not be used, the reason; empty where there is none.
    """

    remote: str
    records: int
    compared: int
    problem: str = ""
    untrusted: str = ""


class Search(Struct, frozen=True):
    """What a search found.

    Attributes:
        nearest: The nearest record of all.
        reuse: The nearest one that a compile can begin with: whole in the store, or to be fetched.
        looked: How far each remote was searched; one that was not asked is not among them.
        seconds: What the search took.
    """

    nearest: Nearest | None = None
    reuse: Nearest | None = None
    looked: tuple[Looked, ...] = ()
    seconds: float = 0.0


def search(
    wanted: Wanted,
    store: Store,
    remotes: Remotes | None = None,
    *,
    budget: Budget | None = None,
    around: Around | None = None,
) -> Search:
    """Find the nearest records; of equally near ones those in the store.

    A remote that cannot be asked is told to `remotes`, and passed over.

    Args:
        wanted: What for.
        store: The local store.
        remotes: The remotes; those that can be read are asked.
        budget: What each remote may cost; the usual one by default.
        around: The records of the store, where the caller has looked already.
    """
    begun = time.monotonic()
    around = around or store.around(wanted.hard)
    near = next(_here(wanted, store, around), None)
    reuse = _reusable_here(wanted, store, around, near)
    looked: dict[Remote, Looked] = {}
    failed: dict[Remote, RemoteError | AuthError] = {}

    def ask(remote: Remote) -> Collection[RemoteError | AuthError]:
        from cachekit.remotes.nearest_on import RemoteSearch
        from cachekit.remotes.survey import Budget

        nonlocal near, reuse
        there = RemoteSearch(remote, wanted, store, budget or Budget())
        failed.pop(remote, None)
        try:
            there.look()
        except (RemoteError, AuthError) as error:
            there.problem = there.problem or error.cause or error.message
            failed[remote] = error
        looked[remote] = Looked(remote.name, there.records, there.compared, there.problem, there.untrusted)
        if there.nearest is not None and there.nearest.nearer(near):
            near = there.nearest
        if there.reuse is not None and there.reuse.nearer(reuse):
            reuse = there.reuse
        return [failed[remote]] if remote in failed else []

    if remotes is not None:
        remotes.ask_each(ask, lambda _: not settled(wanted, near, reuse, LEAST))
        for remote, error in failed.items():
            remotes.failed(remote, error)
    return Search(near, reuse, tuple(looked.values()), time.monotonic() - begun)


def settled(wanted: Wanted, near: Nearest | None, reuse: Nearest | None, limit: int) -> bool:
    """Whether nothing that is sought can lie nearer than this elsewhere."""
    if near is None or near.distance > limit:
        return False
    return not wanted.reuse_bytes or (reuse is not None and reuse.distance <= limit)


def _here(wanted: Wanted, store: Store, around: Around) -> Iterator[Nearest]:
    """The records of the store that can be read, the nearest first."""
    own = wanted.own()
    for one in around.nearest(compiler=wanted.compiler):
        if wanted.comparable(one.row.model_type) and one.row.key not in own:
            record = store.read(one.row.place)
            if record is not None:
                yield Nearest(Known.of(record), tuple(difference(record.hard, wanted.hard)), record)


def _reusable_here(wanted: Wanted, store: Store, around: Around, near: Nearest | None) -> Nearest | None:
    """The nearest record that can be reused, whole as far as looking at its files tells."""
    if near is None or not wanted.reuse_bytes or wanted.place.model_type == COMMAND:
        return None
    if _is_reusable(near, wanted, store):
        return near
    for one in islice(around.nearest(directory=wanted.place.directory), ASKED):
        changes = tuple(difference(one.hard, wanted.hard))
        if (
            one.row.key == wanted.place.key
            or one.row.bytes > wanted.reuse_bytes
            or not reusable(changes, wanted.foreign)
        ):
            continue
        record = store.read(one.row.place)
        found = None if record is None else Nearest(Known.of(record), changes, record)
        if found is not None and _is_reusable(found, wanted, store):
            return found
    return None


def _is_reusable(near: Nearest, wanted: Wanted, store: Store) -> bool:
    record = near.record
    return wanted.can_reuse(near.known, near.changes) and record is not None and not _lacking(store, record)


def _lacking(store: Store, record: Record) -> int:
    """Bytes of a record that the store lacks, by the sizes of its files, without reading them."""
    files = {file.sha256: file for file in record.files}
    return sum(file.size for file in files.values() if store.blobs.check(file, "there"))


def to_fetch(near: Nearest, store: Store, most: int) -> Found | None:
    """A record that a compile can begin with, read on its remote; None where it is gone, damaged, or may not be used.

    Args:
        near: What is known of it, by the remote's index: nothing of that is believed.
        store: The local store.
        most: Bytes to fetch, at most.

    Raises:
        RemoteError, AuthError: It cannot be read.
    """
    assert near.remote is not None  # it was found there
    try:
        found = near.found or near.remote.find(near.known.place, anew=True)
    except (DamagedRecordError, UntrustedError):
        return None
    return found if found is not None and _lacking(store, found.shared.record) <= most else None
