"""What pushes write where no swap tells who was faster: a note of each lies beside, until no race can lose it.

    cachekit/v1/index/new/<compiler dir>/<model type>/<key>/<push>-<digest>[-<mark>…][-taken-<mark>…].json
        {"record": {with some of its modules}, "sha256": "…", "inline": …, "places": …, "envelopes": […]}

On a bucket of the Hub the last writer wins: of two pushes that build on the same state of a record, the slower one
writes over what the faster one added. So a push writes its additions first, with a mark of each module in their names;
then the record and the index. Then it lists all additions. Where its record lacks modules of some, it merges those and
begins again. Where its index says something else of a record than the last addition does, which has the first digits of
the record's digest in its name, it reads that record and writes the index again. Whoever writes last sees all
additions, since each lay there before the record that it was made for.

What a push takes over from another is an addition of its own as well. So an addition is needed only as long as somebody
may write who read the record before: `KEPT` seconds. An archive has no name but its digest, and of two records of
archives one stays, unless it has all of the other: so an addition to such a one has all of its modules, as has one to a
record that goes with the signatures that it came with. One to a record that only loses modules has none. Where another
push made a module that this one made as well, both compare the files that lie there once more.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from cachekit.errors import AuthError, IntegrityError, RemoteError
from cachekit.remotes import document, index, layout
from cachekit.remotes.budget import each
from cachekit.remotes.document import Shared
from cachekit.remotes.fetch_files import LANES
from cachekit.remotes.index import RemoteIndex
from cachekit.remotes.listed_additions import (
    KEPT,
    MODULES,
    MOST,
    TOGETHER,
    WHOLE,
    ListedAddition,
    listed,
    mark,
    marks,
    name_of,
    unneeded,
)
from cachekit.remotes.offer import Draft, Offer
from cachekit.remotes.port import ANY, Commit, Storage, Write
from cachekit.remotes.signing import Signing, ToSign
from cachekit.store.layout import Place
from cachekit.store.origin import ReusedOrigin, chain
from cachekit.store.record import DamagedRecordError, Module, Record, is_closed, parse, serialise

if TYPE_CHECKING:
    from cachekit.trust.envelope import Envelope

_READ = 256  # that are read for one draft; and of those that a push reads in vain
_ROWS = 64  # records that are read for one index
_ALL_ROWS = 256  # and for all that a push writes
_ASKED = 1000  # records of which the index says something else, that are asked for: one request
_LISTED = 3600.0  # seconds after which a record without a row is left to the listing of the day
_LARGEST = 16 << 20  # bytes of one
_SIGNED = "envelopes"

Addition = tuple[Shared, tuple[ReusedOrigin, ...]]  # and what a record reuses that takes it over


class Additions:
    """The additions of one push, and those of others that it lacks; none where writes are compared.

    Args:
        storage: The remote.
        signing: Signs, and says what of others may be used.
        offers: What this push offers.

    Attributes:
        unlisted: Records of which the index said something else, when this push looked last: by their places, the first
            digits of their digests.
        looked: How often this push has looked.
    """

    def __init__(self, storage: Storage, signing: Signing, offers: Sequence[Offer]) -> None:
        self._storage, self._signing = storage, signing
        self._offered = {
            (one.shared.record.place, module.name) for one in offers for module in one.shared.record.modules
        }
        self._push = uuid.uuid4().hex[:12]
        self._lacked: dict[str, list[ListedAddition]] = {}  # by key, as the last look found them
        self._taken: dict[str, list[Addition]] = {}  # by key
        self._recalled: dict[str, list[ListedAddition]] = {}  # by key: those with modules that its record loses
        self._done: set[str] = set()  # paths of own ones, and of those that were taken, or cannot be
        self._later: set[str] = set()  # paths of those that a later cachekit wrote
        self._told: set[str] = set()  # paths of those of which the index said something else
        # Names of the modules that this push adds: those that it offers itself, by their marks; those of the last
        # change, of changes that failed, that another push added meanwhile, and that are to be written again.
        self._own: dict[Place, dict[str, str]] = {}
        self._last: set[tuple[Place, str]] = set()
        self._doubted: set[tuple[Place, str]] = set()
        self._met: set[tuple[Place, str]] = set()
        self._again: dict[str, set[str]] = {}  # by key
        self._began = time.monotonic()
        self._vain = 0  # how many were read that cannot be used
        self._rows = 0  # how many records were read for the index
        self.unlisted: Mapping[Place, str] = {}
        self.looked = 0

    @property
    def lacks(self) -> bool:
        """Whether something is to be written again, when this push looked last: but for what the index says."""
        return bool(self._lacked or self._again)

    def concern(self, key: str) -> bool:
        """Whether that is so of the record of a key."""
        return key in self._lacked or key in self._again

    def again(self, key: str) -> Collection[str]:
        """The names of modules that this push adds to a record and that are to be written again.

        No addition has them, or another push added them meanwhile: as another build, maybe, over whose files this
        one's were sent, or the other way round.
        """
        return self._again.get(key, ())

    def doubt(self) -> None:
        """Hear that the last change failed: the remote may have taken the records of it without their additions."""
        self._doubted |= self._last

    def to(self, shared: Shared) -> list[Addition]:
        """The additions of others that a record lacks, as far as they may be used.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        key, had = shared.record.key, marks(shared.record)
        wanted: list[ListedAddition] = []
        for one in sorted(self._lacked.get(key, []), key=lambda one: (-len(one.marks), one.path)):
            room = len(wanted) < _READ and self._vain < _READ
            if one.path not in self._done and not had >= one.marks and room:
                wanted.append(one)
                if key not in self._taken:  # some of what is read first may not be usable: then all others are read
                    had |= one.marks
        self._take(wanted, shared.record)
        return self._taken.get(key, [])

    def recall(self, record: Record, modules: Collection[str]) -> None:
        """Take the additions with some of these modules, which will be removed, for what else they have.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        if not self._storage.compares:
            some = [one for one in self._with(record.place, modules) if one.path not in self._done]
            self._recalled.setdefault(record.key, []).extend(self._take(some[:_READ], record))

    def _with(self, place: Place, modules: Collection[str]) -> list[ListedAddition]:
        """The additions with some of these modules."""
        wanted = {mark(name) for name in modules}
        return [one for one in listed(self._storage, layout.additions(place)) if wanted & one.marks] if wanted else []

    def _take(self, some: Sequence[ListedAddition], record: Record) -> list[ListedAddition]:
        """Read additions; returns those that may be used."""
        read = each([partial(self._read, one.path, record) for one in some], LANES)
        self._done.update(one.path for one in some)
        for found in read:
            self._taken.setdefault(record.key, []).extend(found)
            self._vain += not found
        return [one for one, found in zip(some, read, strict=True) if found]

    def writes(
        self, todo: ToSign, shared: Shared, there: Collection[str], dropped: Collection[str], *, replaces: bool
    ) -> list[Write]:
        """The documents with the modules of a record that are new; those with modules that it drops are removed.

        Of the latter those that were recalled: what else they have is in the record.

        Args:
            todo: The record, as it will lie there.
            shared: The same, with the places of its files.
            there: The names of the modules that it has there now.
            dropped: The names of those that it had, and has no more: nobody shall add them again.
            replaces: All that was there is replaced: also what was not recalled.

        Raises:
            UsageError: The user's key cannot be used, or is revoked.
            RemoteError, AuthError: The remote cannot be asked.
        """
        if self._storage.compares:
            return []
        record, hidden = todo.record, {mark(name) for name in dropped}
        old = self._with(record.place, dropped) if replaces else self._recalled.get(record.key, [])
        removed = [Write(one.path, None, ANY) for one in old if hidden & one.marks]
        new = [module for module in record.modules if module.name not in there]
        if not new and document.said_of(record):  # what is marked may be all that is new, and goes with modules
            new = list(record.modules[:MODULES])
        # Of two archives one stays, unless it has all of the other; and what others signed is the whole record.
        if new and (is_closed(record) or self._signing.passes_on(todo)):
            new = list(record.modules)
            if len(new) > MODULES:
                return [*removed, self._write(todo, shared, new, whole=True)]
        at_once = [new[at : at + MODULES] for at in range(0, len(new), MODULES)] or [[]]
        return [*removed, *(self._write(todo, shared, some) for some in at_once)]

    def look(self, draft: Draft, rows: RemoteIndex | None) -> int:
        """How much of others lacks what a push wrote; removes what is needed no more.

        Each addition is told once: then the next draft has it, or it cannot be used.

        Args:
            draft: What it changed.
            rows: The index that it wrote, or that is there; None where that is not known.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        self._lacked, self._again, self.unlisted = {}, {}, {}
        if self._storage.compares or not (draft.there or rows):
            return 0
        self.looked += 1
        found = listed(self._storage, layout.NEW)
        by_place: dict[Place, list[ListedAddition]] = {}
        for one in found:
            by_place.setdefault(one.place, []).append(one)
        if len(found) == MOST:  # modules are lost for good, but a row only until the records are listed
            own = [one.record.place for one in draft.there]
            by_place |= {place: listed(self._storage, layout.additions(place)) for place in own}
            by_place = {place: some for place, some in by_place.items() if some}
        merged = self._look_for_modules(by_place, draft)
        self._look_for_own(by_place)
        if rows is not None:
            rows = self._look_for_rows(by_place, rows)
        with suppress(RemoteError, AuthError):  # what is left over costs little
            self._clear(by_place, merged, rows)
        return sum(map(len, self._lacked.values())) + len(self._again) + len(self.unlisted)

    def _look_for_modules(self, by_place: Mapping[Place, Sequence[ListedAddition]], draft: Draft) -> set[str]:
        """Find additions of modules that a record lacks; returns the paths of those of which it has all."""
        merged = set[str]()
        for record in (one.record for one in draft.there):
            had, digest = marks(record), index.digits_of(record)
            for one in by_place.get(record.place, []):
                if had >= one.marks or one.digest == digest:
                    merged.add(one.path)
                elif one.path not in self._done and self._vain < _READ:
                    self._lacked.setdefault(record.key, []).append(one)
        return merged

    def _look_for_own(self, by_place: Mapping[Place, Sequence[ListedAddition]]) -> None:
        """Find what is to be written again of the modules that this push added."""
        for place in {*self._own, *(place for place, _ in self._doubted)}:
            there, own = by_place.get(place, []), self._own.get(place, {})
            last = max((one.at for one in there if one.push == self._push), default=0.0)
            since = last - (time.monotonic() - self._began) - TOGETHER
            made = [one.own for one in there if one.push != self._push and one.at >= since]
            met = {(place, name) for number, name in own.items() if any(number in some for some in made)} - self._met
            lost = {
                (of, name)
                for of, name in self._doubted
                if of == place and not any(mark(name) in one.marks for one in there)
            }
            self._met |= met
            if again := {name for _, name in met | lost}:
                self._again[place.key] = again
        self._last, self._doubted = set(), set()

    def _look_for_rows(self, by_place: Mapping[Place, Sequence[ListedAddition]], rows: RemoteIndex) -> RemoteIndex:
        """Find records of which an index says something else than the last addition; returns the whole index."""
        short = {place: index.short_path(place) for place in by_place}
        if not rows.paths.keys() >= {*short.values()}:
            rows = index.whole(self._storage, "", rows) or rows
        lasts = {place: max(some, key=lambda one: one.at) for place, some in by_place.items()}
        now = max((one.at for one in lasts.values()), default=0.0)
        differ = [
            last
            for place, last in lasts.items()
            if last.path not in self._told and rows.digest_at(short[place]) != last.digest
            if last.at > now - _LISTED or short[place] in rows.paths
        ][:_ASKED]
        if differ:  # of records that somebody removed, additions may be left
            there = self._storage.stat([layout.record_path(one.place) for one in differ], "")
            gone = [one for one in differ if layout.record_path(one.place) not in there]
            most = min(_ROWS, _ALL_ROWS - self._rows)  # who comes next looks, too
            differ = [one for one in differ if layout.record_path(one.place) in there][:most]
            self._rows += len(differ)
            self._told.update(one.path for one in (*gone, *differ))
        self.unlisted = {one.place: one.digest for one in differ}
        return rows

    def _clear(
        self,
        by_place: Mapping[Place, Sequence[ListedAddition]],
        merged: Collection[str],
        rows: RemoteIndex | None,
    ) -> None:
        """Remove what is needed no more, where that is worth a request."""
        now = max((one.at for some in by_place.values() for one in some if one.push == self._push), default=0.0)
        if abs(now - time.time()) > KEPT:  # one of the two clocks jumped, or is wrong: others will clear
            return
        settled = {
            place: some
            for place, some in by_place.items()
            if place.key not in self._lacked and place not in self.unlisted
        }
        if removed := unneeded(self._storage, settled, merged, vain=self._done - self._later, rows=rows, now=now):
            writes = [Write(path, None, ANY) for path in sorted(removed)]
            self._storage.commit(Commit(f"cachekit: [{uuid.uuid4().hex[:12]}]", writes=writes), "")

    def _write(self, todo: ToSign, shared: Shared, modules: Sequence[Module], *, whole: bool = False) -> Write:
        from cachekit.trust import envelope

        place, raw = todo.record.place, b"{}\n"
        if modules:
            added = structs.replace(shared, record=structs.replace(todo.record, modules=tuple(modules)))
            signed = self._signing.over(structs.replace(todo, record=added.record))
            raw = serialise(added.whole | envelope.to_document(signed))
        names = {module.name for module in modules}
        own = {name for name in names if (place, name) in self._offered}
        self._last |= {(place, name) for name in names}
        self._own.setdefault(place, {}).update((mark(name), name) for name in own)
        runs = document.said_of(todo.record) if modules else []
        told = {mark(name) for name in (*own, *runs)}, {mark(name) for name in names - own}
        said = ({WHOLE}, set[str]()) if whole else told
        path = f"{layout.additions(place)}/{name_of(self._push, index.digits_of(todo.record), *said)}"
        self._done.add(path)
        return Write(path, raw, ANY)

    def _read(self, path: str, record: Record) -> list[Addition]:
        """An addition to a record; none where what lies there is no such thing, or may not be used."""
        from cachekit.trust import envelope

        for _ in range(2):  # once more where it came wrong
            with suppress(DamagedRecordError, IntegrityError, envelope.MalformedError):
                found = self._storage.read(path, "", _LARGEST)
                parsed = parse(found.data if found else b"")
                envelopes: tuple[Envelope, ...] = envelope.from_document({_SIGNED: parsed.pop(_SIGNED, [])})
                added = document.read_parsed(parsed)
                if added is None:  # a later cachekit's
                    self._later.add(path)
                    return []
                if added.record.place != record.place:
                    return []
                origin, _ = self._signing.origin(added, "", envelopes)
                chained = chain(added.record, structs.replace(origin, remote=self._storage.name)) if origin else ()
                return [(added, chained)] if origin else []
        return []
