"""What `cachekit doctor` looks at, in the order of the screen. To add a check, write it, and add it here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cachekit.config import Config
from cachekit.verbs import doctor_caches, doctor_host, doctor_neuron, doctor_store
from cachekit.verbs.doctor import Check, Finding


@dataclass(frozen=True, slots=True)
class _Check:
    name: str
    look: Callable[[Config], Iterable[Finding]]

    def __call__(self, config: Config) -> Iterable[Finding]:
        return self.look(config)


CHECKS: tuple[Check, ...] = (
    _Check("training", doctor_host.training),
    _Check("installed-once", doctor_host.twice),
    _Check("program", doctor_host.program),
    _Check("c++-compiler", doctor_host.cxx),
    _Check("temporary-folder", doctor_host.temporary),
    _Check("open-files", doctor_host.files),
    _Check("proxies", doctor_host.proxies),
    _Check("neuron-packages", doctor_neuron.packages),
    _Check("neuron-release", doctor_neuron.release),
    _Check("neuron-path", doctor_neuron.path),
    _Check("neuron-flags", doctor_neuron.options),
    _Check("neuron-root", doctor_neuron.root),
    _Check("neuron-owner", doctor_neuron.foreign),
    _Check("neuron-locks", doctor_neuron.stale),
    _Check("neuron-failures", doctor_neuron.failures),
    _Check("torchneuron-cache", doctor_neuron.native),
    _Check("store", doctor_store.store),
    _Check("disk", doctor_store.disk),
    _Check("live-folder", doctor_store.live),
    _Check("logs", doctor_store.journal),
    _Check("quarantine", doctor_store.quarantine),
    _Check("clock", doctor_store.clock),
    _Check("caches", doctor_caches.caches),
    _Check("cache-clocks", doctor_caches.clocks),
    _Check("offline", doctor_caches.offline),
    _Check("token", doctor_caches.token),
    _Check("pending-pushes", doctor_store.pending),
    _Check("lock-file", doctor_caches.lock_file),
)
