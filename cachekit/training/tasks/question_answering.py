"""Question answering: the piece of a text that answers a question, as in SQuAD 1.1 and 2.0.

A text longer than a row is read in windows of tokens that overlap; the answer to a question is chosen over all of its
windows. A window without the whole answer says so by pointing at its first special token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from cachekit.errors import DataError, RecipeError
from cachekit.recipe import tasks
from cachekit.text import cut
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks import inputs, metrics, squad
from cachekit.training.tasks.inputs import encode
from cachekit.training.tasks.port import FILLER, Array, Collator, Feature, Task, Work


class QuestionAnswering(Task):
    """Windows over texts, with their answers.

    Rows are `{"question": str, "context": str, "answers": [(text, first character), ...], "negatives": bool}`, features
    are windows over them. `negatives` says that some question of the data has no answer: then it is SQuAD 2.0.
    """

    auto_model = "AutoModelForQuestionAnswering"

    def config(self, job: Job) -> dict[str, Any]:
        return {"num_labels": 2}  # the head's size in most architectures: a start and an end

    def rows(self, job: Job, tell: Callable[[str], None]) -> dict[str, Split]:
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
                    hint="check data.answers_column" + ("" if name == "train" else f", or leave the {name} data out"),
                )
        if elsewhere:
            said = f"{elsewhere} of {total} answers are not in the text where answer_start says, first in {first}"
            if elsewhere == total:
                raise DataError(
                    said,
                    cause="answer_start counts characters from 0",
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
        inputs.check_tokenizer(processor)
        inputs.check_fast(processor, job.recipe.task)
        training, given = job.recipe.training, inputs.inputs_of(model)
        length = training.max_seq_length
        stride = length // 3 if training.doc_stride is None else training.doc_stride
        for split in splits.values():
            check_room(split, processor, length, stride)
        features = {
            name: windows(split, processor, length=length, stride=stride, inputs=given, enough=most.get(name))
            for name, split in splits.items()
        }
        empty = encode(processor, [""], [""], length=length, inputs=given, return_tensors="np")
        return Work(
            features=features,
            filler={**{name: values[0] for name, values in empty.items()}, **dict.fromkeys(LABELS, FILLER)},
            collate=Collator(given, partial(_tensors, given), LABELS),
            score=score,
            labels=LABELS,
            reduce=lambda logits, _: logits[:2],  # encoders of two parts give their hidden states as well
        )


def _tensors(inputs: Sequence[str], features: Sequence[Feature]) -> Mapping[str, torch.Tensor]:
    """Windows, which have one length already, as tensors."""
    names = [name for name in (*inputs, *LABELS) if name in features[0]]
    arrays = {name: np.stack([window[name] for window in features]) for name in names}
    return {name: torch.from_numpy(values.astype(np.int64)) for name, values in arrays.items()}


def answers_of(value: Any, column: str, where: str) -> list[tuple[str, int]]:
    """The answers of a row, each with its first character; none where all of them are blank.

    Two forms are read: `{"text": [...], "answer_start": [...]}`, and SQuAD's own, a list of such with one each. Any
    other form is a DataError.
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
        positions = all(isinstance(start, int) and start >= 0 for _, start in found)
        cause = "" if positions else "an answer_start is not a position"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        found, cause = [], f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
    if cause:
        raise DataError(
            f'{where}: {column} is not of the form {{"text": [...], "answer_start": [...]}}',
            cause=cut(cause, 200),
            hint="name another column with data.answers_column; both lists are empty where there is no answer",
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
        "loss": (metrics.cross_entropy(starts, labels[0]) + metrics.cross_entropy(ends, labels[1])) / 2,
        "rows": len(of),
        "features": len(features),
    }


def _means(prefix: str, judged: Sequence[tuple[bool, float, float]]) -> dict[str, float]:
    if not judged:
        return {}
    exact, f1 = (100 * sum(one[place] for one in judged) / len(judged) for place in (1, 2))
    return {f"{prefix}exact_match": exact, f"{prefix}f1": f1}


LABELS = ("start_positions", "end_positions")
_AT_ONCE = 1000  # rows that are tokenized together


class Windows(Sequence[Feature]):
    """Windows over the texts of a split, tokenized.

    Args:
        split: The rows.
        columns: By name, arrays of one entry a window: what the model is given; LABELS, the tokens at which the first
            answer starts and ends; `row`, the number of the window's row; `none`, the token that stands for no answer;
            and, but for training, `offsets`, see `squad.Scores`.
    """

    def __init__(self, split: Split, columns: Mapping[str, Array]) -> None:
        self.split, self.columns = split, columns

    def __len__(self) -> int:
        return len(self.columns["row"])

    def __getitem__(self, index: Any) -> Any:
        return {**{name: values[index] for name, values in self.columns.items()}, "split": self.split}


