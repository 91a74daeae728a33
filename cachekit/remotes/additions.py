"""What pushes add to records where no swap tells who was faster: it lies beside them until no race can lose it.

    cachekit/v1/index/new/…/<key>.json  the name of a record that was written
    cachekit/v1/index/new/…/<key>/<sha256>-<mark>-….json  likewise: it with some modules alone, and who signed that

On a bucket of the Hub the last writer wins: of two pushes that build on the same state of a record, the slower one
writes over what the faster one added. So a push writes its additions first, then the record; then it lists the
additions to it, and where some are of modules that its record lacks, it merges them and begins again. Whoever writes
last sees all additions, since each lay there before the record that it was made for. What a push takes over from
another is an addition of its own as well. So an addition is needed only as long as somebody may write who read the
record before: `KEPT` seconds.

The mark of each module stands in the path, so that additions which a record has already are not read. An archive has no
name but its digest, and of two the one that is there stays: nothing can be added to it. Its name tells, as an addition
does, that the index must have its row: a push that wrote an index without it writes that again as well.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import structs

from cachekit.errors import IntegrityError
from cachekit.remotes import document, index, layout
from cachekit.remotes.document import Shared
from cachekit.remotes.index import RemoteIndex
from cachekit.remotes.offer import Draft
from cachekit.remotes.port import ANY, Commit, Entry, Storage, Write
from cachekit.remotes.signing import Signing, ToSign
from cachekit.store.origin import ReusedOrigin, chain
from cachekit.store.record import LARGEST, DamagedRecordError, Module, Record, is_archive, parse, serialise
from cachekit.text import DAY

if TYPE_CHECKING:
    from cachekit.trust.envelope import Envelope

KEPT = 900.0  # seconds by the remote's clock: a change takes at most 75 s there, or as long as its bytes take
_OLD = 32  # that may be needed no more, and are worth two requests which remove them
_TOGETHER = 5.0  # seconds by the remote's clock that a change may take from its first file to its last
_MOST = 10_000  # that are looked at
_MODULES = 16  # of one addition: its name has 245 characters then
_MARK = 10  # hexadecimal digits, by which one module is known among 10,000
_SIGNED = "envelopes"

Addition = tuple[Shared, tuple[ReusedOrigin, ...]]  # and what a record reuses that takes it over


class Additions:
    """The additions of one push, and those of others that its records lacked; none where writes are compared.

    Args:
        storage: The remote.
        signing: Signs, and says what of others may be used.

    Attributes:
        unlisted: Paths of names whose rows the index lacked when this push looked last, and what rows tell of those
            records' paths.
    """

    def __init__(self, storage: Storage, signing: Signing) -> None:
        self._storage, self._signing = storage, signing
        self._lacked: dict[str, list[str]] = {}  # paths, by key, as the last look found them
        self._taken: dict[str, list[Addition]] = {}  # by key
        self._done: set[str] = set()  # paths of own ones, and of those that were taken, or cannot be
        self._told: set[str] = set()  # paths of names that were told
        self.unlisted: dict[str, str] = {}

    def concern(self, key: str) -> bool:
        """Whether the record of a key lacked additions of others when this push looked last."""
        return key in self._lacked

    def to(self, shared: Shared) -> list[Addition]:
        """The additions of others that a record lacks, as far as they may be used.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        key = shared.record.key
        marks = _marks(shared.record.modules)
        for path in self._lacked.get(key, []):
            if not marks.issuperset(_marks_in(path)) and path not in self._done:
                self._done.add(path)
                self._taken.setdefault(key, []).extend(self._read(path, shared.record))
        return self._taken.get(key, [])

    def writes(self, todo: ToSign, shared: Shared, there: Collection[str], dropped: Collection[str]) -> list[Write]:
        """The documents with the modules of a record that are new; those with modules that it drops are removed.

        Args:
            todo: The record, as it will lie there.
            shared: The same, with the places of its files.
            there: The names of the modules that it has there now.
            dropped: The names of those that it had, and has no more: nobody shall add them again.

        Raises:
            UsageError: The user's key cannot be used, or is revoked.
            RemoteError, AuthError: The remote cannot be asked.
        """
        modules = [module for module in todo.record.modules if module.name not in there]
        if not self._takes_any(todo.record):
            return []
        marks = {_mark(name) for name in dropped}
        listed = list(self._storage.list(layout.additions(todo.record.place), "")) if dropped else []
        removed = [Write(entry.path, None, ANY) for entry in listed if not marks.isdisjoint(_marks_in(entry.path))]
        at_once = (modules[at : at + _MODULES] for at in range(0, len(modules), _MODULES))
        return [*removed, *(self._write(todo, shared, some) for some in at_once)]

    def look(self, draft: Draft, rows: RemoteIndex | None) -> int:
        """How much of others what a push wrote lacks; what is needed no more is removed.

        Each addition is told once: then the next draft has it, or it cannot be used. So is each name.

        Args:
            draft: The records that it wrote, or that are there as they are offered.
            rows: The index that it wrote, or that is there; None where that is not known.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        self._lacked, self.unlisted = {}, {}
        if self._storage.compares or not (draft.rows or draft.same or rows):
            return 0
        listed = list(islice(self._storage.list(layout.BESIDE, ""), _MOST))
        self._clear(listed, self._look_for_rows(listed, rows), self._look_for_modules(listed, draft))
        return sum(map(len, self._lacked.values())) + len(self.unlisted)

    def _clear(self, listed: Sequence[Entry], has_row: set[str], merged: set[str]) -> None:
        """Remove what no race can lose any more, and what nobody could use for a day, where that is worth a request."""
        last = max((entry.at for entry in listed), default=0.0)
        old = {one.path: one.at for one in listed if 0 < one.at < last - KEPT and layout.new_place(one.path)}
        if len(old) < _OLD:
            return
        # A record that nobody has written since has what was added with it.
        records = {path: layout.record_path(place) for path in old if (place := layout.new_place(path))}
        there = self._storage.stat(sorted({*records.values()}), "")
        alone = {path for path, at in old.items() if (one := there.get(records[path])) and one.at < at + _TOGETHER}
        useless = {path for path in self._done | self._told if old.get(path, last) < last - DAY}
        added = {path for path in old if _marks_in(path)}
        removed = (old.keys() & has_row) - (added - alone - merged) | useless
        writes = [Write(path, None, ANY) for path in sorted(removed)]
        self._storage.commit(Commit(f"cachekit: [{uuid.uuid4().hex[:12]}]", writes=writes), "")

    def _look_for_modules(self, listed: Sequence[Entry], draft: Draft) -> set[str]:
        """Find additions whose modules a record lacks; returns the paths of those that it has."""
        had = set[str]()
        for record in (one.record for one in (*draft.rows, *draft.same)):
            folder, marks = layout.additions(record.place), _marks(record.modules)
            paths = [one.path for one in listed if one.path.startswith(f"{folder}/")]
            had.update(path for path in paths if marks.issuperset(_marks_in(path)))
            if lacked := [path for path in paths if path not in had and path not in self._done]:
                self._lacked[record.key] = lacked
        return had

    def _look_for_rows(self, listed: Sequence[Entry], rows: RemoteIndex | None) -> set[str]:
        """Find records whose rows an index lacks; returns the paths of what tells of others."""
        if rows is None:
            return set()
        named = {one.path: index.short_path(place) for one in listed if (place := layout.new_place(one.path))}
        if not rows.paths.keys() >= {*named.values()}:
            rows = index.whole(self._storage, "", rows) or rows
        lacked = {path: short for path, short in named.items() if short not in rows.paths}
        self.unlisted = {path: short for path, short in lacked.items() if path not in self._told}
        self._told.update(lacked)
        return named.keys() - lacked.keys()

    def _takes_any(self, record: Record) -> bool:
        return not self._storage.compares and not any(map(is_archive, record.modules))

    def _write(self, todo: ToSign, shared: Shared, modules: Iterable[Module]) -> Write:
        from cachekit.trust import envelope

        added = structs.replace(shared, record=structs.replace(todo.record, modules=tuple(modules)))
        signed = self._signing.over(structs.replace(todo, record=added.record))
        raw = serialise(added.whole | envelope.to_document(signed))
        name = "-".join([hashlib.sha256(raw).hexdigest(), *sorted(_marks(added.record.modules))])
        path = f"{layout.additions(todo.record.place)}/{name}.json"
        self._done.add(path)
        return Write(path, raw, ANY)

    def _read(self, path: str, record: Record) -> Iterator[Addition]:
        """An addition to a record; none where what lies there is no such thing, or may not be used."""
        from cachekit.trust import envelope

        with suppress(DamagedRecordError, IntegrityError, envelope.MalformedError):
            found = self._storage.read(path, "", LARGEST)
            parsed = parse(found.data if found else b"")
            envelopes: tuple[Envelope, ...] = envelope.from_document({_SIGNED: parsed.pop(_SIGNED, [])})
            added = document.read(serialise(parsed))
            if added is None or added.record.place != record.place:
                return
            origin, _ = self._signing.origin(added, "", envelopes)
            if origin is not None:
                yield added, chain(added.record, structs.replace(origin, remote=self._storage.name))


def _mark(module: str) -> str:
    return hashlib.sha256(module.encode()).hexdigest()[:_MARK]


def _marks(modules: Iterable[Module]) -> set[str]:
    return {_mark(module.name) for module in modules}


def _marks_in(path: str) -> list[str]:
    """The marks in the name of an addition."""
    return path.rpartition("/")[2].removesuffix(".json").split("-")[1:]
