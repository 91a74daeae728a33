"""A list of fine-tunes to warm, as entries of a recipe and what is changed in it.

Two forms are read. Ours is a YAML list of `{recipe: bert, set: {training.max_seq_length: 64}}`. The other is that of
optimum-neuron's `tools/auto_fill_neuron_cache.py`, the list that its public cache was filled from: model type, model,
task, shapes; `default` stands for the tasks of that model which are not named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cachekit import recipe
from cachekit.errors import RecipeError
from cachekit.recipe import Recipe, yamltext, zoo
from cachekit.recipe.tasks import TASKS

LARGEST = 4 << 20  # bytes
SECTIONS = frozenset({"model", "data", "training", "parallel", "compiler", "environment"})

# The list's names where they are not ours.
TASK_NAMES = {
    "sequence-classification": "text-classification",
    "language-modeling": "causal-lm",
    "text-generation": "causal-lm",
    "fill-mask": "masked-lm",
}
SHAPES = {
    "batch_size": "per_device_train_batch_size",
    "sequence_length": "max_seq_length",
    "source_sequence_length": "max_seq_length",
    "target_sequence_length": "max_target_length",
}
# Tasks that `default` may mean: those that the list's tool had an example of.
BY_DEFAULT = (
    "text-classification",
    "token-classification",
    "multiple-choice",
    "question-answering",
    "causal-lm",
    "summarization",
    "translation",
    "image-classification",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One fine-tune of a list.

    Attributes:
        name: For people.
        recipe: A file, or a name of the zoo.
        overrides: As `--set` gives them.
    """

    name: str
    recipe: str
    overrides: tuple[str, ...]


def read(path: Path) -> list[Entry]:
    """The entries of a list, in its order.

    Raises:
        RecipeError: It cannot be read, or is no such list; the message names the place.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise RecipeError(f"{path} is no list of recipes", cause=f"{path.stat().st_size:,} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"{path} cannot be read",
            cause=getattr(error, "strerror", "") or str(error),
            hint="--matrix takes a YAML list of {recipe, set}, or optimum-neuron's list of shapes",
        ) from error
    document = _parsed(text, path)
    if isinstance(document, list) and document:
        return [_ours(item, f"{path}, entry {number}", path) for number, item in enumerate(document, 1)]
    if isinstance(document, dict) and document:
        return list(_theirs(document, str(path)))
    raise RecipeError(f"{path} holds no list", hint="compare with `- {recipe: bert, set: {training.max_steps: 10}}`")


def _parsed(text: str, path: Path) -> Any:
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RecipeError(f"{path} is no JSON", cause=str(error)) from error
    return yamltext.parse(text, str(path))[0]


def _ours(item: Any, where: str, path: Path) -> Entry:
    if isinstance(item, str):
        item = {"recipe": item}
    if not isinstance(item, dict) or not isinstance(item.get("recipe"), str) or set(item) - {"recipe", "set", "name"}:
        raise RecipeError(
            f"{where} is {json.dumps(item, default=str)[:80]}",
            cause="expected recipe, and perhaps set and name",
            hint="compare with `- {recipe: bert, set: {training.max_steps: 10}}`",
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
    return Entry(str(item.get("name") or words), source, tuple(overrides))


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
        plain = isinstance(value, str) and yamltext.scalar(value, "set") == value
    except RecipeError:
        plain = False
    return str(value) if plain else json.dumps(value, ensure_ascii=False)


def _theirs(document: Mapping[str, Any], source: str) -> Iterator[Entry]:
    for model_type, models in document.items():
        if not isinstance(models, dict):
            raise RecipeError(
                f"{source}: {model_type} holds {json.dumps(models, default=str)[:60]}",
                cause="expected models, and for each of them shapes by task",
                hint="lists for inference name no task: they cannot be trained",
            )
        for model, tasks in models.items():
            where = f"{source}: {model_type}, {model}"
            if not isinstance(tasks, dict) or not all(isinstance(shapes, dict) for shapes in tasks.values()):
                raise RecipeError(f"{where}: no shapes by task", cause=json.dumps(tasks, default=str)[:80])
            for task, shapes in tasks.items():
                named = [task] if task != "default" else _default_tasks(model_type, model, tasks, shapes, where)
                for name in named:
                    yield _entry(model_type, model, TASK_NAMES.get(name, name), shapes, f"{where}, {task}")


def _default_tasks(
    model_type: str, model: str, tasks: Mapping[str, Any], shapes: Mapping[str, Any], where: str
) -> list[str]:
    """The model's tasks that the list does not name, and that are of the shapes' kind."""
    named = {TASK_NAMES.get(task, task) for task in tasks}
    entry = zoo.model(model)
    alike = [entry] if entry else [one for one in zoo.models().values() if one.config["model_type"] == model_type]
    able = {task for one in alike for task in one.tasks}
    fields = {SHAPES[name] for name in shapes if name in SHAPES and name != "batch_size"}
    lengths = {"max_seq_length", "max_target_length"}
    found: list[str] = [
        task for task in BY_DEFAULT if task in able - named and TASKS[task].training & lengths == fields
    ]
    if not found:
        raise RecipeError(
            f"{where}: nothing is known that `default` could stand for",
            cause=f"the registry has no {model_type} model for a task with these shapes",
            hint="name the task in its place",
        )
    return found


def _entry(model_type: str, model: str, task: str, shapes: Mapping[str, Any], where: str) -> Entry:
    if task not in TASKS:
        raise RecipeError(f"{where}: there is no task {task!r}", hint=f"one of {', '.join(TASKS)}")
    changes: dict[str, Any] = {}
    for name, value in shapes.items():
        field = SHAPES.get(name)
        if field is None or not isinstance(value, int) or isinstance(value, bool):
            raise RecipeError(f"{where}: {name} is {value!r}", hint=f"shapes are {', '.join(SHAPES)}, whole numbers")
        changes[f"training.{field}"] = value
    name, base = _base(task, model_type, model)
    if not _same(base.model.id, model):
        changes = {"model.id": model, **changes}
        if base.data.source_prefix and _type(base.model.id) != model_type:
            changes["data.source_prefix"] = None  # what one model is told means nothing to another
    length = changes.get("training.max_seq_length", base.training.max_seq_length)
    stride = base.training.doc_stride
    if "doc_stride" in TASKS[task].training and stride and stride >= length // 2:
        changes["training.doc_stride"] = length // 4
    return Entry(f"{model} {task}", name, tuple(f"{field}={_word(value)}" for field, value in changes.items()))


def _base(task: str, model_type: str, model: str) -> tuple[str, Recipe]:
    """The zoo's recipe that comes nearest: of the model, of its type, or of the task; the plainest name of several."""
    found = [(name, loaded) for name, loaded in _recipes().items() if loaded.task == task]
    return min(
        found,
        key=lambda one: (
            not _same(one[1].model.id, model),
            _type(one[1].model.id) != model_type,
            len(one[0]),
            one[0],
        ),
    )


@cache
def _recipes() -> dict[str, Recipe]:
    return {name: recipe.load(path) for name, path in zoo.recipes().items()}


@cache
def _known(name: str) -> zoo.ModelEntry | None:
    return zoo.model(name)


def _same(one: str | None, other: str) -> bool:
    mine, theirs = _known(one or ""), _known(other)
    return one == other or (mine is not None and theirs is not None and mine.id == theirs.id)


def _type(name: str | None) -> str:
    entry = _known(name or "")
    return str(entry.config["model_type"]) if entry else ""
