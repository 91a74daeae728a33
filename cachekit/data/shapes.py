"""What a recipe's local rows say of its shapes, and whether they can be read at all; without torch, on any machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from cachekit.data import images, labels, rows, saved_rows, text_file
from cachekit.errors import DataError
from cachekit.recipe import Recipe, tasks, zoo
from cachekit.recipe.ingredients import Shapes


def shapes_of(recipe: Recipe) -> Shapes:
    """What of a recipe's rows shapes its graphs.

    Raises:
        DataError: The recipe does not say it, and no local row does.
    """
    choices = choices_of(recipe) if tasks.fields(recipe).has_choices else 0
    return Shapes(tuple(labels_of(recipe)), choices)


def labels_of(recipe: Recipe) -> list[str]:
    """The names of the classes, in the order of their numbers; none for a task without classes.

    From the recipe where it says them, else from the local training file, or from what was saved with a data set.

    Raises:
        DataError: Neither tells them.
    """
    data, own = recipe.data, tasks.fields(recipe)
    if not own.has_classes:
        return []
    if data.labels:
        return list(data.labels)
    if data.num_labels:
        return [str(number) for number in range(data.num_labels)]
    found = local(recipe)
    if found and found.form == "images":
        return images.classes(found.splits["train"])
    column = tasks.columns(recipe)["label_column"]
    if found and found.form == "saved" and (names := saved_rows.classes(found.splits["train"], column)):
        return list(names)
    path = _text_file(found, "its labels", "add data.labels: [...] in the order of their numbers, or data.num_labels")
    values = rows.column(path, column, "label_column", **_form(recipe))
    if "label_column" in tasks.nested(recipe):  # one for each word
        several = list(values)
        if several and not any(several):
            raise DataError(
                f"{path} has no labels: every list in {column!r} is empty",
                hint="if another column is meant, name it with data.label_column",
            )
        values = (value for row in several for value in row)
    elif own.several_classes:
        numbered = enumerate(values, start=1)
        all_of_them = [one for number, row in numbered for one in labels.label_list(row, f"{path}, row {number}")]
        if not all_of_them:
            raise DataError(f"{path} has no labels", hint="check data.label_column")
        values = iter(all_of_them)
    return labels.label_names(values, str(path), of_texts=own.judges_texts and not own.several_classes)


def choices_of(recipe: Recipe) -> int:
    """How many choices each row of a multiple-choice recipe has: it shapes the batch.

    From the recipe where it says so, else from the first row of the local training file.

    Raises:
        DataError: Neither tells it.
    """
    columns = recipe.data.choices_columns or ("choices",)
    if len(columns) > 1:
        return len(columns)
    if recipe.data.num_choices:
        return recipe.data.num_choices
    hint = "add data.num_choices, or name one column per choice with data.choices_columns"
    path = _text_file(local(recipe), "how many choices a row has", hint)
    first = next(read(recipe, path, {columns[0]: "choices_columns"}), None)
    if first is None:
        raise DataError(f"{path} has no rows", hint="check data.path, or data.train_file and its like")
    return len(rows.choices(first[columns[0]], columns[0], f"{path}, row 1")[0])


def _text_file(found: LocalRows | None, what: str, hint: str) -> Path:
    """The training file, which tells what the recipe does not say."""
    path = found.splits["train"] if found and found.form == "files" else None
    if path is None or path.suffix.lower() == ".parquet":
        raise DataError(
            f"the recipe does not say {what}",
            cause="the compiled graphs depend on this, and only local csv, tsv and json files are searched for it"
            + (f": {path} is Parquet" if path else ""),
            hint=hint,
        )
    return path


class LocalRows(Struct, frozen=True):
    """A recipe's rows on this machine.

    Attributes:
        form: Files, folders of images, or what `datasets` saved.
        splits: The file or folder of each split; `train` is there.
    """

    form: Literal["files", "images", "saved"]
    splits: dict[str, Path]


def local(recipe: Recipe) -> LocalRows | None:
    """Where a recipe's rows are; None where they come from the Hub.

    Raises:
        DataError: The folder is missing, has no training rows or a split twice; or the recipe names no data at all.
    """
    data = recipe.data
    if data.id:
        return None
    if data.path:
        if zoo.beside_recipes(data.path) and not Path(data.path).exists():
            raise DataError(
                f"the data of {recipe.name} do not come with cachekit",
                cause=f"there is no {Path(data.path).resolve()}",
                hint=f"`cachekit zoo show {recipe.name}` says how to get them; then add --set data.path=FOLDER",
            )
        if saved := saved_rows.of(data.path):
            return LocalRows("saved", saved)
        if folders := images.of(recipe):
            return LocalRows("images", folders)
        return LocalRows("files", rows.split_files(Path(data.path), of_images=tasks.fields(recipe).sees_images))
    given = {"train": data.train_file, "validation": data.validation_file, "test": data.test_file}
    if not data.train_file:
        raise DataError("the recipe names no data", hint="give data.id, data.path or data.train_file")
    return LocalRows("files", {name: Path(path) for name, path in given.items() if path})


def read(recipe: Recipe, path: Path, columns: Mapping[str, str]) -> Iterator[rows.Row]:
    """The rows of a text file, as the recipe says that it is written; see `rows.read`."""
    return rows.read(path, columns, **_form(recipe), plain_text=tasks.fields(recipe).plain_text)


def _form(recipe: Recipe) -> dict[str, Any]:
    """How the recipe says that its rows are written; see `rows.read`."""
    return {
        "nested": tasks.nested(recipe),
        "free": tasks.fields(recipe).free,
        "delimiter": recipe.data.delimiter,
        "encoding": recipe.data.encoding,
    }


def check_data(recipe: Recipe, *, absent_ok: bool = False) -> None:
    """Look whether local data can be read at all, before a worker spends its start-up on finding out.

    With `absent_ok` nothing is said of data that is not here: a plan may be made on another machine.

    Raises:
        DataError: A file is missing, empty, not of its format, or lacks a column.
    """
    if absent_ok:
        named = (recipe.data.path, recipe.data.train_file, recipe.data.validation_file, recipe.data.test_file)
        if not all(Path(name).exists() for name in named if name):
            return
    data, columns, found = recipe.data, tasks.read_columns(recipe), local(recipe)
    if found is None:
        return
    if data.path:
        _check_read(recipe, found.splits)
    if found.form == "images":
        images.classes(found.splits["train"])
        return
    for split, path in found.splits.items():
        if found.form == "saved":
            saved_rows.check(path, columns)
            continue
        field = "data.path" if data.path else f"data.{split}_file"
        if not path.exists():
            raise DataError(f"{field} {path} does not exist", hint=f"check {field}")
        if path.suffix.lower() != ".parquet":
            if next(read(recipe, path, columns), None) is None:
                raise DataError(f"{path} has no rows", hint=f"check {field}")
            if split != "train" or not _all_read(recipe):
                text_file.check(path, data.encoding)


def _all_read(recipe: Recipe) -> bool:
    """Whether the recipe's key came from all of its training rows, which were text then."""
    return tasks.fields(recipe).has_classes and not (recipe.data.labels or recipe.data.num_labels)


def _check_read(recipe: Recipe, found: Mapping[str, Path]) -> None:
    """Refuse what a recipe says of its rows and what lies in `data.path` puts out of use.

    `recipe.checks` knows what the recipe alone tells; what is in a folder is known where the folder is.
    """
    data, suffixes = recipe.data, {path.suffix.lower() for path in found.values()}
    unread = {
        "validation_fraction": data.validation_fraction if "validation" in found else None,
        "delimiter": data.delimiter if not suffixes & rows.DELIMITED else None,
        "encoding": data.encoding if data.encoding != "utf-8" and not suffixes - {"", ".parquet"} else None,
    }
    why = f"the rows come from {', '.join(path.name for path in found.values())} of data.path"
    for name, value in unread.items():
        if value is not None:
            raise DataError(f"data.{name} is {value!r}, and has no effect here", cause=why, hint=f"remove data.{name}")
