"""What the fields of a recipe must be together, beyond the schema of each."""

from __future__ import annotations

import os
from typing import Any

from cachekit.errors import RecipeError
from cachekit.recipe import tasks
from cachekit.recipe.places import Places, dotted
from cachekit.recipe.schema import Recipe
from cachekit.recipe.unread import unread


def check_together(recipe: Recipe, places: Places) -> None:
    """Refuse fields that do not go together, and values that no field's type can tell.

    Raises:
        RecipeError: With the place of the field to correct.
    """

    def fail(path: tuple[str, ...], message: str, hint: str) -> None:
        raise RecipeError(f"{places.where(path)}: {message}", hint=hint)

    model, data, training = recipe.model, recipe.data, recipe.training
    if not (model.id or model.path or model.package):
        fail(("model", "id"), "model names nothing", "give model.id, model.path or model.package")
    if model.path and model.package:
        fail(("model", "package"), "model.path and model.package are both given", "keep one of them")
    sources = [name for name in ("id", "path", "train_file") if getattr(data, name)]
    if len(sources) > 1:
        names = " and ".join(f"data.{name}" for name in sources)
        newest = next((name for name in sources if ("data", name) in places.overridden), sources[1])
        fail(("data", newest), f"{names} are both given", "keep one; `--set data.id=null` drops one")
    for name in ("validation_file", "test_file"):
        if getattr(data, name) and (data.id or data.path):
            # Its rows would be those of the Hub's split, or of the folder's file.
            place = "id" if data.id else "path"
            fail(
                ("data", name),
                f"data.{name} is given beside data.{place}",
                f"say data.train_file in place of data.{place}, or remove data.{name}",
            )
    if data.labels and data.num_labels and len(data.labels) != data.num_labels:
        fail(
            ("data", "num_labels"),
            f"data.num_labels is {data.num_labels}, but data.labels has {len(data.labels)} names",
            "remove data.num_labels",
        )
    columns = data.choices_columns or ()
    if data.num_choices and len(columns) > 1 and data.num_choices != len(columns):
        fail(
            ("data", "num_choices"),
            f"data.num_choices is {data.num_choices}, but data.choices_columns names {len(columns)}",
            "remove data.num_choices",
        )
    if len(set(columns)) != len(columns):
        fail(("data", "choices_columns"), "a column stands twice in data.choices_columns", "remove one of them")
    if data.labels and len(set(data.labels)) != len(data.labels):
        fail(("data", "labels"), "a label stands twice in data.labels", "remove one of them")
    for name, value in recipe.environment.items():
        if not name or "=" in name or not _passable(name):
            fail(("environment",), f"environment: {name!r} is no variable's name", "letters, digits and _")
        if not _passable(str(value)):
            fail(("environment", name), f"environment.{name} is {value!r}", "no process can be given such a value")
    stride = training.doc_stride if "doc_stride" in tasks.fields(recipe).training else None
    if stride is not None and stride >= training.max_seq_length:
        name = "max_seq_length" if ("training", "max_seq_length") in places.overridden else "doc_stride"
        fail(
            ("training", name),
            f"training.doc_stride {stride} is not smaller than what training.max_seq_length "
            f"{training.max_seq_length} leaves for the text",
            "windows over a text share doc_stride tokens; 384 and 128 are usual",
        )
    if training.eval_strategy == "steps" and training.eval_steps is None:
        fail(("training", "eval_strategy"), "training.eval_steps is missing", "say every how many steps to evaluate")


def check_task(recipe: Recipe, document: dict[str, Any], places: Places) -> None:
    """Refuse what another task reads and this one would ignore, and what other values put out of use.

    Args:
        recipe: The recipe.
        document: What it was made of, which tells a field that was said from one that has its default.
        places: Where its fields were said.

    Raises:
        RecipeError: With the place of such a field.
    """
    for section, names in tasks.not_read(recipe.task).items():
        for name, value in document.get(section, {}).items():
            if name in names and value is not None:
                readers = tasks.readers(section, name)
                raise RecipeError(
                    f"{places.where((section, name))}: {section}.{name} means nothing to {recipe.task}",
                    cause=f"it is read by {', '.join(readers)}",
                    hint=f"remove {section}.{name}, or choose another task",
                )
    for one in unread(recipe, document, places.overridden):
        raise RecipeError(
            f"{places.where(one.field)}: {dotted(one.field)} means nothing here", cause=one.why, hint=one.hint
        )


def _passable(text: str) -> bool:
    """Whether the operating system can hand this to a process: no NUL, no half of a character."""
    try:
        return "\0" not in text and bool(os.fsencode(text) or not text)
    except UnicodeEncodeError:
        return False
