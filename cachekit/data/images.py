"""Images in folders, one a class: `path/train/<class>/*.png`, the form in which most people have their own.

Read without torch and without decoding: `plan` must know the number of classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cachekit.data import labels, rows
from cachekit.errors import DataError
from cachekit.recipe import Recipe, tasks

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})


def of(recipe: Recipe) -> dict[str, Path]:
    """The folders of a recipe's splits; empty where its data has another form."""
    path = recipe.data.path
    if not tasks.fields(recipe).sees_images or not path or not Path(path).is_dir():
        return {}
    entries = sorted(Path(path).iterdir())
    if any(e.is_file() and e.suffix in rows.SUFFIXES and e.stem.lower() in rows.SPLIT_NAMES["train"] for e in entries):
        return {}  # a file that names the images, perhaps of these folders
    folders = [folder for folder in entries if folder.is_dir()]
    found = rows.by_split(path, folders, "folder")
    return found if "train" in found else {}


def classes(folder: Path) -> list[str]:
    """The classes of a split, in the order of their numbers: names by alphabet, numbers by value.

    Raises:
        DataError: There are fewer than two, or one has no images.
    """
    found = _classes(folder)
    for name in found:
        if not _images(folder / name):
            raise DataError(f"{folder / name} has no images", cause=f"looked for {', '.join(sorted(SUFFIXES))}")
    if not found:
        raise DataError(f"{folder} has no folders of images", hint="expected one per class: train/cat/1.png")
    return labels.label_names(found, str(folder))


def read(folder: Path, image: str, label: str) -> list[dict[str, Any]]:
    """The rows of a split: an image's path, and its class.

    Raises:
        DataError: The split has no images.
    """
    found = [{image: str(path.absolute()), label: name} for name in _classes(folder) for path in _images(folder / name)]
    if not found:
        raise DataError(f"{folder} has no images", hint="expected a folder per class: train/cat/1.png")
    return found


def _classes(folder: Path) -> list[str]:
    return sorted(inner.name for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
