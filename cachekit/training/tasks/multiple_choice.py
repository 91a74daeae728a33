"""Multiple choice: which of several endings is right, as in SWAG, RACE, HellaSwag, ARC and CommonsenseQA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

import torch

from cachekit.data.labels import label_text
from cachekit.data.rows import choices
from cachekit.data.shapes import choices_of
from cachekit.errors import DataError
from cachekit.recipe import Recipe, tasks
from cachekit.text import first_of
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import inputs, metrics
from cachekit.training.tasks.labels import MANY
from cachekit.training.tasks.port import FILLER, Collator, Feature, Task, Work


class MultipleChoice(Task):
    """Rows are `{"context", "question", "choices": [str, ...], "label": int}`, and so are features.

    `context` is None where the recipe names no such column.
    """

    auto_model = "AutoModelForMultipleChoice"

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        recipe = job.recipe
        columns, count = tasks.columns(recipe), choices_of(recipe)
        question, context, label = columns["question_column"], columns.get("context_column"), columns["label_column"]
        tables = data.tables(recipe)

        def right(row: Mapping[str, Any], where: str) -> int:
            _, names = _choices(row, recipe, count, where)
            known = numbers if names is None else {label_text(one, where): n for n, one in enumerate(names)}
            text = label_text(row[label], where)
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
        for name, table in tables.items():
            for number, row in enumerate(table, start=1):
                where = f"{name} row {number}"
                if _choices(row, recipe, count, where)[1] is None:
                    found.setdefault(label_text(row[label], where), where)
                else:
                    right(row, where)
        numbers |= numbering(found, count, tell)
        return data.splits(tables, recipe, read)

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        inputs.check_tokenizer(processor)
        length, given = job.recipe.training.max_seq_length, inputs.inputs_of(model)

        def encode(rows: Sequence[Feature]) -> Mapping[str, torch.Tensor]:
            encoded = inputs.encode(processor, *pairs(rows), length=length, inputs=given)
            shaped = {name: tensor.view(len(rows), -1, length) for name, tensor in encoded.items()}
            return {**shaped, "labels": torch.tensor([row["label"] for row in rows])}

        context = "" if job.recipe.data.context_column else None
        choices = [""] * choices_of(job.recipe)
        return Work(
            features=splits,
            filler={"context": context, "question": "", "choices": choices, "label": FILLER},
            collate=Collator(given, encode),
            score=metrics.choice,
            notes=inputs.cut(splits, lambda rows: inputs.lengths(processor, *pairs(rows)), length),
        )


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


def pairs(rows: Sequence[Feature]) -> tuple[list[str], list[str]]:
    """The first and the second texts of all choices of some rows.

    As SWAG and RACE are trained: the text, and the question with one ending; the question itself without a text.
    """
    found = []
    for row in rows:
        for choice in row["choices"]:
            if row["context"] is None:
                found.append((row["question"], choice))
            else:
                found.append((row["context"], f"{row['question']} {choice}".strip()))
    return [first for first, _ in found], [second for _, second in found]


def _choices(row: Mapping[str, Any], recipe: Recipe, count: int, where: str) -> tuple[list[Any], list[Any] | None]:
    columns = recipe.data.choices_columns or ("choices",)
    if len(columns) > 1:
        return [row[column] for column in columns], None
    texts, names = choices(row[columns[0]], columns[0], where)
    if len(texts) != count:
        raise DataError(
            f"{where} has {len(texts)} choices instead of {count}",
            cause="the number of choices shapes the batch, so all rows have the same",
            hint="leave such rows out, or check data.num_choices",
        )
    return texts, names


def _unknown(text: str, where: str, known: Sequence[str]) -> DataError:
    return DataError(
        f"{where}: the label {text!r} is none of the choices",
        cause=f"they are {first_of(known, MANY)}",
        hint="a letter (A is the first), or a number from 0 or from 1; check data.label_column",
    )


TASK = MultipleChoice()
