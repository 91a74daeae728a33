"""Say in words what a difference between two keys means, where the names and values alone do not."""

from __future__ import annotations

from typing import Any

from cachekit.compilers import registry

SIDES = ("that record", "this recipe")


def explain(compiler: str, name: str, old: Any, new: Any, sides: tuple[str, str] = SIDES) -> list[str]:
    """Sentences about one difference of two records of a compiler: see `Adapter.explain`."""
    return registry.adapter(compiler).explain(name, old, new, sides)
