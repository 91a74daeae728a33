"""Compile once: a compilation-cache manager and model-zoo toolkit for AWS Trainium and any PyTorch machine.

    from cachekit import plan, warm, train

    if not plan("bert").hit:
        warm("bert")
    print(train("bert", output_dir="model").metrics)

What stands in `__all__` is the library; each name is loaded when it is used, so that `import cachekit` costs nothing.
See `cachekit.api` for what the functions have in common, and `Cache` for what can be said to all of them.

`__init__.pyi` is the one list of what there is: for type checkers, and, read when a name is asked for, for Python.
"""

from typing import Any

__version__ = "0.1.0"


def _names() -> dict[str, str]:
    """Where each name is: a module, or empty for a method of `Cache`."""
    import re
    from pathlib import Path

    stub = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    found = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", stub, re.MULTILINE)}
    return found | dict.fromkeys(re.findall(r"^(\w+) = _settings\.", stub, re.MULTILINE), "")


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted({"__version__", *_names()})
    where = None if name.startswith("_") else _names().get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(where), name) if where else getattr(import_module("cachekit.api").Cache(), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_names()})
