"""What a push would change on a remote: which records, merged with those that are there, and which files with them.

Nothing that lies on a remote is overwritten but records, by what contains both. A file whose place is taken by other
bytes (another build of the same module, or what somebody damaged) goes to a place named by its digest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct, structs

from cachekit.errors import TooLargeError
from cachekit.remotes import document, layout, packs, parts
from cachekit.remotes.additions import Additions
from cachekit.remotes.comparison import Comparison
from cachekit.remotes.document import Shared
from cachekit.remotes.index import digits_of
from cachekit.remotes.offer import Draft, Offer
from cachekit.remotes.port import ABSENT, Document, Entry, Upload, Write
from cachekit.remotes.signing import ToSign
from cachekit.store import divergent
from cachekit.store.origin import HERE, Origin, ReusedOrigin, chain
from cachekit.store.record import LARGEST, DamagedRecordError, Record, covers, file_path

LATER = "a later cachekit has written the one that is there"


class _Merged(Struct, frozen=True):
    """The record to write at the path of an offer, on top of the state that a token names.

    Attributes:
        reused: The record there, where this one has modules of it.
        there: The names of the modules that were there, and stay.
        gone: And of those that do not.
        digest: The first digits of the digest of the record there.
    """

    path: str
    offer: Offer
    shared: Shared
    token: str
    reused: tuple[ReusedOrigin, ...] = ()
    there: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    digest: str = ""

    @property
    def to_sign(self) -> ToSign:
        """The record as something to sign."""
        return ToSign(self.shared.record, self.offer.beside, self.reused)


class Drafts:
    """Makes the drafts of one push: one for each try, of what is missing on the remote then.

    Args:
        compared: What lies there.

    Attributes:
        additions: What this push and others add to records, where a race may lose it.
    """

    def __init__(self, compared: Comparison) -> None:
        self._compared = compared
        self._storage, self._offers, self._signing = compared.storage, compared.offers, compared.signing
        self.additions = Additions(self._storage, self._signing, self._offers)
        # Of the last draft: records there by key, of which this machine has another build; why nobody, or not this
        # user, could use a record there as it is, and why it is left as it is, by key; and the offers that lie there.
        self._others: dict[str, Record] = {}
        self._damaged: dict[str, str] = {}
        self._left: dict[str, str] = {}
        self._same: list[Offer] = []
        self._held: list[Shared] = []
        self._packs: dict[tuple[str, ...], list[Upload]] = {}  # by what is in them
        self._named: set[str] = set()  # paths of parts that the records there name

    def draft(self, revision: str) -> Draft:
        """What is missing on the remote as it is at `revision`."""
        self._damaged, self._left, self._others, self._named = {}, {}, {}, set()
        self._same, self._held = [], []
        first, guessed = self._compared.begin()
        merged = list(self._merged_all(first, revision))
        if guessed and (not merged or self._left):  # nothing is written that would tell: it is read
            return self.draft(revision)
        lying = self._compared.lying([one.shared for one in merged], revision)
        uploads: dict[str, Upload] = {}
        records, rows, additions = [], [], list[Write]()
        for one in merged:
            before = set(uploads)
            final = self._placed(one, lying, uploads)
            if self._storage.lines > 1:
                new = [file for path, file in uploads.items() if path not in before | lying.keys()]
                uploads |= {pack.path: pack for pack in self._packed(final, one.offer, new)}
            # Whoever merges an addition sees whether its files are there, but not whether they have the right bytes.
            replaces = one.offer.replaces and not self.additions.looked  # what came since stays
            additions += self.additions.writes(one.to_sign, final, one.there, one.gone, replaces=replaces)
            records.append(Write(one.path, final.document, one.token))
            rows.append(final)
        left = [*(offer.shared for offer in self._same), *self._held]
        lacking = tuple(self._parts(rows, left, revision))
        own = [one for one in merged if one.shared.record.key not in self._left]
        harmed = {write.path for write in lacking}
        for shared in left:
            if not harmed.isdisjoint(shared.parts_by_path):
                self._damaged[shared.record.key] = "parts of it are gone, or overwritten by others"
        signatures, signed = self._signatures(own, revision)
        return Draft(
            tuple(uploads.values()),
            lacking,
            tuple(additions),
            tuple(records),
            tuple(row for row in rows if row.record.key not in self._left),
            {**dict.fromkeys(self._damaged, ""), **{one.shared.record.key: one.digest for one in merged if one.gone}},
            tuple(offer.shared for offer in self._same),
            tuple(self._held),
            len(self._offers) - len(own) - len(self._left),
            self._damaged,
            self._left,
            frozenset(uploads) & lying.keys(),
            tuple(self._others.values()),
            signatures,
            signed,
        )

    def _packed(self, shared: Shared, offer: Offer, new: Sequence[Upload]) -> list[Upload]:
        """What is new of a record and small, in packs; made once."""
        files = {file.sha256: file for file in new if file.sha256 not in shared.inline}
        modules = shared.record.modules
        had = sum(files.keys().isdisjoint(file.sha256 for file in module.files) for module in modules)
        grows = had > 0 and len(files) < packs.FEW
        groups = packs.groups_after(had, shared.record, offer.sources, shared.inline) if grows else [files.values()]
        names = tuple(file.sha256 for group in groups for file in group)
        if names not in self._packs:
            least = 2 if grows else packs.FEW
            self._packs[names] = [one for group in groups for one in packs.packed(shared.record.key, group, least)]
        return [pack for pack in self._packs[names] if (pack.path, pack.sha256) not in self._compared.taken]

    def _parts(self, written: Sequence[Shared], left: Sequence[Shared], revision: str) -> Iterator[Write]:
        """The parts of records that are not there, or damaged, as far as this machine has them.

        Where each look costs a request, those that a record there names are taken to be there, and the others for new,
        until another push was faster: but not by a push that reads what lies there, or whose run found it damaged.
        """
        far = self._compared.is_far and not self._compared.reads
        some = written if far else (*written, *left)
        wanted = {path: raw for shared in some for path, raw in shared.parts_by_path.items()}
        if far:
            wanted = {path: raw for path, raw in wanted.items() if path not in self._named}
        asked = wanted if self._compared.drafts > 1 or not far else {}
        there = self._compared.stat(sorted(asked), revision) if asked else {}
        for path, raw in wanted.items():
            if path in there and self._compared.says_so(there[path], raw):
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
        there = self._compared.stat([layout.signatures_path(one.record.place) for one in todo], revision)
        writes: list[Write] = []
        signed = {}
        for one in todo:
            exists = layout.signatures_path(one.record.place) in there
            write, raw = self._signing.write(self._storage, revision, one, exists=exists)
            writes += [write] if write else []
            signed[one.record.key] = raw
        return tuple(writes), signed

    def _merged_all(self, first: Mapping[str, Document | None], revision: str) -> Iterator[_Merged]:
        """The records to write."""
        paths = [layout.record_path(offer.shared.record.place) for offer in self._offers]
        asked = [path for path in paths if path not in first]
        there = self._compared.stat([*asked, *self._compared.asked_later(len(asked))], revision) if asked else {}
        for path, offer in zip(paths, self._offers, strict=True):
            key, entry, found = offer.shared.record.key, there.get(path), first.get(path)
            merged: _Merged | None = (own := _Merged(path, offer, offer.shared, ABSENT))
            overtaken = self.additions.concern(key)
            try:
                if not overtaken and entry and not self._compared.losses(offer) and entry.equals(offer.shared.document):
                    self._same.append(offer)
                    continue
                if overtaken or entry is not None or found is not None:
                    found = found or self._storage.read(path, revision, LARGEST)
                    own = structs.replace(own, token=found.token if found else ABSENT)
                    try:
                        merged = self._merged(own, found, revision)
                    except DamagedRecordError:  # on its way, maybe: what goes in its place would lack what it has
                        again = self._storage.read(path, revision, LARGEST)
                        if again is None or again == found:
                            raise
                        own = structs.replace(own, token=again.token)
                        merged = self._merged(own, again, revision)
            except TooLargeError as error:  # a document without end must not keep a team from its key
                merged = structs.replace(own, token=error.token)
                self._damaged[key] = error.cause or error.message
            except DamagedRecordError as error:
                merged = own
                self._damaged[key] = str(error)
            if merged is not None:
                yield merged

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
                if self._compared.is_taken(place, entry, file) or (other and other.sha256 != file.sha256):
                    place = places[file.sha256] = layout.blob_path(file.sha256)
                    entry = lying.get(place)
                if not (entry and entry.holds(file.size, file.sha256)):
                    uploads[place] = Upload(place, file.size, file.sha256, source)
        return structs.replace(one.shared, places=places)

    def _merged(self, own: _Merged, found: Document | None, revision: str) -> _Merged | None:
        """What to write for an offer, merged with what lies there; None where nothing is to be written.

        Raises:
            DamagedRecordError: Nobody can use what is there.
        """
        offer = own.offer
        key = offer.shared.record.key
        if found and found.data == offer.shared.document and not self.additions.concern(key):
            # A remote that knows no digests did not tell before.
            if lost := self._compared.losses(offer):
                raise DamagedRecordError(f"{lost} of its files are gone, or overwritten by others")
            self._same.append(offer)
            return None
        fetch = parts.fetching(self._storage, revision, offer.shared.parts)
        theirs = document.read(found.data, fetch) if found else None
        if found and theirs is None:
            self._left[key] = LATER
            return None
        if theirs is not None and layout.record_path(theirs.record.place) != layout.record_path(
            offer.shared.record.place
        ):
            raise DamagedRecordError("it is the record of another key")
        self._named.update(theirs.cut.paths if theirs else ())
        mine = offer.shared.record
        origin, why = self._origin(theirs, mine, revision) if theirs else (None, "")
        if theirs and origin is None:
            if signer := self._signing.leaves(theirs.record, offer.beside, revision):
                gone = self._compared.gone(theirs, offer, revision)
                if covers(mine, _with(theirs.record, gone)):  # at no path that only a stranger names
                    again = ", and the files that were missing from it are there again" if gone else ""
                    self._left[key] = f"{why}; it stays for those who trust {signer}{again}"
                    return structs.replace(own, shared=theirs, there=_names(theirs)) if gone else None
                why = f"{why}; {len(gone)} of its files are gone, or overwritten by others"  # so it helps nobody
            self._damaged[key] = why
        if theirs and origin and divergent.compare(mine, theirs.record):
            self._others[theirs.record.key] = theirs.record
        usable = self._compared.usable(theirs, offer, revision) if theirs and origin and not offer.replaces else None
        merged, added = document.merge(offer.shared, usable), list[ReusedOrigin]()
        if self._compared.reads and not offer.replaces and (missing := _names(theirs) - _names(merged)):
            self.additions.recall(mine, missing)
        taken = self.additions.to(merged)
        if taken:  # in one question, as far as the remote answers many
            self._compared.ask_again({path for other, _ in taken for path in other.by_path}, revision)
        for other, chained in taken:
            if sound := self._compared.usable(other, offer, revision, partly=True):
                merged, added = document.merge(sound, merged), [*added, *chained]
        anew = self.additions.again(key)
        # Where it lacks files, those that are here are sent.
        if theirs is not None and merged.raw == theirs.raw and _names(usable) == _names(theirs) and not anew:
            if theirs.record == mine:
                self._same.append(structs.replace(offer, shared=theirs))
            else:
                self._held.append(theirs)
            return None
        reused: tuple[ReusedOrigin, ...] = ()
        if usable and theirs and origin and mine not in {merged.record, theirs.record}:
            there = structs.replace(origin, remote=self._storage.name)
            reused = (*chain(mine, offer.beside.origin), *chain(theirs.record, there))
        reused = tuple(dict.fromkeys((*reused, *added)))
        wanted = usable or (theirs and origin and offer.replaces)
        if wanted and not self._signing.may_replace(ToSign(merged.record, offer.beside, reused)):
            if offer.replaces:
                self._left[key] = "the record there is signed, but yours would not be"
            return None  # whoever uses what is there would lose it
        left_out = _names(theirs) - _names(merged)
        return structs.replace(
            own,
            shared=merged,
            reused=reused,
            there=_names(usable).difference(anew),
            gone=left_out,
            digest=digits_of(theirs.record) if theirs else "",
        )

    def _origin(self, theirs: Shared, mine: Record, revision: str) -> tuple[Origin | None, str]:
        """Why what lies there may be used; None where it may not, and why not: then it counts as absent."""
        return (HERE, "") if theirs.record == mine else self._signing.origin(theirs, revision)


def _with(record: Record, files: Collection[str]) -> Record:
    """A record with those of its modules that have one of these files."""
    modules = (module for module in record.modules if any(file.sha256 in files for file in module.files))
    return structs.replace(record, modules=tuple(modules))


def _names(shared: Shared | None) -> frozenset[str]:
    return frozenset(module.name for module in shared.record.modules) if shared else frozenset()
