"""Rows from local files: csv, tsv, txt, json and jsonl, with errors that name file, line and column.

Parquet and the Hub are read in the training worker, which has the packages for them. `plan` reads local labels here, so
that the size of the model's head, and with it the key, is known without them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from cachekit.data import table, text_file
from cachekit.errors import DataError
from cachekit.text import cut

DELIMITED = {".csv", ".tsv", ".txt"}
SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl", ".json", ".parquet")
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "val", "valid", "dev", "eval"),
    "test": ("test",),
}

Row = dict[str, Any]
_decode = msgspec.json.Decoder().decode


class Line(str):
    """A line of a text file, with its line break: the next one goes on where it ends."""

    __slots__ = ()


def split_files(folder: Path, *, of_images: bool = False) -> dict[str, Path]:
    """The files of a data folder by split: `train.*`, and where they exist `validation.*` and `test.*`.

    Args:
        folder: The folder.
        of_images: Rows are images, which may lie in folders instead (`data.images`): an error says so.

    Raises:
        DataError: There is no such folder, no training file, or a split has two files.
    """
    if not folder.is_dir():
        raise DataError(
            f"data.path {folder} is not a folder",
            cause="" if folder.exists() else "there is nothing of that name",
            hint="correct data.path; for one file, use data.train_file",
        )
    found = by_split(folder, sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES), "file")
    if "train" not in found:
        raise DataError(
            f"{folder} has no training file",
            cause=f"looked for train.{{{','.join(s[1:] for s in SUFFIXES)}}}",
            hint="name it with data.train_file"
            + (f", or put the images into {folder / 'train'}/CLASS, a folder for each class" if of_images else ""),
        )
    return found


def by_split(place: Path | str, entries: Sequence[Path], kind: str) -> dict[str, Path]:
    """Those of some files or folders that are called as a split is.

    Raises:
        DataError: Two are called as one split is.
    """
    found: dict[str, Path] = {}
    for split, names in SPLIT_NAMES.items():
        called = [path for path in entries if (path.stem if kind == "file" else path.name).lower() in names]
        if len(called) > 1:
            raise DataError(
                f"{place} has more than one {split} {kind}",
                cause=", ".join(path.name for path in called),
                hint="keep one, or name files with data.train_file and its like in place of data.path",
            )
        if called:
            found[split] = called[0]
    return found


def read(
    path: Path,
    columns: Mapping[str, str],
    *,
    nested: Collection[str] = (),
    free: Collection[str] = (),
    delimiter: str | None = None,
    encoding: str = "utf-8",
    plain_text: bool = False,
) -> Iterator[Row]:
    """Read rows that have at least `columns`.

    Args:
        path: A file whose suffix is in SUFFIXES, but for parquet.
        columns: The columns that must be there, each with the recipe's field of `data` that names it.
        nested: Those fields whose columns hold a list or a mapping.
        free: Those whose columns may hold either.
        delimiter: Of a delimited file; found from the header by default.
        encoding: Of the text.
        plain_text: A .txt file without a delimiter has no header and no columns: each `Line` is a row.

    Raises:
        DataError: The file is missing, unreadable, not of its format, or lacks a column.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(
            f"{path} has an unknown file type", cause=f"known types: {', '.join(SUFFIXES)}", hint="convert it to csv"
        )
    if plain_text and suffix == ".txt" and delimiter is None:
        return _plain(path, text_file.lines(path, encoding, newline=None), columns)
    if suffix in DELIMITED:
        found = _table(path, columns, nested, delimiter, encoding)
        return (dict(zip(found.header, values, strict=True)) for values in found.rows())
    if suffix == ".jsonl":
        return _check_columns(
            path, _json_lines(path, text_file.lines(path, encoding, newline="\n")), columns, nested, free
        )
    if suffix == ".json":
        return _check_columns(path, _json_rows(path, text_file.whole(path, encoding)), columns, nested, free)
    raise DataError(f"{path} is parquet, which only the training worker reads")


