"""A list of fine-tunes to warm: `- {recipe: bert, set: {training.max_seq_length: 64}}`, an entry each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from cachekit.errors import RecipeError
from cachekit.recipe import yaml_text
from cachekit.recipe.load import read_text

LARGEST = 4 << 20  # bytes
SECTIONS = frozenset({"model", "data", "training", "parallel", "compiler", "environment"})
COMPARE = "compare with `- {recipe: bert, set: {training.max_steps: 10}}`"


class MatrixEntry(Struct, frozen=True):
    """One fine-tune of a list.

    Attributes:
        name: For people.
        recipe: A file, or a name of the zoo.
        overrides: As `--set` gives them.
    """

    name: str
    recipe: str
    overrides: tuple[str, ...]


def read(path: Path) -> list[MatrixEntry]:
    """The entries of a list, in its order; JSON is YAML, too.

    Raises:
        RecipeError: It cannot be read, or is no such list; the message names the place.
    """
    document, _ = yaml_text.parse(read_text(path, LARGEST, "list of recipes"), str(path))
    if not isinstance(document, list) or not document:
        raise RecipeError(f"{path} holds no list", hint=COMPARE)
    return [_entry(item, f"{path}, entry {number}", path) for number, item in enumerate(document, 1)]


def _entry(item: Any, where: str, path: Path) -> MatrixEntry:
    if isinstance(item, str):
        item = {"recipe": item}
    if not isinstance(item, dict) or not isinstance(item.get("recipe"), str) or set(item) - {"recipe", "set", "name"}:
        raise RecipeError(
            f"{where} is {json.dumps(item, default=str)[:80]}",
            cause="expected recipe, and perhaps set and name",
            hint=COMPARE,
        )
    changes = item.get("set") or {}
    if isinstance(changes, dict):
        overrides = [f"{name}={_word(value)}" for name, value in _each(changes)]
    elif isinstance(changes, list) and all(isinstance(change, str) and "=" in change for change in changes):
        overrides = changes
    else:
        raise RecipeError(
            f"{where}: set is {json.dumps(changes, default=str)[:80]}",
            cause="expected fields and values",
            hint="compare with `set: {training.max_steps: 10}`",
        )
    named = item["recipe"]
    # A recipe beside the list is meant from there, wherever the command runs.
    beside = path.parent / named
    source = str(beside) if beside.suffix in {".yaml", ".yml"} and beside.is_file() else named
    words = " ".join([named, *overrides])
    return MatrixEntry(str(item.get("name") or words), source, tuple(overrides))


def _each(changes: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Fields and values; of a section as recipes write it each field, for the recipe's other fields stay."""
    for name, value in changes.items():
        if name in SECTIONS and isinstance(value, dict):
            yield from ((f"{name}.{field}", inner) for field, inner in value.items())
        else:
            yield name, value


def _word(value: Any) -> str:
    """A value as `--set` reads it, which is YAML; a text that would read as something else is quoted."""
    try:
        plain = isinstance(value, str) and yaml_text.scalar(value, "set") == value
    except RecipeError:
        plain = False
    return str(value) if plain else json.dumps(value, ensure_ascii=False)
