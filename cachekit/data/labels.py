"""What rows say of their labels: a class, several classes, or a number; and the classes that occur."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any

from cachekit.errors import DataError
from cachekit.text import cut, first_of

_AT_ONCE = 10_000  # rows
_WHOLE = re.compile(r"-?[0-9]+\.0+")
_CLASS_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,8})")  # one spelling a number: `01` and `-0` are names
_DECIMAL = re.compile(r"-?[0-9]*\.[0-9]+(e[-+]?[0-9]+)?", re.IGNORECASE)
_SEPARATOR = re.compile(r"\s*[,;|]\s*")
# As numpy prints an array, and the same without brackets.
_ARRAY = re.compile(r"\s*\[\s*([0-9.]+|'[^']*')(\s+([0-9.]+|'[^']*'))+\s*\]\s*|\s*\d+(\s+\d+)+\s*")
# `3,6`, `[1, 2]`, `joy|love`: several classes in one text.
_SEVERAL = re.compile(r"\s*\[.*\]\s*|\s*\d+(\s*[\s,;|]\s*\d+)+\s*|\s*\w+(\s*[;|]\s*\w+)+\s*")


def label_names(values: Iterable[Any], source: str, *, of_texts: bool = False) -> list[str]:
    """The classes that occur, in the order of their numbers: numbers by value, names by alphabet.

    Args:
        values: Labels.
        source: Where they come from.
        of_texts: Each is the one class of a text, for which lists and fractions are refused.

    Raises:
        DataError: A row has no label, or there are fewer than two classes; or see `of_texts`.
    """
    seen: dict[str, Any] = {}
    count, values = 0, iter(values)
    while some := list(islice(values, _AT_ONCE)):
        for value in different(some):
            where = f"{source}, row {count + some.index(value) + 1}" if is_absent(value) else source
            seen.setdefault(label_text(value, where), value)
        count += len(some)
    if count == 0:
        raise DataError(f"{source} has no rows", hint="check data.path or data.train_file")
    if of_texts:
        _check_one_class(seen.keys(), source)
    if len(seen) < 2:  # noqa: PLR2004
        raise DataError(
            f"{source} has only one class: {next(iter(seen))!r}",
            cause="a classifier needs at least two",
            hint="check data.label_column",
        )
    if twice := next((name for name in seen if _WHOLE.fullmatch(name) and name.partition(".")[0] in seen), ""):
        raise DataError(
            f"{source}: the labels {twice.partition('.')[0]!r} and {twice!r} are the same number, spelled in two ways",
            cause="a tool may have written whole numbers as fractions because a value was missing",
            hint="use one spelling in all the data, or set data.labels if they are two classes",
        )
    if all(_is_integer(name) for name in seen):
        largest = max(int(name) for name in seen)
        if min(int(name) for name in seen) < 0 or largest >= 10 * len(seen) + 10:
            raise DataError(
                f"{source}: the labels are numbers, but not class numbers",
                cause=f"from {min(map(int, seen))} to {largest}, {len(seen)} different ones",
                hint="use names, or number the classes from 0; text-regression predicts numbers",
            )
        return [str(number) for number in range(largest + 1)]
    return sorted(seen)


def different(values: Sequence[Any]) -> Iterable[Any]:
    """Each value once, where that can be told: a million rows have few labels.

    What Python takes for one value (`1`, `1.0`, `True`) is one label, too.
    """
    try:
        return dict.fromkeys(values)
    except TypeError:  # lists
        return values


def is_absent(value: Any) -> bool:
    """Whether a row has nothing where its label should be."""
    return value is None or (isinstance(value, str) and not value.strip()) or value != value  # noqa: PLR0124


def counted(values: Sequence[Any], *, several: bool = False) -> Counter[str]:
    """How many rows have each class; "" counts rows without one.

    Args:
        values: The labels of the first rows.
        several: Each names the classes of a text that may have several.

    Raises:
        DataError: See `label_list`.
    """
    found: Counter[str] = Counter()
    try:
        given: Iterable[tuple[Any, int]] = Counter(values).items()
    except TypeError:  # lists
        given = ((value, 1) for value in values)
    for value, times in given:
        if several:
            where = f"row {values.index(value) + 1}"
            found.update(dict.fromkeys(label_list(value, where), times))
        else:
            found["" if is_absent(value) else label_text(value, "")] += times
    return found


def label_text(value: Any, where: str) -> str:
    """A label as the text by which classes are told apart: `1`, `1.0` and `"1"` are one class.

    Raises:
        DataError: There is no label.
    """
    if is_absent(value):
        raise DataError(f"{where} has no label", hint="remove the row, or check data.label_column")
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def label_list(value: Any, where: str) -> list[str]:
    """The classes of a row that may have several, or none: a list, or a text such as `3,6`, `[3, 6]` or `joy|love`.

    Raises:
        DataError: It is a list of lists, or an array as numpy prints it; or it names a class twice, as a list with a 0
            or 1 for each class does.
    """
    if isinstance(value, str):
        if _ARRAY.fullmatch(value):
            raise DataError(
                f"{where}: the labels {cut(value.strip(), 60)!r} are written with spaces between them",
                cause="numpy prints arrays in this form"
                if "[" in value
                else "each different list would be a class of its own",
                hint="separate the labels with commas: [1, 2]",
            )
        inner = value.strip()
        inner = inner[1:-1].strip() if inner[:1] == "[" and inner[-1:] == "]" else inner
        parts: Sequence[Any] = [part.strip("'\"") for part in _SEPARATOR.split(inner) if part]
    elif value is None or value != value:  # noqa: PLR0124
        parts = []
    else:
        parts = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(one, list | tuple | dict) for one in parts):
        raise DataError(f"{where}: the labels are not a list of classes", hint="check data.label_column")
    found = [label_text(one, where) for one in parts]
    if len(set(found)) < len(found):
        raise DataError(
            f"{where} has a class twice: {first_of(found, 20)}",
            cause="a 0 or 1 for each class, perhaps" if set(found) <= {"0", "1"} else "",
            hint="list the names, or the numbers, of the classes that the row has",
        )
    return found


def number(value: Any, where: str) -> float:
    """The number that a row has for a label.

    Raises:
        DataError: It has none, or something else.
    """
    text = label_text(value, where)
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise DataError(
            f"{where}: the label {text!r} is not a number",
            cause="text-regression predicts numbers",
            hint="correct the row, or check data.label_column; for classes, set task: text-classification",
        )
    return found


def _check_one_class(known: Collection[str], source: str) -> None:
    """Refuse labels of which each different list, or each different number, would become a class of its own."""
    named = "; if each is the name of one class, list the names with data.labels"
    if lists := sorted(one for one in known if _SEVERAL.fullmatch(one) or _joined(one, known)):
        raise DataError(
            f"{source}: labels such as {first_of(map(repr, lists))} look like lists of classes",
            cause="text-classification gives a text one class, so each different list would be a class of its own: "
            f"{len(known)} in all",
            hint=f"set task: multi-label-classification{named}",
        )
    if (fractions := sorted(one for one in known if _DECIMAL.fullmatch(one) and not _WHOLE.fullmatch(one))) and all(
        _DECIMAL.fullmatch(one) or _CLASS_NUMBER.fullmatch(one) for one in known
    ):
        raise DataError(
            f"{source}: labels such as {first_of(map(repr, fractions))} are numbers, not classes",
            cause=f"each different number would be a class, {len(known)} in all",
            hint=f"set task: text-regression, which predicts numbers{named}",
        )


def _joined(name: str, known: Collection[str]) -> bool:
    parts = _SEPARATOR.split(name)
    return len(parts) > 1 and all(part in known for part in parts)


def _is_integer(text: str) -> bool:
    return _CLASS_NUMBER.fullmatch(text) is not None and text != "-0"
