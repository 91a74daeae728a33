"""What the shared caches know of a miss of which the store knows nothing: on a laptop, before a machine is rented."""

from __future__ import annotations

from msgspec import structs

from cachekit.errors import AuthError, RemoteError
from cachekit.store.record import DamagedRecordError
from cachekit.verbs.known import KnownRecords
from cachekit.verbs.plan import Plan
from cachekit.verbs.plan_helped import with_help
from cachekit.verbs.session import Session


def with_shared(session: Session, planned: Plan) -> Plan:
    """A plan with what else is known of a miss: the nearest record of the shared caches, and what a warm begins with.

    Shared caches are only asked on a miss whose time nothing in the store tells; see `neighbours` for what that costs.
    A cache that cannot be asked leaves the plan as it is.

    Args:
        session: Collaborators.
        planned: The plan.
    """
    return with_help(session, _asked(session, planned))


def _asked(session: Session, planned: Plan) -> Plan:
    if planned.hit or planned.expected is not None or not session.chain.readable:
        return planned
    from cachekit.verbs import neighbours

    prepared = planned.prepared
    near = neighbours.search(neighbours.Wanted.of(prepared), session.store, session.chain).neighbour
    try:
        found = near.find() if near is not None else None
    except (RemoteError, AuthError, DamagedRecordError):
        return planned
    if near is None or found is None:
        return planned
    record = found.shared.record
    seconds = KnownRecords(session.store, [record]).expected(prepared)
    return structs.replace(planned, neighbour=record, changes=near.changes, near=near.tier, expected=seconds)
