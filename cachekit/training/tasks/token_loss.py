"""How well tokens were told: sums a feature instead of its logits, which are as large as the vocabulary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from cachekit.training.tasks.port import FILLER


def sums(logits: Any, labels: Any) -> torch.Tensor:
    """Of each feature: the sum of its judged tokens' losses, their number, and how many were the likeliest.

    Args:
        logits: Of shape (features, length, vocabulary), or a tuple that begins with them; of the same places as the
            labels.
        labels: Of shape (features, length); FILLER where nothing is judged.
    """
    logits = logits[0] if isinstance(logits, tuple | list) else logits
    labels = labels[0] if isinstance(labels, tuple | list) else labels
    logits = logits.float()
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=FILLER
    ).view(labels.shape)
    judged = labels != FILLER
    right = (logits.argmax(dim=-1) == labels) & judged
    return torch.stack([losses.sum(dim=-1), judged.sum(dim=-1).float(), right.sum(dim=-1).float()], dim=-1)


def next_token_sums(logits: Any, labels: Any) -> torch.Tensor:
    """The same for a model whose logits at a place tell of the next one."""
    logits = logits[0] if isinstance(logits, tuple | list) else logits
    labels = labels[0] if isinstance(labels, tuple | list) else labels
    return sums(logits[:, :-1], labels[:, 1:])


def figures(predictions: Any, *, accuracy: bool) -> dict[str, float]:
    """Mean loss over all judged tokens, perplexity, the tokens, and their accuracy."""
    total = np.asarray(predictions, dtype=np.float64).reshape(-1, 3).sum(axis=0)
    loss, count, right = (float(value) for value in total)
    mean = loss / count if count else math.nan
    found = {"loss": mean, "perplexity": math.exp(mean) if mean < _LARGEST else math.inf, "tokens": count}
    if accuracy:
        found["accuracy"] = right / count if count else math.nan
    return found


_LARGEST = 700.0  # exp of more is no number
