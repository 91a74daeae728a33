"""Figures of predictions, as several tasks tell them.

Of language models sums a feature are kept instead of its logits, which are as large as the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from cachekit.training.tasks.port import FILLER, Array, Feature

_LARGEST = 700.0  # exp of more is no number


def logits_of(predictions: Any) -> Array:
    """The logits of predictions: some models give their hidden states as well."""
    logits: Array = np.asarray(_first(predictions))
    return logits


def cross_entropy(logits: Array, labels: Any) -> float:
    """The mean cross entropy of logits of shape (judged, classes), in 64 bits."""
    exact: Array = logits.astype(np.float64)
    shifted = exact - exact.max(axis=-1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return float(-log_softmax[np.arange(len(exact)), np.asarray(labels)].mean())


def choice(features: Sequence[Feature], predictions: Any, labels: Any) -> dict[str, float]:
    """Accuracy, mean cross entropy, and the number of rows."""
    from sklearn.metrics import accuracy_score

    logits = logits_of(predictions)
    return {
        "accuracy": float(accuracy_score(labels, logits.argmax(axis=-1))),
        "loss": cross_entropy(logits, labels),
        "rows": len(features),
    }


def classification(features: Sequence[Feature], predictions: Any, labels: Any) -> dict[str, float]:
    """The same, and macro F1."""
    from sklearn.metrics import f1_score

    f1 = f1_score(labels, logits_of(predictions).argmax(axis=-1), average="macro", zero_division=0.0)
    found = choice(features, predictions, labels)
    return {"accuracy": found["accuracy"], "f1": float(f1), **found}


def sums(logits: Any, labels: Any) -> torch.Tensor:
    """Of each feature: the sum of its judged tokens' losses, their number, and how many were the likeliest.

    Args:
        logits: Of shape (features, length, vocabulary), or a tuple that begins with them; of the same places as the
            labels.
        labels: Of shape (features, length); FILLER where nothing is judged.
    """
    logits, labels = _first(logits), _first(labels)
    logits = logits.float()
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=FILLER
    ).view(labels.shape)
    judged = labels != FILLER
    right = (logits.argmax(dim=-1) == labels) & judged
    return torch.stack([losses.sum(dim=-1), judged.sum(dim=-1).float(), right.sum(dim=-1).float()], dim=-1)


def next_token_sums(logits: Any, labels: Any) -> torch.Tensor:
    """The same for a model whose logits at a place tell of the next one."""
    logits, labels = _first(logits), _first(labels)
    return sums(logits[:, :-1], labels[:, 1:])


def of_sums(predictions: Any, *, accuracy: bool) -> dict[str, float]:
    """Mean loss over all judged tokens, perplexity, the tokens, and their accuracy."""
    total = np.asarray(predictions, dtype=np.float64).reshape(-1, 3).sum(axis=0)
    loss, count, right = (float(value) for value in total)
    mean = loss / count if count else math.nan
    found = {"loss": mean, "perplexity": math.exp(mean) if mean < _LARGEST else math.inf, "tokens": int(count)}
    if accuracy:
        found["accuracy"] = right / count if count else math.nan
    return found


def of_blocks(features: Sequence[Feature], predictions: Any, _: Any, *, accuracy: bool) -> dict[str, float]:
    """The same over blocks of texts, with the number of blocks, and of the texts that begin in them."""
    texts = sum(block["texts"] for block in features)
    return {**of_sums(predictions, accuracy=accuracy), "features": len(features), "rows": texts}


def _first(given: Any) -> Any:
    return given[0] if isinstance(given, tuple | list) else given
