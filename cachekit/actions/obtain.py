"""Have what a plan found: from the store, or fetched from the shared cache that has it, which fills the nearer ones."""

from __future__ import annotations

from cachekit.actions.plan import Plan
from cachekit.actions.pull import pull
from cachekit.actions.push import push
from cachekit.actions.session import Session
from cachekit.errors import AuthError, IntegrityError, RemoteError
from cachekit.record import Record
from cachekit.tiers.remote import Found


def have(session: Session, planned: Plan) -> Record | None:
    """The record of a plan, in the store; None on a miss, and where it could not be fetched.

    Raises:
        StoreError: The store cannot be written.
    """
    return obtain(session, planned.found) if planned.found else planned.record


def obtain(session: Session, found: Found) -> Record | None:
    """Fetch a record; None where that failed, which has been told: then it is compiled, as if nobody had it.

    Raises:
        StoreError: The store cannot be written.
    """
    try:
        pulled = pull(session, found)
    except (RemoteError, AuthError) as error:
        session.chain.failed(found.remote, error)
        return None
    except IntegrityError:
        return None  # told as damage of the cache
    if nearer := session.chain.above(found.remote):
        push(session, [pulled.record], nearer)
    return pulled.record
