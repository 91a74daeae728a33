"""The lease of a key, on the remote where a run would find its record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cachekit.errors import AuthError, RemoteError, UntrustedError
from cachekit.events import Journal
from cachekit.remotes.lease.document import LeaseDocument
from cachekit.remotes.lease.lease import Lease, lease
from cachekit.remotes.remote import Found, Remote
from cachekit.remotes.remotes import Remotes
from cachekit.store.layout import Place
from cachekit.store.record import DamagedRecordError

LEASE = 60.0  # seconds; a holder that lives says so every third of it
# Where commits are too scarce for signs of life, a lease must be longer than the whole warm:
SCARCE_LEASE = 1800.0  # where nobody knows how long that takes
SCARCE_EXTRA = 300.0  # beyond twice the expected compile: loading, data, other machines' hours, the push


@contextmanager
def fleet_lease(
    remotes: Remotes,
    journal: Journal,
    place: Place,
    what: str,
    *,
    wait: float,
    seconds: float = 0.0,
    expected: float | None = None,
) -> Iterator[Lease[Found]]:
    """Wait until nobody else of the fleet compiles this key; without a remote that is at once.

    Args:
        remotes: The remotes; the lease lies on the first that is read and written.
        journal: Told for whom this process waits.
        place: Of the record that is to be compiled.
        what: What is compiled, for those who wait.
        wait: Seconds to wait for another machine.
        seconds: Length of the lease; 0 chooses.
        expected: Seconds that the compile takes, where that is known.

    Yields:
        The lease; `found` is what another machine published meanwhile.

    Raises:
        WaitedTooLongError: Another machine compiles it beyond the deadline.
    """
    remote = next((one for one in remotes.writable if one.readable and one.usable()), None)
    if remote is None or not _is_private(remotes, remote):
        yield Lease()
        return
    if remote.storage.scarce and not seconds:
        seconds = SCARCE_LEASE if expected is None else 2 * expected + SCARCE_EXTRA
    told = ""

    def waiting(holder: LeaseDocument | None, waited: float) -> None:
        nonlocal told
        name = str(holder or "an unknown machine")
        if holder is not None and holder.owner.id != told:
            told = holder.owner.id
            journal.emit("lock.wait", key=place.key, holder=name)
        journal.show("lock.waiting", holder=name, waited=waited)

    def published() -> Found | None:
        remote.refresh()
        try:
            return remote.find(place, anew=True)
        except (DamagedRecordError, UntrustedError):
            return None

    with lease(remote.storage, place.key, what, seconds or LEASE, wait=wait, told=waiting, done=published) as mine:
        if isinstance(mine.trouble, RemoteError | AuthError):
            remotes.failed(remote, mine.trouble)
        yield mine


def _is_private(remotes: Remotes, remote: Remote) -> bool:
    """Whether a lease there tells nobody else who compiles, and on which machine, in a repo for ever.

    Where the settings name no signer of what others may write, they could only make this machine wait.
    """
    try:
        if remote.demands() and not remote.trust.table.signers:
            return False
        remote.revision()  # known since the plan, mostly
    except (RemoteError, AuthError) as error:
        remotes.failed(remote, error)
        return False
    return not remote.public
