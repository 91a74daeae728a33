"""Compares what a push offers with what lies on a remote, in as few questions as tell it.

Anybody may overwrite or remove a file there: optimum-neuron does.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from contextlib import suppress

from msgspec import structs

from cachekit.errors import TooLargeError
from cachekit.remotes import document, layout, parts
from cachekit.remotes.document import Shared
from cachekit.remotes.notes import Copies
from cachekit.remotes.offer import Draft, Offer
from cachekit.remotes.port import ABSENT, SOON_SENT, Document, Entry, Storage, Upload, reads_as
from cachekit.remotes.signing import Signing
from cachekit.store.record import LARGEST, DamagedRecordError, File, paths_of

LOOKED_AT = 64  # files of records there that a push looks at; of each, its question and the answer are half a kB
SINGLE = 4  # paths that are asked for one by one, where each is a request
FEW = 2  # documents that are derived of records, and asked for as well


class Comparison:
    """What lies on a remote of what is offered; what it learns about files holds for all tries of one push.

    Args:
        storage: The remote.
        offers: What is to be there.
        spoiled: Paths of files that are known not to be what the records there say, and of records that lack parts.
        read: Read those of which the remote tells no digest.
        exact: Ask for all files that may lie there, also where sending them would tell.
        signing: Signs, and says what of others may be used; by default nothing is signed, and all is used.

    Attributes:
        taken: Paths where other bytes lie than are offered, each with the digest of what is offered.
        is_far: Each path is a request that takes its time.
        drafts: How many were begun.
        reads: Files are known by their bytes, or some of them are.
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
        self.storage, self.offers = storage, [_as_there(offer, storage.copies) for offer in offers]
        self.signing = signing or Signing()
        self._spoiled, self._read, self._exact = spoiled, read, exact or read
        self.taken: set[tuple[str, str]] = set()
        self.is_far = storage.batch == 1 and storage.lines > 1
        self.drafts = 0
        self.reads = read or bool(spoiled)
        self._sent: dict[str, str] = {}  # digests of what this push wrote to paths where anybody may write as well
        self._lost: set[str] = set()  # paths where a file is not, although its record may be there
        self._told: dict[str, Entry] = {}  # files at paths where records there say that they are
        self._looked_at: set[str] = set()  # paths of files that this push has asked for
        self._first: dict[str, Document | None] = {}  # the record that was read before the first draft
        self._guessed = False  # that is what this store last saw, and may have changed
        self._answers: dict[str, Entry | None] = {}  # what was asked for the present draft, without versions

    def was_all_there(self) -> bool:
        """Whether the records lay there as they are offered, when this store last saw them there."""
        copies = self.storage.copies
        return all(
            copies.get(layout.record_path(offer.shared.record.place)) == offer.shared.document for offer in self.offers
        )

    def is_all_there(self, revision: str = "") -> bool:
        """Whether the remote has everything, as far as one request tells; for certain where files are read.

        Args:
            revision: The state of the remote, for which the answers are remembered; the present one if it is not given.
        """
        documents = {layout.record_path(offer.shared.record.place): offer.shared.document for offer in self.offers}
        named = dict[str, bytes]()  # what lies at a path that says which bytes it has
        if self.storage.batch == len(documents) == 1 and not self.was_all_there():
            if not self._exact and (seen := self._last_seen()):
                self._first, self._guessed = seen, True  # to write on that costs as much as to ask, and tells as well
                return False
            # Probably new: to read it is one request, as to ask for it, and tells also whether the bucket is there.
            with suppress(TooLargeError):
                found = {path: self.storage.read(path, revision, LARGEST) for path in documents}
                if any(one is None or one.data != documents[path] for path, one in found.items()):
                    self._first = found
                    return False
        if self.reads or self._exact or not self.is_far:
            named = {path: raw for offer in self.offers for path, raw in offer.shared.parts_by_path.items()}
        for offer in self.offers:
            if self.signing.concerns(offer.beside):
                path = layout.signatures_path(offer.shared.record.place)
                documents[path] = self.storage.copies.get(path) or b""
                if self.signing.lacks(documents[path], offer.beside):
                    return False
        files = {path: (file, offer) for offer in self.offers for file, path in offer.shared.paths.values()}
        # Where there are more than fit in, other ones at the next push; what this push adds is asked for anyway.
        old = set().union(*map(self._known_files, self.offers)) if len(files) > LOOKED_AT else set[str]()
        wanted = sorted(files, key=lambda path: (bool(old) and path in old, random.random()))  # noqa: S311
        most = LOOKED_AT + (len(files.keys() - old) if old else 0)
        room = self.storage.batch - len(documents) - len(named) - FEW
        wanted = wanted if self._read else wanted[: max(0, min(most, room))]
        self._looked_at = set(wanted)
        derived = [layout.INDEX, layout.CARD] if revision or self.storage.batch > 1 else []
        there = self.stat([*sorted(documents), *sorted(named), *wanted, *derived], revision)
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
        return (
            not self._lost
            and all(path in there and there[path].equals(data) for path, data in documents.items())
            and all(path in there and self.says_so(there[path], data) for path, data in named.items())
        )

    def says_so(self, entry: Entry, data: bytes) -> bool:
        """Whether these bytes lie at a path that is named by their digest.

        Where only a read would tell, and that costs a request, their size is enough, unless what lies there is read.
        """
        equal = entry.equals(data)
        return not self.reads and self.storage.lines > 1 if equal is None else equal

    def _last_seen(self) -> dict[str, Document | None]:
        """What lay in the place of the only record when this store last saw it; empty where that must be read.

        What it never saw is new, most likely.
        """
        path = layout.record_path(self.offers[0].shared.record.place)
        copy = self.storage.copies.seen(path)
        if copy is None:
            return {path: None} if self.storage.heeds(ABSENT) else {}
        return {path: Document(copy.data, copy.token)} if copy.token and self.storage.heeds(copy.token) else {}

    def sent(self, files: Sequence[Upload]) -> None:
        """Note that files were sent: what others sent there is gone, unless they sent it later."""
        if not self.storage.compares:
            self._sent |= {file.path: file.sha256 for file in files}

    def took(self, draft: Draft) -> None:
        """Note that the remote took what a draft would change."""
        self._lost.difference_update(file.path for file in draft.files)
        self.sent(draft.files)

    def begin(self) -> tuple[dict[str, Document | None], bool]:
        """Begin a draft: for the first one what was read before, and whether that is only what this store last saw."""
        self._told = {}
        self.drafts += 1
        if self.drafts > 1:
            self._answers.clear()
        first, guessed = self._first, self._guessed
        self._first, self._guessed = {}, False
        return first, guessed

    def stat(self, paths: Sequence[str], revision: str) -> dict[str, Entry]:
        """Those of the files that exist; where there are no versions, a draft asks for each once."""
        if revision:
            return self.storage.stat(paths, revision)
        if asked := [path for path in paths if path not in self._answers]:
            there = self.storage.stat(asked, revision)
            self._answers |= {path: there.get(path) for path in asked}
        return {path: entry for path in paths if (entry := self._answers[path])}

    def ask_again(self, paths: Collection[str], revision: str) -> None:
        """Ask for files also where an older answer is known: somebody may have sent them since."""
        for path in paths:
            self._answers.pop(path, None)
        self.stat(sorted(paths), revision)

    def _known_files(self, offer: Offer) -> set[str]:
        """The paths of the files of the record that lay in the place of an offer when this store last saw it."""
        copies = self.storage.copies
        raw = copies.get(layout.record_path(offer.shared.record.place))
        with suppress(DamagedRecordError):
            shared = document.read(raw, parts.copied(copies, offer.shared.parts)) if raw else None
            return set(shared.by_path) if shared else set()
        return set()

    def asked_later(self, asked: int) -> list[str]:
        """Paths that will be asked for as well, where one request tells of them too and the remote remembers that."""
        files = [path for offer in self.offers for path in offer.shared.by_path]
        files += [path for offer in self.offers for path in offer.shared.parts_by_path]
        signed = [
            layout.signatures_path(offer.shared.record.place)
            for offer in self.offers
            if self.signing.concerns(offer.beside)
        ]
        later = signed + (files if len(files) <= LOOKED_AT else [])
        return later if asked + len(later) <= self.storage.batch else []

    def lying(self, records: Sequence[Shared], revision: str) -> dict[str, Entry]:
        """What lies at the places of these records' files, and at those named by their digests where one is taken."""
        files = [found for one in records for found in one.paths.values()]
        wanted = {path for _, path in files}
        if self.storage.batch > 1:  # also of files that are elsewhere as well: asked when they are sent
            wanted.update(path for one in records for path in one.by_path)
        known = self._told | {path: entry for path, entry in self._answers.items() if entry}
        unknown = sorted(wanted - known.keys() - self._answers.keys())
        if self.is_far and not self._exact and len(unknown) <= SINGLE:  # sending one tells whether something lies there
            small = {path for file, path in files if file.size <= SOON_SENT}
            unknown = [path for path in unknown if path not in small]
        lying = known | (self.stat(unknown, revision) if unknown else {})
        spare = {layout.blob_path(file.sha256) for file, path in files if self.is_taken(path, lying.get(path), file)}
        return lying | (self.stat(sorted(spare), revision) if spare else {})

    def is_taken(self, path: str, entry: Entry | None, file: File) -> bool:
        """Whether other bytes than those of a file lie at a path, where an entry says so or it was found out."""
        taken = path in self._spoiled or (path, file.sha256) in self.taken
        return taken or (entry is not None and entry.holds(file.size, file.sha256) is False)

    def usable(self, theirs: Shared, offer: Offer, revision: str, *, partly: bool = False) -> Shared | None:
        """The record without modules that can no longer be fetched; None where no module is left.

        Args:
            theirs: The record.
            offer: What is offered in its place.
            revision: The state of the remote.
            partly: It is no record that somebody read up to the first file which is not what the record says.

        Raises:
            RemoteError, AuthError: The remote cannot be asked.
        """
        if not partly and any(path in self._spoiled for _, path in theirs.paths.values()):
            return None  # who found that stopped there: the rest may be no better
        lost = self.gone(theirs, offer, revision)
        if not self.storage.compares:
            spare = self._spare(theirs, lost - offer.sources.keys(), revision)
            lost -= spare.keys()
            left = theirs.places.keys() - lost - self._put_back(theirs, offer, revision)
            theirs = structs.replace(theirs, places=spare | {sha256: theirs.places[sha256] for sha256 in left})
        modules = theirs.record.modules
        kept = tuple(module for module in modules if lost.isdisjoint(file.sha256 for file in module.files))
        return document.with_modules(theirs, kept) if kept else None

    def _spare(self, theirs: Shared, lost: Collection[str], revision: str) -> dict[str, str]:
        """Where files of a record lie below their digests, of which other bytes lie at their own paths, or none."""
        spare = {layout.blob_path(file.sha256): file for file in theirs.record.files if file.sha256 in lost}
        there = self.stat(sorted(spare), revision) if spare else {}
        return {
            spare[path].sha256: path
            for path, entry in there.items()
            if path not in self._spoiled and self._in_use(entry, spare[path]) is not False
        }

    def _put_back(self, theirs: Shared, offer: Offer, revision: str) -> set[str]:
        """The files that lie below their digests only, and that this push can put at their own paths: all are free."""
        own = [
            (path, file.sha256)
            for path, file in paths_of(theirs.record.modules)
            if theirs.places.get(file.sha256, path) != path and file.sha256 in offer.sources
        ]
        there = self.stat(sorted({path for path, _ in own}), revision) if own else {}
        return {sha256 for _, sha256 in own} - {sha256 for path, sha256 in own if path in there}

    def gone(self, theirs: Shared, offer: Offer, revision: str) -> set[str]:
        """Which files of a record can no longer be fetched, by their digests, as far as it is asked.

        Other tools overwrite: optimum-neuron puts its own build of a module in the place of the one that is there. A
        record that names what is gone is refused as a whole by everybody.
        """
        told = {path: Entry(path, file.size, {"sha256": file.sha256}) for path, file in theirs.by_path.items()}
        some = list(told)
        if not self._read and (self.is_far or self.storage.batch > 1):
            known = [path for path in some if path in self._looked_at or path in self._sent]
            rest = [path for path in some if path not in self._looked_at]
            if self.storage.batch > 1 and len(known) < min(LOOKED_AT // 2, len(some)):
                known += random.sample(rest, min(LOOKED_AT - len(known), len(rest)))
            some = known
        lost = self._lost_of(theirs, some, offer, revision) if some else set[str]()
        if lost and len(some) < len(told):
            some = list(told)
            lost = self._lost_of(theirs, some, offer, revision)
        self._told |= {path: entry for path, entry in told.items() if path not in set(some)}
        return lost

    def _lost_of(self, theirs: Shared, paths: Sequence[str], offer: Offer, revision: str) -> set[str]:
        """Which of the files at some of its paths a record has lost, by their digests."""
        wanted = set(paths)
        if self.storage.batch > 1:  # asked for later, and remembered
            wanted.update(offer.shared.parts_by_path, offer.shared.by_path.keys() - theirs.by_path.keys())
        lying = self.stat(sorted(wanted), revision)
        files = theirs.by_path
        return {
            files[path].sha256
            for path in paths
            if files[path].sha256 not in theirs.inline
            and (path not in lying or path in self._spoiled or self._in_use(lying[path], files[path]) is False)
        }

    def losses(self, offer: Offer) -> int:
        """How many files of a record are lost."""
        return sum(path in self._lost for _, path in offer.shared.paths.values())

    def _in_use(self, entry: Entry, file: File) -> bool | None:
        holds = entry.holds(file.size, file.sha256)
        if self._sent.get(entry.path, file.sha256) != file.sha256:
            return False
        if holds is None and self._read:
            holds = reads_as(self.storage, entry.path, file.sha256)
        return holds


def _as_there(offer: Offer, copies: Copies) -> Offer:
    """An offer as the same record lay there when this store last saw it: others may have divided it in another way."""
    raw = copies.get(layout.record_path(offer.shared.record.place))
    if raw is None or raw == offer.shared.document or not document.is_of(raw, offer.shared.record):
        return offer
    with suppress(DamagedRecordError):
        there = document.read(raw, parts.copied(copies, offer.shared.parts))
        if there and there.record == offer.shared.record:  # what has which place, the present state tells
            return structs.replace(offer, shared=structs.replace(there, places=offer.shared.places))
    return offer
