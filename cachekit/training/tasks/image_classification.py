"""Image classification: one class for an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from cachekit.errors import DataError
from cachekit.recipe import Recipe, tasks
from cachekit.recipe.ingredients import image_size
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import labels, metrics
from cachekit.training.tasks.images import Preparer, decode
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


TASK = ImageClassification()
