"""Make a recipe of a command line, or of a file in somebody else's dialect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from cachekit.recipe import Recipe, load_text, zoo
from cachekit.recipe.architecture import IRRELEVANT, NO_EFFECT, Architecture, positions
from cachekit.recipe.convert import convert, convert_command
from cachekit.recipe.convert.draft import Draft, Note


class NewRecipe(Struct, frozen=True):
    """A recipe as text, and what of its source it does not say.

    Attributes:
        text: YAML, with the notes as comments.
        recipe: What it is read as.
        notes: What could not be carried over, and what somebody must add.
    """

    text: str
    recipe: Recipe
    notes: tuple[Note, ...]


def new_recipe(source: Path | Sequence[str]) -> NewRecipe:
    """Turn a file, or the words of a command line, into a recipe that loads.

    Raises:
        RecipeError: It cannot be read, is of no kind that is known or of a task that recipes have none of, only running
            it would tell what it says, or it has placeholders in the place of values.
    """
    draft = convert(source) if isinstance(source, Path) else convert_command(source)
    named = source.name if isinstance(source, Path) else "a command line"
    _leave_what_has_no_effect(draft)
    _shorten(draft)
    text = draft.text(named)
    notes = sorted(draft.notes, key=lambda note: not note.todo)
    return NewRecipe(text, load_text(text, source=named), tuple(notes))


def _leave_what_has_no_effect(draft: Draft) -> None:
    config = draft.get("model.config") or {}
    for name in [name for name in config if name in NO_EFFECT]:
        draft.drop(f"model.config.{name}", IRRELEVANT[name], config.pop(name))


def _shorten(draft: Draft) -> None:
    """Make a length that the source does not say itself one that the model has positions for."""
    named = draft.get("model.id")
    entry = zoo.model(named) if isinstance(named, str) else None
    if entry is None:
        return
    found = Architecture({**entry.config, **(draft.get("model.config") or {})}, "registry")
    for field in ("max_seq_length", "max_target_length"):
        length, most = draft.get(f"training.{field}"), positions(found, field)
        if f"training.{field}" in draft.assumed and most is not None and length is not None and length > most:
            draft.set(f"training.{field}", most)
            draft.drop(f"training.{field}", f"the model has {most} positions, fewer than the script's default", length)