def column(path: Path, name: str, field: str, **form: Any) -> Iterator[Any]:
    """The values of one column; those of a table take a quarter of the time of its rows, those of json lines a fifth.

    Args:
        path: As in `read`, but no plain text.
        name: The column.
        field: The recipe's field of `data` that names it.
        **form: How the file is written: `nested`, `free`, `delimiter` and `encoding`, as in `read`.

    Raises:
        DataError: As `read`.
    """
    if path.suffix.lower() == ".jsonl":
        return chain.from_iterable(_json_column(path, name, field, **form))
    if path.suffix.lower() not in DELIMITED:
        return (row[name] for row in read(path, {name: field}, **form))
    return _table(path, {name: field}, form["nested"], form["delimiter"], form["encoding"]).column(name)


def _table(
    path: Path, columns: Mapping[str, str], nested: Collection[str], delimiter: str | None, encoding: str
) -> table.Table:
    if column := next((column for column, field in columns.items() if field in nested), ""):
        raise DataError(
            f"{path}: column {column!r} must hold lists or mappings, which delimited text cannot",
            hint="use json lines or parquet",
        )
    found = table.Table(path, list(columns), delimiter, encoding)
    require(path, found.header, columns)
    return found


def _json_column(
    path: Path, name: str, field: str, *, nested: Collection[str], free: Collection[str], encoding: str, **_: Any
) -> Iterator[list[Any]]:
    """The values of one column of json lines, some thousands at once.

    Nothing is made of the other columns. Where a piece of the file is not as msgspec expects, its rows are read one by
    one, which accepts what `json` accepts, and names the line of an error.
    """
    only = msgspec.defstruct("Only", [("value", Any)], rename={"value": name})
    decoder = msgspec.json.Decoder[Any](only)
    start = 1
    for block in text_file.blocks(path, encoding):
        count = block.count("\n") + (not block.endswith("\n"))
        try:
            values = [one.value for one in decoder.decode_lines(block)]
        except (msgspec.MsgspecError, ValueError, RecursionError):
            values = []
        # Several objects in a line, or one in several, are no json lines.
        if len(values) != count or (
            field not in free and any(isinstance(one, list | dict) != (field in nested) for one in values)
        ):
            numbered = _json_lines(path, block.split("\n"), start)
            values = [row[name] for row in _check_columns(path, numbered, {name: field}, nested, free)]
        yield values
        start += count


def check_value(value: Any, column: str, field: str, where: str, *, nested: bool = False) -> None:
    """Refuse what is neither a text nor a class: its spelling in Python would be taken for one.

    Raises:
        DataError: It is a list or a mapping where one value was expected, or the other way round.
    """
    if isinstance(value, list | dict) == nested:
        return
    kind = "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else "one value"
    several = field == "label_column" and isinstance(value, list)
    raise DataError(
        f"{where}: {column} is {kind}",
        cause="expected a list or a mapping" if nested else "expected one text, or one class, per row",
        hint=f"if another column is meant, name it with data.{field}"
        + ("; for several classes per text, set task: multi-label-classification" if several else ""),
    )


def choices(value: Any, column: str, where: str) -> tuple[list[Any], list[Any] | None]:
    """The choices of a row in one column, and what its label may call them, where the column says that too.

    A list; or, as in the data sets ARC and CommonsenseQA, `{"text": [...], "label": ["A", "B", ...]}`.

    Raises:
        DataError: It is neither, or holds fewer than two.
    """
    texts, names = (value.get("text"), value.get("label")) if isinstance(value, Mapping) else (value, None)
    lists = [found for found in (texts, names) if found is not None]
    if (
        not isinstance(texts, list)
        or not all(isinstance(found, list) and len(found) == len(texts) for found in lists)
        or any(isinstance(one, list | dict) for found in lists for one in found)
        or len(texts) < 2  # noqa: PLR2004
    ):
        raise DataError(
            f"{where}: {column} is not a list of two or more choices",
            hint='[...], or {"text": [...], "label": [...]}; name another column with data.choices_columns',
        )
    return texts, names


def _plain(path: Path, text: Iterator[str], columns: Mapping[str, str]) -> Iterator[Row]:
    if len(columns) != 1:
        raise DataError(
            f"{path}: plain text has one column, not {len(columns)}",
            cause=f"columns are {', '.join(columns)}",
            hint="use csv or json lines, or set data.delimiter",
        )
    (column,) = columns
    # As open() reads lines: str.splitlines takes form feeds and others for an end as well.
    yield from ({column: Line(line)} for line in text)


