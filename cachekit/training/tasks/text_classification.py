"""Text classification: one class for a text, or for a pair of texts. Others derive from it."""

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

    Attributes:
        score: See `Work`.
    """

    auto_model = "AutoModelForSequenceClassification"
    score = staticmethod(metrics.classification)

    def config(self, job: Job) -> dict[str, Any]:
        # Set beforehand: the model would find it out in its first forward pass, and that would be another graph.
        return {**labels.class_names(job.labels), "problem_type": "single_label_classification"}

    def label_reader(
        self, job: Job, tables: Mapping[str, Sequence[Any]], column: str, tell: Callable[[str], None]
    ) -> Callable[[Any, str], Any]:
        """What makes a row's label of its value; the second argument says where that stands.

        Raises:
            DataError: A row of the tables has none that can be learned.
        """
        return labels.of_column(job.labels, tables, column, tell)

    def targets(self, job: Job, given: Sequence[Any]) -> torch.Tensor:
        """The labels of a batch's rows as the model's loss wants them; FILLER for a label that is FILLER."""
        return torch.tensor(given)

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        columns = tasks.columns(job.recipe)
        text, pair, label = columns["text_column"], columns.get("text_pair_column"), columns["label_column"]
        tables = data.tables(job.recipe)
        label_of = self.label_reader(job, tables, label, tell)

        def read(row: Mapping[str, Any], where: str) -> Feature:
            return {
                "text": data.text(row[text]),
                "pair": data.text(row[pair]) if pair else None,
                "label": label_of(row[label], where),
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
            return {**encoded, "labels": self.targets(job, [row["label"] for row in rows])}

        return Work(
            features=splits,
            filler={"text": "", "pair": "" if paired else None, "label": FILLER},
            collate=Collator(given, encode),
            score=self.score,
            notes=inputs.cut(splits, lambda rows: inputs.lengths(processor, *texts(rows)), length),
        )


TASK = TextClassification()
