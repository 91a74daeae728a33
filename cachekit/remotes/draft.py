"""What a push would change on a tier: which records, merged with those that are there, and which files with them.

Nothing that lies on a tier is overwritten but records, by what contains both. A file whose own place is taken by other
bytes (another build of the same module, or what somebody damaged) goes to a place named by its digest.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from cachekit.remotes import document, layout
from cachekit.remotes.document import RECORD_LIMIT, Shared
from cachekit.remotes.port import ABSENT, Document, Entry, Tier, TooLargeError, Upload, Write
from cachekit.store.record import DamagedRecordError, File, Record, twins


@dataclass(frozen=True, slots=True)
class Offer:
    """A record to publish.

    Attributes:
        shared: The record with its tiny files.
        sources: The local file of each digest that the tier may lack.
        replaces: Put it in the place of what is there, instead of both.
    """

    shared: Shared
    sources: Mapping[str, Path | bytes]
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """What a push would change.

    Attributes:
        files: What is missing.
        records: Documents to write.
        rows: The same records.
        unchanged: How many need nothing.
        damaged: Keys of records that nobody could use as they are, with the reason.
        lying: Paths of those files where something of their size lies, for the tier to compare.
        others: Records as they lie there, of which this machine has another build.
    """

    files: tuple[Upload, ...]
    records: tuple[Write, ...]
    rows: tuple[Shared, ...]
    unchanged: int
    damaged: Mapping[str, str]
    lying: frozenset[str]
    others: tuple[Record, ...] = ()

    @property
    def new(self) -> tuple[Upload, ...]:
        """Files that are not there, as far as sizes tell."""
        return tuple(file for file in self.files if file.path not in self.lying)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of files on a tier.

    Attributes:
        spoiled: Paths of files that are not what the records there say.
        read: Read those of which the tier tells no digest.
        taken: Paths where other bytes lie than are offered.
        lost: Paths where a file is not, although its record may be there.
        others: Records as they lie there by key, of which this machine has another build.
    """

    spoiled: Collection[str]
    read: bool
    taken: set[str]
    lost: set[str]
    others: dict[str, Record] = field(default_factory=dict)

    def losses(self, offer: Offer) -> int:
        """How many files of a record are lost."""
        return sum(path in self.lost for _, path in offer.shared.paths().values())


def look(tier: Tier, offers: Sequence[Offer], known: Known) -> bool:
    """Whether the tier has it all, as far as one request tells, or as far as can be known where that is asked for.

    Anybody may overwrite or remove a file there: optimum-neuron does.
    """
    documents = {layout.path_of(offer.shared.record): document.write(offer.shared) for offer in offers}
    files = {path: (file, offer) for offer in offers for file, path in offer.shared.paths().values()}
    wanted = list(files)
    random.shuffle(wanted)  # where there are more than fit in, other ones at the next push
    wanted = wanted if known.read else wanted[: max(0, tier.batch - len(documents))]
    there = tier.stat([*sorted(documents), *wanted], "")
    for path in wanted:
        file, offer = files[path]
        if path not in there:
            known.lost.add(path)
        elif file.sha256 in offer.shared.inline:
            continue  # whoever has the record has its bytes; those that lie there are not overwritten
        elif path in known.spoiled or _holds(tier, there[path], file, read=known.read) is False:
            known.lost.add(path)
            known.taken.add(path)
    known.lost.update(path for path in known.spoiled if path in files)
    return not known.lost and all(path in there and there[path].equals(data) for path, data in documents.items())


def _holds(tier: Tier, entry: Entry, file: File, *, read: bool) -> bool | None:
    holds = entry.holds(file.size, file.sha256)
    if holds is None and read:
        digest = hashlib.sha256()
        for chunk in tier.chunks(entry.path, ""):
            digest.update(chunk)
        holds = digest.hexdigest() == file.sha256
    return holds


