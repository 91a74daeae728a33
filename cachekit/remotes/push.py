"""Push records of the store to the remotes; what cannot be pushed now is noted and offered again."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct

from cachekit import calls
from cachekit.errors import (
    CachekitError,
    IntegrityError,
    RemoteError,
    SecretError,
    SkippedError,
    StoreError,
    UntrustedError,
)
from cachekit.events import Journal, bypass
from cachekit.files import read
from cachekit.remotes import layout
from cachekit.remotes.budget import CLOCK
from cachekit.remotes.document import INLINE, Shared
from cachekit.remotes.draft import LATER
from cachekit.remotes.judging import OWN
from cachekit.remotes.lease import Lease
from cachekit.remotes.offer import Draft, Offer
from cachekit.remotes.publish import publish
from cachekit.remotes.remote import Found, Remote
from cachekit.remotes.remotes import Remotes
from cachekit.remotes.signing import Signing
from cachekit.store import Store, divergent
from cachekit.store.record import Record, check_shareable
from cachekit.text import cause_of
from cachekit.values import Answer

_LEFT = (
    "sign yours (`cachekit trust init`) and name the other record's signer (`cachekit trust add NAME KEY`), even if "
    "that was a key of your own; or revoke that key (`cachekit trust revoke KEY`); then: cachekit push --pending"
)


class SentFile(Struct, frozen=True):
    """A file that a push puts on a remote."""

    path: str
    bytes: int


class RefusedRecord(Struct, frozen=True):
    """A record of the store that is not given to others, and why."""

    key: str
    recipe: str
    reason: str


class Pushed(Answer, frozen=True, kw_only=True, tag="cachekit/push-remote/1"):
    """What a push put on one remote, or would put there.

    Attributes:
        records: Paths of the records that were written.
        signatures: And of the signatures over records.
        refused: Records that are not given to others.
        unchanged: How many other records were there already.
        card: The path of the remote's README, where that was written.
        index: The path of the remote's index, likewise.
        tries: How often the change was offered before the remote took it.
        error: Why the push failed.
        seconds: Wall time.
        leaks: What the records tell about who made them, where anybody may read the remote.
    """

    remote: str
    records: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    refused: tuple[RefusedRecord, ...] = ()
    unchanged: int = 0
    files: tuple[SentFile, ...] = ()
    bytes: int = 0
    card: str = ""
    index: str = ""
    revision: str = ""
    tries: int = 0
    error: CachekitError | None = None
    seconds: float
    leaks: tuple[str, ...] = ()


def push(
    store: Store,
    remotes: Remotes,
    records: Sequence[Record],
    only: Sequence[Remote] | None = None,
    *,
    lease: Lease[Found] | None = None,
    public: bool = False,
    replaces: bool = False,
    dry_run: bool = False,
    recheck: bool = False,
    by_hand: bool = False,
) -> list[Pushed]:
    """Put records on remotes. Never raises for a remote that fails: the training that made them has worked.

    Args:
        store: Has them.
        remotes: Those of this run: those that are left out now get what is new later.
        records: The records.
        only: Which of them; by default every one that may be written.
        lease: Of the key, where this process compiled it: given back in the same change.
        public: Put them also where anybody can read them.
        replaces: Put them in the place of others of the same keys.
        dry_run: Only find out what would be sent.
        recheck: Look at all files of records that are there already.
        by_hand: Somebody waits for it: it may take as long as it moves, where a run's is ended after `push_seconds`.

    Raises:
        IntegrityError: A blob of a record is damaged; it has been set aside.
    """
    with store.using():
        offers = [offer(store, record, replaces=replaces) for record in records]
        for record in records if not dry_run else ():
            remotes.postpone(record.key)
        limit = min(remotes.push_seconds, calls.left())
        with nullcontext() if by_hand else calls.ending(limit):
            return [
                _push(store, remote, offers, lease, limit, public=public, dry_run=dry_run, recheck=recheck)
                for remote in (remotes.writable if only is None else only)
            ]


def offer(store: Store, record: Record, *, replaces: bool = False) -> Offer:
    """A record of the store as it goes to a remote: with its tiny files inside, and where the others lie here.

    Raises:
        IntegrityError: A blob of it is damaged; it has been set aside.
    """
    store.use(record.files)
    damaged = store.lacking(record.files, record)
    if damaged:
        raise IntegrityError(
            f"record {record.key[:16]} is incomplete",
            cause=f"{damaged[0].path} is missing or damaged",
            hint="warm it again",
        )
    files = {file.sha256: file for file in record.files}
    tiny, room = {}, INLINE  # the smallest first: the others are fetched as large ones are
    for file in sorted(files.values(), key=lambda file: (file.size, file.sha256)):
        if file.size <= min(layout.TINY, room):
            tiny[file.sha256] = read(store.layout.blob(file.sha256))
            room -= file.size
    sources: dict[str, Path | bytes] = {sha256: tiny.get(sha256, store.layout.blob(sha256)) for sha256 in files}
    return Offer(Shared(record, tiny), sources, replaces=replaces, beside=store.origins.of(record))


def _push(
    store: Store,
    remote: Remote,
    offers: Sequence[Offer],
    lease: Lease[Found] | None,
    limit: float,
    *,
    public: bool,
    dry_run: bool,
    recheck: bool,
) -> Pushed:
    start = time.monotonic()
    problems = [_refusal(remote, one) for one in offers]
    refused = _told_refused(store, remote, zip(offers, problems, strict=True))
    offers = [one for one, problem in zip(offers, problems, strict=True) if problem is None]
    refusal = None if offers else next(filter(None, problems), None)
    mine = lease if lease is not None and lease.remote is remote.storage else None
    keys = [offer.shared.record.key for offer in offers]
    if refusal is not None and mine is None:
        return Pushed(remote=remote.name, refused=refused, error=refusal, seconds=0.0)
    store.journal.emit("push.start", remote=remote.name, keys=keys)
    resumed = not remote.pending().isdisjoint(keys)
    for key in () if dry_run else keys:  # this process may be killed before their rows are in the index
        remote.keep_pending(key)

    def wait(seconds: float, reason: str) -> None:
        store.journal.show("push.wait", remote=remote.name, seconds=seconds, reason=reason)
        if mine is not None:
            mine.settled(removed=False)
        CLOCK.sleep(seconds)

    signing = Signing(remote.trust, remote, dry_run=dry_run)
    try:
        with remote.call() as storage:
            done = publish(
                storage,
                offers,
                release=mine.give_back if mine is not None else None,
                seconds=limit,
                tell=_progress(store.journal, remote.name),
                wait=wait,
                public=public,
                dry_run=dry_run,
                recheck=recheck,
                spoiled=remote.spoiled,
                signing=signing,
                resumed=resumed,
            )
    except Exception as error:  # noqa: BLE001 - whatever it is: what was to be pushed has cost hours, and works
        reason = error if isinstance(error, CachekitError) else _unforeseen(remote, error)
        trouble = lease.trouble if lease is not None and lease.remote is remote.storage else None
        told = reason.said in {remote.told, trouble.said if trouble is not None else ""}
        told = told or (isinstance(reason, SkippedError) and bool(remote.told))
        _note_failure(store, remote, keys, reason, told=told, dry_run=dry_run)
        if isinstance(reason, RemoteError) and not dry_run:
            kept = "" if "--pending" in reason.hint else "the records are kept; later: cachekit push --pending"
            reason.hint = "; ".join(filter(None, [reason.hint, kept]))
        return Pushed(remote=remote.name, refused=refused, error=reason, seconds=round(time.monotonic() - start, 3))
    files = tuple(SentFile(file.path, file.size) for file in done.new)
    left = [_left(remote, one, done.draft) for one in offers]
    if offers and all(left):
        refusal = left[0]
    pushed = Pushed(
        remote=remote.name,
        records=tuple(layout.record_path(row.record.place) for row in done.draft.rows),
        signatures=tuple(write.path for write in done.draft.signatures if write.data is not None),
        refused=(*refused, *_told_refused(store, remote, zip(offers, left, strict=True))),
        error=refusal,
        unchanged=done.draft.unchanged,
        files=files,
        bytes=sum(file.bytes for file in files),
        card=layout.CARD if layout.CARD in done.derived else "",
        index=layout.INDEX if layout.INDEX in done.derived else "",
        revision=done.revision,
        tries=done.tries,
        seconds=round(time.monotonic() - start, 3),
    )
    _tell_what_was_found(store, remote, offers, done.draft, signing, dry_run=dry_run)
    if not dry_run:
        if mine is not None:
            mine.settled(removed=True)
        _note_success(store, remote, offers, done.draft, pushed)
    return pushed


def _progress(journal: Journal, remote: str) -> Callable[[int], None]:
    """Shows how much was sent; several threads tell it."""
    lock, sent = threading.Lock(), 0

    def tell(size: int) -> None:
        nonlocal sent
        with lock:
            sent += size
            journal.show("push.progress", remote=remote, bytes=sent)

    return tell


def _tell_what_was_found(
    store: Store, remote: Remote, offers: Sequence[Offer], draft: Draft, signing: Signing, *, dry_run: bool
) -> None:
    """Tell of records on the remote that were damaged, and of ours that nobody there will use without a signature."""
    repaired = "a push would replace it" if dry_run else "this push replaced it"
    for key, damage in draft.damaged.items():
        store.journal.emit("remote.damaged", remote=remote.name, key=key, reason=f"{damage}; {repaired}")
    others = {*draft.left, *(other.key for other in draft.others)}
    unsigned = [
        key for one in offers if (key := one.shared.record.key) not in others and not signing.concerns(one.beside)
    ]
    if unsigned and remote.trust.said.get(remote.name) == "signed":
        signs = bool(remote.trust.table.key)
        store.journal.emit("push.unsigned", remote=remote.name, keys=unsigned, signs=signs)


def _note_success(store: Store, remote: Remote, offers: Sequence[Offer], draft: Draft, pushed: Pushed) -> None:
    """Nothing is pending any more but what was left, and what the remote had of other builds is told."""
    ours = {offer.shared.record.key: offer.shared.record for offer in offers}
    for other in draft.others:
        divergent.tell(store.layout, store.journal, ours[other.key], other, remote.name)
    remote.refresh()
    remote.settled(list(ours))
    for key in draft.left:
        remote.keep_pending(key)
    remote.spoiled.clear()
    recipes = {record.recipe for record in ours.values()}
    store.journal.emit(
        "push.end",
        remote=remote.name,
        keys=[key for key in ours if key not in draft.left],
        recipe=recipes.pop() if len(recipes) == 1 else "",
        records=len(pushed.records),
        files=len(pushed.files),
        bytes=pushed.bytes,
        tries=pushed.tries,
        seconds=pushed.seconds,
    )


def _note_failure(
    store: Store, remote: Remote, keys: list[str], reason: CachekitError, *, told: bool, dry_run: bool
) -> None:
    """What was to be pushed is pending, and offered again; why it failed may have been told of the lease."""
    for key in keys if not dry_run else ():
        remote.keep_pending(key)
    said = {"reason": reason.message, "cause": reason.cause, "told": told}
    store.journal.emit("push.failed", remote=remote.name, keys=keys, code=reason.code, **said)
    bypass(store.journal, "push-failed", remote.name)


def _told_refused(
    store: Store, remote: Remote, judged: Iterable[tuple[Offer, CachekitError | None]]
) -> tuple[RefusedRecord, ...]:
    """The records that are not given to others, each of which is told."""
    refused = []
    for one, problem in judged:
        if problem is not None:
            said = {"reason": problem.message, "cause": problem.cause, "hint": problem.hint}
            store.journal.emit("push.refused", remote=remote.name, **said)
            refused.append(RefusedRecord(one.shared.record.key, one.shared.record.recipe, problem.cause))
    return tuple(refused)


def _left(remote: Remote, offered: Offer, draft: Draft) -> CachekitError | None:
    """Why a record was not put there: somebody else's keeps its place; None where that is not so."""
    reason = draft.left.get(offered.shared.record.key)
    hint = "install a later cachekit, then: cachekit push --pending" if reason == LATER else _LEFT
    return _not_shared(remote, offered.shared.record, reason, hint) if reason else None


