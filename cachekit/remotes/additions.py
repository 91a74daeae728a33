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
archives one stays, unless it has all of the other: so an addition to such a one has all of its modules. One to a record
that only loses modules has none.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from msgspec import structs

from cachekit.errors import AuthError, IntegrityError, RemoteError
from cachekit.remotes import document, index, layout
from cachekit.remotes.budget import each
from cachekit.remotes.document import Shared
from cachekit.remotes.fetch_files import LANES
from cachekit.remotes.index import RemoteIndex
from cachekit.remotes.offer import Draft, Offer
from cachekit.remotes.port import ANY, Commit, Entry, Storage, Write
from cachekit.remotes.signing import Signing, ToSign
from cachekit.store.layout import Place
from cachekit.store.origin import ReusedOrigin, chain
from cachekit.store.record import DamagedRecordError, Module, Record, is_archive, parse, serialise
from cachekit.text import DAY

if TYPE_CHECKING:
    from cachekit.trust.envelope import Envelope

KEPT = 900.0  # seconds by the remote's clock: a change takes at most 75 s there, or as long as its bytes take
_OLD = 32  # additions that may be needed no more, and are worth two requests which remove them
_TOGETHER = 5.0  # seconds by the remote's clock that a change may take from its first file to its last
_MOST = 2000  # that are looked at, of all records and of each: two requests
_READ = 256  # that are read for one draft; and of those that a push reads in vain
_ROWS = 64  # records that are read for one index
_ALL_ROWS = 256  # and for all that a push writes
_ASKED = 1000  # records of which the index says something else, that are asked for: one request
_LISTED = 3600.0  # seconds after which a record without a row is left to the listing of the day
_ANCIENT = 30 * DAY  # after which none is of use: somebody would have missed what it has
_DOUBTED = 4  # records that are read a day later, to see whether they have what was added
_LARGEST = 16 << 20  # bytes of one
_MODULES = 16  # of one: its name has 203 characters then
_MARK = 10  # hexadecimal digits, by which one module is known among 10,000
_WHOLE = "whole"  # in the place of the marks: it has more modules than marks, and all that the record has
_TAKEN = "taken"  # before the marks of modules that its push has from others
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
        self._lacked: dict[str, list[str]] = {}  # paths, by key, as the last look found them
        self._taken: dict[str, list[Addition]] = {}  # by key
        self._recalled: dict[str, set[str]] = {}  # paths, by key: of those with modules that its record loses
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
        key, marks = shared.record.key, _marks(shared.record.modules)
        wanted: list[str] = []
        for path in sorted(self._lacked.get(key, []), key=lambda path: -len(_said(path)[2])):
            room = len(wanted) < _READ and self._vain < _READ
            if path not in self._done and not marks.issuperset(_said(path)[2]) and room:
                wanted.append(path)
                if key not in self._taken:  # some of what is read first may not be usable: then all others are read
                    marks.update(_said(path)[2])
        self._take(wanted, shared.record)
        return self._taken.get(key, [])

    def recall(self, record: Record, modules: Collection[str]) -> None:
        """Take the additions with some of these modules, which will be removed, for what else they have.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        if not self._storage.compares:
            paths = [path for path in self._with(record.place, modules) if path not in self._done]
            self._recalled.setdefault(record.key, set()).update(self._take(paths[:_READ], record))

    def _with(self, place: Place, modules: Collection[str]) -> list[str]:
        """The paths of additions with some of these modules."""
        marks = {_mark(name) for name in modules}
        listed = self._list(layout.additions(place)) if modules else []
        return [one.path for one in listed if not marks.isdisjoint(_said(one.path)[2])]

    def _list(self, folder: str) -> list[Entry]:
        return list(islice(self._storage.list(folder, ""), _MOST))

    def _take(self, paths: Sequence[str], record: Record) -> set[str]:
        """Read additions; returns the paths of those that may be used."""
        read = each([partial(self._read, path, record) for path in paths], LANES)
        self._done.update(paths)
        for found in read:
            self._taken.setdefault(record.key, []).extend(found)
            self._vain += not found
        return {path for path, found in zip(paths, read, strict=True) if found}

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
        record = todo.record
        new: Sequence[Module] = [module for module in record.modules if module.name not in there]
        # Of two archives one stays, unless it has all of the other; and what others signed is the whole record.
        whole = bool(new) and (_is_closed(record) or self._signing.passes_on(todo))
        new = record.modules if whole else new
        marks = {_mark(name) for name in dropped}
        recalled = self._recalled.get(record.key, ())
        hidden = (
            self._with(record.place, dropped) if replaces else [one for one in recalled if marks & {*_said(one)[2]}]
        )
        removed = [Write(path, None, ANY) for path in hidden]
        if whole and len(new) > _MODULES:
            return [*removed, self._write(todo, shared, new, [_WHOLE])]
        at_once = [new[at : at + _MODULES] for at in range(0, len(new), _MODULES)] or [[]]
        return [*removed, *(self._write(todo, shared, some, self._marked(record.place, some)) for some in at_once)]

    def _marked(self, place: Place, modules: Sequence[Module]) -> list[str]:
        """What the name of an addition with some modules says of them."""
        taken = [module for module in modules if (place, module.name) not in self._offered]
        own = [module for module in modules if (place, module.name) in self._offered]
        return [*sorted(_marks(own)), *([_TAKEN] if taken else []), *sorted(_marks(taken))]

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
        listed = self._list(layout.NEW)
        by_place: dict[Place, list[Entry]] = {}
        for one in listed:
            if (place := layout.place_of_addition(one.path)) is not None:
                by_place.setdefault(place, []).append(one)
        if len(listed) == _MOST:  # modules are lost for good, but a row only until the records are listed
            own = [one.record.place for one in draft.there]
            by_place |= {place: self._list(layout.additions(place)) for place in own}
        merged = self._look_for_modules(by_place, draft)
        self._look_for_own(by_place)
        if rows is not None:
            rows = self._look_for_rows(by_place, rows)
        with suppress(RemoteError, AuthError):  # what is left over costs little
            self._clear(by_place, merged, rows)
        return sum(map(len, self._lacked.values())) + len(self._again) + len(self.unlisted)

    def _look_for_modules(self, by_place: Mapping[Place, Sequence[Entry]], draft: Draft) -> set[str]:
        """Find additions of modules that a record lacks; returns the paths of those of which it has all."""
        had = set[str]()
        for record in (one.record for one in draft.there):
            marks, digest = _marks(record.modules), index.digits_of(record)
            for path in (one.path for one in by_place.get(record.place, [])):
                if marks.issuperset(_said(path)[2]) or _said(path)[1] == digest:
                    had.add(path)
                elif path not in self._done and self._vain < _READ:
                    self._lacked.setdefault(record.key, []).append(path)
        return had

    def _look_for_own(self, by_place: Mapping[Place, Sequence[Entry]]) -> None:
        """Find what is to be written again of the modules that this push added."""
        for place in {*self._own, *(place for place, _ in self._doubted)}:
            entries, own = by_place.get(place, []), self._own.get(place, {})
            ours = [one.at for one in entries if _said(one.path)[0] == self._push]
            since = max(ours, default=0.0) - (time.monotonic() - self._began) - _TOGETHER
            others = [one for one in entries if _said(one.path)[0] != self._push and one.at >= since]
            made = (mark for one in others for mark in takewhile(_TAKEN.__ne__, _marks_in(one.path)))
            met = {(place, own[mark]) for mark in made if mark in own} - self._met
            marks = {mark for one in entries for mark in _said(one.path)[2]}
            lost = {one for one in self._doubted if one[0] == place and _mark(one[1]) not in marks}
            self._met |= met
            if again := {name for _, name in met | lost}:
                self._again[place.key] = again
        self._last, self._doubted = set(), set()

    def _look_for_rows(self, by_place: Mapping[Place, Sequence[Entry]], rows: RemoteIndex) -> RemoteIndex:
        """Find records of which an index says something else than the last addition; returns the whole index."""
        short = {place: index.short_path(place) for place in by_place}
        if not rows.paths.keys() >= {*short.values()}:
            rows = index.whole(self._storage, "", rows) or rows
        lasts = {place: max(entries, key=lambda one: one.at) for place, entries in by_place.items()}
        now = max((one.at for one in lasts.values()), default=0.0)
        differ = [
            place
            for place, last in lasts.items()
            if last.path not in self._told and rows.digest_at(short[place]) != _said(last.path)[1]
            if last.at > now - _LISTED or short[place] in rows.paths
        ][:_ASKED]
        if differ:  # of records that somebody removed, additions may be left
            there = self._storage.stat([layout.record_path(place) for place in differ], "")
            self._told.update(lasts[place].path for place in differ if layout.record_path(place) not in there)
            most = min(_ROWS, _ALL_ROWS - self._rows)  # who comes next looks, too
            differ = [place for place in differ if layout.record_path(place) in there][:most]
            self._rows += len(differ)
            self._told.update(lasts[place].path for place in differ)
        self.unlisted = {place: _said(lasts[place].path)[1] for place in differ}
        return rows

    def _clear(
        self, by_place: Mapping[Place, Sequence[Entry]], merged: Collection[str], rows: RemoteIndex | None
    ) -> None:
        """Remove what no race can lose any more, where that is worth a request."""
        own = [one.at for place in by_place for one in by_place[place] if _said(one.path)[0] == self._push]
        now = max(own, default=0.0)
        if abs(now - time.time()) > KEPT:  # one of the two clocks jumped, or is wrong: others will clear
            return
        settled = {place for place in by_place if place.key not in self._lacked and place not in self.unlisted}
        old = {one.path: place for place in settled for one in by_place[place] if 0 < one.at < now - KEPT}
        at = {one.path: one.at for place in settled for one in by_place[place] if one.path in old}
        vain = {path for path in at.keys() & self._done - self._later if at[path] < now - DAY}
        vain |= {path for path in at if at[path] < now - _ANCIENT}
        if len(old) < _OLD and not vain:  # those that were read in vain cost the next push as much again
            return
        there = self._storage.stat(sorted({layout.record_path(place) for place in old.values()}), "")
        sure, doubted = {*merged}, list[Place]()
        for place in {*old.values()}:
            entries, record = by_place[place], there.get(layout.record_path(place))
            digest = rows.digest_at(index.short_path(place)) if rows else ""
            # One push alone wrote the record of late, and the record came with its additions: so it has them.
            alone = {_said(one.path)[:2] for one in entries} == {(_said(entries[0].path)[0], digest)}
            if record is None or (alone and all(0 <= record.at - one.at < _TOGETHER for one in entries)):
                sure.update(one.path for one in entries)  # or somebody removed it
            elif any(one.at < now - DAY and one.path not in sure for one in entries):
                doubted.append(place)
        for place in doubted[:_DOUBTED]:
            if shared := document.listed(self._storage, layout.record_path(place), ""):
                marks, closed = _marks(shared.record.modules), _is_closed(shared.record)
                for one in by_place[place]:
                    said, same = set(_said(one.path)[2]), _said(one.path)[1] == index.digits_of(shared.record)
                    if marks >= said or same or (closed and not marks < said):  # of two archives one stays
                        sure.add(one.path)
        removed = old.keys() & (sure | vain)
        for place in {*old.values()}:  # the last one says what the index must say, as long as another is left
            paths = [one.path for one in sorted(by_place[place], key=lambda one: one.at)]
            removed -= set() if removed.issuperset(paths) else {paths[-1]}
        if removed:
            writes = [Write(path, None, ANY) for path in sorted(removed)]
            self._storage.commit(Commit(f"cachekit: [{uuid.uuid4().hex[:12]}]", writes=writes), "")

    def _write(self, todo: ToSign, shared: Shared, modules: Sequence[Module], marks: Sequence[str]) -> Write:
        from cachekit.trust import envelope

        raw = b"{}\n"
        if modules:
            added = structs.replace(shared, record=structs.replace(todo.record, modules=tuple(modules)))
            signed = self._signing.over(structs.replace(todo, record=added.record))
            raw = serialise(added.whole | envelope.to_document(signed))
        name = "-".join([self._push, index.digits_of(todo.record), *marks])
        path = f"{layout.additions(todo.record.place)}/{name}.json"
        self._done.add(path)
        names = {(todo.record.place, module.name) for module in modules}
        self._last |= names
        for place, name in names & self._offered:
            self._own.setdefault(place, {})[_mark(name)] = name
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


def _is_closed(record: Record) -> bool:
    """Whether nothing can be added to a record."""
    return any(map(is_archive, record.modules))


def _mark(module: str) -> str:
    return hashlib.sha256(module.encode()).hexdigest()[:_MARK]


def _marks(modules: Iterable[Module]) -> set[str]:
    return {_mark(module.name) for module in modules}


def _said(path: str) -> tuple[str, str, list[str]]:
    """What the name of an addition says: the push, the first digits of the record's digest, the modules' marks."""
    push, digest, *_ = f"{_name(path)}-".split("-")
    return push, digest, [mark for mark in _marks_in(path) if mark != _TAKEN]


def _marks_in(path: str) -> list[str]:
    return _name(path).split("-")[2:]


def _name(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".json")
