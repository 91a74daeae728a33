"""Text regression: a number for a text, or for a pair of texts: how similar two sentences are, how good a review is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cachekit.data.labels import number
from cachekit.training.job import Job
from cachekit.training.tasks import labels, metrics
from cachekit.training.tasks.text_classification import TextClassification


class TextRegression(TextClassification):
    """As `TextClassification`, but that a label is a float."""

    score = staticmethod(metrics.regression)

    def config(self, job: Job) -> dict[str, Any]:
        return {"num_labels": 1, "problem_type": "regression"}

    def label_reader(
        self, job: Job, tables: Mapping[str, Sequence[Any]], column: str, tell: Callable[[str], None]
    ) -> Callable[[Any, str], Any]:
        # Every row is looked at: a label that is no number would end an evaluation hours later.
        for name, table in tables.items():
            for where, value in labels.labelled(table, column, name):
                number(value, where)
        return number

    def targets(self, job: Job, given: Sequence[Any]) -> torch.Tensor:
        return torch.tensor(given, dtype=torch.float32)


TASK = TextRegression()
