"""What the fields of a recipe must be together, beyond the schema of each, and values that nothing reads.

A value that means nothing beside others (every how many steps to save, where nothing is saved) is refused, rather than
ignored: whoever wrote it expects something of it. What a whole task does not read stands in `recipe.tasks`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from msgspec import Struct

from cachekit.errors import RecipeError
from cachekit.recipe import tasks
from cachekit.recipe.field_names import Places
from cachekit.recipe.schema import Data, Recipe
from cachekit.redact.names import names_secret
from cachekit.text import cut

_TABLES = {".csv", ".tsv", ".txt"}
_ADAM = ("adamw_torch", "adamw_torch_fused")
_REMOVE = "remove one of them"


def check(recipe: Recipe, document: dict[str, Any], places: Places) -> None:
    """Refuse fields that do not go together, and values that nothing reads.

    `document` is what the recipe was made of: it tells a field that was said from one that has its default.

    Raises:
        RecipeError: With the place of the field to correct.
    """
    if not (recipe.model.id or recipe.model.path or recipe.model.package):
        _fail(places, "model.id", "model names nothing", "give model.id, model.path or model.package")
    for section, named in (("model", recipe.model.id), ("data", recipe.data.id)):
        if named and named.startswith(("/", ".", "~")):
            message = f"{section}.id {cut(named, 200)!r} is a path, and an id names something on the Hub"
            _fail(places, f"{section}.id", message, f"set {section}.path instead")
    if recipe.model.path and recipe.model.package:
        _fail(places, "model.package", "model.path and model.package are both given", "keep one of them")
    _check_data(recipe.data, places)
    for name, value in recipe.environment.items():
        if not name or "=" in name or not _passable(name):
            _fail(places, "environment", f"environment: {name!r} cannot name a variable", "use letters, digits and _")
        if name.startswith("CACHEKIT_"):
            message = f"environment.{name} is a setting of cachekit, which a recipe does not change"
            _fail(places, f"environment.{name}", message, f"remove environment.{name}; set {name} in the shell")
        if not _passable(str(value)):
            where = places.where(("environment", name))
            raise RecipeError(
                f"{where}: environment.{name} has characters that no process can be given",
                cause="" if names_secret(name) else repr(value),
                hint="remove them",
            )
    _check_steps(recipe, places)
    for section, names in tasks.not_read(recipe.task).items():
        for name, value in document.get(section, {}).items():
            if name in names and value is not None:
                raise RecipeError(
                    f"{places.where((section, name))}: {section}.{name} has no effect on {recipe.task}",
                    cause=f"tasks that read it: {', '.join(tasks.readers(section, name))}",
                    hint=f"remove {section}.{name}, or choose another task",
                )
    for unread in _unread(recipe):
        for field in unread.fields:
            section, name = field.split(".")
            newer = any(_is_set(other, places) for other in unread.because)
            if document.get(section, {}).get(name) is not None and ((section, name) in places.overridden or not newer):
                where = places.where((section, name))
                raise RecipeError(f"{where}: {field} has no effect here", cause=unread.why, hint=unread.hint)


def _fail(places: Places, field: str, message: str, hint: str) -> None:
    raise RecipeError(f"{places.where(tuple(field.split('.')))}: {message}", hint=hint)


def _is_set(field: str, places: Places) -> bool:
    """Whether a field was set from outside, by itself or with its section."""
    section, name = field.split(".")
    return bool({(section,), (section, name)} & places.overridden)


def _check_data(data: Data, places: Places) -> None:
    sources = [name for name in ("id", "path", "train_file") if getattr(data, name)]
    if len(sources) > 1:
        names = " and ".join(f"data.{name}" for name in sources)
        newest = next((name for name in sources if ("data", name) in places.overridden), sources[1])
        _fail(places, f"data.{newest}", f"{names} are both given", "keep one; `--set data.id=null` drops one")
    for name in ("validation_file", "test_file"):
        if getattr(data, name) and (data.id or data.path):
            # Its rows would be those of the Hub's split, or of the folder's file.
            place = "id" if data.id else "path"
            hint = f"set data.train_file instead of data.{place}, or remove data.{name}"
            _fail(places, f"data.{name}", f"data.{name} is given together with data.{place}", hint)
    labels, columns = data.labels or (), data.choices_columns or ()
    if labels and data.num_labels and len(labels) != data.num_labels:
        message = f"data.num_labels is {data.num_labels}, but data.labels has {len(labels)} names"
        _fail(places, "data.num_labels", message, "remove data.num_labels")
    if len(columns) > 1 and data.num_choices and len(columns) != data.num_choices:
        message = f"data.num_choices is {data.num_choices}, but data.choices_columns names {len(columns)}"
        _fail(places, "data.num_choices", message, "remove data.num_choices")
    if len(set(columns)) != len(columns):
        _fail(places, "data.choices_columns", "a column is listed twice in data.choices_columns", _REMOVE)
    if len(set(labels)) != len(labels):
        _fail(places, "data.labels", "a label is listed twice in data.labels", _REMOVE)


def _check_steps(recipe: Recipe, places: Places) -> None:
    training = recipe.training
    stride = training.doc_stride if "doc_stride" in tasks.fields(recipe).training else None
    if stride is not None and stride >= training.max_seq_length:
        name = "max_seq_length" if ("training", "max_seq_length") in places.overridden else "doc_stride"
        message = (
            f"training.doc_stride {stride} is not smaller than what training.max_seq_length "
            f"{training.max_seq_length} leaves for the text"
        )
        hint = "windows over a text share doc_stride tokens; 384 and 128 are usual"
        _fail(places, f"training.{name}", message, hint)
    if training.eval_strategy == "steps" and training.eval_steps is None:
        hint = "set training.eval_steps to the number of steps between evaluations"
        _fail(places, "training.eval_strategy", "training.eval_steps is missing", hint)


class _Unread(Struct, frozen=True):
    """Fields that other fields put out of use.

    An override may put a field of the file out of use for one run, `--set training.max_steps=10`: neither is a mistake.

    Attributes:
        fields: Which, `training.save_steps`.
        because: The fields that decide it.
        why: What those say.
        hint: What to do.
    """

    fields: tuple[str, ...]
    because: tuple[str, ...]
    why: str
    hint: str = _REMOVE


def _unread(recipe: Recipe) -> Iterator[_Unread]:
    """The fields that this recipe puts out of use, whether it gives them or not."""
    training = recipe.training
    for kind, strategy in (("eval", training.eval_strategy), ("save", training.save_strategy)):
        if strategy != "steps":
            name = f"training.{kind}_strategy"
            yield _Unread((f"training.{kind}_steps",), (name,), f"{name} is {strategy!r}", f"set {name}: steps")
    if training.save_strategy == "no":
        yield _Unread(("training.save_total_limit",), ("training.save_strategy",), "training.save_strategy is 'no'")
    if training.max_steps:
        why, hint = f"training.max_steps is {training.max_steps}", "set training.max_steps: null to count epochs"
        yield _Unread(("training.num_train_epochs",), ("training.max_steps",), why, hint)
    if training.warmup_steps and training.lr_scheduler_type == "constant":
        name = "training.lr_scheduler_type"
        yield _Unread(("training.warmup_steps",), (name,), f"{name} is constant", f"set {name}: constant_with_warmup")
    if training.optim not in _ADAM:
        fields = tuple(f"training.adam_{name}" for name in ("beta1", "beta2", "epsilon"))
        yield _Unread(fields, ("training.optim",), f"training.optim is {training.optim}")
    yield from _unread_data(recipe.data)
    for name in ("path", "package"):
        if getattr(recipe.model, name):
            sources = ("model.path", "model.package")
            yield _Unread(("model.revision",), sources, f"the model comes from model.{name}")


def _unread_data(data: Data) -> Iterator[_Unread]:
    places = ("data.id", "data.path", "data.train_file")
    source = next((place for place in places if getattr(data, place.removeprefix("data."))), "data.id")
    files = (data.train_file, data.validation_file, data.test_file)
    suffixes = {PurePath(name).suffix.lower() for name in files if name}
    if source != "data.id":
        names = ("config", "revision", "train_split", "validation_split", "test_split")
        yield _Unread(tuple(f"data.{name}" for name in names), places, f"the rows come from {source}")
    elif data.id:
        yield _Unread(("data.delimiter", "data.encoding"), places, "the rows come from data.id")
    if suffixes and not suffixes & _TABLES:
        yield _Unread(("data.delimiter",), places, f"the files are {', '.join(sorted(suffixes))}")
    if suffixes == {".parquet"}:
        yield _Unread(("data.encoding",), places, "the files are .parquet")
    for name in ("validation_file", "validation_split"):
        if getattr(data, name):
            both = ("data.validation_file", "data.validation_split")
            yield _Unread(("data.validation_fraction",), both, f"data.{name} is given")
    for one, two in tasks.INSTEAD.items():
        if getattr(data, one):
            hint = f"{_REMOVE}; data.{one}: null reads the two"
            yield _Unread(tuple(f"data.{name}" for name in two), (f"data.{one}",), f"data.{one} holds both", hint)


def _passable(text: str) -> bool:
    """Whether the operating system can hand this to a process: no NUL, no half of a character."""
    try:
        return "\0" not in text and bool(os.fsencode(text) or not text)
    except UnicodeEncodeError:
        return False