def _refusal(remote: Remote, offered: Offer) -> CachekitError | None:
    """Why a record is not given to others: a secret in it, or an origin that nobody vouches for."""
    record = offered.shared.record
    try:
        check_shareable(record)
    except SecretError as error:
        return error
    if reason := remote.trust.unshared(record, offered.beside):
        return _not_shared(remote, record, reason, OWN)
    return None


def _not_shared(remote: Remote, record: Record, reason: str, hint: str) -> UntrustedError:
    return UntrustedError(
        f"{record.recipe} ({record.key[:12]}) is not shared with {remote.name}", cause=reason, hint=hint
    )


def _unforeseen(remote: Remote, error: Exception) -> CachekitError:
    if isinstance(error, OSError):  # of this machine's disks
        folders = " and ".join(filter(None, ["CACHEKIT_HOME", remote.storage.staging]))
        return StoreError(
            f"the files for {remote.name} cannot be read, or stored here before they are sent",
            cause=cause_of(error),
            hint=f"free some space in {folders}, or set another folder",
        )
    # Not its own words: they may quote a request, with a token in it.
    at = traceback.extract_tb(error.__traceback__)[-1]
    cause = f"{type(error).__name__} in {Path(at.filename).name}, line {at.lineno}"
    return CachekitError("the push failed unexpectedly", cause=cause, hint="this is a bug in cachekit: report it")
