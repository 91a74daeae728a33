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
    "cachekit.actions.attach": ("Attached", "Attachment"),
    "cachekit.actions.check_build": ("CheckedBuild",),
    "cachekit.actions.checkup": ("Checkup",),
    "cachekit.actions.coverage": ("Coverage",),
    "cachekit.actions.doctor": ("Diagnosis",),
    "cachekit.actions.export_bundle": ("Bundled",),
    "cachekit.actions.gc": ("Collected",),
    "cachekit.actions.import_bundle": ("Unbundled",),
    "cachekit.actions.lock_file": ("CheckedLock", "LockFile"),
    "cachekit.actions.neuron_contract": ("Contract",),
    "cachekit.actions.neuron_export": ("Exported",),
    "cachekit.actions.neuron_import": ("Imported",),
    "cachekit.actions.pins": ("Pinned",),
    "cachekit.actions.plan": ("Plan",),
    "cachekit.actions.pull_recipes": ("Outcome",),
    "cachekit.actions.push_records": ("Reported",),
    "cachekit.actions.remove": ("Deleted",),
    "cachekit.actions.run": ("Ran",),
    "cachekit.actions.session": ("Session",),
    "cachekit.actions.stats": ("Stats",),
    "cachekit.actions.train": ("Trained",),
    "cachekit.actions.warm": ("Warmed",),
    "cachekit.actions.why": ("Compared", "Why"),
    "cachekit.actions.why_run": ("RunWhy",),
    "cachekit.api": (
        "Cache", "attach", "check_build", "check_lock", "compare", "coverage", "doctor", "export_bundle",
        "export_neuron_cache", "gc", "import_bundle", "import_neuron_cache", "load_recipe", "lock", "neuron_contract",
        "open_store", "pin", "pins", "plan", "pull", "pull_locked", "push", "records", "rm", "run", "session",
        "stats", "trace", "train", "unpin", "verify", "warm", "why", "why_run",
    ),
    "cachekit.errors": (
        "AuthError", "CachekitError", "CompileError", "CompilerUnavailableError", "DataError", "IntegrityError",
        "InterruptedRunError", "MissError", "RecipeError", "RemoteError", "StoreError", "TrainingError",
        "UnknownNameError", "UsageError", "WaitedTooLongError",
    ),
    "cachekit.recipe": ("Recipe",),
    "cachekit.record": ("Record",),
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
