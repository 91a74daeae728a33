"""One compile per fleet: a lease per key on the remote that machines share."""

from cachekit.remotes.lease.document import LeaseDocument
from cachekit.remotes.lease.lease import Lease, lease

__all__ = ["Lease", "LeaseDocument", "lease"]
