"""Multi-label classification: any number of classes for a text, or for a pair of texts; each is decided by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cachekit.data.labels import label_list
from cachekit.errors import DataError
from cachekit.training.job import Job
from cachekit.training.tasks import labels, metrics
from cachekit.training.tasks.port import FILLER
from cachekit.training.tasks.text_classification import TextClassification


class MultiLabelClassification(TextClassification):
    """As `TextClassification`, but that a label is the numbers of several classes."""

    score = staticmethod(metrics.multi_label)

    def config(self, job: Job) -> dict[str, Any]:
        return {**labels.class_names(job.labels), "problem_type": "multi_label_classification"}

    def label_reader(
        self, job: Job, tables: Mapping[str, Sequence[Any]], column: str, tell: Callable[[str], None]
    ) -> Callable[[Any, str], Any]:
        found = {
            name: [(f"{name} row {number}", row[column]) for number, row in enumerate(table, start=1)]
            for name, table in tables.items()
        }
        each = {
            name: [(where, one) for where, value in values for one in label_list(value, where)]
            for name, values in found.items()
        }
        if not each["train"]:
            raise DataError("no row of the training data has a label", hint="check data.label_column")
        number_of = labels.numbering(job.labels, each, tell)
        return lambda value, where: tuple(number_of(one, where) for one in label_list(value, where))

    def targets(self, job: Job, given: Sequence[Any]) -> torch.Tensor:
        made = torch.zeros(len(given), len(job.labels))
        for row, classes in zip(made, given, strict=True):
            row[... if classes == FILLER else list(classes)] = FILLER if classes == FILLER else 1.0
        return made


TASK = MultiLabelClassification()
