"""A new recipe, of a command line or a file in somebody else's dialect."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from cachekit.recipe import Recipe, load_text, zoo
from cachekit.recipe.architecture import IRRELEVANT, NO_EFFECT, Architecture, positions
from cachekit.recipe.convert import convert, convert_command
from cachekit.recipe.convert.draft import Note, RecipeDraft
from cachekit.values import Answer


class NewRecipe(Answer, frozen=True):
    """A recipe as text, and what of its source it does not say.

    Attributes:
        text: YAML, with the notes as comments.
        recipe: What it is read as.
        notes: What could not be carried over, and what somebody must add.
        source: The file, or the command line.
        path: The file that it was written to, or would be; empty where none was named.
        dry_run: Nothing was written.
    """

    text: str
    recipe: Recipe
    notes: tuple[Note, ...]
    source: str
    path: str = ""
    dry_run: bool = False

    @property
    def to_do(self) -> tuple[Note, ...]:
        """What somebody must add before the recipe can be used."""
        return tuple(note for note in self.notes if note.todo)

    @property
    def not_carried_over(self) -> tuple[Note, ...]:
        """What the recipe leaves out."""
        return tuple(note for note in self.notes if not note.todo)


def new_recipe(source: Path | Sequence[str]) -> NewRecipe:
    """Turn a file, or the words of a command line, into a recipe that loads.

    Raises:
        RecipeError: It cannot be read, is of no kind that is known or of a task that recipes have none of, or it has
            placeholders in the place of values.
    """
    draft = convert(source) if isinstance(source, Path) else convert_command(source)
    named = source.name if isinstance(source, Path) else "a command line"
    _leave_what_has_no_effect(draft)
    _shorten(draft)
    text = draft.text(named)
    notes = sorted(draft.notes, key=lambda note: not note.todo)
    said = str(source) if isinstance(source, Path) else shlex.join(source)
    return NewRecipe(text, load_text(text, source=named), tuple(notes), said)


def _leave_what_has_no_effect(draft: RecipeDraft) -> None:
    config = draft.get("model.config") or {}
    for name in [name for name in config if name in NO_EFFECT]:
        draft.drop(f"model.config.{name}", IRRELEVANT[name], config.pop(name))


def _shorten(draft: RecipeDraft) -> None:
    """Make a length that the source does not say itself one that the model has positions for."""
    named = draft.get("model.id")
    entry = zoo.model(named) if isinstance(named, str) else None
    if entry is None:
        return
    found = Architecture({**entry.config, **(draft.get("model.config") or {})}, "registry")
    for name in ("max_seq_length", "max_target_length"):
        length, most = draft.get(f"training.{name}"), positions(found, name)
        if f"training.{name}" in draft.assumed and most is not None and length is not None and length > most:
            draft.set(f"training.{name}", most)
            draft.drop(f"training.{name}", f"the model has {most} positions, fewer than the script's default", length)
