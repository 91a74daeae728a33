"""Who made a record, when, with what, on which machine."""

from __future__ import annotations

import platform
import socket
from datetime import datetime, timezone

from cachekit import __version__
from cachekit.host import product
from cachekit.process import user_name
from cachekit.recipe.ingredients import Fingerprint
from cachekit.store.record import Provenance


def provenance(fingerprint: Fingerprint) -> Provenance:
    """The provenance of what is made here and now."""
    return Provenance(
        created=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        cachekit=__version__,
        user=user_name(),
        host=socket.gethostname(),
        platform=platform.platform(),
        toolchain={name: value for name, value in {**fingerprint.soft, **fingerprint.toolchain}.items() if value},
        instance=fingerprint.instance or product(),
    )
