"""SQuAD's figures and how an answer is chosen: exact match and F1, versions 1.1 and 2.0.

After the official scripts, evaluate-v1.1.py and evaluate-v2.0.py (https://rajpurkar.github.io/SQuAD-explorer), and, for
choosing, after Transformers' question-answering example (utils_qa.py), whose defaults these are. Neither is in a
package: Transformers 5 has no `squad_metrics` any more.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from cachekit.training.tasks.port import Array

BEST = 20  # starts, and ends, of a window that are looked at
LONGEST = 30  # tokens of an answer

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Scores(Struct, frozen=True):
    """What a model says of one window.

    Attributes:
        start: Logits, one a token.
        end: Logits, one a token.
        offsets: Where each token stands in the context: first character, and the one behind its last; -1 where it is
            none of the context's.
        none: The token that stands for no answer.
    """

    start: Array
    end: Array
    offsets: Array
    none: int


def answer(windows: Iterable[Scores], context: str, *, negatives: bool) -> str:
    """The best answer in all windows over a context; empty where there is none.

    Under `negatives` there may be no answer: that is said where it scores more than the best span. Its score is the
    lowest one of all windows, for most windows of a long text hold no answer.
    """
    best, found, nothing = -np.inf, "", np.inf
    for window in windows:
        nothing = min(nothing, float(window.start[window.none]) + float(window.end[window.none]))
        starts, ends = (np.argsort(logits)[: -BEST - 1 : -1] for logits in (window.start, window.end))
        first, last = window.offsets[starts, 0][:, None], window.offsets[ends, 1][None, :]
        distance = ends[None, :] - starts[:, None]
        possible = (first >= 0) & (last > first) & (distance >= 0) & (distance < LONGEST)
        scores = np.where(possible, window.start[starts][:, None] + window.end[ends][None, :], -np.inf)
        row, column = np.unravel_index(scores.argmax(), scores.shape)
        if scores[row, column] > best:
            best, found = float(scores[row, column]), context[int(first[row, 0]) : int(last[0, column])]
    return "" if negatives and nothing > best else found


def judge(given: str, answers: Sequence[str], *, negatives: bool) -> tuple[float, float]:
    """Exact match and F1 of one answer, each from 0 to 1: the best over the right ones.

    Empty is no answer; under `negatives` both count as in version 2.0, in which a question may have none.
    """
    right = [text for text in answers if normalized(text)] if negatives else list(answers)
    right = right or [""]
    exact = max(float(normalized(given) == normalized(text)) for text in right)
    return exact, max(_f1(normalized(given).split(), normalized(text).split(), negatives) for text in right)


def normalized(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _f1(given: list[str], right: list[str], negatives: bool) -> float:
    if negatives and not (given and right):
        return float(given == right)
    same = sum((Counter(given) & Counter(right)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(given), same / len(right)
    return 2 * precision * recall / (precision + recall)
