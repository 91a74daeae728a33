"""Have what a plan found: from the store, or fetched from the shared cache that has it, which fills the nearer ones."""

from __future__ import annotations

from cachekit.errors import AuthError, CachekitError, IntegrityError, RemoteError
from cachekit.remotes.remote import Found
from cachekit.store.record import Record
from cachekit.verbs.plan import Plan
from cachekit.verbs.pull import Pulled, pull
from cachekit.verbs.push import push
from cachekit.verbs.session import Session


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
        return fetch(session, found).record
    except (RemoteError, AuthError, IntegrityError):
        return None


def fetch(session: Session, found: Found) -> Pulled:
    """Fetch a record from the shared cache that has it, or from the next one that has it whole; fill the nearer ones.

    Raises:
        RemoteError, AuthError, IntegrityError: As the first of them failed; all of that has been told.
        StoreError: The store cannot be written.
    """
    record = found.shared.record
    first: CachekitError | None = None
    following: Found | None = found
    while following is not None:
        found = following
        try:
            pulled = pull(session, found)
        except (RemoteError, AuthError) as error:
            session.chain.failed(found.remote, error)
            found.remote.pass_over(found)
            first = first or error
        except IntegrityError as error:  # told as damage of the cache
            found.remote.pass_over(found)
            first = first or error
        else:
            if nearer := session.chain.above(found.remote):
                push(session, [pulled.record], nearer)
            return pulled
        following = session.chain.find(record.directory, record.model_type, record.key, anew=True)
    assert first is not None  # there was one to begin with
    raise first
