"""Additions as a bucket lists them: what their names say, and which of them nothing can need any more.

See `additions`, whose names these are: `<push>-<digest>[-<mark>…][-taken-<mark>…].json`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from cachekit.remotes import document, index, layout
from cachekit.remotes.index import RemoteIndex
from cachekit.remotes.port import Storage
from cachekit.store.layout import Place
from cachekit.store.record import Record, is_closed
from cachekit.text import DAY

KEPT = 900.0  # seconds by the remote's clock: a change takes at most 75 s there, or as long as its bytes take
TOGETHER = 5.0  # seconds by the remote's clock that a change may take from its first file to its last
MOST = 2000  # that are looked at, of all records and of each: two requests
MODULES = 16  # of one: its name has 209 characters then
WHOLE = "whole"  # in the place of the marks: it has more modules than marks, and all that the record has
_TAKEN = "taken"
_ANCIENT = 30 * DAY  # after which none is of use: somebody would have missed what it has
_OLD = 32  # that may be needed no more, and are worth two requests which remove them
_DOUBTED = 4  # records that are read a day later, to see whether they have what was added
_MARK = 10  # hexadecimal digits, by which one module is known among 10,000


class ListedAddition(Struct, frozen=True):
    """What a listing says of an addition.

    Attributes:
        path: Where it lies.
        at: When it was written, by the remote's clock, in seconds since 1970.
        place: That of the record that it adds to.
        push: Which push wrote it.
        digest: The first digits of the digest of the record that came with it.
        own: Marks of the modules that its push offered.
        taken: Marks of those that its push had from others.
    """

    path: str
    at: float
    place: Place
    push: str
    digest: str
    own: frozenset[str]
    taken: frozenset[str]

    @property
    def marks(self) -> frozenset[str]:
        """Marks of all modules that it has."""
        return self.own | self.taken


def listed(storage: Storage, folder: str) -> list[ListedAddition]:
    """The additions in a folder, as many as are looked at.

    Raises:
        RemoteError, AuthError: The remote cannot be asked.
    """
    found = []
    for entry in islice(storage.list(folder, ""), MOST):
        if (place := layout.place_of_addition(entry.path)) is not None:
            push, digest, *words = f"{entry.path.rpartition('/')[2].removesuffix('.json')}-".split("-")
            split = words.index(_TAKEN) if _TAKEN in words else len(words)
            own, taken = (frozenset(filter(None, some)) for some in (words[:split], words[split + 1 :]))
            found.append(ListedAddition(entry.path, entry.at, place, push, digest, own, taken))
    return found


def name_of(push: str, digest: str, own: Collection[str], taken: Collection[str] = ()) -> str:
    """The name of an addition; see `ListedAddition`."""
    words = [push, digest, *sorted(own), *([_TAKEN, *sorted(taken)] if taken else [])]
    return f"{'-'.join(words)}.json"


def mark(module: str) -> str:
    """What stands for a module in the name of an addition."""
    return hashlib.sha256(module.encode()).hexdigest()[:_MARK]


def marks(record: Record) -> frozenset[str]:
    """The marks of a record's modules, and of what is marked of a command's runs: it must not be lost either."""
    return frozenset(mark(name) for name in (*(module.name for module in record.modules), *document.said_of(record)))


def unneeded(
    storage: Storage,
    by_place: Mapping[Place, Sequence[ListedAddition]],
    merged: Collection[str],
    *,
    vain: Collection[str],
    rows: RemoteIndex | None,
    now: float,
) -> set[str]:
    """The paths of what no race can lose any more, where that is worth the requests that remove it.

    Args:
        storage: The remote.
        by_place: All additions to records of which none lacks anything, as far as is known.
        merged: Paths of those of which a record has all.
        vain: Paths of those that were read, and cannot be used by this user.
        rows: What the index says; None where that is not known.
        now: The time by the remote's clock.

    Raises:
        RemoteError, AuthError: The remote cannot be asked.
    """
    old = {one.path: one for some in by_place.values() for one in some if 0 < one.at < now - KEPT}
    late = {path for path, one in old.items() if one.at < now - (DAY if path in vain else _ANCIENT)}
    if len(old) < _OLD and not late:  # those that were read in vain cost the next push as much again
        return set()
    places = {one.place for one in old.values()}
    there = storage.stat(sorted(layout.record_path(place) for place in places), "")
    sure, doubted = {*merged, *late}, list[Place]()
    for place in places:
        some, record = by_place[place], there.get(layout.record_path(place))
        digest = rows.digest_at(index.short_path(place)) if rows else ""
        # One push alone wrote the record of late, and the record came with its additions: so it has them.
        alone = {(one.push, one.digest) for one in some} == {(some[0].push, digest)}
        if record is None or (alone and all(0 <= record.at - one.at < TOGETHER for one in some)):
            sure.update(one.path for one in some)  # or somebody removed it
        elif any(one.at < now - DAY and one.path not in sure for one in some):
            doubted.append(place)
    for place in doubted[:_DOUBTED]:
        if shared := document.listed(storage, layout.record_path(place), ""):
            had, digest, closed = marks(shared.record), index.digits_of(shared.record), is_closed(shared.record)
            for one in by_place[place]:
                # Of two archives one stays.
                if had >= one.marks or one.digest == digest or (closed and not had < one.marks):
                    sure.add(one.path)
    removed = old.keys() & sure
    for place in places:  # the last one says what the index must say, as long as another is left
        paths = [one.path for one in sorted(by_place[place], key=lambda one: one.at)]
        removed -= set() if removed.issuperset(paths) else {paths[-1]}
    return removed
