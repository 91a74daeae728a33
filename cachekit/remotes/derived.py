"""What is derived of records and written with them: the index, the card, and what the history is told.

Where commits are scarce the history has the rows of the last pushes, and the index, which is long, is renewed seldom.
Elsewhere each push writes it. Where a long index would be fetched and sent over a line, it lies in two documents: each
push writes the short one, and the one with older rows is renewed when that has become long. On a bucket of the Hub each
document is two requests, for whoever asks as well, so only a very long one is divided. There no swap tells who was
faster: a push also puts the name of its record beside the index; see `additions`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, structs

from cachekit.errors import TooLargeError
from cachekit.files import digest_of
from cachekit.remotes import card, history, index, layout
from cachekit.remotes.document import Shared
from cachekit.remotes.index import Known, RemoteIndex
from cachekit.remotes.offer import Draft
from cachekit.remotes.port import ABSENT, ANY, Entry, PastCommit, Storage, Upload, Write
from cachekit.remotes.signing import signers
from cachekit.remotes.survey import Budget, Survey
from cachekit.store.layout import Place

CARD_LIMIT = 4 << 20
EARLY, LATE = 16, 32  # changes since the index was renewed; the history is read up to a page of 50
SHORT = 16 << 10  # bytes of an index: 300 to 700 records
ALONE = 160 << 10  # of one that is not divided where a document is two requests: 3,500 to 7,500 records


class Derived(Struct, frozen=True):
    """What goes with records in one change.

    Attributes:
        writes: The index and the card, where they change.
        files: The older rows of the index, where these are renewed.
        message: What the history is told.
        due: The index is to be renewed afterwards: a document of it has become long, or the records were not listed of
            late.
        rows: The index as it is then, where a race may lose some of it.
    """

    writes: tuple[Write, ...] = ()
    files: tuple[Upload, ...] = ()
    message: str = ""
    due: bool = False
    rows: RemoteIndex | None = None


def derived(
    storage: Storage,
    todo: Draft,
    revision: str,
    mark: str,
    *,
    dry_run: bool = False,
    renews: bool = False,
    seen: tuple[RemoteIndex, str] | None = None,
    unlisted: Mapping[Place, str] | None = None,
    written: bool = False,
) -> Derived:
    """What changes with a push.

    Args:
        storage: The remote.
        todo: What the push changes.
        revision: The state of the remote that it is built on.
        mark: The last word of the change's title.
        dry_run: Only find out what would be written: no record is listed for it.
        renews: Do what was `due`, which takes its time beside many records.
        seen: The index and its token, where it is not to be read; see `index.last_seen`.
        unlisted: See `Additions`.
        written: The records of this push are there: others may have added to them since.

    Raises:
        RemoteError, AuthError: The remote cannot be asked.
    """
    if not (unlisted or todo.records or todo.signatures or ((todo.same or todo.held) and not storage.scarce)):
        return Derived()
    if storage.scarce:
        return _with_history(storage, todo, revision, mark, dry_run=dry_run)
    there = seen or index.recent(storage, revision)
    return _in_place(
        storage, todo, revision, mark, there, unlisted=unlisted or {}, dry_run=dry_run, renews=renews, written=written
    )


def _with_history(storage: Storage, todo: Draft, revision: str, mark: str, *, dry_run: bool) -> Derived:
    """The rows for the history; and the index, before the history's last page would not reach back to it."""
    rows, changes = _rows(todo), storage.latest(revision)
    told, message = history.later(changes), history.message(rows)
    if told is not None and message and not dry_run and not _is_due(storage, todo, revision, changes):
        return Derived(message=message)
    there, token = index.read(storage, revision)
    if there is None:  # a later cachekit's
        return Derived()
    sound = _sound(there)
    known = history.after(sound, changes)
    lacks = known is None
    if known is None:
        known = sound if dry_run else _listed(storage, revision, sound.with_(told or ()))
    renewed = structs.replace(known.with_(rows), change=mark)
    writes = []
    if lacks or _differs(renewed, there):
        writes.append(Write(layout.INDEX, index.encode(renewed), token))
    if todo.records:
        writes += _card(storage, renewed, revision, there)
    return Derived(tuple(writes), message="" if renewed.unread else history.WHOLE)


