"""Texts as one stream of tokens, and the stream as blocks of one length: what language models are trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cachekit.data import rows
from cachekit.errors import DataError
from cachekit.recipe import tasks
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks.port import FILLER, Array, Feature

AT_ONCE = 1000  # texts that are tokenized together
_FEW = 16  # texts to begin with, where a few blocks are enough

Tokens = Callable[[Sequence[Feature]], Sequence[Sequence[int]]]


def text_rows(job: Job) -> dict[str, Split]:
    """Rows `{"text": str, "ends": bool}`; a line of a plain text file does not end its text, the next one goes on.

    Raises:
        DataError: See `port.Task.rows`.
    """
    column = tasks.columns(job.recipe)["text_column"]
    tables = data.tables(job.recipe)

    def read(row: Mapping[str, Any], where: str) -> Feature:
        value = row[column]
        if isinstance(value, bytes):
            hint = "if another column is meant, name it with data.text_column"
            raise DataError(f"{where}: {column} is bytes, not text", hint=hint)
        return {"text": data.text(value), "ends": not isinstance(value, rows.Line)}

    running = {name for name, table in tables.items() if isinstance(table[0][column], rows.Line)}
    return data.splits(tables, job.recipe, read, running)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a stream is cut into blocks.

    Attributes:
        length: Tokens a block.
        filler: The token that fills the last one.
        overlap: Tokens that a block shares with the one before, as their context only.
        partial: Keep a last block that is not full.
    """

    length: int
    filler: int
    overlap: int = 0
    partial: bool = False

    @property
    def stride(self) -> int:
        """Tokens that are judged in a full block."""
        return self.length - self.overlap


class Blocks(Sequence[Feature]):
    """A stream of tokens, cut into blocks of one length.

    Features are `{"input_ids", "judged", "texts", "number"}`: two arrays of the block's length, how many texts begin
    in it, and which block it is.

    Args:
        stream: All tokens.
        starts: Where in it each text begins, in order.
        cut: Says how.
    """

    def __init__(self, stream: Array, starts: Array, cut: Cut) -> None:
        self._stream = stream
        self._cut = cut
        own = max(0, len(stream) - cut.overlap)
        self._count = -(-own // cut.stride) if cut.partial else own // cut.stride
        self._texts = np.bincount(np.maximum(starts - cut.overlap, 0) // cut.stride, minlength=self._count)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)
        cut = self._cut
        piece = self._stream[index * cut.stride : index * cut.stride + cut.length]
        ids: Array = np.full(cut.length, cut.filler, dtype=np.int64)
        ids[: len(piece)] = piece
        judged: Array = np.zeros(cut.length, dtype=np.bool_)
        judged[cut.overlap : len(piece)] = True
        return {"input_ids": ids, "judged": judged, "texts": int(self._texts[index]), "number": index}


def pack(split: Split, tokens: Tokens, cut: Cut, *, first: Sequence[int] = (), most: int | None = None) -> Blocks:
    """Blocks of a split's texts.

    Args:
        split: From `text_rows`.
        tokens: Those of each of some rows, what separates texts included.
        cut: Says how.
        first: Tokens before the first text.
        most: Blocks that are enough: no more texts are read than they need.

    Raises:
        DataError: There is not one block.
    """
    wanted = None if most is None else cut.overlap + most * cut.stride
    pieces = [np.asarray(first, dtype=np.int32)]
    starts: list[int] = []
    total = len(first)
    for batch in _batches(split, AT_ONCE if wanted is None else _FEW):
        for ids in tokens(batch):
            starts.append(total)
            pieces.append(np.asarray(ids, dtype=np.int32))
            total += len(ids)
        if wanted is not None and total >= wanted:
            break
    if total == len(first):
        raise DataError(
            f"the {split.name} texts are empty", hint="if another column is meant, name it with data.text_column"
        )
    # Empty texts at the very end begin where nothing is: they count with the last token.
    places = np.minimum(np.asarray(starts, dtype=np.int64), total - 1)
    stream = np.concatenate(pieces)
    if wanted is not None and total > wanted:
        stream, places = stream[:wanted], places[places < wanted]
    blocks = Blocks(stream, places, cut)
    if not len(blocks):
        raise DataError(
            f"the {split.name} texts have {total - len(first)} tokens, which do not fill one block",
            cause=f"a block has {cut.length} tokens: training.max_seq_length",
            hint="lower training.max_seq_length, or give more text",
        )
    return blocks


def _batches(split: Split, size: int) -> Iterator[list[Feature]]:
    start = 0
    while start < len(split):
        yield [split[index] for index in range(start, min(start + size, len(split)))]
        start += size
        size = min(2 * size, AT_ONCE)


def judged_labels(feature: Feature) -> Array:
    """The tokens of a block that are judged, FILLER elsewhere."""
    labels: Array = np.where(feature["judged"], feature["input_ids"], FILLER)
    return labels


def filler_block(length: int, token: int) -> Feature:
    """A block of which nothing is judged."""
    return {
        "input_ids": np.full(length, token, dtype=np.int64),
        "judged": np.zeros(length, dtype=bool),
        "texts": 0,
        "number": 0,
    }
