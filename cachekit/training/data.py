"""The rows of a recipe: from the Hub, or from local files; split, sampled, and checked before anything compiles."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cachekit.data import images, parquet, rows, saved_rows, shapes
from cachekit.errors import DataError
from cachekit.recipe import Recipe, tasks
from cachekit.recipe.hub import gated
from cachekit.text import first_line

# Columns of texts that a model learns from: where all are empty, another one is meant. Language models say so already.
TEXTS = frozenset({"text_column", "question_column", "context_column", "source_column", "prompt_column"})
SPLITS = ("train", "validation", "test")
HELD_BACK = 0.1  # of the training rows, for validation


class Split(Sequence[Mapping[str, Any]]):
    """Rows of one split, as the task reads them.

    Args:
        table: Mappings: a list of them, or a `datasets.Dataset` mapped from disk.
        indices: Which rows of the table, in which order.
        read: Makes the task's row of the table's; the second argument names the row in errors.
        name: Of the split.
    """

    def __init__(
        self,
        table: Sequence[Any],
        indices: Sequence[int],
        read: Callable[[Mapping[str, Any], str], Mapping[str, Any]],
        name: str = "train",
    ) -> None:
        self.table, self.indices, self.name = table, indices, name
        self._read = read

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: Any) -> Any:
        return self._read(self.table[self.indices[index]], f"{self.name} row {index + 1}")

    def take(self, indices: Sequence[int], name: str = "") -> Split:
        """Some of the rows, in the order given; a split of its own where it is given a name."""
        return Split(self.table, [self.indices[i] for i in indices], self._read, name or self.name)


def text(value: Any) -> str:
    """A text; nothing is an empty one."""
    return "" if value is None else str(value)


def tables(recipe: Recipe) -> dict[str, Sequence[Any]]:
    """Every split that the recipe names, with the columns that its task reads; `train` is always there.

    Raises:
        DataError: Missing, unreadable or empty files, or no such column.
    """
    nested, plain = tasks.nested(recipe), tasks.fields(recipe).plain_text
    local = shapes.local(recipe)
    loaded = _from_local(recipe, local) if local else _from_hub(recipe)
    found = {name: loaded[name] for name in SPLITS if name in loaded}
    for name, table in found.items():
        if len(table) == 0:
            raise DataError(f"the {name} data has no rows", hint=f"check data.{name}_file or the split's name")
        for column, named_by in tasks.read_columns(recipe).items():
            if named_by in TEXTS and not plain and not any(text(row[column]).strip() for row in table):
                raise DataError(
                    f"every {column!r} of the {name} data is empty",
                    hint=f"if another column is meant, name it with data.{named_by}",
                )
            # Of text files every row was looked at; the others have one type a column.
            if named_by not in tasks.fields(recipe).free:
                rows.check_value(table[0][column], column, named_by, f"{name} data", nested=named_by in nested)
        _check_order(recipe, table)
    return found


def _check_order(recipe: Recipe, table: Any) -> None:
    """Raise DataError for a data set's classes in another order than its own: each would have another's name."""
    labels, column = recipe.data.labels, tasks.columns(recipe).get("label_column")
    if labels is None or column is None or not hasattr(table, "features"):
        return
    kind = table.features[column]
    kind = kind[0] if isinstance(kind, list) else getattr(kind, "feature", kind)
    names = getattr(kind, "names", None) or []
    if sorted(names) == sorted(labels) and list(names) != list(labels):
        wrong = next(number for number, name in enumerate(names) if name != labels[number])
        raise DataError(
            "data.labels has the data set's classes in another order",
            cause=f"number {wrong} is {labels[wrong]!r} in the recipe, and {names[wrong]!r} in the data set",
            hint=f"set data.labels: [{', '.join(names)}]",
        )


def splits(
    tables: Mapping[str, Sequence[Any]],
    recipe: Recipe,
    read: Callable[[Mapping[str, Any], str], Mapping[str, Any]],
    running: Collection[str] = (),
) -> dict[str, Split]:
    """The rows of each split: validation rows are taken from the training rows where there are none, and samples.

    Args:
        tables: From `tables`.
        recipe: Says how many.
        read: See `Split`.
        running: Splits whose rows go on in one another, a text's lines: what is taken of them is one piece.

    Raises:
        DataError: There are too few to take some.
    """
    data, seed = recipe.data, recipe.training.seed
    found = {name: Split(table, range(len(table)), read, name) for name, table in tables.items()}
    if "validation" not in found:
        order = list(range(len(found["train"])))
        if "train" not in running:
            random.Random(seed).shuffle(order)  # noqa: S311 - a sample, no secret
        fraction = data.validation_fraction or HELD_BACK
        found["train"], found["validation"] = _split(found["train"], fraction, order)
        running = {*running, "validation"} if "train" in running else running
    limits = {"train": data.max_train_samples, "validation": data.max_eval_samples, "test": data.max_eval_samples}
    return {name: _sample(split, limits[name], seed, name in running) for name, split in found.items()}


def _split(split: Split, fraction: float, order: Sequence[int]) -> tuple[Split, Split]:
    held = max(1, round(len(order) * fraction))
    if held >= len(order):
        raise DataError(
            f"{len(order)} training rows leave none to validate on",
            hint="give data.validation_file, put validation rows into data.path, or lower data.validation_fraction",
        )
    training, validation = sorted(order[:-held]), sorted(order[-held:])
    return split.take(training), split.take(validation, "validation")


def _sample(split: Split, limit: int | None, seed: int, running: bool) -> Split:
    if limit is None or limit >= len(split):
        return split
    if running:
        return split.take(range(limit))
    # A random sample, not the first rows: files are often sorted by class.
    return split.take(sorted(random.Random(seed).sample(range(len(split)), limit)))  # noqa: S311


def _from_local(recipe: Recipe, local: shapes.LocalRows) -> dict[str, Any]:
    columns = tasks.read_columns(recipe)
    found: dict[str, Any] = {}
    for name, path in local.splits.items():
        if local.form == "images":
            image, label = (tasks.columns(recipe)[name] for name in ("image_column", "label_column"))
            found[name] = images.read(path, image, label)
        elif local.form == "saved":
            found[name] = _saved(path, columns)
        elif path.suffix.lower() == ".parquet":
            found[name] = parquet.read(path, columns)
        else:
            found[name] = list(shapes.read(recipe, path, columns))
    return found


def _saved(folder: Path, columns: Mapping[str, str]) -> Any:
    import datasets

    saved_rows.check(folder, columns)
    try:
        return datasets.load_from_disk(str(folder)).with_format(None)
    except Exception as error:  # its errors have no common root
        raise DataError(
            f"{folder} cannot be loaded as a saved data set",
            cause=first_line(error),
            hint="save it again, or give files that are csv, json lines or parquet",
        ) from error


def _from_hub(recipe: Recipe) -> dict[str, Any]:
    import datasets

    data = recipe.data

    datasets.disable_progress_bars()
    assert data.id is not None
    wanted = {"train": data.train_split, "validation": data.validation_split, "test": data.test_split}
    found: dict[str, Any] = {}
    for name, split in wanted.items():
        if split is None:
            continue
        try:
            table = datasets.load_dataset(data.id, data.config, split=split, revision=data.revision)
        except Exception as error:  # its errors have no common root
            if closed := gated(error, "data.id", data.id):
                raise closed from error
            raise DataError(
                f"data.id {data.id!r} could not be loaded",
                cause=first_line(error),
                hint="check data.id, the split's name and your network; or use local files with data.train_file",
            ) from error
        rows.require(f"data.id {data.id}", table.column_names, tasks.read_columns(recipe))
        found[name] = table
    return found
