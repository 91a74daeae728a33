"""The record nearest to what is wanted, and the nearest that a compile can begin with: here and on the remotes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from cachekit.errors import AuthError, RemoteError
from cachekit.key.canonical import difference
from cachekit.key.nearest import LEAST, reusable
from cachekit.remotes.near import Known, Looked, Near, Wanted, settled
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.store.record import COMMAND, DamagedRecordError, Record

if TYPE_CHECKING:
    from cachekit.remotes.nearest_on import Budget

ASKED = 128  # records of the store, the nearest ones, of which the first that can be reused is taken


class Search(Struct, frozen=True):
    """What a search found.

    Attributes:
        near: The nearest record of all.
        reuse: The nearest one that a compile can begin with: whole in the store, or to be fetched.
        looked: How far each remote was searched; one that was not asked is not among them.
        seconds: What the search took.
    """

    near: Near | None = None
    reuse: Near | None = None
    looked: tuple[Looked, ...] = ()
    seconds: float = 0.0


def search(wanted: Wanted, store: Store, remotes: Remotes | None = None, *, budget: Budget | None = None) -> Search:
    """Find the nearest records; of equally near ones those in the store.

    A remote that cannot be asked is told to `remotes`, and passed over.

    Args:
        wanted: What for.
        store: The local store.
        remotes: The remotes; those that can be read are asked.
        budget: What each remote may cost; the usual one by default.
    """
    begun = time.monotonic()
    near = next(_here(wanted, store), None)
    reuse = _reusable_here(wanted, store, near)
    looked = []
    for remote in remotes.readable if remotes else ():
        if settled(wanted, near, reuse, LEAST):
            break
        from cachekit.remotes.nearest_on import DEFAULT, Seen

        seen = Seen(remote, wanted, store, budget or DEFAULT)
        failure = seen.look()
        looked.append(seen.looked)
        if failure is not None and remotes is not None:
            remotes.failed(remote, failure)
        if seen.near is not None and (near is None or seen.near.rank < near.rank):
            near = seen.near
        if seen.reuse is not None and (reuse is None or seen.reuse.rank < reuse.rank):
            reuse = _to_fetch(seen.reuse, wanted, store, remotes) or reuse
    return Search(near, reuse, tuple(looked), time.monotonic() - begun)


def _here(wanted: Wanted, store: Store) -> Iterator[Near]:
    """The records of the store that can be read, the nearest first."""
    for one in store.nearest(wanted.hard):
        if wanted.comparable(one.row.model_type) and one.row.key != wanted.key:
            record = store.read(one.row.directory, one.row.model_type, one.row.key)
            if record is not None:
                yield Near(Known.of(record), tuple(difference(record.hard, wanted.hard)), record)


def _reusable_here(wanted: Wanted, store: Store, near: Near | None) -> Near | None:
    """The nearest record that can be reused, whole as far as looking at its files tells."""
    if not wanted.reuse_bytes or wanted.model_type == COMMAND:
        return None
    if near is not None and _is_reusable(near, wanted, store):
        return near
    for one in islice(store.nearest(wanted.hard, directory=wanted.directory), ASKED):
        changes = tuple(difference(one.hard, wanted.hard))
        if one.row.key == wanted.key or one.row.bytes > wanted.reuse_bytes or not reusable(changes, wanted.foreign):
            continue
        record = store.read(one.row.directory, one.row.model_type, one.row.key)
        found = None if record is None else Near(Known.of(record), changes, record)
        if found is not None and _is_reusable(found, wanted, store):
            return found
    return None


def _is_reusable(near: Near, wanted: Wanted, store: Store) -> bool:
    record = near.record
    return wanted.can_reuse(near.known, near.changes) and record is not None and not _lacking(store, record)


def _lacking(store: Store, record: Record) -> int:
    """Bytes of a record that the store has not: files are looked at, and not read, which would take long."""
    files = {file.sha256: file.size for file in record.files}
    lacking = 0
    for sha256, size in files.items():
        try:
            there = store.layout.blob(sha256).stat().st_size == size
        except OSError:
            there = False
        lacking += 0 if there else size
    return lacking


def _to_fetch(near: Near, wanted: Wanted, store: Store, remotes: Remotes | None) -> Near | None:
    """A record on a remote, read there now; None where it is gone, damaged, or too much to fetch."""
    remote, known = near.remote, near.known
    assert remote is not None  # it was found there
    try:
        found = remote.find(known.directory, known.model_type, known.key, anew=True)
    except DamagedRecordError:
        return None
    except (RemoteError, AuthError) as error:
        if remotes is not None:
            remotes.failed(remote, error)
        return None
    if found is None:
        return None
    record = found.shared.record
    fetch = _lacking(store, record)
    changes = tuple(difference(record.hard, wanted.hard))
    if fetch > wanted.reuse_bytes or not wanted.can_reuse(Known.of(record), changes):
        return None
    return structs.replace(near, changes=changes, record=record, found=found, fetch=fetch)