def _in_place(
    storage: Storage,
    todo: Draft,
    revision: str,
    mark: str,
    found: tuple[RemoteIndex | None, str],
    *,
    unlisted: Mapping[Place, str],
    dry_run: bool,
    renews: bool,
    written: bool,
) -> Derived:
    """The index of a remote without a history: the records are listed where it is not believed."""
    there, token = found
    if there is None:  # a later cachekit's
        return Derived()
    recent = _sound(there)
    added = None
    if storage.lines > 1 and (there.older or len(index.encode(recent, as_text=False)) > SHORT):
        added = _added(storage, todo, revision, recent, mark, token=token, unlisted=unlisted, written=written)
    if added is not None and not (renews and added.due):
        return added
    whole = index.whole(storage, revision, recent)
    if whole is None:
        whole = RemoteIndex()
    known = whole if whole is recent else _sound(whole)
    if not (dry_run or known.speaks_for_all(storage)):
        listed = time.time()
        new = [row for row in _rows(todo) if index.short_path(row.place) not in known.paths]  # these need not be read
        known = structs.replace(_listed(storage, revision, known.with_(new)), listed=listed)
    renewed = _with_rows(storage, todo, revision, known, known, unlisted=unlisted, written=written)
    renewed = structs.replace(renewed, change=mark)
    document, files = index.encode(renewed, as_text=storage.lines == 1), tuple[Upload, ...]()
    writes = _card(storage, renewed, revision, whole) if todo.records else []
    anew = renewed.speaks_for_all(storage) and not there.speaks_for_all(storage)
    is_long = storage.lines > 1 and len(document) > _longest(storage)
    if anew or is_long or there.older or _differs(renewed, there) or (todo.records and _is_raced(storage)):
        if is_long:
            document, files = _divided(renewed)
        writes = [Write(layout.INDEX, document, token), *writes]
        remove = _removal if storage.compares else _left
        writes += remove(storage, revision, there, files) if is_long or there.older else []
    return Derived(tuple(writes), files, rows=renewed)


def _added(
    storage: Storage,
    todo: Draft,
    revision: str,
    recent: RemoteIndex,
    mark: str,
    *,
    token: str,
    unlisted: Mapping[Place, str],
    written: bool,
) -> Derived | None:
    """The document that pushes write, with what is new, which takes a moment however many records there are.

    None where its older rows are gone.
    """
    known: RemoteIndex | None = recent
    if todo.same or todo.held:
        known = index.whole(storage, revision, recent)
    if known is None:
        return None
    renewed = _with_rows(storage, todo, revision, recent, known, unlisted=unlisted, written=written)
    document = index.encode(structs.replace(renewed, change=mark), as_text=False)
    changes = renewed is not recent or (todo.records and _is_raced(storage))  # there, others may have written meanwhile
    writes = [Write(layout.INDEX, document, token)] if changes else []
    due = len(document) > (SHORT if recent.older else _longest(storage)) or not renewed.speaks_for_all(storage)
    return Derived(tuple(writes), due=due, rows=renewed)


def _is_raced(storage: Storage) -> bool:
    """Whether it is a bucket of the Hub: the last writer wins, and a document is two requests."""
    return storage.lines > 1 and not storage.compares


def _longest(storage: Storage) -> int:
    return ALONE if _is_raced(storage) else SHORT


def _with_lost(storage: Storage, revision: str, known: RemoteIndex, unlisted: Mapping[Place, str]) -> RemoteIndex:
    """An index, or a part of one, with the rows of records of which it still says something else than they do."""
    lost = [place for place, digest in unlisted.items() if known.digest_at(index.short_path(place)) != digest]
    listing = [Entry(layout.record_path(place), 0) for place in lost]
    if not listing:
        return known
    found = Survey(storage, revision, Budget(), RemoteIndex()).read(listing)
    return structs.replace(known.with_(found.rows()), unread=max(known.unread, found.unread))


def _divided(known: RemoteIndex) -> tuple[bytes, tuple[Upload, ...]]:
    """The two documents of a long index: all its rows are older ones."""
    data = index.encode(RemoteIndex(known.columns), as_text=False)
    digest, size = digest_of([data])
    recent = RemoteIndex(change=known.change, unread=known.unread, listed=known.listed, older=digest)
    return index.encode(recent, as_text=False), (Upload(layout.older_path(digest), size, digest, data),)


def _removal(storage: Storage, revision: str, there: RemoteIndex, files: Sequence[Upload]) -> list[Write]:
    """What removes older rows that no index will name any more."""
    path = layout.older_path(there.older)
    if not there.older or any(file.path == path for file in files):
        return []
    found = storage.read(path, revision, index.LARGEST)
    return [Write(path, None, found.token)] if found else []


