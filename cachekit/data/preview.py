"""What a recipe's local rows look like, for a person who is about to train on them; and what is odd about them.

It reads the first rows of each split, without torch. What is odd is told; a row that no training can read is an error
here, too. What `datasets` saved on disk, and data sets of the Hub, are not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from cachekit import host
from cachekit.data import images, parquet, rows, shapes, text_file
from cachekit.data.labels import counted, is_absent
from cachekit.data.labels import number as number_of
from cachekit.errors import DataError
from cachekit.recipe import Recipe, tasks
from cachekit.text import count, cut, first_of, one_line
from cachekit.values import by_value

LOOKED_AT = 10_000  # rows of a split
EXAMPLES = 3
LONGEST = 56  # characters of an example's value
MOSTLY = 0.99  # of the rows in one class
FEW = 100  # rows, of which nothing is said to be mostly anything
FEWER = 20  # of which nothing is said of how many classes they have
_ROWS = {"train": "training"}
_TEXTS = ("text_column", "text_pair_column", "question_column", "context_column", "source_column", "prompt_column")


class SplitPreview(Struct, frozen=True):
    """One split.

    Attributes:
        name: `train`, `validation` or `test`.
        file: The file or folder.
        rows: How many it has; None where nobody looked, as in what `datasets` saved.
        exact: They were counted; else the number is estimated from the size of the first ones.
        looked_at: How many rows the rest of a preview is about: all of them, or the first ones.
    """

    name: str
    file: str
    rows: int | None = None
    exact: bool = True
    looked_at: int = 0


class Preview(Struct, frozen=True, kw_only=True):
    """What local data looks like.

    Attributes:
        splits: Each that is there.
        columns: Those of the training rows that are read, then the others.
        unread: Those that are not.
        labels: The classes in the training rows, the most frequent first, with their numbers.
        examples: The first training rows, shortened.
        cut: How many of the training texts that were looked at have more words than `training.max_seq_length`: at least
            so many are cut. None where nothing is cut.
        ignored: Files of `data.path` that are not read, and why.
        unread_splits: Why a split was not read, of those that were not.
        doubts: What is odd, in sentences.
    """

    splits: tuple[SplitPreview, ...]
    columns: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    labels: Mapping[str, int] = {}
    examples: tuple[Mapping[str, str], ...] = ()
    cut: int | None = None
    ignored: Mapping[str, str] = {}
    unread_splits: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    __hash__ = by_value


def preview(recipe: Recipe) -> Preview | None:
    """Look at a recipe's rows; None where they are not on this machine.

    Raises:
        DataError: A row among the first ones cannot be read, so that a training would fail.
    """
    try:
        found = shapes.local(recipe)
    except DataError:
        return None
    if found is None:
        return None
    columns, unread = tasks.columns(recipe), []
    splits, heads = [], {}
    have: list[str] = []
    for name, path in found.splits.items():
        if why := _unread(path):
            unread.append(f"{name}: {path} {why}")
            continue
        look = _images if found.form == "images" else _split
        split, heads[name], names = look(recipe, name, path)
        splits.append(split)
        have = names if name == "train" else have
    train = heads.get("train", [])
    read = [column for column in tasks.read_columns(recipe) if column in have]
    said: dict[str, Counter[str]] = {}
    labels: Counter[str] = Counter()
    numbers: dict[str, set[float]] = {}
    if _classed(recipe, columns):
        several = tasks.fields(recipe).several_classes
        for name, head in heads.items():
            said[name] = counted([row.get(columns["label_column"]) for row in head], several=several)
        for label, number in said.get("train", labels).items():  # thousands of rows have few labels
            labels[one_line(label) or "(none)"] += number
    elif tasks.fields(recipe).numbers:
        for name, head in heads.items():
            numbers[name] = {
                number_of(row.get(columns["label_column"]), f"{found.splits[name]}, row {place}")
                for place, row in enumerate(head, start=1)
            }
    whole = any(split.exact and split.looked_at == split.rows for split in splits if split.name == "train")
    doubts = [*_odd_labels(labels), *_unknown_labels(recipe, said, whole=whole)]
    if len(numbers.get("train", ())) == 1 < len(train):
        doubts.append(f"all {len(train):,} training rows have one label, {numbers['train'].pop():g}")
    doubts += [*_odd_header(found, read, have, labels), *_leaks(heads, read), *_odd_texts(recipe, columns, train)]
    return Preview(
        splits=tuple(splits),
        columns=tuple(read),
        unread=tuple(column for column in have if column not in read),
        labels=dict(labels.most_common()),
        examples=tuple({column: _short(row[column]) for column in read if column in row} for row in train[:EXAMPLES]),
        cut=_cut(recipe, columns, train),
        ignored=_ignored(recipe, found),
        unread_splits=tuple(unread),
        doubts=tuple(doubts),
    )


def _unread(path: Path) -> str:
    """Why a split is not looked at; empty where it is."""
    if not path.exists():
        return "is not on this machine"
    if path.suffix.lower() == ".parquet" and not host.optional_version("pyarrow"):
        return "is Parquet, which only `datasets` (pyarrow) reads, and it is not installed here"
    return ""


def _split(recipe: Recipe, name: str, path: Path) -> tuple[SplitPreview, list[rows.Row], list[str]]:
    """What there is to say of a file, its first rows, and the names of its columns."""
    columns = tasks.read_columns(recipe)
    if path.is_dir():
        return SplitPreview(name, str(path)), [], []
    if path.suffix.lower() == ".parquet":
        images_too = tasks.fields(recipe).free  # which nobody looks at here
        seen = {column: field for column, field in columns.items() if field not in images_too}
        head, names, number = parquet.head(path, seen, LOOKED_AT)
        for column, field in seen.items() if head else ():  # a column has one type
            rows.check_value(head[0][column], column, field, str(path), nested=field in tasks.nested(recipe))
        return SplitPreview(name, str(path), number, looked_at=len(head)), head, names
    reader = shapes.read(recipe, path, columns)
    head = list(islice(reader, LOOKED_AT))
    number, exact = len(head), next(reader, None) is None
    if not exact and path.suffix.lower() == ".json":  # read as a whole already
        number, exact = number + 1 + sum(1 for _ in reader), True
    elif not exact:
        number = round(number * path.stat().st_size / _size(recipe, path, head))
    return SplitPreview(name, str(path), number, exact, len(head)), head, list(head[0]) if head else []


def _size(recipe: Recipe, path: Path, head: Sequence[rows.Row]) -> int:
    """How many bytes of a file the first rows take; a field of a table may have several lines."""
    lines = len(head)
    if path.suffix.lower() in rows.DELIMITED and not tasks.fields(recipe).plain_text:
        lines += 1 + sum(value.count("\n") for row in head for value in row.values())
    first = islice(text_file.lines(path, recipe.data.encoding, "\n"), lines)
    return sum(len(line.encode(recipe.data.encoding)) for line in first)


def _images(recipe: Recipe, name: str, path: Path) -> tuple[SplitPreview, list[rows.Row], list[str]]:
    columns = tasks.columns(recipe)
    found = images.read(path, columns["image_column"], columns["label_column"])
    return SplitPreview(name, str(path), len(found), looked_at=len(found)), found, list(columns.values())


def _classed(recipe: Recipe, columns: Mapping[str, str]) -> bool:
    return tasks.fields(recipe).has_classes and "label_column" in columns and "label_column" not in tasks.nested(recipe)


def _odd_labels(labels: Counter[str]) -> Iterator[str]:
    total = labels.total() if hasattr(labels, "total") else sum(labels.values())
    name, most = labels.most_common(1)[0] if labels else ("", 0)
    if total >= FEW and len(labels) > 1 and most >= MOSTLY * total:
        yield f"{most:,} of {total:,} training rows are in class {name!r}: a model that always says so does as well"
    if total >= FEWER and len(labels) > total / 2:
        yield f"{total:,} training rows have {len(labels):,} classes: most have one row"
    for spellings in _spellings(labels):
        yield f"{first_of(map(repr, spellings))} are different classes, though only capitals or spaces tell them apart"


def _unknown_labels(recipe: Recipe, said: Mapping[str, Counter[str]], *, whole: bool) -> Iterator[str]:
    """Labels of which no class is known; `whole` where all training rows were looked at, which name the classes."""
    given = recipe.data.labels or ()
    numbers = {str(number) for number in range(len(given))}
    for name, labels in said.items():
        strange: list[str] = []
        if given:
            who = "data.labels does not name"
            unnamed = [one for one in labels if one not in given]
            strange = [one for one in unnamed if not (one.isdecimal() and (one.lstrip("0") or "0") in numbers)]
        elif whole and name != "train" and not recipe.data.num_labels:
            who = "no training row has"
            strange = [one for one in labels if one not in said["train"]]
        if strange:
            shown = first_of(repr(one_line(one) or "(none)") for one in strange)
            yield f"the {_ROWS.get(name, name)} rows have {count(len(strange), 'label')} that {who}: {shown}"


def _spellings(labels: Counter[str]) -> Iterator[list[str]]:
    """The classes that look like one, each group of them."""
    alike: dict[str, list[str]] = {}
    for name in labels:
        alike.setdefault(" ".join(name.casefold().split()), []).append(name)
    yield from (sorted(names) for names in alike.values() if len(names) > 1)


def _odd_header(
    found: shapes.LocalRows, read: Sequence[str], have: Sequence[str], labels: Counter[str]
) -> Iterator[str]:
    """A table without a header: its first row became the columns' names."""
    if found.form != "files" or found.splits["train"].suffix.lower() not in rows.DELIMITED:
        return
    wordy = [name for name in have if name not in read and rows.is_like_a_row(name)]
    if wordy or any(name in labels for name in have):
        odd = wordy[0] if wordy else next(name for name in have if name in labels)
        yield f"the first line of {found.splits['train'].name} names the columns, and {_short(odd)!r} looks like a row"


