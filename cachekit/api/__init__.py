"""The library: what the verbs of the command line do, as functions. `from cachekit import plan, warm, train, ...`.

They print nothing, and raise subclasses of `CachekitError`, whose hints name commands. Results are frozen, and have
`as_dict()`, the document that the verb gives with `--format json`.

The functions do what the settings say (`cachekit config`). Anything else is said once, to a `Cache`, whose methods they
are:

    from cachekit import Cache

    team = Cache(cache="local:rw,hf://team/neuron-cache:rw", progress=print)
    if not team.plan("bert").hit:
        team.warm("bert")
    print(team.stats(run="last").total.saved_seconds)
"""

from __future__ import annotations

from dataclasses import dataclass

from cachekit.api.asking import Asking
from cachekit.api.carrying import Carrying
from cachekit.api.keeping import Keeping
from cachekit.api.making import Making
from cachekit.api.options import AnyEntry, AnyRecipe, Overrides, Progress, load_recipe


@dataclass(frozen=True, kw_only=True)  # of the base class only the fields would be
class Cache(Asking, Making, Keeping, Carrying):
    """A cache, with the options that all functions share; each function of the library is a method of it, too.

    It is frozen, and opens and reads nothing before a method is called.

    Attributes:
        home: The store's folder, as `--home`; here and below, what the settings say where nothing is given.
        compiler: `auto`, `inductor` or `neuron`, as `--compiler`.
        cache: The caches in order, and what may be done there, as `--cache`: `local:rw,hf://team/cache:r`.
        wait: Seconds to wait for another process that compiles the same, as `--wait`.
        offline: Open no connection, as `--offline`.
        trust_all: Use what anybody made, as `--trust-all`: a compiler cache is code, which runs on this machine.
        progress: Called with each event of a run, a dict with `event`, `time`, `run` and more, from the thread that
            the event happens in. An exception that it raises ends the run.
    """


_SETTINGS = Cache()  # nothing but what the settings say, which are read at each call

attach = _SETTINGS.attach
check_build = _SETTINGS.check_build
check_lock = _SETTINGS.check_lock
compare = _SETTINGS.compare
coverage = _SETTINGS.coverage
doctor = _SETTINGS.doctor
export_bundle = _SETTINGS.export_bundle
export_neuron_cache = _SETTINGS.export_neuron_cache
gc = _SETTINGS.gc
import_bundle = _SETTINGS.import_bundle
import_neuron_cache = _SETTINGS.import_neuron_cache
lock = _SETTINGS.lock
neuron_contract = _SETTINGS.neuron_contract
open_store = _SETTINGS.open_store
pin = _SETTINGS.pin
pins = _SETTINGS.pins
plan = _SETTINGS.plan
pull = _SETTINGS.pull
pull_locked = _SETTINGS.pull_locked
push = _SETTINGS.push
records = _SETTINGS.records
rm = _SETTINGS.rm
run = _SETTINGS.run
session = _SETTINGS.session
stats = _SETTINGS.stats
trace = _SETTINGS.trace
train = _SETTINGS.train
unpin = _SETTINGS.unpin
verify = _SETTINGS.verify
warm = _SETTINGS.warm
why = _SETTINGS.why
why_run = _SETTINGS.why_run

__all__ = ["AnyEntry", "AnyRecipe", "Overrides", "Progress", "load_recipe"]  # beside what is made here
