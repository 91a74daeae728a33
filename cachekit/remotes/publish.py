"""Put records on a remote with all that they name: what is new, big files first, then one change; and win every race.

Nothing that lies on a remote is overwritten but records, by what contains both, and the card. A file whose own place is
taken by other bytes (another build of the same module) goes to a place named by its digest.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, structs

from cachekit import calls
from cachekit.errors import AuthError, BusyError, ConflictError, RemoteError, UncertainError, UsageError
from cachekit.remotes import index, layout
from cachekit.remotes.budget import CLOCK, Clock, Retry
from cachekit.remotes.comparison import Comparison
from cachekit.remotes.derived import Derived, derived
from cachekit.remotes.draft import Drafts
from cachekit.remotes.index import RemoteIndex
from cachekit.remotes.offer import Draft, Offer
from cachekit.remotes.port import Commit, Storage, Tell, Upload, Write
from cachekit.remotes.signing import Signing
from cachekit.store.layout import Place
from cachekit.text import duration, first_of

LAST = 5.0  # seconds that a commit gets at least, also where the push ends before
FAILS = 3  # changes that may fail without a race: one bad answer leaves nothing pending
RENEWAL = 30.0  # seconds after which a renewal of the index is left to the next push
TRIES = 3  # what is derived of records, and always loses a race of its own, is not worth more
Wait = Callable[[float, str], None]


class Published(Struct, frozen=True):
    """The result of a push, or of its dry run.

    Attributes:
        draft: What was put there, or would be.
        revision: The remote's state with it.
        tries: How often it was tried.
        new: Files that were not there, as far as sizes tell: those that any of the tries sent.
        derived: The paths of what was written that is derived of records: the card, the index.
    """

    draft: Draft
    revision: str = ""
    tries: int = 1
    new: tuple[Upload, ...] = ()
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
    resumed: bool = False,
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
        resumed: An earlier push of them did not come to its end: also where they are there, what is derived may lack.

    Raises:
        UsageError: Anybody can read it, and that was not allowed.
        RemoteError: The remote fails, or is busy beyond the deadline. Nothing partial is visible; what was sent is kept
            where the remote can do that.
        AuthError: The token may not write.
        IntegrityError, OSError: A source is not what it should be, or cannot be read.
    """
    started = began = clock.now()
    compared = Comparison(storage, offers, spoiled, read=recheck, exact=dry_run, signing=signing)
    drafts = Drafts(compared)
    believed = compared.was_all_there()
    alone = bool(offers) and release is None and not resumed
    if alone and believed and compared.is_all_there():
        return Published(Draft(unchanged=len(offers)))
    mark = uuid.uuid4().hex[:12]
    last: RemoteError | None = None
    landed: Published | None = None  # what the remote took, and a race may have lost again
    sent: dict[str, Upload] = {}
    rows: RemoteIndex | None = None
    failed = 0
    for attempt in range(1, 10_000):
        writing = False
        try:
            revision = storage.revision()
            if offers and storage.public and not (public or dry_run):
                raise UsageError(
                    f"anybody can read {storage.name}",
                    cause="what is pushed there reveals who made it, and where",
                    hint="`cachekit push --dry-run` shows what; `cachekit push --public` pushes it anyway",
                )
            if attempt == 1 and offers and not believed and compared.is_all_there(revision) and alone:
                return Published(Draft(unchanged=len(offers)), revision)
            todo = drafts.draft(revision)
            if not (resumed or landed or last):  # what lies there no race of this push can have lost
                todo = structs.replace(todo, held=())
            sends, ahead = clock.now(), _ahead(storage, todo)
            new = {file.path: file for file in todo.new}
            try:
                fits = dry_run or _upload(storage, ahead, revision, tell, compared.taken)
                compared.sent(() if dry_run else [one for one in ahead if (one.path, one.sha256) not in compared.taken])
                sent |= {
                    one.path: one for one in ahead if one.path in new and (one.path, one.sha256) not in compared.taken
                }
                if not fits:
                    continue
            finally:  # others commit meanwhile: however long it took, there is time for the races that follow
                began += clock.now() - sends
            # Where all changes are one race, the card and the index lose none of their own. Elsewhere they come after.
            done = Published(todo, revision, attempt, tuple((sent | new).values()))
            together = dry_run or storage.scarce or (attempt <= TRIES and not storage.compares)
            lost = drafts.additions.unlisted
            more = _derived(storage, todo, revision, mark, lost, dry_run=dry_run) if together else Derived()
            done = structs.replace(done, derived=tuple(one.path for one in more.writes))
            # Last: from here on the lease gives no signs of life, and files may take longer than others wait for one.
            freed = release(revision) if release is not None and not dry_run else None
            # A record comes after its signatures and parts: where each is written by itself, nobody sees it without
            # them. What is derived of records comes after them.
            before = [*todo.signatures, *todo.parts, *todo.additions]
            writes = [*before, *todo.records, *more.writes, *([freed] if freed else [])]
            if dry_run:
                return done
            title = f"cachekit: {'a lease' if writes == [freed] else _names(offers)} [{mark}]"
            change = Commit(title, (*todo.files, *more.files), tuple(writes), more.message)
            left = max(LAST, seconds - (clock.now() - began))
            writing = True
            with calls.ending(left):
                made = storage.commit(change, revision) if writes else revision
                if (not together and (writes or todo.same or todo.held or lost)) or more.due:
                    more = _add_rows(storage, todo, mark, left, clock, unlisted=lost, renews=more.due)
                    done = structs.replace(done, derived=(*done.derived, *(one.path for one in more.writes)))
            _keep_copies(storage, todo, writes)
            compared.took(todo)
            sent |= new
            if landed:
                done = structs.replace(done, draft=landed.draft.then(todo), derived=(*landed.derived, *done.derived))
            release, landed = None, structs.replace(done, revision=made)
            rows = more.rows or rows
            if not (others := drafts.additions.look(todo, rows)):
                return landed
            last = ConflictError(f"{storage.name} lacks what others pushed meanwhile")
            retry = _race(seconds, others)  # the more there are, the longer, so that one of them does it for all
        except ConflictError as error:
            retry, last = _race(seconds), error
        except BusyError as error:
            retry, last = Retry(seconds, 1.0, 1.8, 60.0), error
        except UncertainError as error:
            drafts.additions.doubt()
            left = max(0.0, seconds - (clock.now() - began))
            wait(min(2.0, left / 2), "the answer to a commit was lost; looking for it")
            if found := _landed(storage, mark):
                return structs.replace(done, revision=found)
            retry, last = Retry(seconds, 1.0, 1.0, 1.0), error
        except RemoteError as error:
            failed += writing
            drafts.additions.doubt()
            if calls.left() <= 0:  # the push has come to its end, which says nothing of the remote
                retry, last = Retry(0.0, 1.0, 1.0, 1.0), last or error
            elif error.lasting or not writing or failed > FAILS:  # what is asked was asked again already
                raise
            else:
                retry, last = Retry(seconds, 0.5, 2.0, 5.0), error
        pause = retry.pause(last, attempt, clock.now() - began)
        if pause is None and landed and drafts.additions.looked and not drafts.additions.lacks:
            return landed  # it is all there, and rows of others are found by who comes next
        if pause is None:
            tried = "it took" if attempt == 1 else f"tried {attempt} times in"
            raise BusyError(  # no outage: it can still be read
                f"{storage.name} did not take the push",
                cause=f"{last.said}; {tried} {duration(clock.now() - started)}"
                f" of the {duration(seconds)} that a push may take{'' if last.asks in last.said else last.asks}",
                hint="later: cachekit push --pending",
            ) from last
        wait(pause, last.message)
    raise AssertionError("unreachable")


