"""The rows of a recipe: from the Hub, or from local files; split, sampled, and checked before anything compiles."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cachekit import rows
from cachekit.errors import DataError
from cachekit.recipe.schema import Data
from cachekit.training.labels import Numbering, numbering

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """Rows of one split, each `{"text": str, "pair": str | None, "label": int}`.

    Attributes:
        table: Anything with a length and items that are mappings: a list, or a `datasets.Dataset` mapped from disk.
        indices: Which rows of it, in which order.
    """

    table: Sequence[Any]
    indices: Sequence[int]
    data: Data
    number_of: Numbering = field(repr=False)
    name: str = "train"

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.table[self.indices[index]]
        pair = self.data.text_pair_column
        return {
            "text": _text(row[self.data.text_column]),
            "pair": _text(row[pair]) if pair else None,
            "label": self.number_of(row[self.data.label_column], f"{self.name} row {index + 1}"),
        }

    def take(self, indices: Sequence[int]) -> Split:
        """Some of the rows, in the order given."""
        return Split(self.table, [self.indices[i] for i in indices], self.data, self.number_of, self.name)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def load(data: Data, labels: Sequence[str], seed: int, tell: Callable[[str], None]) -> dict[str, Split]:
    """Load every split that the recipe names, and a validation split in any case.

    Args:
        data: The recipe's data section.
        labels: The classes.
        seed: For the sample and the validation rows that are taken from the training rows.
        tell: Called with what a person should know, a sentence each.

    Raises:
        DataError: Missing, unreadable or empty files, no such column, unknown or missing labels, one class only.
    """
    loaded = _from_hub(data) if data.id else _from_files(data)
    tables = {name: loaded[name] for name in SPLITS if name in loaded}
    for name, table in tables.items():
        if len(table) == 0:
            raise DataError(f"the {name} data has no rows", hint=f"check data.{name}_file or the split's name")
        for column in filter(None, (data.text_column, data.text_pair_column, data.label_column)):
            # Of text files every row was looked at; the others have one type a column.
            rows.check_value(table[0][column], column, f"{name} data")
    found = {name: _labels(table, data.label_column, name) for name, table in tables.items()}
    number_of = numbering(labels, found, tell)
    splits = {name: Split(table, range(len(table)), data, number_of, name) for name, table in tables.items()}
    _check_classes(splits["train"], data.label_column, labels)
    if "validation" not in splits:
        splits["train"], splits["validation"] = _split(splits["train"], data.validation_fraction, seed)
    limits = {"train": data.max_train_samples, "validation": data.max_eval_samples, "test": data.max_eval_samples}
    return {name: _sample(split, limits[name], seed) for name, split in splits.items()}


def _labels(table: Any, column: str, name: str) -> Iterator[tuple[str, Any]]:
    if hasattr(table, "unique"):  # a datasets.Dataset: its distinct values, not its millions of rows
        yield from ((f"{name} data", value) for value in table.unique(column))
        return
    yield from ((f"{name} row {number}", row[column]) for number, row in enumerate(table, start=1))


def _check_classes(split: Split, column: str, labels: Sequence[str]) -> None:
    table = split.table
    values: Iterable[Any] = table.unique(column) if hasattr(table, "unique") else (row[column] for row in table)
    found = {split.number_of(value, "train data") for value in values}
    if len(found) < 2:  # noqa: PLR2004
        raise DataError(
            f"the training data has one class only: {labels[found.pop()]!r}",
            cause="a classifier needs at least two",
            hint="check data.label_column",
        )


def _split(split: Split, fraction: float, seed: int) -> tuple[Split, Split]:
    order = list(range(len(split)))
    random.Random(seed).shuffle(order)  # noqa: S311 - a sample, no secret
    held = max(1, round(len(order) * fraction))
    if held >= len(order):
        raise DataError(f"{len(order)} training rows leave none to validate on", hint="give data.validation_file")
    training, validation = sorted(order[:-held]), sorted(order[-held:])
    return split.take(training), Split(
        split.table, [split.indices[i] for i in validation], split.data, split.number_of, "validation"
    )


def _sample(split: Split, limit: int | None, seed: int) -> Split:
    if limit is None or limit >= len(split):
        return split
    # A random sample, not the first rows: files are often sorted by class.
    return split.take(sorted(random.Random(seed).sample(range(len(split)), limit)))  # noqa: S311


def _from_files(data: Data) -> dict[str, Any]:
    if data.path:
        files = rows.split_files(Path(data.path))
    else:
        given = {"train": data.train_file, "validation": data.validation_file, "test": data.test_file}
        files = {name: Path(path) for name, path in given.items() if path}
    columns = [name for name in (data.text_column, data.text_pair_column, data.label_column) if name]
    tables: dict[str, Any] = {}
    for name, path in files.items():
        if path.suffix.lower() == ".parquet":
            tables[name] = _parquet(path, columns)
        else:
            tables[name] = list(rows.read(path, columns, delimiter=data.delimiter, encoding=data.encoding))
    return tables


def _parquet(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DataError(f"{path} does not exist")
    try:
        have = pq.read_schema(path).names
        missing = [name for name in columns if name not in have]
        if missing:
            raise DataError(f"{path}: no column {missing[0]!r}", cause=f"columns are {', '.join(have)}")
        table: list[dict[str, Any]] = pq.read_table(path, columns=columns).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is no parquet file", cause=str(error).splitlines()[0]) from error
    return table


def _from_hub(data: Data) -> dict[str, Any]:
    import datasets

    datasets.disable_progress_bars()
    assert data.id is not None
    wanted = {"train": data.train_split, "validation": data.validation_split, "test": data.test_split}
    tables = {}
    for name, split in wanted.items():
        if split is None:
            continue
        try:
            table = datasets.load_dataset(data.id, data.config, split=split, revision=data.revision)
        except Exception as error:  # its errors have no common root
            raise DataError(
                f"data set {data.id!r} could not be loaded",
                cause=(str(error).strip().splitlines() or [type(error).__name__])[0][:300],
                hint="check data.id, the split's name and your network; or use local files with data.train_file",
            ) from error
        for column in filter(None, (data.text_column, data.text_pair_column, data.label_column)):
            if column not in table.column_names:
                raise DataError(
                    f"data set {data.id!r} has no column {column!r}",
                    cause=f"columns are {', '.join(table.column_names)}",
                    hint="say which one with data.text_column or data.label_column",
                )
        tables[name] = table
    return tables
