"""Make a recipe of a file in somebody else's dialect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cachekit.recipe import Recipe, load_text
from cachekit.recipe.importing import convert
from cachekit.recipe.importing.draft import Note


@dataclass(frozen=True, slots=True)
class NewRecipe:
    """A recipe as text, and what of its source it does not say.

    Attributes:
        text: YAML, with the notes as comments.
        recipe: What it is read as.
        notes: What could not be carried over, and what somebody must add.
    """

    text: str
    recipe: Recipe
    notes: tuple[Note, ...]


def new_recipe(source: Path) -> NewRecipe:
    """Turn a file into a recipe that loads.

    Raises:
        RecipeError: It cannot be read, is of no kind that is known, or of a task that recipes have none of.
    """
    draft = convert(source)
    text = draft.text(source.name)
    notes = sorted(draft.notes, key=lambda note: not note.todo)
    return NewRecipe(text, load_text(text, source=source.name), tuple(notes))
