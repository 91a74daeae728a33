"""Who made a record, when, with what, on which machine."""

from __future__ import annotations

import platform
import socket
from datetime import datetime, timezone
from pathlib import Path

from cachekit import __version__
from cachekit.process import user_name
from cachekit.recipe.ingredients import Fingerprint
from cachekit.store.record import Provenance

# The hypervisor's name for the machine; on EC2 the instance type (used by optimum-neuron for the same purpose).
PRODUCT = Path("/sys/devices/virtual/dmi/id/product_name")


def provenance(fingerprint: Fingerprint) -> Provenance:
    """The provenance of what is made here and now."""
    return Provenance(
        created=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        cachekit=__version__,
        user=user_name(),
        host=socket.gethostname(),
        platform=platform.platform(),
        toolchain={name: value for name, value in {**fingerprint.soft, **fingerprint.toolchain}.items() if value},
        instance=fingerprint.instance or _instance(),
    )


def _instance() -> str:
    try:
        return PRODUCT.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
