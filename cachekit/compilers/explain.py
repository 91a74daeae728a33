"""Say in words what a difference between two keys means, where the names and values alone do not."""

from __future__ import annotations

from typing import Any

FLAGS = "compiler.flags"


def explain(compiler: str, name: str, old: Any, new: Any) -> list[str]:
    """Sentences about one difference of two records of a compiler; nothing where its values speak for themselves.

    Args:
        compiler: The compiler's name.
        name: The ingredient.
        old: Its value in the record.
        new: And in the recipe.
    """
    if compiler != "neuron" or name != FLAGS or not isinstance(old, list) or not isinstance(new, list):
        return []
    from cachekit.compilers.neuron import flags

    return flags.explain([str(word) for word in old], [str(word) for word in new], ("that record", "this recipe"))
