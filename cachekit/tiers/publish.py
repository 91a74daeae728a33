"""Put records on a tier with all that they name: what is new, big files first, then one change; and win every race.

Nothing that lies on a tier is overwritten but records, by what contains both, and the card. A file whose own place is
taken by other bytes (another build of the same module) goes to a place named by its digest.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from cachekit.errors import IntegrityError, RemoteError, UsageError
from cachekit.record import DamagedRecordError
from cachekit.tiers import card, document, layout
from cachekit.tiers.document import Shared
from cachekit.tiers.port import (
    ABSENT,
    BusyError,
    Change,
    ConflictError,
    Document,
    Tell,
    Tier,
    UncertainError,
    Upload,
    Write,
)

RECORD_LIMIT = 64 << 20  # bytes
CARD_LIMIT = 4 << 20
CARD_TRIES = 3  # a card that always loses a race of its own is not worth more
Wait = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Offer:
    """A record to publish.

    Attributes:
        shared: The record with its tiny files.
        sources: The local file of each digest that the tier may lack.
        replaces: Put it in the place of what is there, instead of both; also what seems to be there already.
    """

    shared: Shared
    sources: Mapping[str, Path | bytes]
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """What a push did, or would do.

    Attributes:
        revision: The tier's state with it.
        records: Paths of records that were written.
        files: What was put there.
        unchanged: Records that needed nothing.
        tries: How often it was tried.
        card: The path of the card, where it was written.
    """

    revision: str
    records: tuple[str, ...] = ()
    files: tuple[Upload, ...] = ()
    unchanged: int = 0
    tries: int = 1
    card: str = ""

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class _Draft:
    files: tuple[Upload, ...]
    records: tuple[Write, ...]
    rows: tuple[Shared, ...]
    unchanged: int
    lying: frozenset[str]  # paths of those files where something of their size lies, for the tier to compare

    @property
    def new(self) -> tuple[Upload, ...]:
        """Files that are not there, as far as sizes tell."""
        return tuple(file for file in self.files if file.path not in self.lying)


def publish(
    tier: Tier,
    offers: Sequence[Offer],
    *,
    release: Callable[[str], Write | None] | None = None,
    seconds: float = 900.0,
    tell: Tell = lambda _: None,
    wait: Wait = lambda seconds, _: time.sleep(seconds),
    public: bool = False,
    dry_run: bool = False,
) -> Published:
    """Make records visible on a tier.

    Args:
        tier: Where.
        offers: What; each record once.
        release: What gives a lease back in the same change, built on a revision; where there is one.
        seconds: The deadline: busy tiers are waited for, races are run again.
        tell: Called with bytes sent.
        wait: Sleeps, and tells why.
        public: Put it there also where anybody can read it.
        dry_run: Only find out what would be written.

    Raises:
        UsageError: Anybody can read it, and that was not allowed.
        RemoteError: The tier fails, or is busy beyond the deadline. Nothing partial is visible; what was sent is kept
            where the tier can do that.
        AuthError: The token may not write.
        IntegrityError, OSError: A source is not what it should be, or cannot be read.
    """
    deadline = time.monotonic() + seconds
    replaces = any(offer.replaces for offer in offers)  # then what is there is not believed
    if offers and release is None and not replaces and (unchanged := _unchanged(tier, offers)):
        return unchanged
    title = f"cachekit: {_names(offers)} [{uuid.uuid4().hex[:12]}]"
    taken: set[str] = set()
    for attempt in range(1, 10_000):
        pause, reason = 0.0, ""
        try:
            revision = tier.revision()
            if offers and tier.public and not (public or dry_run):
                raise UsageError(
                    f"anybody can read {tier.name}",
                    cause="what is pushed there tells who made it, and where",
                    hint="see what with `cachekit push --dry-run`; `cachekit push --public` does it all the same",
                )
            draft = _draft(tier, offers, revision, taken)
            done = Published(
                revision, tuple(write.path for write in draft.records), draft.new, draft.unchanged, attempt
            )
            freed = release(revision) if release is not None else None
            if not (draft.records or freed):
                return done
            if not (dry_run or _upload(tier, draft.files, revision, tell, taken)):
                continue
            # Where all changes are one race, the card loses none of its own.
            with_card = draft.records and (attempt <= CARD_TRIES or tier.scarce)
            page = _card(tier, draft, revision) if with_card else []
            done = replace(done, card=layout.CARD if page else "")
            if dry_run:
                return done
            writes = [*draft.records, *page, *([freed] if freed else [])]
            return replace(done, revision=tier.commit(Change(title, draft.files, tuple(writes)), revision))
        except ConflictError as error:
            pause, reason = min(0.05 * 1.6**attempt, 15.0) * random.uniform(0.5, 1.5), error.message  # noqa: S311
            last: RemoteError = error
        except BusyError as error:
            pause = max(error.wait, min(0.5 * 1.8**attempt, 60.0)) * random.uniform(1.0, 1.3)  # noqa: S311
            reason, last = error.message, error
        except UncertainError as error:
            wait(min(2.0, max(0.0, deadline - time.monotonic())), "the answer to a commit was lost; looking for it")
            if landed := tier.happened(title):
                return replace(done, revision=landed)
            pause, reason, last = random.uniform(0.2, 2.0), error.message, error  # noqa: S311
        if time.monotonic() + pause > deadline:
            raise BusyError(  # no outage: it can still be read
                f"{tier.name} could not take the push within {seconds:.0f} s",
                cause=f"{last.message}{': ' + last.cause if last.cause else ''}; tried {attempt} times",
                hint="cachekit push --pending, later",
            ) from last
        wait(pause, reason)
    raise AssertionError("unreachable")


def _unchanged(tier: Tier, offers: Sequence[Offer]) -> Published | None:
    """What there is to say when the tier has it all, which one request tells."""
    documents = {layout.path_of(offer.shared.record): document.write(offer.shared) for offer in offers}
    there = tier.stat(sorted(documents), "")
    if all(path in there and there[path].equals(data) for path, data in documents.items()):
        return Published("", unchanged=len(offers))
    return None


def _names(offers: Sequence[Offer]) -> str:
    names = sorted({offer.shared.record.recipe for offer in offers})
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") or "a lease"  # noqa: PLR2004


def _draft(tier: Tier, offers: Sequence[Offer], revision: str, taken: set[str]) -> _Draft:
    """What is missing on the tier as it is at `revision`."""
    paths = [layout.path_of(offer.shared.record) for offer in offers]
    there = tier.stat(paths, revision) if paths else {}
    wanted: list[tuple[str, Offer, Shared, str]] = []
    for path, offer in zip(paths, offers, strict=True):
        entry, found = there.get(path), None
        if entry is not None:
            if not offer.replaces and entry.equals(document.write(offer.shared)):
                continue
            found = tier.read(path, revision, RECORD_LIMIT)
        merged, token = _merged(tier, offer, found, revision)
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
        if path in taken or (path in lying and lying[path].holds(file.size, file.sha256) is False)
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
                    place in taken
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
    known = frozenset(uploads) & lying.keys()
    return _Draft(tuple(uploads.values()), tuple(records), tuple(rows), len(offers) - len(wanted), known)


def _merged(tier: Tier, offer: Offer, found: Document | None, revision: str) -> tuple[Shared | None, str]:
    """What to write for an offer, and on top of what; None where nothing is to be written."""
    token = found.token if found else ABSENT
    if found and not offer.replaces and found.data == document.write(offer.shared):
        return None, token  # ours: a tier that knows no digests did not tell before
    try:
        theirs = document.read(found.data) if found else None
    except DamagedRecordError:
        return offer.shared, token  # nobody can use what is there
    if found and theirs is None:
        return None, token  # a later cachekit's record
    if theirs is not None and layout.path_of(theirs.record) != layout.path_of(offer.shared.record):
        return offer.shared, token  # another key's
    usable = _usable(tier, theirs, revision) if theirs and not offer.replaces else None
    merged = document.merge(offer.shared, usable)
    if theirs is not None and not offer.replaces and document.write(merged) == document.write(theirs):
        return None, token
    return merged, token


def _usable(tier: Tier, theirs: Shared, revision: str) -> Shared | None:
    """A record without what nobody can fetch any more; None where nothing is left.

    Other tools overwrite: optimum-neuron puts its own build of a module in the place of the one that is there. A record
    that names what is gone is refused as a whole by everybody, so that it goes.
    """
    paths = theirs.paths()
    lying = tier.stat(sorted({path for _, path in paths.values()}), revision)
    lost = {
        sha256
        for sha256, (file, path) in paths.items()
        if sha256 not in theirs.inline and (path not in lying or lying[path].holds(file.size, sha256) is False)
    }
    kept = tuple(module for module in theirs.record.modules if lost.isdisjoint(file.sha256 for file in module.files))
    return replace(theirs, record=structs.replace(theirs.record, modules=kept)) if kept else None


def _upload(tier: Tier, files: Sequence[Upload], revision: str, tell: Tell, taken: set[str]) -> bool:
    """Send files; where other bytes turn out to lie at a path, note that and say False."""
    if not files:
        return True
    try:
        tier.upload(files, revision, tell)
    except ConflictError:
        if len(files) == 1:
            path = files[0].path
            if path == layout.blob_path(files[0].sha256):  # there is no other place
                raise IntegrityError(
                    f"{tier.name} is damaged",
                    cause=f"{path} has other bytes than its name says",
                    hint="remove that file there, and push again",
                ) from None
            taken.add(path)
            return False
        fitted = [_upload(tier, [file], revision, tell, taken) for file in files]  # every one, not only up to the first
        return all(fitted)
    return True


def _card(tier: Tier, draft: _Draft, revision: str) -> list[Write]:
    try:
        found = tier.read(layout.CARD, revision, CARD_LIMIT)
    except IntegrityError:  # people made it too large to be changed here; that must not stop a push
        return []
    page = found.data if found else b""
    said = card.total(page)
    if tier.scarce and said is not None:  # each card goes with its records there, so that the last one is right
        count = said + sum(write.token == ABSENT for write in draft.records)
    else:
        there = {entry.path for entry in tier.list(layout.RECORDS, revision)}
        count = len(there | {write.path for write in draft.records})
    text = card.update(page, [row.record for row in draft.rows], count)
    if found and text == found.data:
        return []
    return [Write(layout.CARD, text, found.token if found else ABSENT)]
