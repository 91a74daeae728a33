"""Compile once: a compilation-cache manager and model-zoo toolkit for AWS Trainium and any PyTorch machine.

    from cachekit import plan, warm, train

    if not plan("bert").hit:
        warm("bert")
    print(train("bert", output_dir="model").metrics)

What stands in `__all__` is the library; each name is loaded when it is used, so that `import cachekit` costs nothing.
See `cachekit.api` for what the functions have in common, and `Cache` for what can be said to all of them.
"""

from typing import Any

__version__ = "0.1.0"

# Where each name is. `__init__.pyi` says the same to type checkers, and does not reach every place that a wheel does.
_NAMES = {
    "cachekit.api": "Cache load_recipe",
    "cachekit.config": "Setting",
    "cachekit.errors": """
        AuthError CachekitError CompileError CompilerUnavailableError DataError EngineError IntegrityError
        InterruptedRunError MissError RecipeError RemoteError StoreError TrainingError UnknownNameError UsageError
        WaitedTooLongError
    """,
    "cachekit.recipe": "Recipe",
    "cachekit.recipe.variant": "Variant",
    "cachekit.remotes.push": "Pushed",
    "cachekit.store": "Store",
    "cachekit.store.gc": "Collected",
    "cachekit.store.index_rows": "Listed",
    "cachekit.store.record": "Record",
    "cachekit.store.verify": "Verified",
    "cachekit.trainer_callback": "CacheCallback",
    "cachekit.verbs.attach": "Attached Attachment",
    "cachekit.verbs.check_build": "CheckedBuild",
    "cachekit.verbs.coverage": "Coverage CoverageOfAll",
    "cachekit.verbs.doctor": "Diagnosis",
    "cachekit.verbs.export": "Bundled Exported",
    "cachekit.verbs.fleet": "FleetLog FleetPlan FleetRow FleetState",
    "cachekit.verbs.forecast": "Forecast WarmedAll",
    "cachekit.verbs.hub": "RemoteContents Used",
    "cachekit.verbs.imports": "Imported Unbundled",
    "cachekit.verbs.instances": "InstancePlan",
    "cachekit.verbs.lock": "CheckedLock LockFile",
    "cachekit.verbs.planned": "Planned Warmed",
    "cachekit.verbs.prove": "Contract",
    "cachekit.verbs.pull": "Outcome Pulls",
    "cachekit.verbs.push": "Pushes",
    "cachekit.verbs.records": "Deleted Pinned",
    "cachekit.verbs.run": "Ran",
    "cachekit.verbs.session": "Session",
    "cachekit.verbs.stats": "CheckedStats Stats",
    "cachekit.verbs.train": "Trained",
    "cachekit.verbs.why": "Compared Why",
    "cachekit.verbs.why_run": "LogWhy RunWhy",
    "cachekit.verbs.zoo_check": "Checked",
}
# Methods of a `Cache` that is told nothing but what the settings say.
_METHODS = """
    attach check_build check_lock check_stats compare coverage coverage_all doctor export_bundle export_neuron_cache
    fleet_cancel fleet_list fleet_logs fleet_show fleet_wait gc hub_create hub_use import_bundle import_neuron_cache
    keys last lock ls neuron_contract open_store pin pins plan plan_all plan_instances plan_run plan_train pull
    pull_locked pull_modules push records remote_contents rm run session settings show stats trace train train_on
    trust_add trust_check trust_init trust_list trust_revoke trust_sign unpin verify warm warm_all warm_on why why_key
    why_log why_run
"""
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}
_WHERE |= dict.fromkeys(_METHODS.split(), "")

__all__ = sorted({"__version__", *_WHERE})  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(where), name) if where else getattr(import_module("cachekit.api").Cache(), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
