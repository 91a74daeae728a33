"""Text classification: one class for a text, or for a pair of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cachekit.recipe import tasks
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import inputs, labels, metrics
from cachekit.training.tasks.port import FILLER, Collator, Feature, Task, Work


class TextClassification(Task):
    """Rows are `{"text": str, "pair": str | None, "label": int}`, and so are features.

    They are tokenized with their batch: beforehand it would cost a second copy of the data, and save a millisecond.
    """

    auto_model = "AutoModelForSequenceClassification"

    def config(self, job: Job) -> dict[str, Any]:
        # Set beforehand: the model would find it out in its first forward pass, and that would be another graph.
        return {**labels.class_names(job.labels), "problem_type": "single_label_classification"}

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        columns = tasks.columns(job.recipe)
        text, pair, label = columns["text_column"], columns.get("text_pair_column"), columns["label_column"]
        tables = data.tables(job.recipe)
        number_of = labels.of_column(job.labels, tables, label, tell)

        def read(row: Mapping[str, Any], where: str) -> Feature:
            return {
                "text": data.text(row[text]),
                "pair": data.text(row[pair]) if pair else None,
                "label": number_of(row[label], where),
            }

        return data.splits(tables, job.recipe, read)

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        inputs.check_tokenizer(processor)
        length, paired = job.recipe.training.max_seq_length, job.recipe.data.text_pair_column is not None
        given = inputs.inputs_of(model)

        def texts(rows: Sequence[Feature]) -> tuple[list[str], list[str] | None]:
            return [row["text"] for row in rows], [row["pair"] for row in rows] if paired else None

        def encode(rows: Sequence[Feature]) -> Mapping[str, torch.Tensor]:
            encoded = inputs.encode(processor, *texts(rows), length=length, inputs=given)
            return {**encoded, "labels": torch.tensor([row["label"] for row in rows])}

        return Work(
            features=splits,
            filler={"text": "", "pair": "" if paired else None, "label": FILLER},
            collate=Collator(given, encode),
            score=metrics.classification,
            notes=inputs.cut(splits, lambda rows: inputs.lengths(processor, *texts(rows)), length),
        )


TASK = TextClassification()
