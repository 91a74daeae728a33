"""The port of a task: rows in, batches of one shape out, and figures over every row exactly once."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from msgspec import Struct

from cachekit.recipe.schema import TaskName
from cachekit.training.data import Split
from cachekit.training.job import Job

# The label of what only fills a batch, or a row's places that are not judged: cross entropy's ignore_index.
FILLER = -100

Feature = Mapping[str, Any]
Batch = dict[str, torch.Tensor]
Array = np.ndarray[Any, Any]
Encode = Callable[[Sequence[Feature]], Mapping[str, torch.Tensor]]


class Work(Struct, frozen=True):
    """A task made ready for one job.

    Compiled training has one graph a shape: `collate` gives every batch the same shapes, whatever the rows are.

    Attributes:
        features: By split, what a batch is made of: a row, a window over a long one, a block of many.
        filler: A feature whose labels are all FILLER; as many as needed end the last evaluation batch.
        collate: Makes a batch of features.
        score: The figures of a split from its features, the predictions and the labels, one entry a feature and in
            their order; `loss` is the mean over what is judged, `rows` how many rows of the split were counted.
        labels: The names of the batch's tensors that are labels.
        reduce: What evaluation keeps of a batch's logits, given its labels: where they are too large to keep.
        generate: What the model writes for a batch, in fixed shapes; `reduce` is then given this and the logits.
        unit: What a feature is called in an error.
        notes: What a person should know of the features, a sentence each.
        begin: Told which pass over the training features begins, counted from 0, where their batches change from pass
            to pass: those of a run that goes on must be those of one that was never stopped.
    """

    features: Mapping[str, Sequence[Feature]]
    filler: Feature
    collate: Callable[[Sequence[Feature]], Batch]
    score: Callable[[Sequence[Feature], Any, Any], dict[str, float]]
    labels: tuple[str, ...] = ("labels",)
    reduce: Callable[[Any, Any], torch.Tensor | tuple[torch.Tensor, ...]] | None = None
    generate: Callable[[Any, Batch], torch.Tensor] | None = None
    unit: str = "rows"
    notes: tuple[str, ...] = ()
    begin: Callable[[int], None] | None = None


class Collator(Struct, frozen=True):
    """Makes a batch of features: the tensors that the model is given, and the labels.

    Attributes:
        inputs: What the model is given, by its architecture; zeros for what `encode` does not make.
        encode: Makes tensors of one shape of some features, the labels among them.
        labels: The names of the labels.
    """

    inputs: tuple[str, ...]
    encode: Encode
    labels: tuple[str, ...] = ("labels",)

    def __call__(self, features: Sequence[Feature]) -> Batch:
        """The batch: tensors whose first dimension is the features."""
        made = self.encode(features)
        zeros = torch.zeros_like(made[self.inputs[0]])
        given = {name: made.get(name, zeros) for name in self.inputs}
        return {**given, **{name: made[name] for name in self.labels}}


class Task:
    """One kind of fine-tune.

    Attributes:
        auto_model: The name of Transformers' class that finds the model.
        processor: What turns rows into numbers: `tokenizer` or `image`.
    """

    auto_model: str
    processor: Literal["tokenizer", "image"] = "tokenizer"

    def config(self, job: Job) -> dict[str, Any]:
        """Fields of the model's config that the task decides: none."""
        return {}

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        """The rows of every split; `train` and `validation` are always there.

        `tell` is called with what a person should know, a sentence each. DataError for rows that are missing,
        unreadable, empty, or not what the task needs.
        """
        raise NotImplementedError

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        """Make features of rows.

        Args:
            job: What to train.
            processor: The tokenizer, or the image processor.
            model: Loaded, and not compiled yet.
            splits: From `rows`.
            most: By split, how many features are enough; all of a split that is not named.

        Raises:
            RecipeError: The processor or the model cannot do this task.
            DataError: The rows cannot be used.
        """
        raise NotImplementedError


def select(name: TaskName) -> Task:
    """The task of that name; its module is loaded when it is the one."""
    task: Task = importlib.import_module(f"cachekit.training.tasks.{name.replace('-', '_')}").TASK
    return task


class Resized(Sequence[Feature], torch.utils.data.Dataset[Feature]):  # type: ignore[misc]
    """Some number of features: the first ones, or all of them and more.

    A smaller last batch would be a new shape, and a new graph. Evaluation fills it, and the figures leave the fillers
    out; training drops it. A trial has as many features as its few steps take.

    Args:
        features: What there is.
        length: How many there shall be.
        filler: Stands for each one beyond the last; None begins again with the first.
    """

    def __init__(self, features: Sequence[Feature], length: int, filler: Feature | None = None) -> None:
        self.features = features
        self._length = length
        self._filler = filler

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._length:
            raise IndexError(index)
        if self._filler is not None and index >= len(self.features):
            return self._filler
        return self.features[index % len(self.features)]