def _left(storage: Storage, revision: str, there: RemoteIndex, files: Sequence[Upload]) -> list[Write]:
    """What removes older rows in whose place others came a day ago: without a swap, who is slower may name them again.

    All by the remote's clock.
    """
    beside = list(storage.list(layout.BESIDE, revision))
    parts = sorted((entry.at, entry.path) for entry in beside if layout.is_older(entry.path))
    now = max((entry.at for entry in beside), default=0.0)
    kept = {layout.older_path(there.older), *(file.path for file in files)}
    replaced = [path for (_, path), (at, _) in pairwise(parts) if now - at > index.CURRENT]
    return [Write(path, None, ANY) for path in replaced if path not in kept]


def _listed(storage: Storage, revision: str, known: RemoteIndex) -> RemoteIndex:
    """The records that a remote lists now: of those that are not known, as many as a push reads."""
    return Survey(storage, revision, Budget(), known).read(storage.list(layout.RECORDS, revision))


def _with_rows(
    storage: Storage,
    todo: Draft,
    revision: str,
    part: RemoteIndex,
    known: RemoteIndex,
    *,
    unlisted: Mapping[Place, str],
    written: bool,
) -> RemoteIndex:
    """An index, or a part of one, with what a push says, and what it does not say of records that are as offered.

    Where it has more modules of a record than this push knows, another push has added to that, or the row is older than
    the record: it is read.
    """
    same = [Known.of(one.record) for one in (*todo.same, *todo.held)]
    rows = _rows(todo)
    older = {
        one.key: one.place
        for one in rows
        if written and known.modules_of(one) > one.modules
        if one.key not in todo.shrunk or known.digest_at(index.short_path(one.place)) != todo.shrunk[one.key]
    }
    older |= {one.key: one.place for one in same if known.modules_of(one) > one.modules}
    renewed = _with_lost(storage, revision, part, {**unlisted, **dict.fromkeys(older.values(), "")})
    fresh = [*(one for one in same if not known.tells_of(one)), *rows]
    return renewed.with_(one for one in fresh if one.key not in older)


def _rows(todo: Draft) -> list[Known]:
    """What a push says of its records, and of those that it signs."""
    signed = [one for one in todo.same if one.record.key in todo.signed]
    written = {one.record.key: one for one in [*signed, *todo.rows]}
    return [_known(one, todo) for one in written.values()]


def _known(one: Shared, todo: Draft) -> Known:
    return Known.of(one.record, signers(todo.signed.get(one.record.key, b"")))


def _sound(there: RemoteIndex) -> RemoteIndex:
    """Without rows that cannot be; then it is believed no more."""
    return there if there.can_be else RemoteIndex(older=there.older).with_(there.rows())


def _differs(renewed: RemoteIndex, there: RemoteIndex) -> bool:
    return (renewed.columns, renewed.unread) != (there.columns, there.unread)


def _is_due(storage: Storage, todo: Draft, revision: str, changes: Sequence[PastCommit]) -> bool:
    """Whether the index is to be renewed: it must be soon, or that costs little, or little beside what is pushed."""
    since = next(number for number, change in enumerate(changes) if change.message == history.WHOLE)
    there = storage.stat([layout.INDEX], revision).get(layout.INDEX)
    if there is None or since >= LATE:
        return True
    if there.size <= SHORT and any(record.token == ABSENT for record in todo.records):
        return True  # and people see the new record in the card
    return since >= EARLY and sum(file.size for file in todo.new) > 2 * there.size


def _page(present: bytes, known: RemoteIndex) -> bytes:
    return card.update(present, known.newest(card.SHOWN), len(known) + known.unread)


def _card(storage: Storage, known: RemoteIndex, revision: str, before: RemoteIndex) -> list[Write]:
    if storage.copies.get(layout.CARD) is None:  # what lies there if nobody has changed it: that need not be read
        storage.copies.keep(layout.CARD, _page(b"", before))
    try:
        found = storage.read(layout.CARD, revision, CARD_LIMIT)
    except TooLargeError:  # people made it too large to be changed here; that must not stop a push
        return []
    text = _page(found.data if found else b"", known)
    if found and text == found.data:
        return []
    return [Write(layout.CARD, text, found.token if found else ABSENT)]
