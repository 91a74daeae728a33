"""The library: what the verbs of the command line do, as functions. `from cachekit import plan, warm, train, ...`.

They print nothing, and raise subclasses of `CachekitError`, whose hints name commands. Answers are frozen; their fields
are the document that the verb gives with `--format json`.

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

from cachekit.api.fleets import Fleets
from cachekit.api.functions import (
    check_recipes,
    environment_warnings,
    is_bundle,
    is_file,
    is_record,
    names,
    neffs,
    new_recipe,
    recipe_schema,
    schema,
    zoo_entry,
    zoo_rows,
)
from cachekit.api.opened import AnyEntry, AnyRecipe, Progress, load_recipe
from cachekit.api.sharing import Sharing
from cachekit.api.upkeep import Upkeep
from cachekit.recipe.variant import Variant
from cachekit.verbs.entry import check_contradiction


@dataclass(frozen=True, kw_only=True)
class Cache(Fleets, Sharing, Upkeep):
    """A cache, with the options that all functions share; each function of the library is a method of it, too.

    It is frozen, and opens and reads nothing before a method is called.

    Attributes:
        home: The store's folder, as `--home`; here and below, what the settings say where nothing is given.
        compiler: `auto`, `inductor` or `neuron`, as `--compiler`.
        cache: The store and the remotes in order, and what may be done there, as `--cache`: `local:rw,hf://team/cache:r`.
        wait: How long to wait for another process that compiles the same, in seconds or as `10m`; as `--wait`.
        offline: Open no connection, as `--offline`.
        trust: Ask more than the settings do, as `--trust`: `signed` for signatures everywhere, `owner` for signatures
            wherever others can write.
        trust_all: Use what anybody made, as `--trust-all`: a compiler cache is code, which runs on this machine.
        toolchain: Plan, pull, lock and export for a release of Neuron's SDK; as `--toolchain`.
        target: Likewise for a chip, `trn1`; as `--target`.
        instance: Likewise for an instance type; as `--instance`.
        nnodes: Machines that train together, as `--nnodes`: the recipe's `parallel.nodes`.
        node_rank: This machine's number among them, from 0.
        master_addr: The first machine's address.
        master_port: The port there.
        progress: Called with each event of a run, a dict with `event`, `time`, `run` and more, from the thread that
            the event happens in. An exception that it raises ends the run.
    """


__all__ = [
    "AnyEntry", "AnyRecipe", "Cache", "Progress", "Variant", "check_contradiction", "check_recipes",
    "environment_warnings", "is_bundle", "is_file", "is_record", "load_recipe", "names", "neffs", "new_recipe",
    "recipe_schema", "schema", "zoo_entry", "zoo_rows",
]  # fmt: skip
