"""Texts in windows of tokens that overlap, for question answering: where in each one the answer stands.

A window without the whole answer says so by pointing at its first special token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cachekit.errors import RecipeError
from cachekit.training.data import Split
from cachekit.training.tasks.inputs import encode
from cachekit.training.tasks.port import Array, Feature

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
