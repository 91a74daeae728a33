"""Texts in windows of tokens that overlap, for question answering: where in each one the answer stands.

A window without the whole answer says so by pointing at its first special token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cachekit.errors import RecipeError
from cachekit.training.data import Split
from cachekit.training.tasks.inputs import encode
from cachekit.training.tasks.port import Array, Feature

LABELS = ("start_positions", "end_positions")
_AT_ONCE = 1000  # rows that are tokenized together


@dataclass(frozen=True)
class Windows(Sequence[Feature]):
    """Windows over the texts of a split, tokenized.

    Attributes:
        split: The rows.
        row: Number of each window's row.
        inputs: By name, arrays of shape (windows, length).
        positions: Shape (windows, 2): the tokens at which the first answer starts and ends.
        none: The token of each window that stands for no answer.
        offsets: Shape (windows, length, 2), see `squad.Scores`; None for windows that are not judged.
    """

    split: Split
    row: Array
    inputs: Mapping[str, Array]
    positions: Array
    none: Array
    offsets: Array | None = field(repr=False)

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, index: Any) -> Any:
        found: dict[str, Any] = {name: values[index] for name, values in self.inputs.items()}
        found |= {name: int(place) for name, place in zip(LABELS, self.positions[index], strict=True)}
        found |= {"split": self.split, "row": int(self.row[index]), "none": int(self.none[index])}
        return found if self.offsets is None else {**found, "offsets": self.offsets[index]}


def check_room(split: Split, tokenizer: Any, length: int, stride: int) -> None:
    """Refuse questions so long that a window could not go on.

    Raises:
        RecipeError: Beside a question and the special tokens, a row has no more room than two windows share.
    """
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
    split: Split,
    tokenizer: Any,
    *,
    length: int,
    stride: int,
    inputs: Sequence[str],
    enough: int | None,
    judged: bool,
) -> Windows:
    """Tokenize a split.

    Args:
        split: Rows.
        tokenizer: Of the model, or another one; it pads on the side it pads on.
        length: Tokens a window.
        stride: Tokens that two windows share.
        inputs: What the model is given; kept is what the tokenizer makes of it.
        enough: Stop when there are as many windows.
        judged: Keep what is needed to judge answers.
    """
    # As the authors of the models did it: the question stands first where padding stands last.
    second = tokenizer.padding_side == "right"
    marks = [mark for mark in (tokenizer.cls_token_id, tokenizer.bos_token_id) if mark is not None]
    parts: list[tuple[Array, ...]] = []
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
        positions = np.array(
            [_position(offsets[n], rows[of[n]]["answers"], int(none[n])) for n in range(len(ids))], dtype=np.int32
        )
        parts.append((of + first, positions, none.astype(np.int32), *((offsets,) if judged else ())))
        made.append(
            {
                name: encoded[name].astype(np.int32 if name == "input_ids" else np.int8)
                for name in inputs
                if name in encoded
            }
        )
        count += len(ids)
        if enough is not None and count >= enough:
            break
    of, positions, none, *kept = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    given = {name: np.concatenate([one[name] for one in made]) for name in made[0]}
    return Windows(split, of, given, positions, none, kept[0] if judged else None)


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
