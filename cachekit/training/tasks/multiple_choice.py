"""Multiple choice: which of several endings is right, as in SWAG, RACE, HellaSwag, ARC and CommonsenseQA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

import numpy as np
import torch

from cachekit.data import rows
from cachekit.data.shapes import choices_of
from cachekit.errors import DataError
from cachekit.recipe import Recipe, tasks
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks.labels import MANY
from cachekit.training.tasks.port import FILLER, Array, Batch, Feature, Work
from cachekit.training.tasks.text_inputs import check_tokenizer, cut, encode, inputs_of, lengths, tensors


class MultipleChoice:
    """See `port.Task`. Rows are `{"context", "question", "choices": [str, ...], "label": int}`, and so are features.

    `context` is None where the recipe names no such column.
    """

    auto_model = "AutoModelForMultipleChoice"
    processor = "tokenizer"

    def config(self, job: Job) -> dict[str, Any]:  # noqa: ARG002 - the port's
        """See `port.Task`."""
        return {}

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        """See `port.Task`."""
        recipe = job.recipe
        columns, count = tasks.columns(recipe), choices_of(recipe)
        question, context, label = columns["question_column"], columns.get("context_column"), columns["label_column"]
        tables = data.tables(recipe)

        def labels() -> Iterator[tuple[str, str]]:
            for name, table in tables.items():
                for number, row in enumerate(table, start=1):
                    where = f"{name} row {number}"
                    if _choices(row, recipe, count, where)[1] is None:
                        yield rows.label_text(row[label], where), where
                    else:
                        right(row, where)

        def right(row: Mapping[str, Any], where: str) -> int:
            _, names = _choices(row, recipe, count, where)
            known = numbers if names is None else {rows.label_text(one, where): n for n, one in enumerate(names)}
            text = rows.label_text(row[label], where)
            if text not in known:
                raise _unknown(text, where, list(known))
            return known[text]

        def read(row: Mapping[str, Any], where: str) -> Feature:
            return {
                "context": data.text(row[context]) if context else None,
                "question": data.text(row[question]),
                "choices": [data.text(choice) for choice in _choices(row, recipe, count, where)[0]],
                "label": right(row, where),
            }

        numbers: dict[str, int] = {}
        found: dict[str, str] = {}
        for text, where in labels():
            found.setdefault(text, where)
        numbers |= numbering(found, count, tell)
        return data.splits(tables, recipe, read)

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
        context = "" if job.recipe.data.context_column else None
        choices = [""] * choices_of(job.recipe)

        def count(rows: Sequence[Feature]) -> Sequence[int]:
            pairs = [_pair(row, choice) for row in rows for choice in row["choices"]]
            return lengths(processor, [first for first, _ in pairs], [second for _, second in pairs])

        return Work(
            features=splits,
            filler={"context": context, "question": "", "choices": choices, "label": FILLER},
            collate=Collator(processor, job.recipe.training.max_seq_length, inputs_of(model)),
            score=score,
            notes=cut(splits, count, job.recipe.training.max_seq_length),
        )


class Collator:
    """Tokenizes a batch: each choice with its question, padded or cut to one length.

    Args:
        tokenizer: Of the model, or another one.
        length: Tokens a choice.
        inputs: What the model is given; see `text_inputs.inputs_of`.
    """

    def __init__(self, tokenizer: Any, length: int, inputs: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._length = length
        self._inputs = inputs

    def __call__(self, batch: Sequence[Feature]) -> Batch:
        """The batch as tensors of shape (rows, choices, length), and `labels` of shape (rows,)."""
        pairs = [_pair(row, choice) for row in batch for choice in row["choices"]]
        firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
        encoded = encode(self._tokenizer, firsts, seconds, length=self._length, inputs=self._inputs)
        given = {
            name: tensor.view(len(batch), -1, self._length) for name, tensor in tensors(encoded, self._inputs).items()
        }
        return {**given, "labels": torch.tensor([row["label"] for row in batch], dtype=torch.long)}


def numbering(found: Mapping[str, str], count: int, tell: Callable[[str], None]) -> dict[str, int]:
    """What the labels of a whole data set mean: letters, numbers from 0, or numbers from 1.

    Numbers from 1 are meant where the last choice's number occurs and 0 does not.

    Args:
        found: Each label that occurs, with where it stands first.
        count: Choices a row.
        tell: Called with a sentence where it is from 1.

    Raises:
        DataError: They are none of these.
    """
    first = 1 if str(count) in found and "0" not in found else 0
    letters = dict(zip(ascii_uppercase, range(count), strict=False))
    numbers = {str(number + first): number for number in range(count)}
    known = letters if any(text in letters for text in found) else numbers
    for text, where in found.items():
        if text not in known:
            raise _unknown(text, where, list(known))
    if first and known is numbers and found:
        tell(f"the labels are read as numbers from 1 to {count}: {count} occurs, and 0 does not")
    return known


def score(features: Sequence[Feature], predictions: Any, labels: Any) -> dict[str, float]:  # noqa: ARG001 - the port's
    """Accuracy, mean cross entropy, and the number of rows."""
    from sklearn.metrics import accuracy_score

    logits: Array = np.asarray(predictions[0] if isinstance(predictions, tuple) else predictions).astype(np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return {
        "accuracy": float(accuracy_score(labels, logits.argmax(axis=-1))),
        "loss": float(-log_softmax[np.arange(len(labels)), labels].mean()),
        "rows": float(len(labels)),
    }


def _pair(row: Feature, choice: str) -> tuple[str, str]:
    """As SWAG and RACE are trained: the text, and the question with one ending; the question itself without a text."""
    if row["context"] is None:
        return row["question"], choice
    return row["context"], f"{row['question']} {choice}".strip()


def _choices(row: Mapping[str, Any], recipe: Recipe, count: int, where: str) -> tuple[list[Any], list[Any] | None]:
    columns = recipe.data.choices_columns or ("choices",)
    if len(columns) > 1:
        return [row[column] for column in columns], None
    texts, names = rows.choices(row[columns[0]], columns[0], where)
    if len(texts) != count:
        raise DataError(
            f"{where} has {len(texts)} choices, and not {count}",
            cause="their number shapes the batch: it is one for all rows",
            hint="leave such rows out, or check data.num_choices",
        )
    return texts, names


def _unknown(text: str, where: str, known: Sequence[str]) -> DataError:
    shown = ", ".join(known[:MANY]) + (", ..." if len(known) > MANY else "")
    return DataError(
        f"{where}: the label {text!r} is none of the choices",
        cause=f"they are {shown}",
        hint="a letter (A is the first), or a number from 0 or from 1; check data.label_column",
    )


TASK = MultipleChoice()
