"""What the fields of a recipe must be together, beyond the schema of each, and values that nothing reads.

A value that means nothing beside others (every how many steps to save, where nothing is saved) is refused, rather than
ignored: whoever wrote it expects something of it. What a whole task does not read stands in `recipe.tasks`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from cachekit.errors import RecipeError
from cachekit.recipe import tasks
from cachekit.recipe.explain import Places, dotted
from cachekit.recipe.schema import Recipe
from cachekit.recipe.tasks import INSTEAD

_TABLES = {".csv", ".tsv", ".txt"}
_ADAM = ("adamw_torch", "adamw_torch_fused")
_REMOVE = "remove one of them"

Field = tuple[str, str]


class Unread(Struct, frozen=True):
    """A value that nothing reads.

    Attributes:
        field: Section and name.
        why: What of the recipe makes it so.
        hint: What to do.
    """

    field: Field
    why: str
    hint: str


class _Rule(Struct, frozen=True):
    """When fields are not read.

    Attributes:
        fields: Which.
        because: The fields that decide it.
        why: What they say, where the fields are not read; empty where they are.
        hint: What to do.
    """

    fields: tuple[Field, ...]
    because: tuple[Field, ...]
    why: Callable[[Recipe], str]
    hint: str = _REMOVE


def _training(*names: str) -> tuple[Field, ...]:
    return tuple(("training", name) for name in names)


def _data(*names: str) -> tuple[Field, ...]:
    return tuple(("data", name) for name in names)


def _not_steps(kind: str) -> _Rule:
    def why(recipe: Recipe) -> str:
        found = getattr(recipe.training, f"{kind}_strategy")
        return "" if found == "steps" else f"training.{kind}_strategy is {found!r}"

    return _Rule(_training(f"{kind}_steps"), _training(f"{kind}_strategy"), why, f"say training.{kind}_strategy: steps")


def _first_given(section: str, names: Collection[str], words: str) -> Callable[[Recipe], str]:
    """Words with the first of some fields that a recipe gives."""

    def why(recipe: Recipe) -> str:
        given = (name for name in names if getattr(getattr(recipe, section), name))
        return next((words.format(f"{section}.{name}") for name in given), "")

    return why


def _no_id(recipe: Recipe) -> str:
    return "" if recipe.data.id else _first_given("data", ("path", "train_file"), "the rows come from {}")(recipe)


def _suffixes(recipe: Recipe) -> set[str]:
    data = recipe.data
    return {Path(name).suffix.lower() for name in (data.train_file, data.validation_file, data.test_file) if name}


def _no_table(recipe: Recipe) -> str:
    if recipe.data.id:
        return "the rows come from data.id"
    suffixes = _suffixes(recipe)
    return f"the files are {', '.join(sorted(suffixes))}" if suffixes and not suffixes & _TABLES else ""


def _no_text(recipe: Recipe) -> str:
    if recipe.data.id:
        return "the rows come from data.id"
    return "the files are .parquet" if _suffixes(recipe) == {".parquet"} else ""


_PLACE = _data("id", "path", "train_file")
_RULES = (
    _not_steps("eval"),
    _not_steps("save"),
    _Rule(
        _training("save_total_limit"),
        _training("save_strategy"),
        lambda recipe: "training.save_strategy is 'no'" if recipe.training.save_strategy == "no" else "",
    ),
    _Rule(
        _training("num_train_epochs"),
        _training("max_steps"),
        lambda recipe: f"training.max_steps is {recipe.training.max_steps}" if recipe.training.max_steps else "",
        "say training.max_steps: null for epochs",
    ),
    _Rule(
        _training("warmup_steps"),
        _training("lr_scheduler_type"),
        lambda recipe: (
            "training.lr_scheduler_type is constant"
            if recipe.training.warmup_steps and recipe.training.lr_scheduler_type == "constant"
            else ""
        ),
        "say training.lr_scheduler_type: constant_with_warmup",
    ),
    _Rule(
        _training("adam_beta1", "adam_beta2", "adam_epsilon"),
        _training("optim"),
        lambda recipe: "" if recipe.training.optim in _ADAM else f"training.optim is {recipe.training.optim}",
    ),
    _Rule(_data("config", "revision", "train_split", "validation_split", "test_split"), _PLACE, _no_id),
    _Rule(_data("delimiter"), _PLACE, _no_table),
    _Rule(_data("encoding"), _PLACE, _no_text),
    _Rule(
        _data("validation_fraction"),
        _data("validation_file", "validation_split"),
        _first_given("data", ("validation_file", "validation_split"), "{} is given"),
    ),
    *(
        _Rule(
            _data(*two),
            _data(one),
            _first_given("data", (one,), "{} holds both"),
            f"{_REMOVE}; data.{one}: null reads the two",
        )
        for one, two in INSTEAD.items()
    ),
    _Rule(
        (("model", "revision"),),
        (("model", "path"), ("model", "package")),
        _first_given("model", ("path", "package"), "the model comes from {}"),
    ),
)


def unread(recipe: Recipe, document: Mapping[str, Any], overridden: Collection[tuple[str, ...]]) -> Iterator[Unread]:
    """The values that a recipe gives and nothing reads.

    What a recipe says may be put out of use for once, `--set training.max_steps=10`: that is no mistake of either.

    Args:
        recipe: The recipe.
        document: What it was made from: it tells what is given.
        overridden: The fields that were set from outside, a whole section perhaps.
    """

    def newer(field: Field) -> bool:
        return field in overridden or field[:1] in overridden

    for rule in _RULES:
        why = rule.why(recipe)
        for section, name in rule.fields if why else ():
            given = document.get(section)
            if not isinstance(given, Mapping) or given.get(name) is None:
                continue
            if (section, name) in overridden or not any(map(newer, rule.because)):
                yield Unread((section, name), why, rule.hint)


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
