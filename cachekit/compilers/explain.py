"""Say in words what a difference between two keys means, where the names and values alone do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cachekit.store.record import Record

FLAGS = "compiler.flags"
SIDES = ("that record", "this recipe")


def explain(compiler: str, name: str, old: Any, new: Any, sides: tuple[str, str] = SIDES) -> list[str]:
    """Sentences about one difference of two records of a compiler; nothing where its values speak for themselves.

    Args:
        compiler: The compiler's name.
        name: The ingredient.
        old: Its value in the record.
        new: And in the recipe.
        sides: What to call the two.
    """
    if (
        compiler not in {"neuron", "neuron-native"}
        or name != FLAGS
        or not isinstance(old, list)
        or not isinstance(new, list)
    ):
        return []
    from cachekit.compilers.neuron import flags

    return flags.explain([str(word) for word in old], [str(word) for word in new], sides)


def explain_module(
    compiler: str, name: str, recorded: Sequence[str], flags: Mapping[str, Sequence[str]]
) -> tuple[str, tuple[str, ...]] | None:
    """What of a module's name is none of the recorded ones', and sentences; None where names tell nothing.

    Args:
        compiler: The compiler's name.
        name: The module's.
        recorded: Names of the modules that were recorded before it compiled.
        flags: Flags by module, as far as they are known.
    """
    if compiler != "neuron":
        return None
    from cachekit.compilers.neuron import module_difference

    found = module_difference.explain(name, recorded, flags)
    return found.relation, found.words


def flags_of(record: Record, blob: Callable[[str], Path]) -> dict[str, list[str]]:
    """The flags that each module of a record was compiled with, by module; none where they lie in no file.

    Args:
        record: The record.
        blob: Where the bytes of a digest lie.
    """
    if record.compiler != "neuron":
        return {}
    from cachekit.compilers.neuron import facts, flags

    files = {m.name: file.sha256 for m in record.modules for file in m.files if file.path == facts.FLAGS_FILE}
    return {name: words for name, sha256 in files.items() if (words := flags.read_flags(blob(sha256))) is not None}
