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


def multi_label(features: Sequence[Feature], predictions: Any, labels: Any) -> dict[str, float]:
    """Of rows with several classes each: F1 over all decisions, its mean over the classes, and rows that are all right.

    A class is predicted where its probability is above a half. The loss is the mean binary cross entropy, in 64 bits.
    """
    from sklearn.metrics import accuracy_score, f1_score

    logits: Array = logits_of(predictions).astype(np.float64)
    found, true = logits > 0, np.asarray(labels) > 0
    loss = np.maximum(logits, 0) - logits * true + np.log1p(np.exp(-np.abs(logits)))
    f1 = {kind: float(f1_score(true, found, average=kind, zero_division=0.0)) for kind in ("micro", "macro")}
    return {
        "f1_micro": f1["micro"],
        "f1_macro": f1["macro"],
        "accuracy": float(accuracy_score(true, found)),
        "loss": float(loss.mean()),
        "rows": len(features),
    }


def regression(features: Sequence[Feature], predictions: Any, labels: Any) -> dict[str, float]:
    """Mean squared error, Pearson's correlation and Spearman's, and the number of rows, in 64 bits.

    A correlation with what is the same for every row is 0.
    """
    from scipy.stats import rankdata

    found: Array = logits_of(predictions).astype(np.float64).reshape(len(features))
    true: Array = np.asarray(labels, dtype=np.float64).reshape(len(features))
    error = float(((found - true) ** 2).mean())
    return {
        "mse": error,
        "pearson": _correlation(found, true),
        "spearman": _correlation(rankdata(found), rankdata(true)),
        "loss": error,
        "rows": len(features),
    }


def _correlation(one: Array, other: Array) -> float:
    return float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) > 0 and np.ptp(other) > 0 else 0.0


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
