"""One compile per fleet: a lease per key on the remote that machines share."""

from cachekit.remotes.lease.claim import Claim
from cachekit.remotes.lease.lease import Lease, lease

__all__ = ["Claim", "Lease", "lease"]
