"""A data set that the package `datasets` saved on disk: its splits, columns and classes, read without that package.

`DatasetDict.save_to_disk` writes a folder a split; `Dataset.save_to_disk` one split, into any folder. Each holds
`state.json`, and `dataset_info.json` with the columns' types [datasets 5.2: arrow_dataset.py, dataset_dict.py].
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cachekit import files
from cachekit.data import rows
from cachekit.errors import DataError
from cachekit.text import cause_of, cut

LARGEST = 32 << 20  # bytes; names of a million classes fit


def of(path: str | None) -> dict[str, Path]:
    """The folders of the splits in a recipe's `data.path`; empty where its data has another form.

    Raises:
        DataError: It was saved by `datasets`, and has no training split, or a split twice; or it cannot be read.
    """
    if not path or not Path(path).is_dir():
        return {}
    whole = Path(path)
    try:
        if _is_split(whole):
            return {"train": whole}
        folders = sorted(folder for folder in whole.iterdir() if _is_split(folder))
    except OSError as error:
        raise DataError(
            f"data.path {path} cannot be read",
            cause=cause_of(error),
            hint="make the folder readable for this user",
        ) from error
    found = rows.by_split(path, folders, "folder")
    if folders and "train" not in found:
        raise DataError(
            f"data.path {path} is a saved data set without training rows",
            cause=f"its splits are {', '.join(folder.name for folder in folders)}",
            hint="name the folder of one of them with data.path, or save it with a split called train",
        )
    return found


def _is_split(folder: Path) -> bool:
    return (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()


def check(folder: Path, columns: Mapping[str, str]) -> None:
    """Look whether a split has the columns that a task reads.

    Raises:
        DataError: It lacks one.
    """
    have = list(_features(folder))
    missing = [name for name in columns if name not in have]
    if missing and "input_ids" in have:
        raise DataError(
            f"{folder}: no column {missing[0]!r}: these rows are tokenized already",
            cause=f"columns are {', '.join(have)}",
            hint="save the data set before it is tokenized: the recipe's task tokenizes, to one length",
        )
    if have:  # else whoever saved it left them out
        rows.require(folder, have, columns)


def classes(folder: Path, column: str) -> list[str]:
    """The names that a saved data set gives its two or more classes, in the order of their numbers; else none.

    Raises:
        DataError: The split's description cannot be read.
    """
    for kind in _kinds(_features(folder).get(column)):
        names = kind.get("names")
        if kind.get("_type") != "ClassLabel" or not isinstance(names, list) or len(names) < 2:  # noqa: PLR2004
            continue
        if all(isinstance(name, str) for name in names):
            return names
    return []


def _kinds(kind: Any) -> Iterator[Mapping[str, Any]]:
    """A column's type, and that of a list's items: `{"feature": {...}, "_type": "List"}`, or in a list of one."""
    for _ in range(2):
        if isinstance(kind, list) and len(kind) == 1:
            kind = kind[0]
        if not isinstance(kind, dict):
            return
        yield kind
        kind = kind.get("feature")


def _features(folder: Path) -> Mapping[str, Any]:
    path = folder / "dataset_info.json"
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(
                f"{path} does not describe a data set",
                cause=f"the file has more than {LARGEST:,} bytes",
                hint="save the data set again",
            )
        document = json.loads(files.read(path).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read", cause=cut(str(error), 200), hint="save the data set again") from error
    features = document.get("features") if isinstance(document, dict) else None
    return features if isinstance(features, dict) else {}
