"""Put records on a remote with all that they name: what is new, big files first, then one change; and win every race.

Nothing that lies on a remote is overwritten but records, by what contains both, and the card. A file whose own place is
taken by other bytes (another build of the same module) goes to a place named by its digest.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct, structs

from cachekit import calls
from cachekit.errors import AuthError, BusyError, ConflictError, RemoteError, TooLargeError, UncertainError, UsageError
from cachekit.remotes import card, index, layout
from cachekit.remotes.budget import CLOCK, Clock, Retry
from cachekit.remotes.document import Shared
from cachekit.remotes.draft import Comparison, Draft, Offer
from cachekit.remotes.port import ABSENT, Commit, Storage, Tell, Upload, Write
from cachekit.remotes.signing import Signing, signers
from cachekit.remotes.survey import Budget, Survey
from cachekit.text import duration

CARD_LIMIT = 4 << 20
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
        seconds: The deadline: busy remotes are waited for, races are run again.
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
    if offers and release is None and compared.is_all_there():
        return Published(Draft(unchanged=len(offers)))
    mark = uuid.uuid4().hex[:12]
    for attempt in range(1, 10_000):
        last: RemoteError
        try:
            revision = storage.revision()
            if offers and storage.public and not (public or dry_run):
                raise UsageError(
                    f"anybody can read {storage.name}",
                    cause="what is pushed there reveals who made it, and where",
                    hint="see what with `cachekit push --dry-run`; `cachekit push --public` pushes it anyway",
                )
            todo = compared.draft(revision)
            done = Published(todo, revision, attempt)
            if not (dry_run or _upload(storage, todo.files, revision, tell, compared.taken)):
                continue
            # Where all changes are one race, the card and the index lose none of their own.
            lasting = attempt <= TRIES or storage.scarce
            page = _derived(storage, todo, revision, mark, dry_run=dry_run) if lasting else []
            done = structs.replace(done, derived=tuple(one.path for one in page))
            # Last: from here on the lease gives no signs of life, and files may take longer than others wait for one.
            freed = release(revision) if release is not None and not dry_run else None
            # A record comes after its signatures and parts: where each is written by itself, nobody sees it without
            # them. What is derived of records comes after them.
            writes = [*todo.signatures, *todo.parts, *todo.records, *page, *([freed] if freed else [])]
            if dry_run or not writes:
                return done
            title = f"cachekit: {'a lease' if writes == [freed] else _names(offers)} [{mark}]"
            return structs.replace(done, revision=storage.commit(Commit(title, todo.files, tuple(writes)), revision))
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
            # The push has come to its end, which says nothing of the remote.
            retry, last = Retry(0.0, 1.0, 1.0, 1.0), error
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


def _derived(storage: Storage, todo: Draft, revision: str, mark: str, *, dry_run: bool) -> list[Write]:
    """The card, and the index of the remote with what this push changes; neither where nothing of it changes."""
    if not (todo.records or todo.signatures or (todo.same and not storage.scarce)):
        return []
    there, token = index.read(storage, revision)
    if there is None:  # a later cachekit's
        return []
    rows = list(there.rows())
    whole = there if len(rows) == len(there) else index.RemoteIndex().with_(rows)  # without those that cannot be
    covers = whole.change != "" and whole.covers(storage.latest(revision))
    if not (covers or dry_run):
        survey = Survey(storage, revision, Budget(), whole)
        whole = survey.read(storage.list(layout.RECORDS, revision))
    fresh = [*todo.rows, *(one for one in todo.same if _is_news(one, todo, whole))]
    known = whole.with_(index.Known.of(one.record, signers(todo.signed.get(one.record.key, b""))) for one in fresh)
    writes = _card(storage, todo, revision, len(known) + known.unread) if todo.records else []
    is_news = (known.columns, known.unread) != (there.columns, there.unread) or (storage.scarce and not covers)
    if is_news:
        writes.append(Write(layout.INDEX, index.encode(structs.replace(known, change=mark)), token))
    return writes


def _is_news(shared: Shared, todo: Draft, known: index.RemoteIndex) -> bool:
    """Whether an index lacks a record that lies there already, or who has signed it now."""
    return shared.record.key in todo.signed or index.short_path(shared.record.place) not in known.paths


def _card(storage: Storage, todo: Draft, revision: str, count: int) -> list[Write]:
    try:
        found = storage.read(layout.CARD, revision, CARD_LIMIT)
    except TooLargeError:  # people made it too large to be changed here; that must not stop a push
        return []
    page = found.data if found else b""
    text = card.update(page, [row.record for row in todo.rows], count)
    if found and text == found.data:
        return []
    return [Write(layout.CARD, text, found.token if found else ABSENT)]
