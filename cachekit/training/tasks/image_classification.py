"""Image classification: one class for an image, which is decoded from what data sets hold, and made of one size."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from cachekit.errors import DataError, RecipeError
from cachekit.recipe import Recipe, tasks
from cachekit.recipe.ingredients import image_size
from cachekit.text import cut
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import labels, metrics
from cachekit.training.tasks.port import FILLER, Collator, Feature, Task, Work


class ImageClassification(Task):
    """Rows are `{"image": any, "where": str, "folder": Path, "label": int}`, and so are features.

    Images are decoded as batches are made: decoded, a data set is many times the size of its files.
    """

    auto_model = "AutoModelForImageClassification"
    processor = "image"

    def config(self, job: Job) -> dict[str, Any]:
        return {**labels.class_names(job.labels), "problem_type": "single_label_classification"}

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        columns = tasks.columns(job.recipe)
        image, label = columns["image_column"], columns["label_column"]
        tables = data.tables(job.recipe)
        number_of = labels.of_column(job.labels, tables, label, tell)
        folders = {name: folder_of(job.recipe, name) for name in tables}

        def read(row: Mapping[str, Any], where: str) -> Feature:
            # Rows that are held back for validation come from the training file.
            folder = folders.get(where.partition(" ")[0], folders["train"])
            return {"image": row[image], "where": where, "folder": folder, "label": number_of(row[label], where)}

        for name, table in tables.items():
            check_files(table, image, name, folders[name])
        return data.splits(tables, job.recipe, read)

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        size = image_size(job.recipe, job.config)
        prepare = Preparer(processor, size, getattr(model.config, "num_channels", 3))

        def encode(rows: Sequence[Feature]) -> Mapping[str, torch.Tensor]:
            images = [decode(row["image"], row["where"], row["folder"]) if row["where"] else None for row in rows]
            return {"pixel_values": prepare(images), "labels": torch.tensor([row["label"] for row in rows])}

        for split in splits.values():
            encode([split[0]])  # an image that cannot be read is told before anything compiles
        filler = {"image": None, "where": "", "folder": Path(), "label": FILLER}
        collate = Collator(("pixel_values",), encode)
        return Work(features=splits, filler=filler, collate=collate, score=metrics.classification)


def folder_of(recipe: Recipe, split: str) -> Path:
    """Where the relative paths of a split's rows start: beside the file that names them."""
    if recipe.data.path:
        return Path(recipe.data.path)
    return Path(getattr(recipe.data, f"{split}_file") or ".").parent


def check_files(table: Sequence[Any], column: str, name: str, folder: Path) -> None:
    """Raise DataError for the path of an image that is not there. Only rows in memory have paths, no data set."""
    if not isinstance(table, list):
        return
    for number, row in enumerate(table, start=1):
        path = row[column]
        if isinstance(path, str) and not (folder / path).is_file():
            raise DataError(
                f"{name} row {number}: there is no image {path!r}",
                cause=f"looked for {folder / path}",
                hint="paths start at the file that names them; check data.image_column",
            )


MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # of a model's channels
ODD = ((37, 91), (91, 37))  # sizes that no processor leaves as they are


def decode(value: Any, where: str, folder: Path) -> Any:
    """An image as PIL's.

    Args:
        value: One already, a file's path or its bytes, or `{"bytes": ..., "path": ...}` as Parquet has it.
        where: The row, for the error about an image that cannot be read (DataError).
        folder: Where relative paths start.
    """
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, Image.Image):
        return value
    try:
        if isinstance(value, bytes | bytearray | memoryview):
            opened = Image.open(io.BytesIO(bytes(value)))
        elif isinstance(value, str) and value:
            opened = Image.open(folder / value)
        else:
            raise DataError(
                f"{where} has no image",
                cause=f"the column holds {type(value).__name__}",
                hint="give an image, its bytes, or the path of a file; check data.image_column",
            )
        opened.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{where}: the image cannot be read",
            cause=cut(str(error), 300),
            hint="check data.image_column, and the file",
        ) from error
    return opened


class Preparer:
    """Images in, `(images, channels, size, size)` out, whatever size they had.

    The size comes from the key's ingredients, not from the processor: that one is loaded with the weights, and decides
    only how an image gets there.

    Args:
        processor: Of the model, or another one; RecipeError where it cannot make such images.
        size: Pixels a side.
        channels: Of the model.
    """

    def __init__(self, processor: Any, size: int, channels: int) -> None:
        self._processor = processor
        self._size = size
        self._mode = MODES.get(channels)
        self._shape = (channels, size, size)
        if self._mode is None:
            raise RecipeError(f"model.config.num_channels is {channels}", cause="expected 1, 3 or 4 of an image")
        made: set[tuple[int, ...]] = set()
        for options in ({}, self._resized()):
            self._options = options
            made = self._probe()
            if made == {self._shape}:
                return
        raise RecipeError(
            f"the image processor does not make images of {size} x {size} pixels and {channels} channels",
            cause=f"it makes {' and '.join(' x '.join(map(str, shape)) for shape in sorted(made)) or 'none'}",
            hint="choose another with model.tokenizer; the size is the model's, or training.image_size",
        )

    def __call__(self, images: Sequence[Any]) -> torch.Tensor:
        """The model's `pixel_values`; None is a blank image."""
        blank = Image.new(self._mode or "", (self._size, self._size))
        ready = [blank if image is None else image.convert(self._mode) for image in images]
        # One by one: a few processors look at the first image for what all are like.
        return torch.cat([self._one(image) for image in ready])

    def _one(self, image: Any) -> torch.Tensor:
        made: torch.Tensor = self._processor([image], return_tensors="pt", **self._options)["pixel_values"]
        return made.float()

    def _probe(self) -> set[tuple[int, ...]]:
        try:
            return {tuple(self._one(Image.new(self._mode or "", size)).shape[1:]) for size in ODD}
        except (IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise RecipeError(
                "the image processor cannot prepare images for this model",
                cause=f"{self._shape[0]} channels: {cut(str(error), 200)}",
                hint="choose another with model.tokenizer, or set model.config.num_channels",
            ) from error

    def _resized(self) -> dict[str, Any]:
        """What the processor is told where it makes another size by itself."""
        square = {"height": self._size, "width": self._size}
        size, crop = _plain(self._processor, "size"), _plain(self._processor, "crop_size")
        options: dict[str, Any] = {"do_resize": True}
        if getattr(self._processor, "do_center_crop", False) and crop:
            # As much is cut away as of the processor's own size.
            shortest = size.get("shortest_edge") or size.get("height") or self._size
            grown = round(self._size * max(1.0, shortest / (crop.get("height") or shortest)))
            inner = {"shortest_edge": grown} if "shortest_edge" in size else {"height": grown, "width": grown}
            return {**options, "size": inner, "crop_size": square}
        return {**options, "size": {"shortest_edge": self._size} if "shortest_edge" in size else square}


def _plain(processor: Any, name: str) -> dict[str, int]:
    """A size of a processor as a mapping: a class of its own in some versions, null in some."""
    value = getattr(processor, name, None)
    if isinstance(value, int):
        return {"height": value, "width": value}
    try:
        return {key: number for key, number in dict(value or {}).items() if number}
    except (TypeError, ValueError):
        return {key: number for key, number in vars(value).items() if number}


TASK = ImageClassification()
