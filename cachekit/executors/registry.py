"""The engines that there are, by name. The only place that names adapters."""

from __future__ import annotations

from importlib import import_module

from cachekit.errors import UnknownNameError
from cachekit.executors.port import Engine

ENGINES = {name: f"cachekit.executors.{name}" for name in ("local", "slurm", "sagemaker", "ray")}


def engine(name: str) -> Engine:
    """An engine; its module is loaded now.

    Raises:
        UnknownNameError: None is called that.
    """
    if name not in ENGINES:
        raise UnknownNameError(f"there is no engine named {name!r}", hint=f"known engines: {', '.join(ENGINES)}")
    found: Engine = import_module(ENGINES[name]).ENGINE
    return found
