"""Text classification: rows to fixed-shape batches, and metrics over every row exactly once."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from cachekit.errors import RecipeError
from cachekit.training.data import Split

# The label of a row that only fills a batch: cross entropy's ignore_index, and left out of every metric.
FILLER = -100
# Model types that tell segments apart without a table of embeddings, whose size the config would say.
SEGMENTED = frozenset({"xlnet"})


class Rows(torch.utils.data.Dataset[dict[str, Any]]):  # type: ignore[misc]
    """A split as a dataset whose length is a multiple of the batch: filled up with empty rows labelled FILLER.

    Compiled training has one graph a shape. A smaller last batch would be a new shape, so evaluation pads it (and the
    metrics leave the fillers out), while training drops it.
    """

    def __init__(self, split: Split, multiple: int = 1) -> None:
        self._split = split
        self._length = -(-len(split) // multiple) * multiple

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index < len(self._split):
            return self._split[index]
        pair = "" if self._split.data.text_pair_column else None
        return {"text": "", "pair": pair, "label": FILLER}


def inputs_of(model: Any) -> tuple[str, ...]:
    """What a model is given: by its architecture, which is in the key, never by its tokenizer, which is not.

    Segments (`token_type_ids`) are given to models that have embeddings of them: to those, none is the same as zeros.
    Some others take the name for something else (GPT-2 adds the embedding of the word with that number).
    """
    taken = inspect.signature(model.forward).parameters
    segments = getattr(model.config, "type_vocab_size", None)
    has_segments = bool(segments) if isinstance(segments, int) else model.config.model_type in SEGMENTED
    wanted = {"input_ids": True, "attention_mask": True, "token_type_ids": has_segments}
    return tuple(name for name, given in wanted.items() if given and name in taken)


class Collator:
    """Tokenizes a batch, every row padded or cut to one length.

    Tokenizing here rather than beforehand costs a millisecond a batch, and needs no second copy of the data.

    Args:
        tokenizer: Of the model, or another one.
        length: Tokens a row.
        inputs: What the model is given; see `inputs_of`.
    """

    def __init__(self, tokenizer: Any, length: int, inputs: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._length = length
        self._inputs = inputs

    def __call__(self, batch: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """The batch as tensors of shape (rows, length), and `labels` of shape (rows,)."""
        pairs = [row["pair"] for row in batch] if batch[0]["pair"] is not None else None
        encoded = self._tokenizer(
            [row["text"] for row in batch],
            pairs,
            padding="max_length",
            truncation=True,
            max_length=self._length,
            return_tensors="pt",
            return_attention_mask=True,
            return_token_type_ids="token_type_ids" in self._inputs,
        )
        labels = torch.tensor([row["label"] for row in batch], dtype=torch.long)
        zeros = torch.zeros_like(encoded["input_ids"])
        return {**{name: encoded.get(name, zeros) for name in self._inputs}, "labels": labels}


def check_tokenizer(tokenizer: Any) -> None:
    """Refuse a tokenizer that cannot pad.

    Raises:
        RecipeError: It has no padding token.
    """
    if tokenizer.pad_token is None:
        raise RecipeError("the tokenizer has no padding token", hint="choose another with model.tokenizer")


def metrics(logits: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> dict[str, float]:
    """Accuracy, macro F1 and mean cross entropy over the rows that are not fillers, and their number."""
    from sklearn.metrics import accuracy_score, f1_score

    kept = labels != FILLER
    logits, labels = logits[kept].astype(np.float64), labels[kept]
    predictions = logits.argmax(axis=-1)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return {
        "accuracy": float(accuracy_score(labels, predictions)),
        "f1": float(f1_score(labels, predictions, average="macro", zero_division=0.0)),
        "loss": float(-log_softmax[np.arange(len(labels)), labels].mean()),
        "rows": float(len(labels)),
    }
