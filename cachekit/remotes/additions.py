"""What pushes add to records where no swap tells who was faster: it lies beside them until no race can lose it.

    cachekit/v1/additions/<key>/<sha256>-<mark>-….json  the record with some modules alone, and who signed that

On a bucket of the Hub the last writer wins: of two pushes that build on the same state of a record, the slower one
writes over what the faster one added. So a push writes its additions first, then the record; then it lists the
additions to it, and where some are of modules that its record lacks, it merges them and begins again. Whoever writes
last sees all additions, since each lay there before the record that it was made for. What a push takes over from
another is an addition of its own as well. So an addition is needed only as long as somebody may write who read the
record before: `KEPT` seconds.

A name has a mark of each module, so that additions which a record has already are not read. An archive has no name but
its digest, and of two the one that is there stays: nothing can be added to it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import structs

from cachekit.errors import IntegrityError
from cachekit.remotes import document, layout
from cachekit.remotes.document import Shared
from cachekit.remotes.offer import Draft
from cachekit.remotes.port import ANY, Commit, Entry, Storage, Write
from cachekit.remotes.signing import Signing, ToSign
from cachekit.store.origin import ReusedOrigin, chain
from cachekit.store.record import LARGEST, DamagedRecordError, Module, Record, is_archive, parse, serialise

if TYPE_CHECKING:
    from cachekit.trust.envelope import Envelope

KEPT = 900.0  # seconds by the remote's clock: a change takes at most 75 s there, or as long as its bytes take
_OLD = 8  # additions that are needed no more, and are worth a request that removes them
_MOST = 1000  # of one record, that are looked at
_MODULES = 16  # of one addition: its name has 245 characters then
_MARK = 10  # hexadecimal digits, by which one module is known among 10,000
_SIGNED = "envelopes"

Addition = tuple[Shared, tuple[ReusedOrigin, ...]]  # and what a record reuses that takes it over


class Additions:
    """The additions of one push, and those of others that its records lacked; none where writes are compared.

    Args:
        storage: The remote.
        signing: Signs, and says what of others may be used.
    """

    def __init__(self, storage: Storage, signing: Signing) -> None:
        self._storage, self._signing = storage, signing
        self._lacked: dict[str, list[str]] = {}  # paths, by key, as the last look found them
        self._taken: dict[str, list[Addition]] = {}  # by key
        self._done: set[str] = set()  # paths of own ones, and of those that were taken, or cannot be

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

    def writes(self, todo: ToSign, shared: Shared, there: Collection[str], *, drops: bool) -> list[Write]:
        """The documents with the modules of a record that are new.

        Args:
            todo: The record, as it will lie there.
            shared: The same, with the places of its files.
            there: The names of the modules that it has there now.
            drops: Something that was there is left out on purpose: nobody shall add that again.

        Raises:
            UsageError: The user's key cannot be used, or is revoked.
            RemoteError, AuthError: The remote cannot be asked.
        """
        modules = [module for module in todo.record.modules if module.name not in there]
        if not self._has_any(todo.record):
            return []
        removed = [Write(entry.path, None, ANY) for entry in self._listed(todo.record.key)] if drops else []
        at_once = (modules[at : at + _MODULES] for at in range(0, len(modules), _MODULES))
        return [*removed, *(self._write(todo, shared, some) for some in at_once)]

    def look(self, draft: Draft) -> int:
        """How many additions of others the records lack, as this push wrote them; removes those that are not needed.

        Each is told once: then the next draft has it, or it cannot be used.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        old, self._lacked = list[str](), {}
        for record in (shared.record for shared in (*draft.rows, *draft.same) if self._has_any(shared.record)):
            listed, marks = self._listed(record.key), _marks(record.modules)
            now = max((entry.at for entry in listed), default=0.0)
            for entry in listed:
                if marks.issuperset(_marks_in(entry.path)):
                    old += [entry.path] if 0 < entry.at < now - KEPT else []
                elif entry.path not in self._done:
                    self._lacked.setdefault(record.key, []).append(entry.path)
        if len(old) >= _OLD:
            removals = [Write(path, None, ANY) for path in old]
            self._storage.commit(Commit(f"cachekit: [{uuid.uuid4().hex[:12]}]", writes=removals), "")
        return sum(map(len, self._lacked.values()))

    def _has_any(self, record: Record) -> bool:
        return not self._storage.compares and not any(map(is_archive, record.modules))

    def _listed(self, key: str) -> list[Entry]:
        return list(islice(self._storage.list(layout.additions(key), ""), _MOST))

    def _write(self, todo: ToSign, shared: Shared, modules: Iterable[Module]) -> Write:
        from cachekit.trust import envelope

        added = structs.replace(shared, record=structs.replace(todo.record, modules=tuple(modules)))
        signed = self._signing.over(structs.replace(todo, record=added.record))
        raw = serialise(added.whole | envelope.to_document(signed))
        name = "-".join([hashlib.sha256(raw).hexdigest(), *sorted(_marks(added.record.modules))])
        path = layout.addition_path(todo.record.key, name)
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


def _marks(modules: Iterable[Module]) -> set[str]:
    return {hashlib.sha256(module.name.encode()).hexdigest()[:_MARK] for module in modules}


def _marks_in(path: str) -> list[str]:
    """The marks in the name of an addition."""
    return path.rpartition("/")[2].removesuffix(".json").split("-")[1:]
