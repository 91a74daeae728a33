"""A recipe as somebody names it: by path, name or value, with changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from cachekit import text
from cachekit.recipe import zoo
from cachekit.recipe.load import edited, load, override_words
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
