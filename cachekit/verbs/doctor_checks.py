"""What `cachekit doctor` looks at, in the order of the screen.

To add a check, write it, and add it here; what a compiler alone knows, its adapter looks at (`Adapter.checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cachekit.compilers import registry
from cachekit.config import Config
from cachekit.health import Check, Finding
from cachekit.verbs import doctor_caches, doctor_host, doctor_store

HOST = (
    Check("training", doctor_host.training),
    Check("installed-once", doctor_host.twice),
    Check("program", doctor_host.program),
    Check("temporary-folder", doctor_host.temporary),
    Check("open-files", doctor_host.files),
    Check("proxies", doctor_host.proxies),
)
CACHES = (
    Check("store", doctor_store.store),
    Check("disk", doctor_store.disk),
    Check("live-folder", doctor_store.live),
    Check("logs", doctor_store.journal),
    Check("quarantine", doctor_store.quarantine),
    Check("clock", doctor_store.clock),
    Check("caches", doctor_caches.caches),
    Check("cache-clocks", doctor_caches.clocks),
    Check("offline", doctor_caches.offline),
    Check("token", doctor_caches.token),
    Check("pending-pushes", doctor_store.pending),
    Check("lock-file", doctor_caches.lock_file),
)


def checks() -> tuple[Check, ...]:
    """All checks: the host's, each compiler's, those of the store and of remotes."""
    adapters = [*registry.every()]
    compiles = next((one.name for one in adapters if one.here(compiles=False)), "")
    of_compilers = [
        Check(check.name, _not_needed(compiles)) if check.chosen and adapter.name != compiles else check
        for adapter in reversed(adapters)
        for check in adapter.checks()
    ]
    return (*HOST, *of_compilers, *CACHES)


def _not_needed(compiles: str) -> Callable[[Config], Iterator[Finding]]:
    def look(_: Config) -> Iterator[Finding]:
        yield Finding("ok", f"not needed: {compiles} compiles here")

    return look