def _odd_texts(recipe: Recipe, columns: Mapping[str, str], train: Sequence[rows.Row]) -> Iterator[str]:
    for column in () if tasks.fields(recipe).plain_text else (columns[name] for name in _TEXTS if name in columns):
        if empty := sum(column in row and is_absent(row[column]) for row in train):
            yield f"{empty:,} of {len(train):,} training rows have no text in {column!r}"


def _leaks(heads: Mapping[str, Sequence[rows.Row]], read: Sequence[str]) -> Iterator[str]:
    """Rows that a model was trained on tell nothing of how good it is."""
    known = {tuple(str(row.get(column)) for column in read) for row in heads.get("train", ())}
    for name, head in heads.items():
        if name == "train" or not head or not read or not head[0].keys() >= {*read}:
            continue
        if same := sum(tuple(str(row.get(column)) for column in read) in known for row in head):
            yield f"{same:,} of {len(head):,} {name} rows are among the training rows, too"


def _cut(recipe: Recipe, columns: Mapping[str, str], train: Sequence[rows.Row]) -> int | None:
    longest = recipe.training.max_seq_length
    texts = [columns[field] for field in _TEXTS if field in columns]
    if (
        not train
        or not texts
        or "max_seq_length" not in tasks.fields(recipe).training
        or tasks.fields(recipe).plain_text
    ):
        return None
    # Each word is a token at least.
    return sum(sum(len(str(row.get(column) or "").split()) for column in texts) > longest for row in train)


def _ignored(recipe: Recipe, found: shapes.LocalRows) -> dict[str, str]:
    """What lies in `data.path` beside the splits."""
    if not recipe.data.path or found.form == "saved":
        return {}
    taken, ignored = set(found.splits.values()), {}
    for path in sorted(Path(recipe.data.path).iterdir()):
        if path in taken or path.name.startswith("."):
            continue
        if path.is_dir():
            ignored[path.name] = (
                "a folder, and the rows are in files" if found.form == "files" else "not named as a split"
            )
        elif path.suffix.lower() not in rows.SUFFIXES:
            ignored[path.name] = "of a kind that is not read"
        else:
            ignored[path.name] = (
                "not named as a split: train, validation, test" if found.form == "files" else "the rows are in folders"
            )
    return ignored


def _short(value: Any) -> str:
    if is_absent(value):
        return "(none)"
    return cut(one_line(" ".join(str(value).split())), LONGEST)
