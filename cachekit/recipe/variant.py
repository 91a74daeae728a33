"""Recipes as somebody names them: one, by path, name or value, with changes; or a list of such to warm.

An entry of a list is `- {recipe: bert, set: {training.max_seq_length: 64}}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cachekit import text
from cachekit.decode import from_builtins
from cachekit.errors import RecipeError
from cachekit.recipe import yaml_text, zoo
from cachekit.recipe.load import edited, load, override_words, read_text
from cachekit.recipe.schema import Recipe
from cachekit.values import by_value

Overrides = Mapping[str, Any] | Sequence[str]


class Variant(Struct, frozen=True):
    """A recipe with changes: `Variant("bert", {"training.max_seq_length": 128}, tiny=True)`.

    Attributes:
        recipe: The path of its file, a name of `cachekit zoo`, or a recipe that is loaded already.
        overrides: Fields to change, by their names, or as `--set` takes them: `["training.max_seq_length=128"]`.
        tiny: The recipe in small, as `--tiny`; the overrides on top of that.
    """

    recipe: Recipe | str | Path
    overrides: Overrides = ()
    tiny: bool = False

    __hash__ = by_value

    @property
    def name(self) -> str:
        """Its path or name, as it was given; empty for a value."""
        return "" if isinstance(self.recipe, Recipe) else str(self.recipe)

    @property
    def words(self) -> list[str]:
        """The overrides as `--set` takes them.

        Raises:
            TypeError: A value has no JSON form; or all of it is one text.
        """
        return override_words(self.overrides)

    def load(self) -> Recipe:
        """The recipe, with the changes.

        Raises:
            UnknownNameError: No recipe is called that.
            RecipeError: The recipe does not fit the schema.
            UsageError: An override is malformed.
        """
        words = self.words
        if isinstance(self.recipe, Recipe):
            if not (words or self.tiny):
                return self.recipe
            read = partial(edited, self.recipe)
        else:
            read = partial(load, zoo.recipe_path(self.name))
        if self.tiny:
            from cachekit.recipe import tiny

            return tiny.in_small(words, read)
        return read(words)

    def typed(self, options: Mapping[str, object]) -> str:
        """The variant as the user would type it again, with options that mean the same; empty for a value."""
        return text.typed(self.name, self.words, options, tiny=self.tiny) if self.name else ""


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


class _Said(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry as the list has it."""

    recipe: str
    set: dict[str, Any] | list[str] | None = None
    name: str | None = None


def read_matrix(path: Path) -> list[MatrixEntry]:
    """The entries of a list, in its order; JSON is YAML, too.

    Raises:
        RecipeError: The file cannot be read, or is not a list of recipes; the message names the entry.
    """
    document, _ = yaml_text.parse(read_text(path, LARGEST, "list of recipes"), str(path))
    if not isinstance(document, list) or not document:
        raise RecipeError(f"{path} is not a list of recipes", hint=COMPARE)
    return [_entry(item, f"{path}, entry {number}", path) for number, item in enumerate(document, 1)]


def _entry(item: Any, where: str, path: Path) -> MatrixEntry:
    try:
        said = from_builtins({"recipe": item} if isinstance(item, str) else item, _Said)
    except msgspec.ValidationError as error:
        raise RecipeError(f"{where} does not describe a fine-tune", cause=str(error), hint=COMPARE) from error
    overrides = said.set if isinstance(said.set, list) else override_words(dict(_each(said.set or {})))
    if wrong := next((one for one in overrides if "=" not in one), ""):
        raise RecipeError(f"{where}: set has {wrong!r}, and no value for it", hint=COMPARE)
    # A recipe beside the list is meant from there, wherever the command runs.
    beside = path.parent / said.recipe
    source = str(beside) if beside.suffix in {".yaml", ".yml"} and beside.is_file() else said.recipe
    return MatrixEntry(said.name or " ".join([said.recipe, *overrides]), source, tuple(overrides))


def _each(changes: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Fields and values; of a section as recipes write it each field, for the recipe's other fields stay."""
    for name, value in changes.items():
        if name in SECTIONS and isinstance(value, dict):
            yield from ((f"{name}.{field}", inner) for field, inner in value.items())
        else:
            yield name, value
