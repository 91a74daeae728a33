"""One compile per fleet: a lease per key on the tier that machines share."""

from cachekit.remotes.lease.claim import Claim
from cachekit.remotes.lease.lease import Lead, Lease

__all__ = ["Claim", "Lead", "Lease"]
