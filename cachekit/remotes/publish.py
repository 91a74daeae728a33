"""Put records on a remote with all that they name: what is new, big files first, then one change; and win every race.

Nothing that lies on a remote is overwritten but records, by what contains both, and the card. A file whose own place is
taken by other bytes (another build of the same module) goes to a place named by its digest.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from msgspec import Struct, structs

from cachekit import calls
from cachekit.errors import AuthError, BusyError, ConflictError, RemoteError, TooLargeError, UncertainError, UsageError
from cachekit.remotes import card, index, layout
from cachekit.remotes.budget import CLOCK, Clock, Retry
from cachekit.remotes.document import Shared
from cachekit.remotes.draft import Comparison, Draft, Offer
from cachekit.remotes.index import Known
from cachekit.remotes.port import ABSENT, Commit, PastCommit, Storage, Tell, Upload, Write
from cachekit.remotes.signing import Signing, signers
from cachekit.remotes.survey import Budget, Survey
from cachekit.text import duration

CARD_LIMIT = 4 << 20
EARLY, LATE = 16, 32  # changes since the index was renewed; the history is read up to a page of 50
SHORT = 16 << 10  # bytes of an index: about 300 records
LAST = 5.0  # seconds that a commit gets at least, also where the push ends before
TRIES = 3  # what is derived of records, and always loses a race of its own, is not worth more
Wait = Callable[[float, str], None]


class Published(Struct, frozen=True):
    """The result of a push, or of its dry run.

    Attributes:
        draft: What was put there, or would be.
        revision: The remote's state with it.
        tries: How often it was tried.
        derived: The paths of what was written that is derived of records: the card, the index.
    """

    draft: Draft
    revision: str = ""
    tries: int = 1
    derived: tuple[str, ...] = ()


def publish(
    storage: Storage,
    offers: Sequence[Offer],
    *,
    release: Callable[[str], Write | None] | None = None,
    seconds: float = 120.0,
    tell: Tell = lambda _: None,
    wait: Wait = lambda seconds, _: CLOCK.sleep(seconds),
    clock: Clock = CLOCK,
    public: bool = False,
    dry_run: bool = False,
    recheck: bool = False,
    spoiled: Collection[str] = (),
    signing: Signing | None = None,
) -> Published:
    """Make records visible on a remote.

    Args:
        storage: Where.
        offers: What; each record once.
        release: What gives a lease back in the same change, built on a revision; where there is one.
        seconds: The deadline: busy remotes are waited for, races are run again. Sending files does not count.
        tell: Called with bytes sent.
        wait: Sleeps, and tells why.
        clock: For the deadline.
        public: Put it there also where anybody can read it.
        dry_run: Only find out what would be written.
        recheck: Look at all files of records that are there already; read those of which the remote knows no digest.
            Without it that is done as far as it costs no request.
        spoiled: Paths of files that are known not to be what their record says.
        signing: Signs, and says what of others may be used; see `Comparison`.

    Raises:
        UsageError: Anybody can read it, and that was not allowed.
        RemoteError: The remote fails, or is busy beyond the deadline. Nothing partial is visible; what was sent is kept
            where the remote can do that.
        AuthError: The token may not write.
        IntegrityError, OSError: A source is not what it should be, or cannot be read.
    """
    began = clock.now()
    compared = Comparison(storage, offers, spoiled, read=recheck, signing=signing)
    believed = compared.was_all_there()
    if offers and release is None and believed and compared.is_all_there():
        return Published(Draft(unchanged=len(offers)))
    mark = uuid.uuid4().hex[:12]
    last: RemoteError | None = None
    for attempt in range(1, 10_000):
        try:
            revision = storage.revision()
            if offers and storage.public and not (public or dry_run):
                raise UsageError(
                    f"anybody can read {storage.name}",
                    cause="what is pushed there reveals who made it, and where",
                    hint="see what with `cachekit push --dry-run`; `cachekit push --public` pushes it anyway",
                )
            if attempt == 1 and offers and not believed and compared.is_all_there(revision) and release is None:
                return Published(Draft(unchanged=len(offers)), revision)
            todo = compared.draft(revision)
            done = Published(todo, revision, attempt)
            sends = clock.now()
            try:
                if not (dry_run or _upload(storage, todo.files, revision, tell, compared.taken)):
                    continue
            finally:  # others commit meanwhile: however long it took, there is time for the races that follow
                began += clock.now() - sends
            # Where all changes are one race, the card and the index lose none of their own. Elsewhere they come after.
            together = dry_run or storage.scarce or (attempt <= TRIES and not storage.compares)
            page, message = _derived(storage, todo, revision, mark, dry_run=dry_run) if together else ([], "")
            done = structs.replace(done, derived=tuple(one.path for one in page))
            # Last: from here on the lease gives no signs of life, and files may take longer than others wait for one.
            freed = release(revision) if release is not None and not dry_run else None
            # A record comes after its signatures and parts: where each is written by itself, nobody sees it without
            # them. What is derived of records comes after them.
            writes = [*todo.signatures, *todo.parts, *todo.records, *page, *([freed] if freed else [])]
            if dry_run or not (writes or (todo.same and not together)):
                return done
            title = f"cachekit: {'a lease' if writes == [freed] else _names(offers)} [{mark}]"
            change = Commit(title, todo.files, tuple(writes), message)
            left = max(LAST, seconds - (clock.now() - began))
            with calls.ending(left):
                made = storage.commit(change, revision) if writes else revision
                if not together:
                    done = structs.replace(done, derived=_add_rows(storage, todo, mark, left, clock))
            _keep_copies(storage, todo, writes)
            return structs.replace(done, revision=made)
        except ConflictError as error:
            retry, last = Retry(seconds, 0.08, 1.6, 15.0), error
        except BusyError as error:
            retry, last = Retry(seconds, 1.0, 1.8, 60.0), error
        except UncertainError as error:
            left = max(0.0, seconds - (clock.now() - began))
            wait(min(2.0, left / 2), "the answer to a commit was lost; looking for it")
            if landed := _landed(storage, mark):
                return structs.replace(done, revision=landed)
            retry, last = Retry(seconds, 1.0, 1.0, 1.0), error
        except RemoteError as error:
            if calls.left() > 0:
                raise
            # The push has come to its end, which says nothing of the remote: what it said before counts.
            retry, last = Retry(0.0, 1.0, 1.0, 1.0), last or error
        pause = retry.pause(last, attempt, clock.now() - began)
        if pause is None:
            tried = "once" if attempt == 1 else f"{attempt} times"
            raise BusyError(  # no outage: it can still be read
                f"{storage.name} did not take the push",
                cause=f"{last.said}; tried {tried} in {duration(clock.now() - began)}"
                f" of the {duration(seconds)} that a push may take{'' if last.asks in last.said else last.asks}",
                hint="cachekit push --pending, later",
            ) from last
        wait(pause, last.message)
    raise AssertionError("unreachable")


def _keep_copies(storage: Storage, todo: Draft, writes: Sequence[Write]) -> None:
    """Remember what lies there now: the next push need not read it."""
    for write in writes:
        storage.copies.keep(write.path, write.data)
    for shared in (*todo.rows, *todo.same):
        place = shared.record.place
        storage.copies.keep(layout.record_path(place), shared.document)
        storage.copies.keep(layout.signatures_path(place), todo.signed.get(place.key))


def _landed(storage: Storage, mark: str) -> str:
    """The revision of a change whose answer was lost; empty where it is not there, or cannot be asked for."""
    try:
        found = (change.revision for change in storage.latest() if change.title.endswith(f"[{mark}]"))
        return next(found, "")
    except (RemoteError, AuthError):
        return ""


def _names(offers: Sequence[Offer]) -> str:
    names = sorted({offer.shared.record.recipe for offer in offers})
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004


def _upload(storage: Storage, files: Sequence[Upload], revision: str, tell: Tell, taken: set[str]) -> bool:
    """Send files; where other bytes turn out to lie at a path, note that and say False."""
    if not files:
        return True
    try:
        storage.upload(files, revision, tell)
    except ConflictError:
        if len(files) == 1:
            path = files[0].path
            if path == layout.blob_path(files[0].sha256):  # there is no other place
                raise RemoteError(
                    f"{storage.name} is damaged",
                    cause=f"{path} does not have the bytes that its name says",
                    hint="remove that file there, and push again",
                ) from None
            taken.add(path)
            return False
        fitted = [_upload(storage, [file], revision, tell, taken) for file in files]  # every one, not up to the first
        return all(fitted)
    return True


def _derived(storage: Storage, todo: Draft, revision: str, mark: str, *, dry_run: bool) -> tuple[list[Write], str]:
    """What is derived of records and changes with this push: the index and the card, and what the history is told.

    Where commits are scarce the history has the rows of the last pushes, so that the index, which is long, is renewed
    seldom: at the latest before the history's last page would not reach back to it.
    """
    if not (todo.records or todo.signatures or (todo.same and not storage.scarce)):
        return [], ""
    rows = {one.record.key: Known.of(one.record, signers(todo.signed.get(one.record.key, b""))) for one in todo.rows}
    signed = {
        one.record.key: Known.of(one.record, signers(todo.signed[one.record.key]))
        for one in todo.same
        if one.record.key in todo.signed
    }
    changes = storage.latest(revision)
    told = index.later(changes) if storage.scarce else None
    message = index.message([*rows.values(), *signed.values()])
    if told is not None and message and not dry_run and not _is_due(storage, todo, revision, changes):
        return [], message
    there, token = index.read(storage, revision)
    if there is None:  # a later cachekit's
        return [], ""
    known = list(there.rows())
    whole = there if len(known) == len(there) else index.RemoteIndex().with_(known)  # without those that cannot be
    believed = storage.compares and whole.speaks_for_all(storage)
    if (present := whole.after(changes)) is not None:
        whole = present
    elif not (dry_run or believed):
        survey = Survey(storage, revision, Budget(), whole.with_(told or ()))
        listed = time.time()
        whole = structs.replace(survey.read(storage.list(layout.RECORDS, revision)), listed=listed)
    same = {} if storage.scarce else {one.record.key: Known.of(one.record) for one in todo.same if _is_new(one, whole)}
    renewed = whole.with_({**same, **signed, **rows}.values())
    writes = []
    document = index.encode(structs.replace(renewed, change=mark))
    anew = renewed.speaks_for_all(storage) and not there.speaks_for_all(storage)
    if (
        anew
        or (storage.scarce and present is None)
        or (renewed.columns, renewed.unread) != (there.columns, there.unread)
    ):
        writes.append(Write(layout.INDEX, document, token))
    if todo.records and not (believed and len(document) > SHORT):
        writes += _card(storage, renewed, revision)
    return writes, "" if renewed.unread else index.WHOLE


def _add_rows(storage: Storage, todo: Draft, mark: str, seconds: float, clock: Clock) -> tuple[str, ...]:
    """Add records that are there to the index, in races with others until one is won; the paths of what was written."""
    began = clock.now()
    with suppress(RemoteError):  # the records are there; the next listing adds them
        for attempt in range(1, 10_000):
            try:
                page, _ = _derived(storage, todo, "", mark, dry_run=False)
                if page:
                    storage.commit(Commit(f"cachekit: [{mark}]", (), page), "")
                return tuple(write.path for write in page)
            except (ConflictError, BusyError, UncertainError) as error:
                pause = Retry(seconds, 0.08, 1.6, 15.0).pause(error, attempt, clock.now() - began)
                if pause is None:
                    break
                clock.sleep(pause)
    return ()


def _is_due(storage: Storage, todo: Draft, revision: str, changes: Sequence[PastCommit]) -> bool:
    """Whether the index is to be renewed: it must be soon, or that costs little, or little beside what is pushed."""
    since = next(number for number, change in enumerate(changes) if change.message == index.WHOLE)
    there = storage.stat([layout.INDEX], revision).get(layout.INDEX)
    if there is None or since >= LATE:
        return True
    if there.size <= SHORT and any(record.token == ABSENT for record in todo.records):
        return True  # and people see the new record in the card
    return since >= EARLY and sum(file.size for file in todo.new) > 2 * there.size


def _is_new(shared: Shared, known: index.RemoteIndex) -> bool:
    """Whether an index lacks a record."""
    return index.short_path(shared.record.place) not in known.paths


def _card(storage: Storage, known: index.RemoteIndex, revision: str) -> list[Write]:
    try:
        found = storage.read(layout.CARD, revision, CARD_LIMIT)
    except TooLargeError:  # people made it too large to be changed here; that must not stop a push
        return []
    text = card.update(found.data if found else b"", known.rows(), len(known) + known.unread)
    if found and text == found.data:
        return []
    return [Write(layout.CARD, text, found.token if found else ABSENT)]
