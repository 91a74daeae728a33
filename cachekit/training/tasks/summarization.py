"""Summarization: a text, and a shorter one that says the same."""

from __future__ import annotations

from collections.abc import Sequence

from rouge_score.rouge_scorer import RougeScorer

from cachekit.training.job import Job
from cachekit.training.tasks.seq2seq import Figures, Seq2Seq

KINDS = ("rouge1", "rouge2", "rougeL")


class Summarization(Seq2Seq):
    """The figures are ROUGE's."""

    def figures(self, job: Job) -> Figures:
        return rouge


def rouge(written: Sequence[str], targets: Sequence[str]) -> dict[str, float]:
    """ROUGE-1, ROUGE-2 and ROUGE-L: F-measures from 0 to 1, of word stems as is usual, the mean over rows."""
    scorer = RougeScorer(KINDS, use_stemmer=True)
    scores = [scorer.score(target, text) for text, target in zip(written, targets, strict=True)]
    return {kind: sum(score[kind].fmeasure for score in scores) / len(scores) for kind in KINDS}


TASK = Summarization()
