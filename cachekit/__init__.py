"""Compile once: a compilation-cache manager and model-zoo toolkit for AWS Trainium and any PyTorch machine.

    from cachekit import plan, warm, train

    if not plan("bert").hit:
        warm("bert")
    print(train("bert", output_dir="model").as_dict()["metrics"])

What stands in `__all__` is the library; each name is loaded when it is used, so that `import cachekit` costs nothing.
See `cachekit.api` for what the functions have in common, and `Cache` for what can be said to all of them.
"""

from typing import Any

__version__ = "0.1.0"

# Where each name is; `__init__.pyi` says the same to type checkers, and no module below imports what is above it.
_WHERE = {
    "cachekit.verbs.attach": ("Attached", "Attachment"),
    "cachekit.verbs.check_build": ("CheckedBuild",),
    "cachekit.store.verify": ("Verified",),
    "cachekit.verbs.coverage": ("Coverage",),
    "cachekit.verbs.doctor": ("Diagnosis",),
    "cachekit.verbs.export_bundle": ("Bundled",),
    "cachekit.store.gc": ("Collected",),
    "cachekit.verbs.import_bundle": ("Unbundled",),
    "cachekit.verbs.lock": ("CheckedLock", "LockFile"),
    "cachekit.verbs.prove": ("Contract",),
    "cachekit.verbs.export_cache": ("Exported",),
    "cachekit.verbs.import_cache": ("Imported",),
    "cachekit.verbs.pins": ("Pinned",),
    "cachekit.verbs.planned": ("Planned", "Warmed"),
    "cachekit.verbs.pull": ("Outcome",),
    "cachekit.remotes.push": ("Pushed",),
    "cachekit.verbs.remove": ("Deleted",),
    "cachekit.verbs.run": ("Ran",),
    "cachekit.verbs.session": ("Session",),
    "cachekit.verbs.stats": ("Stats",),
    "cachekit.verbs.train": ("Trained",),
    "cachekit.verbs.why": ("Compared", "Why"),
    "cachekit.verbs.why_run": ("RunWhy",),
    "cachekit.api": (
        "Cache", "attach", "check_build", "check_lock", "compare", "coverage", "coverage_all", "doctor", "export",
        "export_bundle", "export_neuron_cache", "gc", "hub_create", "hub_use", "import_", "import_bundle",
        "import_neuron_cache", "keys", "last", "load_recipe", "lock", "ls", "neuron_contract", "open_store", "pin",
        "pins", "plan", "plan_all", "plan_run", "pull", "pull_locked", "pull_modules", "push", "records",
        "remote_contents", "rm", "run", "session", "settings", "show", "stats", "trace", "train", "unpin", "verify",
        "warm", "warm_all", "why", "why_key", "why_run",
    ),
    "cachekit.errors": (
        "AuthError", "CachekitError", "CompileError", "CompilerUnavailableError", "DataError", "IntegrityError",
        "InterruptedRunError", "MissError", "RecipeError", "RemoteError", "StoreError", "TrainingError",
        "UnknownNameError", "UsageError", "WaitedTooLongError",
    ),
    "cachekit.recipe": ("Recipe",),
    "cachekit.store.record": ("Record",),
    "cachekit.store": ("Store",),
    "cachekit.trainer_callback": ("CacheCallback",),
}  # fmt: skip

__all__ = sorted({"__version__", *(name for names in _WHERE.values() for name in names)})  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    for module, names in _WHERE.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