def check_room(split: Split, tokenizer: Any, length: int, stride: int) -> None:
    """Raise RecipeError where a question and the special tokens leave no more room than two windows share."""
    special = tokenizer.num_special_tokens_to_add(pair=True)
    longest, which = 0, 0
    for start in range(0, len(split), _AT_ONCE):
        questions = [_question(split[number]) for number in range(start, min(start + _AT_ONCE, len(split)))]
        counts = [len(ids) for ids in tokenizer(questions, add_special_tokens=False, verbose=False)["input_ids"]]
        if max(counts) > longest or not which:
            longest, which = max(counts), start + counts.index(max(counts)) + 1
    left = max(0, length - special - longest)
    if stride >= left:
        raise RecipeError(
            f"training.doc_stride {stride} is not smaller than what training.max_seq_length {length} leaves for the "
            f"text: {left} tokens",
            cause=f"the longest question has {longest} tokens ({split.name} row {which}); special tokens are {special}",
            hint=f"lower training.doc_stride to {left // 2}, or raise training.max_seq_length"
            if left > 1
            else "raise training.max_seq_length, or shorten the question",
        )


def windows(
    split: Split, tokenizer: Any, *, length: int, stride: int, inputs: Sequence[str], enough: int | None
) -> Windows:
    """Tokenize a split.

    Args:
        split: Rows.
        tokenizer: Of the model, or another one; it pads on the side it pads on.
        length: Tokens a window.
        stride: Tokens that two windows share.
        inputs: What the model is given; kept is what the tokenizer makes of it.
        enough: Stop when there are as many windows.
    """
    # As the authors of the models did it: the question stands first where padding stands last.
    second = tokenizer.padding_side == "right"
    marks = [mark for mark in (tokenizer.cls_token_id, tokenizer.bos_token_id) if mark is not None]
    made: list[dict[str, Array]] = []
    count = 0
    for first in range(0, len(split), _AT_ONCE):
        rows = [split[number] for number in range(first, min(first + _AT_ONCE, len(split)))]
        questions, contexts = [_question(row) for row in rows], [row["context"] for row in rows]
        encoded = encode(
            tokenizer,
            *((questions, contexts) if second else (contexts, questions)),
            length=length,
            inputs=inputs,
            truncation="only_second" if second else "only_first",
            stride=stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_tensors="np",
        )
        ids = encoded["input_ids"]
        of = np.asarray(encoded["overflow_to_sample_mapping"], dtype=np.int64)
        inside = np.array([[part == int(second) for part in encoded.sequence_ids(n)] for n in range(len(ids))])
        offsets = np.where(inside[:, :, None], np.asarray(encoded["offset_mapping"]), -1).astype(np.int32)
        none = next(((ids == mark).argmax(axis=1) for mark in marks if (ids == mark).any(axis=1).all()), ids[:, 0] * 0)
        places = [_position(offsets[n], rows[of[n]]["answers"], int(none[n])) for n in range(len(ids))]
        made.append(
            {
                **{
                    name: encoded[name].astype(np.int32 if name == "input_ids" else np.int8)
                    for name in inputs
                    if name in encoded
                },
                **dict(zip(LABELS, np.array(places, dtype=np.int64).T, strict=True)),
                "row": of + first,
                "none": none,
            }
        )
        if split.name != "train":
            made[-1]["offsets"] = offsets
        count += len(ids)
        if enough is not None and count >= enough:
            break
    return Windows(split, {name: np.concatenate([one[name] for one in made]) for name in made[0]})


def _position(offsets: Array, answers: Sequence[tuple[str, int]], none: int) -> tuple[int, int]:
    """The tokens with which the first answer starts and ends; twice `none` where it is not wholly in the window."""
    inside = np.flatnonzero(offsets[:, 0] >= 0)
    if not answers or not len(inside):
        return none, none
    text, start = answers[0]
    first = start + len(text) - len(text.lstrip())
    behind = first + len(text.strip())
    # Several tokens may stand for one character: the first of them, and the last.
    touched = inside[(offsets[inside, 1] > first) & (offsets[inside, 0] < behind)]
    whole = offsets[inside[0], 0] <= first and offsets[inside[-1], 1] >= behind
    return (int(touched[0]), int(touched[-1])) if whole and len(touched) else (none, none)


def _question(row: Mapping[str, Any]) -> str:
    return str(row["question"]).lstrip()  # some of SQuAD 2.0 begin with spaces by the hundred


TASK = QuestionAnswering()
