"""What a push would change on a remote: which records, merged with those that are there, and which files with them.

Nothing that lies on a remote is overwritten but records, by what contains both. A file whose place is taken by other
bytes (another build of the same module, or what somebody damaged) goes to a place named by its digest.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, structs

from cachekit.errors import TooLargeError
from cachekit.remotes import document, layout, packs, parts
from cachekit.remotes.document import Shared
from cachekit.remotes.offer import Draft, Offer
from cachekit.remotes.port import ABSENT, SOON_SENT, Document, Entry, Storage, Upload, Write, reads_as
from cachekit.remotes.signing import Signing, ToSign
from cachekit.store import divergent
from cachekit.store.origin import HERE, Origin, ReusedOrigin, chain
from cachekit.store.record import LARGEST, DamagedRecordError, File, Record, covers, file_path, paths_of

LOOKED_AT = 64  # files of records there that a push looks at; of each, its question and the answer are half a kB
SINGLE = 4  # paths that are asked for one by one, where each is a request
LATER = "a later cachekit has written the one that is there"
FEW = 2  # documents that are derived of records, and asked for as well


class _Merged(Struct, frozen=True):
    """The record to write at the path of an offer, on top of the state that a token names.

    Attributes:
        reused: The record there, where this one has modules of it.
    """

    path: str
    offer: Offer
    shared: Shared
    token: str
    reused: tuple[ReusedOrigin, ...] = ()


class Comparison:
    """Compares offers with what lies on a remote; what it learns about files holds for all tries of one push.

    Args:
        storage: The remote.
        offers: What is to be there.
        spoiled: Paths of files that are known not to be what the records there say.
        read: Read those of which the remote tells no digest.
        exact: Ask for all files that may lie there, also where sending them would tell.
        signing: Signs, and says what of others may be used; by default nothing is signed, and all is used.

    Attributes:
        taken: Paths where other bytes lie than are offered, each with the digest of what is offered.
    """

    def __init__(
        self,
        storage: Storage,
        offers: Sequence[Offer],
        spoiled: Collection[str] = (),
        *,
        read: bool,
        exact: bool = False,
        signing: Signing | None = None,
    ) -> None:
        self._storage, self._offers = storage, offers
        self._signing = signing or Signing()
        self._spoiled, self._read, self._exact = spoiled, read, exact or read
        self.taken: set[tuple[str, str]] = set()
        self._lost: set[str] = set()  # paths where a file is not, although its record may be there
        # Of the last draft: records there by key, of which this machine has another build; why nobody, or not this
        # user, could use a record there as it is, and why it is left as it is, by key; and the offers that lie there.
        self._others: dict[str, Record] = {}
        self._damaged: dict[str, str] = {}
        self._left: dict[str, str] = {}
        self._same: list[Offer] = []
        self._packs: dict[tuple[str, ...], list[Upload]] = {}  # by what is in them
        self._told: dict[str, Entry] = {}  # files at paths where records there say that they are
        self._named: set[str] = set()  # paths of parts that these records name
        self._drafts = 0
        self._is_far = storage.batch == 1 and storage.lines > 1  # each path is a request that takes its time
        self._looked_at: set[str] = set()  # paths of files that this push has asked for
        self._first: dict[str, Document | None] = {}  # the record that was read before the first draft
        self._guessed = False  # that is what this store last saw, and may have changed
        self._answers: dict[str, Entry | None] = {}  # what was asked for the present draft, without versions

    def was_all_there(self) -> bool:
        """Whether the records lay there as they are offered, when this store last saw them there."""
        copies = self._storage.copies
        return all(
            copies.get(layout.record_path(offer.shared.record.place)) == offer.shared.document for offer in self._offers
        )

    def is_all_there(self, revision: str = "") -> bool:
        """Whether the remote has everything, as far as one request tells; for certain where files are read.

        Anybody may overwrite or remove a file there: optimum-neuron does.

        Args:
            revision: The state of the remote, for which the answers are remembered; the present one if it is not given.
        """
        documents = {layout.record_path(offer.shared.record.place): offer.shared.document for offer in self._offers}
        if self._storage.batch == len(documents) == 1 and not self.was_all_there():
            if not self._exact and (seen := self._last_seen()):
                self._first, self._guessed = seen, True  # to write on that costs as much as to ask, and tells as well
                return False
            # Probably new: to read it is one request, as to ask for it, and tells also whether the bucket is there.
            with suppress(TooLargeError):
                found = {path: self._storage.read(path, revision, LARGEST) for path in documents}
                if any(one is None or one.data != documents[path] for path, one in found.items()):
                    self._first = found
                    return False
        documents |= {path: raw for offer in self._offers for path, raw in _parts(offer.shared).items()}
        documents |= {
            path: self._storage.copies.get(path) or b""
            for offer in self._offers
            if self._signing.concerns(offer.beside)
            for path in [layout.signatures_path(offer.shared.record.place)]
        }
        files = {path: (file, offer) for offer in self._offers for file, path in offer.shared.paths.values()}
        # Where there are more than fit in, other ones at the next push; what this push adds is asked for anyway.
        old = set().union(*map(self._known_files, self._offers)) if len(files) > LOOKED_AT else set[str]()
        wanted = sorted(files, key=lambda path: (bool(old) and path in old, random.random()))  # noqa: S311
        most = LOOKED_AT + (len(files.keys() - old) if old else 0)
        wanted = wanted if self._read else wanted[: max(0, min(most, self._storage.batch - len(documents) - FEW))]
        self._looked_at = set(wanted)
        derived = [layout.INDEX, layout.CARD] if revision or self._storage.batch > 1 else []
        there = self._stat([*sorted(documents), *wanted, *derived], revision)
        for path in wanted:
            file, offer = files[path]
            if path not in there:
                self._lost.add(path)
            elif file.sha256 in offer.shared.inline:
                continue  # whoever has the record has its bytes; those that lie there are not overwritten
            elif path in self._spoiled or self._in_use(there[path], file) is False:
                self._lost.add(path)
                self.taken.add((path, file.sha256))
        self._lost.update(path for path in self._spoiled if path in files)
        return not self._lost and all(path in there and there[path].equals(data) for path, data in documents.items())

    def _last_seen(self) -> dict[str, Document | None]:
        """What lay in the place of the only record when this store last saw it; empty where that must be read.

        What it never saw is new, most likely.
        """
        path = layout.record_path(self._offers[0].shared.record.place)
        copy = self._storage.copies.seen(path)
        if copy is None:
            return {path: None} if self._storage.heeds(ABSENT) else {}
        return {path: Document(copy.data, copy.token)} if copy.token and self._storage.heeds(copy.token) else {}

    def _stat(self, paths: Sequence[str], revision: str) -> dict[str, Entry]:
        """Those of the files that exist; where there are no versions, a draft asks for each once."""
        if revision:
            return self._storage.stat(paths, revision)
        if asked := [path for path in paths if path not in self._answers]:
            there = self._storage.stat(asked, revision)
            self._answers |= {path: there.get(path) for path in asked}
        return {path: entry for path in paths if (entry := self._answers[path])}

    def _known_files(self, offer: Offer) -> set[str]:
        """The paths of the files of the record that lay in the place of an offer when this store last saw it."""
        copies = self._storage.copies
        raw = copies.get(layout.record_path(offer.shared.record.place))
        with suppress(DamagedRecordError):
            shared = document.read(raw, parts.copied(copies, offer.shared.parts)) if raw else None
            return set(_files(shared)) if shared else set()
        return set()

    def draft(self, revision: str) -> Draft:
        """What is missing on the remote as it is at `revision`."""
        self._damaged, self._left, self._others, self._same, self._told, self._named = {}, {}, {}, [], {}, set()
        self._drafts += 1
        if self._drafts > 1:
            self._answers.clear()
        guessed, self._guessed = self._guessed, False
        merged = list(self._merged_all(revision))
        if guessed and (not merged or self._left):  # nothing is written that would tell: it is read
            return self.draft(revision)
        lying = self._lying(merged, revision)
        uploads: dict[str, Upload] = {}
        records, rows = [], []
        for one in merged:
            before = set(uploads)
            final = self._placed(one, lying, uploads)
            if self._storage.lines > 1:
                new = [file for path, file in uploads.items() if path not in before | lying.keys()]
                uploads |= {pack.path: pack for pack in self._packed(final, one.offer, new)}
            records.append(Write(one.path, final.document, one.token))
            rows.append(final)
        lacking = tuple(self._parts(rows, [offer.shared for offer in self._same], revision))
        own = [one for one in merged if one.shared.record.key not in self._left]
        harmed = {write.path for write in lacking}
        for offer in self._same:
            if not harmed.isdisjoint(_parts(offer.shared)):
                self._damaged[offer.shared.record.key] = "parts of it are gone, or overwritten by others"
        signatures, signed = self._signatures(own, revision)
        return Draft(
            tuple(uploads.values()),
            lacking,
            tuple(records),
            tuple(row for row in rows if row.record.key not in self._left),
            tuple(offer.shared for offer in self._same),
            len(self._offers) - len(own) - len(self._left),
            self._damaged,
            self._left,
            frozenset(uploads) & lying.keys(),
            tuple(self._others.values()),
            signatures,
            signed,
        )

    def _packed(self, shared: Shared, offer: Offer, new: Sequence[Upload]) -> list[Upload]:
        """What is new of a record and small, in packs; made once.

        A record that grows by a few modules gets a pack with each sixteenth, of those since the one before.
        """
        files = {file.sha256: file for file in new if file.sha256 not in shared.inline}
        modules = shared.record.modules
        had = sum(files.keys().isdisjoint(file.sha256 for file in module.files) for module in modules)
        first, last = (number // packs.FEW * packs.FEW for number in (had, len(modules)))
        if had and len(files) < packs.FEW:
            files |= {
                file.sha256: Upload(file.path, file.size, file.sha256, offer.sources[file.sha256])
                for module in modules[first:last]
                for file in module.files
                if file.sha256 in offer.sources and file.sha256 not in shared.inline
            }
        if (names := tuple(files)) not in self._packs:
            self._packs[names] = packs.packed(shared.record.key, files.values())
        return [pack for pack in self._packs[names] if (pack.path, pack.sha256) not in self.taken]

    def _parts(self, written: Sequence[Shared], same: Sequence[Shared], revision: str) -> Iterator[Write]:
        """The parts of records that are not there, or damaged.

        Where each is a request, those that a record grows by are taken for new, and what it had for there, once.
        """
        wanted = {path: raw for shared in (*written, *same) for path, raw in _parts(shared).items()}
        asked = {
            path
            for shared in (same if self._is_far and self._drafts == 1 else [*written, *same])
            for path in _parts(shared)
        }
        wanted = {path: raw for path, raw in wanted.items() if path in asked or path not in self._named}
        there = self._stat(sorted(asked), revision) if asked else {}
        for path, raw in wanted.items():
            if path in there and there[path].equals(raw):
                continue
            try:
                found = self._storage.read(path, revision, LARGEST) if path in there else None
                token = found.token if found else ABSENT
            except TooLargeError as error:
                found, token = None, error.token
            if found is None or found.data != raw:
                yield Write(path, raw, token)

    def _signatures(self, merged: Sequence[_Merged], revision: str) -> tuple[tuple[Write, ...], dict[str, bytes]]:
        """The signatures to write: over the records that are written, and those that lie there as they are here.

        Those over another record, in whose place one is written, are left out: they would cost whoever checks them.
        """
        todo = [
            ToSign(one.shared.record, one.offer.beside, one.reused, replaces=one.shared.record.key in self._damaged)
            for one in merged
        ]
        todo += [ToSign(offer.shared.record, offer.beside, fresh=False) for offer in self._same]
        todo = [one for one in todo if one.replaces or self._signing.concerns(one.beside)]
        if not todo:
            return (), {}
        there = self._stat([layout.signatures_path(one.record.place) for one in todo], revision)
        writes: list[Write] = []
        signed = {}
        for one in todo:
            exists = layout.signatures_path(one.record.place) in there
            write, raw = self._signing.write(self._storage, revision, one, exists=exists)
            writes += [write] if write else []
            signed[one.record.key] = raw
        return tuple(writes), signed

    def _merged_all(self, revision: str) -> Iterator[_Merged]:
        """The records to write."""
        paths = [layout.record_path(offer.shared.record.place) for offer in self._offers]
        first, self._first = self._first, {}  # another try asks again
        asked = [path for path in paths if path not in first]
        there = self._stat([*asked, *self._asked_later(len(asked))], revision) if asked else {}
        for path, offer in zip(paths, self._offers, strict=True):
            entry, found, token = there.get(path), first.get(path), ABSENT
            shared: Shared | None = offer.shared
            reused: tuple[ReusedOrigin, ...] = ()
            try:
                if entry is not None and not self._losses(offer) and entry.equals(offer.shared.document):
                    self._same.append(offer)
                    continue
                if entry is not None or found is not None:
                    found = found or self._storage.read(path, revision, LARGEST)
                    token = found.token if found else ABSENT
                    try:
                        shared, reused = self._merged(offer, found, revision)
                    except DamagedRecordError:  # on its way, maybe: what goes in its place would lack what it has
                        again = self._storage.read(path, revision, LARGEST)
                        if again is None or again == found:
                            raise
                        token = again.token
                        shared, reused = self._merged(offer, again, revision)
            except TooLargeError as error:  # a document without end must not keep a team from its key
                token, self._damaged[offer.shared.record.key] = error.token, error.cause or error.message
            except DamagedRecordError as error:
                self._damaged[offer.shared.record.key] = str(error)
            if shared is not None:
                yield _Merged(path, offer, shared, token, reused)

    def _asked_later(self, asked: int) -> list[str]:
        """Paths that will be asked for as well, where one request tells of them too and the remote remembers that."""
        files = [path for offer in self._offers for path in _files(offer.shared)]
        files += [path for offer in self._offers for path in _parts(offer.shared)]
        signed = [
            layout.signatures_path(offer.shared.record.place)
            for offer in self._offers
            if self._signing.concerns(offer.beside)
        ]
        later = signed + (files if len(files) <= LOOKED_AT else [])
        return later if asked + len(later) <= self._storage.batch else []

    def _lying(self, merged: Sequence[_Merged], revision: str) -> dict[str, Entry]:
        """What lies at the places of these records' files, and at those named by their digests where one is taken."""
        files = [found for one in merged for found in one.shared.paths.values()]
        wanted = {path for _, path in files}
        if self._storage.batch > 1:  # also of files that are elsewhere as well: asked when they are sent
            wanted.update(path for one in merged for path in _files(one.shared))
        known = self._told | {path: entry for path, entry in self._answers.items() if entry}
        unknown = sorted(wanted - known.keys() - self._answers.keys())
        if (
            self._is_far and not self._exact and len(unknown) <= SINGLE
        ):  # sending one tells whether something lies there
            small = {path for file, path in files if file.size <= SOON_SENT}
            unknown = [path for path in unknown if path not in small]
        lying = known | (self._stat(unknown, revision) if unknown else {})
        spare = {layout.blob_path(file.sha256) for file, path in files if self._is_taken(path, lying.get(path), file)}
        return lying | (self._stat(sorted(spare), revision) if spare else {})

    def _is_taken(self, path: str, entry: Entry | None, file: File) -> bool:
        taken = path in self._spoiled or (path, file.sha256) in self.taken
        return taken or (entry is not None and entry.holds(file.size, file.sha256) is False)

    def _placed(self, one: _Merged, lying: Mapping[str, Entry], uploads: dict[str, Upload]) -> Shared:
        """The record with the places of its files; those that are missing are added to `uploads`.

        At each path the first one's bytes: two records of one push may name two builds of a module as well.
        """
        places = dict(one.shared.places)
        mine = one.offer.shared.record
        for module in one.shared.record.modules:
            if mine.key in self._left and module not in mine.modules:
                continue  # at no path that only a stranger names
            for file in module.files:
                place = places.get(file.sha256) or file_path(module, file)
                entry, other = lying.get(place), uploads.get(place)
                source = one.offer.sources.get(file.sha256)
                if source is None:
                    continue  # it is where their record says: nobody here could put it elsewhere
                if self._is_taken(place, entry, file) or (other and other.sha256 != file.sha256):
                    place = places[file.sha256] = layout.blob_path(file.sha256)
                    entry = lying.get(place)
                if not (entry and entry.holds(file.size, file.sha256)):
                    uploads[place] = Upload(place, file.size, file.sha256, source)
        return structs.replace(one.shared, places=places)

    def _merged(
        self, offer: Offer, found: Document | None, revision: str
    ) -> tuple[Shared | None, tuple[ReusedOrigin, ...]]:
        """What to write for an offer, None where nothing is to be written; and the record there, if it has part in it.

        Raises:
            DamagedRecordError: Nobody can use what is there.
        """
        if found and found.data == offer.shared.document:  # a remote that knows no digests did not tell before
            if lost := self._losses(offer):
                raise DamagedRecordError(f"{lost} of its files are gone, or overwritten by others")
            self._same.append(offer)
            return None, ()
        fetch = parts.fetching(self._storage, revision, offer.shared.parts)
        theirs = document.read(found.data, fetch) if found else None
        if found and theirs is None:
            self._left[offer.shared.record.key] = LATER
            return None, ()
        if theirs is not None and layout.record_path(theirs.record.place) != layout.record_path(
            offer.shared.record.place
        ):
            raise DamagedRecordError("it is the record of another key")
        self._named.update(_parts(theirs) if theirs else ())
        mine = offer.shared.record
        origin, why = self._origin(theirs, mine, revision) if theirs else (None, "")
        if theirs and origin is None:
            if signer := self._signing.leaves(theirs.record, offer.beside, revision):
                gone = self._gone(theirs, offer, revision)
                if covers(mine, _with(theirs.record, gone)):  # at no path that only a stranger names
                    again = ", with those of its files again that were gone" if gone else ""
                    self._left[mine.key] = f"{why}; it stays for those who believe {signer}{again}"
                    return (theirs if gone else None), ()
                why = f"{why}; {len(gone)} of its files are gone, or overwritten by others"  # so it helps nobody
            self._damaged[mine.key] = why
        if theirs and origin and divergent.compare(mine, theirs.record):
            self._others[theirs.record.key] = theirs.record
        usable = self._usable(theirs, offer, revision) if theirs and origin and not offer.replaces else None
        merged = document.merge(offer.shared, usable)
        if theirs is not None and merged.raw == theirs.raw:
            self._same += [offer] if theirs.record == mine else []
            return None, ()
        reused: tuple[ReusedOrigin, ...] = ()
        if usable and theirs and origin and mine not in {merged.record, theirs.record}:
            there = structs.replace(origin, remote=self._storage.name)
            reused = (*chain(mine, offer.beside.origin), *chain(theirs.record, there))
        wanted = usable or (theirs and origin and offer.replaces)
        if wanted and not self._signing.may_replace(ToSign(merged.record, offer.beside, reused)):
            if offer.replaces:
                self._left[mine.key] = "the record there is signed, and yours would not be"
            return None, ()  # whoever uses what is there would lose it
        return merged, reused

    def _origin(self, theirs: Shared, mine: Record, revision: str) -> tuple[Origin | None, str]:
        """Why what lies there may be used; None where it may not, and why not: then it counts as absent."""
        return (HERE, "") if theirs.record == mine else self._signing.origin(theirs, revision)

    def _usable(self, theirs: Shared, offer: Offer, revision: str) -> Shared | None:
        """The record without modules that can no longer be fetched; None where no module is left."""
        if any(path in self._spoiled for _, path in theirs.paths.values()):
            return None  # who found that stopped there: the rest may be no better
        lost = self._gone(theirs, offer, revision)
        modules = theirs.record.modules
        kept = tuple(module for module in modules if lost.isdisjoint(file.sha256 for file in module.files))
        return structs.replace(theirs, record=structs.replace(theirs.record, modules=kept)) if kept else None

    def _gone(self, theirs: Shared, offer: Offer, revision: str) -> set[str]:
        """Which files of a record can no longer be fetched, by their digests, as far as it is asked.

        Other tools overwrite: optimum-neuron puts its own build of a module in the place of the one that is there. A
        record that names what is gone is refused as a whole by everybody.
        """
        told = {path: Entry(path, file.size, {"sha256": file.sha256}) for path, file in _files(theirs).items()}
        some = list(told)
        if not self._read and (self._is_far or self._storage.batch > 1):
            known = [path for path in some if path in self._looked_at]
            few = min(LOOKED_AT, len(some)) if self._storage.batch > 1 else 0
            some = known or random.sample(some, few)
        lost = self._lost_of(theirs, some, offer, revision) if some else set[str]()
        if lost and len(some) < len(told):
            some = list(told)
            lost = self._lost_of(theirs, some, offer, revision)
        self._told |= {path: entry for path, entry in told.items() if path not in set(some)}
        return lost

    def _lost_of(self, theirs: Shared, paths: Sequence[str], offer: Offer, revision: str) -> set[str]:
        """Which of the files at some of its paths a record has lost, by their digests."""
        wanted = set(paths)
        if self._storage.batch > 1:  # asked for later, and remembered
            wanted.update(_parts(offer.shared), _files(offer.shared).keys() - _files(theirs).keys())
        lying = self._stat(sorted(wanted), revision)
        files = _files(theirs)
        return {
            files[path].sha256
            for path in paths
            if files[path].sha256 not in theirs.inline
            and (path not in lying or self._in_use(lying[path], files[path]) is False)
        }

    def _losses(self, offer: Offer) -> int:
        """How many files of a record are lost."""
        return sum(path in self._lost for _, path in offer.shared.paths.values())

    def _in_use(self, entry: Entry, file: File) -> bool | None:
        holds = entry.holds(file.size, file.sha256)
        if holds is None and self._read:
            holds = reads_as(self._storage, entry.path, file.sha256)
        return holds


def _with(record: Record, files: Collection[str]) -> Record:
    """A record with those of its modules that have one of these files."""
    modules = (module for module in record.modules if any(file.sha256 in files for file in module.files))
    return structs.replace(record, modules=tuple(modules))


def _files(shared: Shared) -> dict[str, File]:
    """The files of a record by all paths where they lie: what is the same in many modules lies in each."""
    return {shared.places.get(file.sha256) or path: file for path, file in paths_of(shared.record.modules)}


def _parts(shared: Shared) -> dict[str, bytes]:
    """The parts of a long record by their paths."""
    return {layout.blob_path(sha256): raw for sha256, raw in shared.parts.items()}
