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
    "cachekit.actions.gc": ("Collected",),
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
        "Cache", "attach", "check_build", "compare", "coverage", "gc", "load_recipe", "open_store", "pin", "pins",
        "plan", "pull", "push", "records", "rm", "run", "session", "stats", "train", "unpin", "verify", "warm", "why",
        "why_run",
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

__all__ = [
    "Attached",
    "Attachment",
    "AuthError",
    "Cache",
    "CacheCallback",
    "CachekitError",
    "CheckedBuild",
    "Checkup",
    "Collected",
    "Compared",
    "CompileError",
    "CompilerUnavailableError",
    "Coverage",
    "DataError",
    "Deleted",
    "IntegrityError",
    "InterruptedRunError",
    "MissError",
    "Outcome",
    "Pinned",
    "Plan",
    "Ran",
    "Recipe",
    "RecipeError",
    "Record",
    "RemoteError",
    "Reported",
    "RunWhy",
    "Session",
    "Stats",
    "Store",
    "StoreError",
    "Trained",
    "TrainingError",
    "UnknownNameError",
    "UsageError",
    "WaitedTooLongError",
    "Warmed",
    "Why",
    "__version__",
    "attach",
    "check_build",
    "compare",
    "coverage",
    "gc",
    "load_recipe",
    "open_store",
    "pin",
    "pins",
    "plan",
    "pull",
    "push",
    "records",
    "rm",
    "run",
    "session",
    "stats",
    "train",
    "unpin",
    "verify",
    "warm",
    "why",
    "why_run",
]


def __getattr__(name: str) -> Any:
    for module, names in _WHERE.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
