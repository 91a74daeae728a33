"""Values that mean nothing beside others of the same recipe: every how many steps to save, where nothing is saved.

Such a value is refused, rather than ignored: whoever wrote it expects something of it. What a whole task does not read
stands in `recipe.tasks`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from cachekit.recipe.schema import Recipe
from cachekit.recipe.tasks import INSTEAD

_TABLES = {".csv", ".tsv", ".txt"}
_ADAM = ("adamw_torch", "adamw_torch_fused")

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
        hint: How they are read.
    """

    fields: tuple[Field, ...]
    because: tuple[Field, ...]
    why: Callable[[Recipe], str]
    hint: str


def _training(*names: str) -> tuple[Field, ...]:
    return tuple(("training", name) for name in names)


def _data(*names: str) -> tuple[Field, ...]:
    return tuple(("data", name) for name in names)


def _not_steps(strategy: str) -> Callable[[Recipe], str]:
    def why(recipe: Recipe) -> str:
        found = getattr(recipe.training, strategy)
        return "" if found == "steps" else f"training.{strategy} is {found!r}"

    return why


def _no_id(recipe: Recipe) -> str:
    place = "data.path" if recipe.data.path else "data.train_file"
    return "" if recipe.data.id else f"the rows come from {place}" if recipe.data.path or recipe.data.train_file else ""


def _files(recipe: Recipe) -> list[str]:
    data = recipe.data
    return [name for name in (data.train_file, data.validation_file, data.test_file) if name]


def _no_table(recipe: Recipe) -> str:
    if recipe.data.id:
        return "the rows come from data.id"
    suffixes = {Path(name).suffix.lower() for name in _files(recipe)}
    return f"the files are {', '.join(sorted(suffixes))}" if suffixes and not suffixes & _TABLES else ""


def _no_text(recipe: Recipe) -> str:
    if recipe.data.id:
        return "the rows come from data.id"
    suffixes = {Path(name).suffix.lower() for name in _files(recipe)}
    return "the files are .parquet" if suffixes == {".parquet"} else ""


def _validated(recipe: Recipe) -> str:
    data = recipe.data
    for name in ("validation_file", "validation_split"):
        if getattr(data, name):
            return f"data.{name} is given"
    return ""


def _in_one_column(name: str) -> Callable[[Recipe], str]:
    def why(recipe: Recipe) -> str:
        return f"data.{name} holds both" if getattr(recipe.data, name) else ""

    return why


def _not_from_hub(recipe: Recipe) -> str:
    for name in ("path", "package"):
        if getattr(recipe.model, name):
            return f"the model comes from model.{name}"
    return ""


def _steps(recipe: Recipe) -> str:
    steps = recipe.training.max_steps
    return f"training.max_steps is {steps}" if steps else ""


def _no_adam(recipe: Recipe) -> str:
    return "" if recipe.training.optim in _ADAM else f"training.optim is {recipe.training.optim}"


def _constant(recipe: Recipe) -> str:
    warms = recipe.training.warmup_steps and recipe.training.lr_scheduler_type == "constant"
    return "training.lr_scheduler_type is constant" if warms else ""


def _saves_nothing(recipe: Recipe) -> str:
    return "training.save_strategy is 'no'" if recipe.training.save_strategy == "no" else ""


_PLACE = _data("id", "path", "train_file")
_RULES = (
    _Rule(
        _training("eval_steps"),
        _training("eval_strategy"),
        _not_steps("eval_strategy"),
        "say training.eval_strategy: steps",
    ),
    _Rule(
        _training("save_steps"),
        _training("save_strategy"),
        _not_steps("save_strategy"),
        "say training.save_strategy: steps",
    ),
    _Rule(_training("save_total_limit"), _training("save_strategy"), _saves_nothing, "remove one of them"),
    _Rule(_training("num_train_epochs"), _training("max_steps"), _steps, "say training.max_steps: null for epochs"),
    _Rule(
        _training("warmup_steps"),
        _training("lr_scheduler_type"),
        _constant,
        "say training.lr_scheduler_type: constant_with_warmup",
    ),
    _Rule(_training("adam_beta1", "adam_beta2", "adam_epsilon"), _training("optim"), _no_adam, "remove one of them"),
    _Rule(
        _data("config", "revision", "train_split", "validation_split", "test_split"),
        _PLACE,
        _no_id,
        "remove one of them",
    ),
    _Rule(_data("delimiter"), _PLACE, _no_table, "remove one of them"),
    _Rule(_data("encoding"), _PLACE, _no_text, "remove one of them"),
    _Rule(_data("validation_fraction"), _data("validation_file", "validation_split"), _validated, "remove one of them"),
    *(
        _Rule(_data(*two), _data(one), _in_one_column(one), f"remove one of them; data.{one}: null reads the two")
        for one, two in INSTEAD.items()
    ),
    _Rule((("model", "revision"),), (("model", "path"), ("model", "package")), _not_from_hub, "remove one of them"),
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
