"""The lease of a key, on the remote where a run would find its record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cachekit.errors import AuthError, RemoteError, UntrustedError
from cachekit.events import Journal
from cachekit.remotes.lease.backends import Waiting
from cachekit.remotes.lease.lease import Lease, lease
from cachekit.remotes.remote import Found, Remote
from cachekit.remotes.remotes import Remotes
from cachekit.store.layout import Place
from cachekit.store.record import DamagedRecordError
from cachekit.text import about

LEASE = 60.0  # seconds that a machine which has gone silent is believed to live
# The same where commits are scarce: with a look every ten seconds it is six minutes, and with one sign for each lease a
# holder makes at most 12 commits an hour.
SCARCE_LEASE = 348.0
CROWDED_LEASE = 1800.0  # where so many make commits that none would be left for what they compile


@contextmanager
def fleet_lease(
    remotes: Remotes, journal: Journal, place: Place, what: str, *, wait: float, seconds: float = 0.0
) -> Iterator[Lease[Found]]:
    """Wait until nobody else of the fleet compiles this key; without a remote that is at once.

    Args:
        remotes: The remotes; for where the lease lies, see `leases_on`.
        journal: Told for whom this process waits.
        place: Of the record that is to be compiled.
        what: What is compiled, for those who wait.
        wait: Seconds to wait for another machine.
        seconds: Length of the lease; 0 chooses.

    Yields:
        The lease; `found` is what another machine published meanwhile.

    Raises:
        WaitedTooLongError: Another machine compiles it beyond the deadline.
    """
    remote = leases_on(remotes)
    if remote is None:
        yield Lease()
        return
    told = ""

    def waiting(waits: Waiting) -> None:
        nonlocal told
        fields = waits.fields()
        if waits.holder is not None and waits.holder.owner.id != told:
            told = waits.holder.owner.id
            journal.emit("lock.wait", key=place.key, **fields)
        journal.show("lock.waiting", **fields)

    def published() -> Found | None:
        remote.refresh()
        try:
            return remote.find(place, anew=True)
        except (DamagedRecordError, UntrustedError):
            return None

    def rarely(believed: float) -> None:
        journal.emit("lease.crowded", remote=remote.name, key=place.key, seconds=believed)

    length = seconds or (SCARCE_LEASE if remote.storage.scarce else LEASE)
    crowded = 0.0 if seconds else CROWDED_LEASE
    with lease(
        remote.storage,
        place.key,
        what,
        length,
        crowded=crowded,
        rarely=rarely,
        wait=wait,
        told=waiting,
        done=published,
    ) as mine:
        if mine.trouble is not None:  # of a remote that is read as before
            journal.emit(
                "lease.failed", remote=remote.name, key=place.key, reason=about(remote.name, mine.trouble.said)
            )
        yield mine


def leases_on(remotes: Remotes) -> Remote | None:
    """The remote that leases of this run lie on; None where there is none.

    Of those that are read and written, the first on which a sign of life costs no commit, else the first: whoever
    names the same remotes in the same order chooses the same.
    """
    both = [one for one in remotes.writable if one.readable and one.usable()]
    ordered = sorted(both, key=lambda one: one.storage.scarce)
    return next((one for one in ordered if _is_private(remotes, one)), None)


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