def _race(seconds: float, others: int = 1) -> Retry:
    return Retry(seconds, min(0.08 * others, 4.0), 1.6, 15.0)


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
    return first_of(sorted({offer.shared.record.recipe for offer in offers}))


def _upload(storage: Storage, files: Sequence[Upload], revision: str, tell: Tell, taken: set[tuple[str, str]]) -> bool:
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
            taken.add((path, files[0].sha256))
            return False
        fitted = [_upload(storage, [file], revision, tell, taken) for file in files]  # every one, not up to the first
        return all(fitted)
    return True


def _ahead(storage: Storage, todo: Draft) -> Sequence[Upload]:
    """The files that are sent, or compared with what lies there, before the change that names them."""
    joined = sum(file.size for file in todo.new) <= storage.joins
    return [file for file in todo.files if file.path in todo.lying] if joined else todo.files


def _derived(
    storage: Storage, todo: Draft, revision: str, mark: str, unlisted: Mapping[Place, str], *, dry_run: bool
) -> Derived:
    """What goes with records; nothing where what lies there cannot be read: the records do not need it."""
    try:
        return derived(storage, todo, revision, mark, unlisted=unlisted, dry_run=dry_run)
    except (ConflictError, BusyError):
        raise
    except RemoteError:
        return Derived()


def _add_rows(
    storage: Storage,
    todo: Draft,
    mark: str,
    seconds: float,
    clock: Clock,
    *,
    unlisted: Mapping[Place, str],
    renews: bool,
) -> Derived:
    """Add records that are there to the index, in races with others until one is won, and renew it where it is due.

    Returns:
        All that was written, and the index as it is then.
    """
    began, written = clock.now(), list[Write]()
    more, lost, same = Derived(), list[str](), 0
    taken = Derived()
    seen = index.last_seen(storage)
    with suppress(RemoteError):  # the records are there; the next listing adds them
        for attempt in range(1, 10_000):
            try:
                with calls.ending(RENEWAL if renews else seconds):
                    before, seen = seen, None  # where others wrote since, it is read
                    more = derived(storage, todo, "", mark, renews=renews, seen=before, unlisted=unlisted, written=True)
                    if before and not (more.writes or more.due):  # then it must be what lies there
                        continue
                    if more.writes:
                        storage.commit(Commit(f"cachekit: [{mark}]", more.files, more.writes), "")
                written, taken = [*written, *more.writes], more
                if renews or not more.due:
                    break
                renews = True
            except (ConflictError, BusyError, UncertainError) as error:
                tokens = [write.token for write in more.writes]
                same, lost = same + 1 if tokens == lost and isinstance(error, ConflictError) else 0, tokens
                pause = _race(seconds).pause(error, attempt, clock.now() - began)
                if pause is None or same >= TRIES:  # then nobody was faster: what is read is not what lies there
                    break
                clock.sleep(pause)
    return structs.replace(taken, writes=tuple(written))
