"""What a plan knows of the record that a warm would begin with: see `speculate`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from msgspec import structs

from cachekit.remotes.layout import LOCAL
from cachekit.store import Store
from cachekit.store.record import Record
from cachekit.verbs.akin import Helper, akin, fits
from cachekit.verbs.plan import Plan
from cachekit.verbs.session import Session

ASKED = 32  # records, the nearest ones, of which one is taken: a plan is quick


def with_help(session: Session, planned: Plan) -> Plan:
    """A plan with the nearest record of those that may help; shared caches are not asked for one.

    Args:
        session: Collaborators.
        planned: The plan.
    """
    limit, prepared, foreign = session.config.neighbour_bytes, planned.prepared, session.compiler.foreign
    near = planned.neighbour
    if planned.hit or near is None or not limit:
        return planned
    changes = akin(prepared, foreign, near) if near.size <= limit else None
    if changes is None:
        other = _other(session, planned, limit)
        changes = akin(prepared, foreign, other) if other else None
        if other is None or changes is None:
            return planned
        return structs.replace(planned, helper=Helper(other, LOCAL, changes, 0))
    fetch = _absent(session.store, near)
    if planned.near == LOCAL:
        return planned if fetch else structs.replace(planned, helper=Helper(near, LOCAL, changes, 0))
    return structs.replace(planned, helper=Helper(near, planned.near, changes, fetch)) if fetch <= limit else planned


def _other(session: Session, planned: Plan, limit: int) -> Record | None:
    """One of the store that is not the nearest of all."""
    prepared, store = planned.prepared, session.store
    hard = prepared.ingredients.hard
    ranked = (
        near
        for near in store.nearest(hard, directory=prepared.fingerprint.directory)
        if near.row.bytes <= limit and near.row.key != prepared.key
    )
    for near in islice(ranked, ASKED):
        if fits(near.hard, hard, session.compiler.foreign):
            record = store.read(*near.row.place)
            if record is not None and not _absent(store, record):
                return record
    return None


def _absent(store: Store, record: Record) -> int:
    """Bytes of a record that the store has not: files are looked at, and not read, which would take long."""
    files = {file.sha256: file.size for file in record.files}
    return sum(size for sha256, size in files.items() if not _is_there(store.layout.blob(sha256), size))


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
