"""Text classification: one class for a text, or for a pair of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from cachekit.errors import DataError
from cachekit.recipe import tasks
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks.labels import numbering
from cachekit.training.tasks.port import FILLER, Array, Batch, Feature, Work
from cachekit.training.tasks.text_inputs import check_tokenizer, cut, encode, inputs_of, lengths, tensors


class TextClassification:
    """See `port.Task`. Rows are `{"text": str, "pair": str | None, "label": int}`, and so are features."""

    auto_model = "AutoModelForSequenceClassification"
    processor = "tokenizer"

    def config(self, job: Job) -> dict[str, Any]:
        """See `port.Task`."""
        # Set beforehand: the model would find it out in its first forward pass, and that would be another graph.
        return {**class_names(job.labels), "problem_type": "single_label_classification"}

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        """See `port.Task`."""
        columns = tasks.columns(job.recipe)
        text, pair, label = columns["text_column"], columns.get("text_pair_column"), columns["label_column"]
        tables = data.tables(job.recipe)
        number_of = numbering(job.labels, {name: values(table, label, name) for name, table in tables.items()}, tell)

        def read(row: Mapping[str, Any], where: str) -> Feature:
            return {
                "text": data.text(row[text]),
                "pair": data.text(row[pair]) if pair else None,
                "label": number_of(row[label], where),
            }

        check_classes(tables["train"], label, job.labels, number_of)
        return data.splits(tables, job.recipe, read)

    def ready(
        self,
        job: Job,
        processor: Any,
        model: Any,
        splits: Mapping[str, Split],
        most: Mapping[str, int],  # noqa: ARG002 - each row is a feature, made when it is asked for
    ) -> Work:
        """See `port.Task`."""
        check_tokenizer(processor)

        def count(rows: Sequence[Feature]) -> Sequence[int]:
            pairs = [row["pair"] for row in rows] if job.recipe.data.text_pair_column else None
            return lengths(processor, [row["text"] for row in rows], pairs)

        return Work(
            features=splits,
            filler={"text": "", "pair": "" if job.recipe.data.text_pair_column else None, "label": FILLER},
            collate=Collator(processor, job.recipe.training.max_seq_length, inputs_of(model)),
            score=score,
            notes=cut(splits, count, job.recipe.training.max_seq_length),
        )


class Collator:
    """Tokenizes a batch, every row padded or cut to one length.

    Tokenizing here rather than beforehand costs a millisecond a batch, and needs no second copy of the data.

    Args:
        tokenizer: Of the model, or another one.
        length: Tokens a row.
        inputs: What the model is given; see `text_inputs.inputs_of`.
    """

    def __init__(self, tokenizer: Any, length: int, inputs: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._length = length
        self._inputs = inputs

    def __call__(self, batch: Sequence[Feature]) -> Batch:
        """The batch as tensors of shape (rows, length), and `labels` of shape (rows,)."""
        pairs = [row["pair"] for row in batch] if batch[0]["pair"] is not None else None
        texts = [row["text"] for row in batch]
        encoded = encode(self._tokenizer, texts, pairs, length=self._length, inputs=self._inputs)
        labels = torch.tensor([row["label"] for row in batch], dtype=torch.long)
        return {**tensors(encoded, self._inputs), "labels": labels}


def class_names(labels: Sequence[str]) -> dict[str, Any]:
    """Config fields of a head with these classes."""
    return {
        "num_labels": len(labels),
        "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
    }


def values(table: Any, column: str, name: str) -> Iterator[tuple[str, Any]]:
    """Every label of a split, or every distinct one, with where it stands."""
    if hasattr(table, "unique"):  # a datasets.Dataset: its distinct values, not its millions of rows
        yield from ((f"{name} data", value) for value in table.unique(column))
        return
    yield from ((f"{name} row {number}", row[column]) for number, row in enumerate(table, start=1))


def check_classes(table: Any, column: str, labels: Sequence[str], number_of: Callable[[Any, str], int]) -> None:
    """Refuse training rows of one class.

    Raises:
        DataError: There is only one.
    """
    found: Iterable[Any] = table.unique(column) if hasattr(table, "unique") else (row[column] for row in table)
    classes = {number_of(value, "train data") for value in found}
    if len(classes) < 2:  # noqa: PLR2004
        raise DataError(
            f"the training data has one class only: {labels[classes.pop()]!r}",
            cause="a classifier needs at least two",
            hint="check data.label_column",
        )


def score(features: Sequence[Feature], predictions: Any, labels: Any) -> dict[str, float]:  # noqa: ARG001 - the port's
    """Accuracy, macro F1, mean cross entropy, and the number of rows."""
    from sklearn.metrics import accuracy_score, f1_score

    logits: Array = np.asarray(predictions[0] if isinstance(predictions, tuple) else predictions).astype(np.float64)
    classes = logits.argmax(axis=-1)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return {
        "accuracy": float(accuracy_score(labels, classes)),
        "f1": float(f1_score(labels, classes, average="macro", zero_division=0.0)),
        "loss": float(-log_softmax[np.arange(len(labels)), labels].mean()),
        "rows": float(len(labels)),
    }


TASK = TextClassification()