def _json(text: str) -> Any:
    """What a JSON text says. msgspec takes a seventh of the time; `json` also reads NaN, and half of a surrogate pair.

    Raises:
        ValueError, RecursionError: Of `json`.
    """
    try:
        return _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return json.loads(text)


def _json_lines(path: Path, text: Iterable[str], start: int = 1) -> Iterator[tuple[str, Any]]:
    # Only a newline ends a line: JSON texts may hold the other characters that Python's splitlines takes for one.
    for number, line in enumerate(text, start=start):
        if line.strip():
            try:
                yield f"line {number}", _json(line.removesuffix("\n"))
            except (ValueError, RecursionError) as error:
                why = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
                raise DataError(f"{path}, line {number}: not JSON", cause=cut(why, 200)) from error


def _json_rows(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    try:
        document = _json(text)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("{") and "\n{" in text:
            yield from _json_lines(path, text.split("\n"))  # jsonl under the name .json, as many tools write it
            return
        raise DataError(f"{path}, line {error.lineno}: not JSON", cause=error.msg) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON that can be read", cause=cut(str(error), 200)) from error
    rows = document.get("data") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise DataError(f"{path} is not a list of rows", hint='[{"text": ..., "label": ...}, ...]')
    if rows and all(isinstance(row, dict) and isinstance(row.get("paragraphs"), list) for row in rows):
        yield from _squad_rows(path, rows)
        return
    yield from ((f"row {number}", row) for number, row in enumerate(rows, start=1))


def _squad_rows(path: Path, articles: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The questions of a file in SQuAD's own form, which its authors give out: articles, their paragraphs, questions.

    See https://rajpurkar.github.io/SQuAD-explorer; version 2.0 has `is_impossible`, and then no answers.
    """
    for number, article in enumerate(articles, start=1):
        for paragraph_number, paragraph in enumerate(article["paragraphs"], start=1):
            where = f"article {number}, paragraph {paragraph_number}"
            if not isinstance(paragraph, dict) or not isinstance(paragraph.get("qas"), list):
                raise DataError(
                    f"{path}, {where}: no questions",
                    hint='{"context": ..., "qas": [{"question": ..., "answers": ...}]}',
                )
            shared = {name: value for name, value in paragraph.items() if name != "qas"}
            for question_number, question in enumerate(paragraph["qas"], start=1):
                row = {**shared, **question} if isinstance(question, dict) else question
                yield f"{where}, question {question_number}", row


def _check_columns(
    path: Path,
    numbered: Iterator[tuple[str, Any]],
    columns: Mapping[str, str],
    nested: Collection[str],
    free: Collection[str],
) -> Iterator[Row]:
    for where, row in numbered:
        if not isinstance(row, dict):
            raise DataError(f"{path}, {where}: not an object", hint='{"text": ..., "label": ...}')
        if not columns.keys() <= row.keys():
            require(path, list(row), columns, where)
        for name, field in columns.items():
            if field not in free and isinstance(row[name], list | dict) != (field in nested):
                check_value(row[name], name, field, f"{path}, {where}", nested=field in nested)
        yield row


def is_like_a_row(name: str) -> bool:
    """Whether a column's name is a sentence: then the first line of a table is a row, and names no columns."""
    return len(name.split()) > 4  # noqa: PLR2004


def require(place: Path | str, have: list[str], columns: Mapping[str, str], where: str = "") -> None:
    """Refuse rows that lack a column, or have it twice; `columns` are as in `read`.

    Raises:
        DataError: One is not there, and the hint names one that may be meant; or two are called so.
    """
    for name, field in columns.items():
        if have.count(name) > 1:
            raise DataError(
                f"{place}: {have.count(name)} columns are called {name!r}",
                cause=f"columns are {', '.join(have)}",
                hint="rename all but one of these columns",
            )
        if name not in have:
            # Not one that another field names.
            near = get_close_matches(name, [other for other in have if other not in columns], n=1, cutoff=0.3)
            hint = f"name the column with data.{field}" + (f", {near[0]!r} perhaps" if near else "")
            if not where and any(map(is_like_a_row, have)):
                hint = f"the first line must name the columns, and looks like a row: put one with {name!r} above it"
            raise DataError(
                f"{place}{f', {where}' if where else ''}: no column {name!r}",
                cause=f"columns are {', '.join(have) or '(none)'}",
                hint=hint,
            )
