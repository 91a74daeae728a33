"""Question answering: the piece of a text that answers a question, as in SQuAD 1.1 and 2.0.

A text longer than a row is read in windows that overlap (`windows`); the answer to a question is chosen over all of its
windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from cachekit.errors import DataError
from cachekit.recipe import tasks
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import squad
from cachekit.training.tasks.port import FILLER, Array, Batch, Feature, Work
from cachekit.training.tasks.text_inputs import check_fast, check_tokenizer, encode, inputs_of
from cachekit.training.tasks.windows import LABELS, check_room, windows


class QuestionAnswering:
    """See `port.Task`.

    Rows are `{"question": str, "context": str, "answers": [(text, first character), ...], "negatives": bool}`, features
    are windows over them. `negatives` says that some question of the data has no answer: then it is SQuAD 2.0.
    """

    auto_model = "AutoModelForQuestionAnswering"
    processor = "tokenizer"

    def config(self, job: Job) -> dict[str, Any]:  # noqa: ARG002 - the port's
        """See `port.Task`."""
        return {"num_labels": 2}  # the head's size in most architectures: a start and an end

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
        """See `port.Task`."""
        columns = tasks.columns(job.recipe)
        question, context, answers = (columns[f"{name}_column"] for name in ("question", "context", "answers"))
        tables = data.tables(job.recipe)
        negatives, elsewhere, total, first = False, 0, 0, ""
        for name, table in tables.items():
            answered = 0
            for number, row in enumerate(table, start=1):
                where, text = f"{name} row {number}", data.text(row[context])
                found = answers_of(row[answers], answers, where)
                answered += bool(found)
                negatives = negatives or not found
                total += len(found)
                astray = sum(not text.startswith(answer, start) for answer, start in found)
                first = first or (where if astray else "")
                elsewhere += astray
            if not answered:
                raise DataError(
                    f"no question of the {name} data has an answer",
                    cause=f"{answers} is empty in every row",
                    hint=f"check data.answers_column, or leave the {name} data out"
                    if name != "train"
                    else "check data.answers_column",
                )
        if elsewhere:
            said = f"{elsewhere} of {total} answers do not stand in the text where answer_start says, first in {first}"
            if elsewhere == total:
                raise DataError(
                    said,
                    cause="it counts characters from 0",
                    hint="check data.context_column and data.answers_column",
                )
            tell(said)

        def read(row: Mapping[str, Any], where: str) -> Feature:
            return {
                "question": data.text(row[question]),
                "context": data.text(row[context]),
                "answers": answers_of(row[answers], answers, where),
                "negatives": negatives,
            }

        return data.splits(tables, job.recipe, read)

    def ready(self, job: Job, processor: Any, model: Any, splits: Mapping[str, Split], most: Mapping[str, int]) -> Work:
        """See `port.Task`."""
        check_tokenizer(processor)
        check_fast(processor, job.recipe.task)
        training = job.recipe.training
        inputs = inputs_of(model)
        stride = training.max_seq_length // 3 if training.doc_stride is None else training.doc_stride
        for split in splits.values():
            check_room(split, processor, training.max_seq_length, stride)
        made = {
            name: windows(
                split,
                processor,
                length=training.max_seq_length,
                stride=stride,
                inputs=inputs,
                enough=most.get(name),
                judged=name != "train",
            )
            for name, split in splits.items()
        }
        empty = encode(processor, [""], [""], length=training.max_seq_length, inputs=inputs, return_tensors="np")
        filler = {name: empty.get(name, np.zeros_like(empty["input_ids"]))[0] for name in inputs}
        return Work(
            features=made,
            filler={**filler, **dict.fromkeys(LABELS, FILLER)},
            collate=Collator(inputs),
            score=score,
            labels=LABELS,
            reduce=lambda logits, _: logits[:2],  # encoders of two parts give their hidden states as well
        )


class Collator:
    """Makes tensors of windows, which have one length already.

    Args:
        inputs: What the model is given; see `text_inputs.inputs_of`.
    """

    def __init__(self, inputs: Sequence[str]) -> None:
        self._inputs = inputs

    def __call__(self, batch: Sequence[Feature]) -> Batch:
        """The batch as tensors of shape (rows, length), and labels of shape (rows,)."""
        given = {
            name: torch.from_numpy(np.stack([window[name] for window in batch]).astype(np.int64))
            for name in self._inputs
        }
        return {**given, **{name: torch.tensor([window[name] for window in batch]) for name in LABELS}}


def answers_of(value: Any, column: str, where: str) -> list[tuple[str, int]]:
    """The answers of a row, each with its first character; none where all of them are blank.

    Both forms are read: `{"text": [...], "answer_start": [...]}`, and SQuAD's own, a list of such with one each.

    Raises:
        DataError: It is neither.
    """
    try:
        if isinstance(value, Mapping):
            texts, starts = value["text"], value["answer_start"]
            if isinstance(texts, str):
                texts, starts = [texts], [starts]
            pairs = list(zip(list(texts), list(starts), strict=True))
        else:
            pairs = [(one["text"], one["answer_start"]) for one in value]
        found = [(text, start) for text, start in pairs if text.strip()]
        cause = (
            "" if all(isinstance(start, int) and start >= 0 for _, start in found) else "an answer_start is no place"
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        found, cause = [], f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
    if cause:
        raise DataError(
            f'{where}: {column} is not of the form {{"text": [...], "answer_start": [...]}}',
            cause=cause[:200],
            hint="is it another column? say data.answers_column; both lists are empty where there is no answer",
        )
    return found


def score(features: Sequence[Feature], predictions: Any, labels: Any) -> dict[str, float]:
    """Exact match and F1 from 0 to 100, as SQuAD's own scripts tell them; each question is counted once.

    Where some have no answer, both also for those that have one, and the share of the others that got none. `loss` is
    the mean cross entropy of a start or an end over the windows, `features` their number.
    """
    starts, ends = (np.asarray(part) for part in predictions[:2])
    of: dict[int, list[int]] = {}
    for number in range(len(features)):
        of.setdefault(features[number]["row"], []).append(number)
    judged: list[tuple[bool, float, float]] = []
    for number, indices in of.items():
        own = [features[index] for index in indices]
        row = own[0]["split"][number]
        scores = (
            squad.Scores(starts[index], ends[index], one["offsets"], one["none"])
            for index, one in zip(indices, own, strict=True)
        )
        given = squad.answer(scores, row["context"], negatives=row["negatives"])
        right = [text for text, _ in row["answers"]]
        judged.append((bool(right), *squad.judge(given, right, negatives=row["negatives"])))
    figures = _means("", judged)
    if not all(has for has, _, _ in judged):
        figures |= _means("has_answer_", [one for one in judged if one[0]])
        figures |= {"no_answer_exact_match": _means("", [one for one in judged if not one[0]])["exact_match"]}
    return {
        **figures,
        "loss": (_cross_entropy(starts, labels[0]) + _cross_entropy(ends, labels[1])) / 2,
        "rows": float(len(of)),
        "features": float(len(features)),
    }


def _means(prefix: str, judged: Sequence[tuple[bool, float, float]]) -> dict[str, float]:
    if not judged:
        return {}
    exact, f1 = (100 * sum(one[place] for one in judged) / len(judged) for place in (1, 2))
    return {f"{prefix}exact_match": exact, f"{prefix}f1": f1}


def _cross_entropy(logits: Array, places: Any) -> float:
    exact: Array = logits.astype(np.float64)
    shifted = exact - exact.max(axis=-1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return float(-log_softmax[np.arange(len(exact)), np.asarray(places)].mean())


TASK = QuestionAnswering()
