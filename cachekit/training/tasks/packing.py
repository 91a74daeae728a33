"""Texts as one stream of tokens, and the stream as blocks of one length: what language models are trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cachekit.data import rows
from cachekit.errors import DataError
from cachekit.recipe import tasks
from cachekit.training import data
from cachekit.training.data import Split
from cachekit.training.job import Job
from cachekit.training.tasks.port import Array, Feature

AT_ONCE = 1000  # texts that are tokenized together
_FEW = 16  # texts to begin with, where a few blocks are enough

Tokens = Callable[[Sequence[Feature]], Sequence[Sequence[int]]]


def text_rows(job: Job) -> dict[str, Split]:
    """Rows `{"text": str, "ends": bool}`; a line of a plain text file does not end its text, the next one goes on."""
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


class Blocks(Sequence[Feature]):
    """A split's texts as a stream of tokens, cut into blocks of one length.

    Features are `{"input_ids", "judged", "texts", "number", "still"}`: two arrays of the block's length, how many texts
    begin in it, which block it is, and whether it is evaluated rather than trained on. In training, what does not fill
    a last block is left out.

    Args:
        split: From `text_rows`.
        tokens: Those of each of some rows, what separates texts included.
        length: Tokens a block.
        filler: The token that fills the last one.
        overlap: Tokens that a block shares with the one before, as their context only.
        first: Tokens before the first text.
        most: Blocks that are enough: no more texts are read than they need.

    Raises:
        DataError: There is not one block.
    """

    def __init__(
        self,
        split: Split,
        tokens: Tokens,
        *,
        length: int,
        filler: int,
        overlap: int = 0,
        first: Sequence[int] = (),
        most: int | None = None,
    ) -> None:
        self._length, self._filler, self._overlap = length, filler, overlap
        self._stride = length - overlap  # tokens that are judged in a full block
        self._still = split.name != "train"
        self._stream, starts = _stream(split, tokens, first, None if most is None else overlap + most * self._stride)
        own = max(0, len(self._stream) - overlap)
        self._count = -(-own // self._stride) if self._still else own // self._stride
        if not self._count:
            raise DataError(
                f"the {split.name} texts have {len(self._stream) - len(first)} tokens, which do not fill one block",
                cause=f"a block has {length} tokens: training.max_seq_length",
                hint="lower training.max_seq_length, or give more text",
            )
        self._texts = np.bincount(np.maximum(starts - overlap, 0) // self._stride, minlength=self._count)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)
        block = filler_block(self._length, self._filler)
        piece = self._stream[index * self._stride : index * self._stride + self._length]
        block["input_ids"][: len(piece)] = piece
        block["judged"][self._overlap : len(piece)] = True
        return {**block, "texts": int(self._texts[index]), "number": index, "still": self._still}


def filler_block(length: int, token: int) -> dict[str, Any]:
    """A block of which nothing is judged."""
    ids: Array = np.full(length, token, dtype=np.int64)
    judged: Array = np.zeros(length, dtype=np.bool_)
    return {"input_ids": ids, "judged": judged, "texts": 0, "number": 0, "still": True}


def _stream(split: Split, tokens: Tokens, first: Sequence[int], wanted: int | None) -> tuple[Array, Array]:
    """All tokens, or as many as are wanted, and where among them each text begins."""
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
    return (stream, places) if wanted is None else (stream[:wanted], places[places < wanted])


def _batches(split: Split, size: int) -> Iterator[list[Feature]]:
    start = 0
    while start < len(split):
        yield [split[index] for index in range(start, min(start + size, len(split)))]
        start += size
        size = min(2 * size, AT_ONCE)
