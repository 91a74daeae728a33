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

from cachekit.api.cache import AnyEntry, AnyRecipe, Cache, Overrides, Progress, is_record, load_recipe, stats_schema
from cachekit.api.zoo import check_recipes, names, neffs, new_recipe, recipe_schema, zoo_entry, zoo_rows
from cachekit.verbs.entry import check_contradiction

_SETTINGS = Cache()  # nothing but what the settings say, which are read at each call

attach = _SETTINGS.attach
check_build = _SETTINGS.check_build
check_lock = _SETTINGS.check_lock
compare = _SETTINGS.compare
coverage = _SETTINGS.coverage
coverage_all = _SETTINGS.coverage_all
doctor = _SETTINGS.doctor
export = _SETTINGS.export
export_bundle = _SETTINGS.export_bundle
export_neuron_cache = _SETTINGS.export_neuron_cache
gc = _SETTINGS.gc
hub_create = _SETTINGS.hub_create
hub_use = _SETTINGS.hub_use
import_ = _SETTINGS.import_
import_bundle = _SETTINGS.import_bundle
import_neuron_cache = _SETTINGS.import_neuron_cache
keys = _SETTINGS.keys
last = _SETTINGS.last
lock = _SETTINGS.lock
ls = _SETTINGS.ls
neuron_contract = _SETTINGS.neuron_contract
open_store = _SETTINGS.open_store
pin = _SETTINGS.pin
pins = _SETTINGS.pins
plan = _SETTINGS.plan
plan_all = _SETTINGS.plan_all
plan_run = _SETTINGS.plan_run
pull = _SETTINGS.pull
pull_locked = _SETTINGS.pull_locked
pull_modules = _SETTINGS.pull_modules
push = _SETTINGS.push
records = _SETTINGS.records
remote_contents = _SETTINGS.remote_contents
rm = _SETTINGS.rm
run = _SETTINGS.run
session = _SETTINGS.session
settings = _SETTINGS.settings
show = _SETTINGS.show
stats = _SETTINGS.stats
trace = _SETTINGS.trace
train = _SETTINGS.train
unpin = _SETTINGS.unpin
verify = _SETTINGS.verify
warm = _SETTINGS.warm
warm_all = _SETTINGS.warm_all
why = _SETTINGS.why
why_key = _SETTINGS.why_key
why_run = _SETTINGS.why_run

__all__ = [  # beside what is made here
    "AnyEntry", "AnyRecipe", "Cache", "Overrides", "Progress", "check_contradiction", "check_recipes", "is_record",
    "load_recipe", "names",
    "neffs", "new_recipe", "recipe_schema", "stats_schema", "zoo_entry", "zoo_rows",
]  # fmt: skip
