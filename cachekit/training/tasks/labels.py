"""Classes: what a head is told of them, and which one a row's label means.

A label is a name of the recipe's, or a class's number; which of the two is decided once for a whole data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cachekit.data.labels import label_text
from cachekit.errors import DataError
from cachekit.text import first_of

MANY = 5  # labels that a sentence lists
_LONGEST = 9  # digits; there are never that many classes

Numbering = Callable[[Any, str], int]  # a value's class; the second argument says where it stands, for errors


def class_names(labels: Sequence[str]) -> dict[str, Any]:
    """Config fields of a head with these classes."""
    return {
        "num_labels": len(labels),
        "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
    }


def of_column(labels: Sequence[str], tables: Mapping[str, Any], column: str, tell: Callable[[str], None]) -> Numbering:
    """See `numbering`; for a column that holds one label a row. Training rows of one class only are a DataError."""
    found = {name: list(labelled(table, column, name)) for name, table in tables.items()}
    number_of = numbering(labels, found, tell)
    classes = {number_of(value, where) for where, value in found["train"]}
    if len(classes) < 2:  # noqa: PLR2004
        raise DataError(
            f"the training data has only one class: {labels[classes.pop()]!r}",
            cause="a classifier needs at least two",
            hint="check data.label_column",
        )
    return number_of


def labelled(table: Any, column: str, name: str) -> Iterator[tuple[str, Any]]:
    """Every label of a split, or every distinct one, with where it stands."""
    if hasattr(table, "unique"):  # a datasets.Dataset: its distinct values, not its millions of rows
        yield from ((f"{name} data", value) for value in table.unique(column))
        return
    yield from ((f"{name} row {number}", row[column]) for number, row in enumerate(table, start=1))


def numbering(
    labels: Sequence[str], splits: Mapping[str, Iterable[tuple[str, Any]]], tell: Callable[[str], None]
) -> Numbering:
    """Find out how a data set says its classes.

    Where every value is a name, names are meant; else, where every value is a class's number, numbers: the usual form
    of data sets on the Hub. Never one for this row and the other for that: with the names `1` to `5` and rows that are
    numbered from 0, `1` would stand for two classes.

    Args:
        labels: The classes' names, in the order of their numbers.
        splits: By split, each value with where it stands; every value that will be trained or evaluated on.
        tell: Called with a sentence where the values could be read both ways, with another result.

    Raises:
        DataError: A row has no label, or the values are neither all names nor all numbers.
    """
    found: dict[str, str] = {}
    for values in splits.values():
        for where, value in values:
            found.setdefault(label_text(value, where), where)
    by_name = {name: number for number, name in enumerate(labels)}
    by_number = {text: int(text) for text in found if _is_number(text) and int(text) < len(labels)}
    named = [text for text in found if text in by_name]
    chosen = by_name if len(named) == len(found) else by_number
    unknown = [text for text in found if text not in by_name and text not in by_number]
    if unknown:
        raise _unknown(unknown[0], found[unknown[0]], labels)
    if any(text not in chosen for text in found):
        name = next(text for text in named if text not in by_number)
        number = next(text for text in by_number if text not in by_name)
        raise DataError(
            f"some labels are names, and some are numbers: {name!r} in {found[name]}, {number!r} in {found[number]}",
            cause=f"labels are {first_of(labels, MANY)}",
            hint="use names in all of the data, or numbers in all of the data",
        )
    if any(by_name[text] != by_number[text] for text in named if text in by_number):
        tell(_said(chosen is by_name, next((text for text in found if text not in by_name), ""), found, labels))

    def number_of(value: Any, where: str) -> int:
        text = label_text(value, where)
        if text not in chosen:
            raise _unknown(text, where, labels)
        return chosen[text]

    return number_of


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST


def _said(names: bool, no_name: str, found: Mapping[str, str], labels: Sequence[str]) -> str:
    if names:
        return f"the labels {first_of(sorted(found), MANY)} are read as names of data.labels, not as numbers of classes"
    return (
        f"the labels {first_of(sorted(found), MANY)} are read as numbers of classes, 0 for {labels[0]!r}: "
        f"{no_name!r} is not one of data.labels"
    )


def _unknown(text: str, where: str, labels: Sequence[str]) -> DataError:
    return DataError(
        f"{where}: unknown label {text!r}",
        cause=f"labels are {', '.join(labels)}",
        hint="complete data.labels (or data.num_labels) in the recipe; for several classes per text, "
        "set task: multi-label-classification",
    )