def draft(tier: Tier, offers: Sequence[Offer], revision: str, known: Known) -> Draft:
    """What is missing on the tier as it is at `revision`."""
    paths = [layout.path_of(offer.shared.record) for offer in offers]
    there = tier.stat(paths, revision) if paths else {}
    wanted: list[tuple[str, Offer, Shared, str]] = []
    damaged: dict[str, str] = {}
    for path, offer in zip(paths, offers, strict=True):
        entry, found = there.get(path), None
        merged: Shared | None = offer.shared
        try:
            if entry is not None:
                if not known.losses(offer) and entry.equals(document.write(offer.shared)):
                    continue
                found = tier.read(path, revision, RECORD_LIMIT)
            token = found.token if found else ABSENT
            merged = _merged(tier, offer, found, revision, known)
        except TooLargeError as error:  # a document without end must not keep a team from its key
            token, damaged[offer.shared.record.key] = error.token, error.cause or error.message
        except DamagedRecordError as error:
            damaged[offer.shared.record.key] = str(error)
        if merged is not None:
            wanted.append((path, offer, merged, token))
    # At each path the first one's bytes: two records of one push may name two builds of a module as well.
    uploads: dict[str, Upload] = {}
    own = {path for _, _, shared, _ in wanted for _, path in shared.paths().values()}
    lying = tier.stat(sorted(own), revision) if own else {}
    spare = {
        layout.blob_path(file.sha256)
        for _, _, shared, _ in wanted
        for file, path in shared.paths().values()
        if path in known.taken or (path in lying and lying[path].holds(file.size, file.sha256) is False)
    }
    lying |= tier.stat(sorted(spare), revision) if spare else {}
    records, rows = [], []
    for path, offer, shared, token in wanted:
        places = dict(shared.places)
        for module in shared.record.modules:
            for file in module.files:
                place = places.get(file.sha256) or layout.file_path(module, file)
                entry, other = lying.get(place), uploads.get(place)
                if (
                    place in known.taken
                    or (entry and entry.holds(file.size, file.sha256) is False)
                    or (other and other.sha256 != file.sha256)
                ):
                    place = places[file.sha256] = layout.blob_path(file.sha256)
                    entry = lying.get(place)
                source = offer.sources.get(file.sha256)
                if source is not None and not (entry and entry.holds(file.size, file.sha256)):
                    uploads[place] = Upload(place, file.size, file.sha256, source)
        final = replace(shared, places=places)
        records.append(Write(path, document.write(final), token))
        rows.append(final)
    known_there = frozenset(uploads) & lying.keys()
    return Draft(
        tuple(uploads.values()),
        tuple(records),
        tuple(rows),
        len(offers) - len(wanted),
        damaged,
        known_there,
        tuple(known.others.values()),
    )


def _merged(tier: Tier, offer: Offer, found: Document | None, revision: str, known: Known) -> Shared | None:
    """What to write for an offer; None where nothing is to be written.

    Raises:
        DamagedRecordError: Nobody can use what is there.
    """
    if found and found.data == document.write(offer.shared):  # a tier that knows no digests did not tell before
        if lost := known.losses(offer):
            raise DamagedRecordError(f"{lost} of its files are gone, or overwritten by others")
        return None
    theirs = document.read(found.data) if found else None
    if found and theirs is None:
        return None  # a later cachekit's record
    if theirs is not None and layout.path_of(theirs.record) != layout.path_of(offer.shared.record):
        raise DamagedRecordError("it is another key's record")
    if theirs is not None and twins(offer.shared.record, theirs.record):
        known.others[theirs.record.key] = theirs.record
    usable = _usable(tier, theirs, revision, known) if theirs and not offer.replaces else None
    merged = document.merge(offer.shared, usable)
    if theirs is not None and document.write(merged) == document.write(theirs):
        return None
    return merged


def _usable(tier: Tier, theirs: Shared, revision: str, known: Known) -> Shared | None:
    """A record without what nobody can fetch any more; None where nothing is left.

    Other tools overwrite: optimum-neuron puts its own build of a module in the place of the one that is there. A record
    that names what is gone is refused as a whole by everybody, so that it goes.
    """
    paths = theirs.paths()
    if any(path in known.spoiled for _, path in paths.values()):
        return None  # who found that stopped there: the rest may be no better
    lying = tier.stat(sorted({path for _, path in paths.values()}), revision)
    lost = {
        sha256
        for sha256, (file, path) in paths.items()
        if sha256 not in theirs.inline
        and (path not in lying or _holds(tier, lying[path], file, read=known.read) is False)
    }
    kept = tuple(module for module in theirs.record.modules if lost.isdisjoint(file.sha256 for file in module.files))
    return replace(theirs, record=structs.replace(theirs.record, modules=kept)) if kept else None
