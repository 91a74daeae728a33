"""One compile per fleet: of all machines that share a cache, one compiles a key and the others wait for its record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cachekit.errors import AuthError, RemoteError
from cachekit.remotes.lease.claim import Claim
from cachekit.remotes.lease.lease import Lead, Lease
from cachekit.remotes.port import Write
from cachekit.remotes.remote import Found, Remote
from cachekit.store.record import DamagedRecordError
from cachekit.verbs.prepare import Prepared
from cachekit.verbs.session import Session

LEASE = 60.0  # seconds; a holder that lives says so every third of it
# Where commits are too scarce for signs of life, a lease must be longer than the whole warm:
SCARCE_LEASE = 1800.0  # where nobody knows how long that takes
SCARCE_EXTRA = 300.0  # beyond twice the expected compile: loading, data, other machines' hours, the push


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn it is to compile.

    Attributes:
        waited: Seconds that this machine waited for another.
        found: What the other one published meanwhile; None: it is this machine's turn.
    """

    waited: float
    found: Found | None
    _remote: Remote | None
    _lead: Lead | None

    def release(self, remote: Remote) -> Callable[[str], Write | None] | None:
        """What gives the lease back, for the push to the cache that it lies on."""
        return self._lead.release_write if self._lead is not None and remote is self._remote else None

    def kept(self, remote: Remote) -> None:
        """Know that the push has to try again: the lease is this machine's until then."""
        if self._lead is not None and remote is self._remote:
            self._lead.kept()

    def released(self, remote: Remote) -> None:
        """Know that the push gave it back."""
        if self._lead is not None and remote is self._remote:
            self._lead.removed()


ALONE = Turn(0.0, None, None, None)  # nobody is asked


@contextmanager
def turn(session: Session, prepared: Prepared, expected_seconds: float | None) -> Iterator[Turn]:
    """Wait until nobody else of the fleet compiles this key; without a shared cache that is at once.

    Args:
        session: Collaborators.
        prepared: What is to be compiled.
        expected_seconds: How long that takes, where it is known.

    Raises:
        WaitedTooLongError: Another machine compiles it beyond the deadline.
    """
    remote = next((one for one in session.chain.writable if one.readable and one.usable()), None)
    if remote is None or not _is_private(session, remote):
        yield ALONE
        return
    seconds = session.config.lease_seconds or LEASE
    if remote.tier.scarce and not session.config.lease_seconds:
        seconds = SCARCE_LEASE if expected_seconds is None else 2 * expected_seconds + SCARCE_EXTRA
    lease = Lease(remote.tier, prepared.key, prepared.recipe.name, seconds)
    found: Found | None = None
    told = ""

    def waiting(holder: Claim | None, waited: float) -> None:
        nonlocal told
        name = str(holder or "an unknown machine")
        if holder is not None and holder.owner.id != told:
            told = holder.owner.id
            session.journal.emit("flight.wait", key=prepared.key, holder=name)
        session.journal.show("flight.waiting", holder=name, waited=waited)

    def published() -> bool:
        nonlocal found
        remote.refresh()
        try:
            found = remote.find(prepared.fingerprint.directory, prepared.model_type, prepared.key, anew=True)
        except DamagedRecordError:
            found = None
        return found is not None

    with lease.lead(session.config.wait_seconds, waiting, published) as lead:
        if isinstance(lead.trouble, RemoteError | AuthError):
            session.chain.failed(remote, lead.trouble)
        yield Turn(lead.waited, found if lead.finished else None, remote, lead)


def _is_private(session: Session, remote: Remote) -> bool:
    """Whether a lease there tells nobody else who compiles, and on which machine: in a repo for ever."""
    try:
        remote.revision()  # known since the plan, mostly
    except (RemoteError, AuthError) as error:
        session.chain.failed(remote, error)
        return False
    return not remote.public
