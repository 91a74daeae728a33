"""Question answering: windows and where answers stand in them, the answer that is chosen, figures, what is refused.

`Official` is written after SQuAD's own scripts and Transformers' example, plainly and apart from the code under test.
"""

from __future__ import annotations

import collections
import random
import re
import string

import numpy as np
import pytest

from tests.training.jobs import tokenizer  # noqa: F401 - a fixture
from tests.training.squad_questions import TASK, questions
from tests.training.task_jobs import WatchedJob, rows_job

pytestmark = pytest.mark.versions


class Official:
    """evaluate-v1.1.py and evaluate-v2.0.py, and utils_qa.py's choice of an answer."""

    @staticmethod
    def normalize_answer(s):
        def remove_articles(text):
            return re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", text)

        def remove_punc(text):
            exclude = set(string.punctuation)
            return "".join(ch for ch in text if ch not in exclude)

        return " ".join(remove_articles(remove_punc(s.lower())).split())

    @classmethod
    def f1_of_version_1(cls, prediction, ground_truth):
        prediction_tokens = cls.normalize_answer(prediction).split()
        ground_truth_tokens = cls.normalize_answer(ground_truth).split()
        num_same = sum((collections.Counter(prediction_tokens) & collections.Counter(ground_truth_tokens)).values())
        if num_same == 0:
            return 0
        precision = 1.0 * num_same / len(prediction_tokens)
        recall = 1.0 * num_same / len(ground_truth_tokens)
        return (2 * precision * recall) / (precision + recall)

    @classmethod
    def f1_of_version_2(cls, a_gold, a_pred):
        gold_toks = cls.normalize_answer(a_gold).split() if a_gold else []
        pred_toks = cls.normalize_answer(a_pred).split() if a_pred else []
        if len(gold_toks) == 0 or len(pred_toks) == 0:
            return int(gold_toks == pred_toks)
        return cls.f1_of_version_1(a_pred, a_gold)

    @classmethod
    def scores(cls, prediction, golds, version):
        if version == 1:
            exact = max(cls.normalize_answer(prediction) == cls.normalize_answer(gold) for gold in golds)
            return float(exact), max(cls.f1_of_version_1(prediction, gold) for gold in golds)
        golds = [gold for gold in golds if cls.normalize_answer(gold)] or [""]
        exact = max(int(cls.normalize_answer(gold) == cls.normalize_answer(prediction)) for gold in golds)
        return float(exact), max(cls.f1_of_version_2(gold, prediction) for gold in golds)

    @staticmethod
    def answer(windows, context, version):
        """Windows are (start logits, end logits, offsets or None by token, index of the CLS token)."""
        prelim, null_score = [], None
        for start_logits, end_logits, offsets, cls_index in windows:
            feature_null_score = start_logits[cls_index] + end_logits[cls_index]
            if null_score is None or null_score > feature_null_score:
                null_score = feature_null_score
            start_indexes = np.argsort(start_logits)[-1 : -20 - 1 : -1].tolist()
            end_indexes = np.argsort(end_logits)[-1 : -20 - 1 : -1].tolist()
            for start_index in start_indexes:
                for end_index in end_indexes:
                    if offsets[start_index] is None or offsets[end_index] is None:
                        continue
                    if end_index < start_index or end_index - start_index + 1 > 30:
                        continue
                    text = context[offsets[start_index][0] : offsets[end_index][1]]
                    prelim.append((start_logits[start_index] + end_logits[end_index], text))
        ordered = [one for one in sorted(prelim, key=lambda one: one[0], reverse=True) if one[1]]
        if not ordered:
            return ""
        if version == 2 and null_score - ordered[0][0] > 0:
            return ""
        return ordered[0][1]


def windows_of(tokenizer, table, length=32, stride=8):
    from cachekit.training.data import Split
    from cachekit.training.tasks import question_answering as task

    def read(row, where):
        return {**row, "answers": task.answers_of(row["answers"], "answers", where), "negatives": True}

    inputs = ("input_ids", "attention_mask", "token_type_ids")
    split = Split(table, range(len(table)), read, "test")
    return task.windows(split, tokenizer, length=length, stride=stride, inputs=inputs, enough=None)


@pytest.mark.parametrize("side", ["right", "left"])
def test_windows_cover_the_text_and_know_where_its_answer_stands(tokenizer, side):
    import copy

    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.padding_side = side
    table = questions(40)
    features = windows_of(tokenizer, table)
    assert {features[n]["row"] for n in range(len(features))} == set(range(40)), "every question has a window"
    seen = collections.defaultdict(set)
    inside = collections.Counter()
    for number in range(len(features)):
        window = features[number]
        row, offsets = table[window["row"]], window["offsets"]
        assert window["input_ids"].shape == (32,)
        assert window["input_ids"][window["none"]] == tokenizer.cls_token_id
        here = [tuple(pair) for pair in offsets.tolist() if pair[0] >= 0]
        seen[window["row"]].update(here)
        first, last = window["start_positions"], window["end_positions"]
        answers = row["answers"]["text"]
        covered = bool(answers) and bool(here)
        if covered:
            begin, end = row["answers"]["answer_start"][0], row["answers"]["answer_start"][0] + len(answers[0])
            covered = here[0][0] <= begin and here[-1][1] >= end
        if covered:
            assert row["context"][offsets[first][0] : offsets[last][1]] == answers[0]
            inside[window["row"]] += 1
        else:
            assert (first, last) == (window["none"], window["none"])
    for number, row in enumerate(table):
        whole = tokenizer(row["context"], add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        assert seen[number] == set(whole), "no token of a context is left out"
    windows = collections.Counter(features.columns["row"].tolist())
    assert max(windows.values()) > 10, "a context of many windows was tried"
    assert len(inside) > 20


def test_an_answer_that_no_window_holds_wholly(tokenizer):
    from cachekit.training.tasks.question_answering import LABELS

    words = " ".join(["stone"] * 60)
    row = {"question": "What?", "context": words, "answers": {"text": [words], "answer_start": [0]}}
    features = windows_of(tokenizer, [row])
    assert len(features) > 2
    assert not any(features.columns[name].any() for name in LABELS), "all point at the first special token"


def test_characters_of_several_tokens():
    """Bytes of one character have one place, of which the answer takes the first and the last."""
    from cachekit.training.tasks.question_answering import _position

    offsets = np.array([[-1, -1], [0, 1], [1, 2], [1, 2], [1, 2], [2, 3], [-1, -1]])
    assert _position(offsets, [("🙂", 1)], 0) == (2, 4)
    assert _position(offsets, [("a", 0)], 0) == (1, 1)
    assert _position(offsets, [(" 🙂 ", 0)], 0) == (2, 4)


@pytest.mark.parametrize("version", [1, 2])
def test_the_chosen_answer_is_that_of_the_official_code(version):
    """Over random logits, with ties, several windows and tokens that are not the context's."""
    from cachekit.training.tasks import squad

    chosen = np.random.default_rng(version)
    context = " ".join(f"w{number}" for number in range(90))
    places = [match.span() for match in re.finditer(r"\S+", context)]
    nothing = 0
    for _ in range(300):
        windows = []
        for first in range(0, chosen.integers(1, 60), 20):
            offsets = [None] * 5 + places[first : first + 40] + [None] * 3
            start, end = (chosen.normal(size=len(offsets)).astype(np.float32).round(1) for _ in range(2))
            start[0] += chosen.choice([0, 3])
            windows.append((start, end, offsets, 0))
        as_ours = [
            squad.Scores(start, end, np.array([pair or (-1, -1) for pair in offsets]), none)
            for start, end, offsets, none in windows
        ]
        expected = Official.answer(windows, context, version)
        nothing += expected == ""
        # Of two spans that score the same, sorting may put either first: what is chosen must score as much.
        given = squad.answer(as_ours, context, negatives=version == 2)
        if given != expected:
            assert bool(given) == bool(expected)
            assert score_of(windows, places, context, given) == score_of(windows, places, context, expected)
    assert (nothing > 10) == (version == 2)


def score_of(windows, places, context, text):
    begin = context.index(text)
    found = []
    for start, end, offsets, _ in windows:
        spans = [index for index, pair in enumerate(offsets) if pair and pair[0] == begin]
        ends = [index for index, pair in enumerate(offsets) if pair and pair[1] == begin + len(text)]
        found += [start[first] + end[last] for first in spans for last in ends]
    return max(found)


def test_nothing_to_choose_from():
    from cachekit.training.tasks import squad

    empty = squad.Scores(np.zeros(8), np.zeros(8), np.full((8, 2), -1), 0)
    assert squad.answer([empty], "", negatives=True) == squad.answer([empty], "", negatives=False) == ""


@pytest.mark.parametrize("version", [1, 2])
def test_exact_match_and_f1_are_the_official_ones(version):
    from cachekit.training.tasks import squad

    chosen = random.Random(version)
    pieces = ["the", "a", "an", "The", "cat", "cats", "Ångström", "12", "12.", "!", "—", "東京", "U.S.", "\u00a0", "is"]
    texts = ["", "the", "...", *(" ".join(chosen.choices(pieces, k=chosen.randint(1, 5))) for _ in range(400))]
    for given in texts[:150]:
        golds = chosen.sample(texts[1:], chosen.randint(1, 4))
        if version == 2 and chosen.random() < 0.3:
            golds = []
        assert squad.judge(given, golds, negatives=version == 2) == pytest.approx(
            Official.scores(given, golds, version)
        ), (given, golds)


@pytest.mark.parametrize("version", [1, 2])
def test_figures_are_the_official_ones_over_every_question(tmp_path, monkeypatch, tokenizer, version):
    """Computed again from the dumped logits: each question tokenized by itself, its windows in their order."""
    import torch

    splits = {name: questions(count, seed, version) for seed, (name, count) in enumerate((("train", 9), ("test", 23)))}
    job = rows_job(tmp_path, TASK, splits, max_seq_length=32, doc_stride=8, data={"validation_fraction": 0.3})
    done = WatchedJob(job, monkeypatch)
    assert len(done.shapes) == 1
    features, (starts, ends), labels, figures = next(one for one in done.scored if one[3]["rows"] == 23)
    assert figures["features"] == len(features)
    assert len(features) > 2 * 23
    place, exact, f1, unanswered = 0, [], [], []
    for row in splits["test"]:
        encoded = tokenizer(
            row["question"].lstrip(),
            row["context"],
            truncation="only_second",
            max_length=32,
            stride=8,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding="max_length",
        )
        windows = []
        for number, offsets in enumerate(encoded["offset_mapping"]):
            kept = [
                pair if part == 1 else None for pair, part in zip(offsets, encoded.sequence_ids(number), strict=True)
            ]
            windows.append((starts[place], ends[place], kept, 0))
            place += 1
        given = Official.answer(windows, row["context"], version)
        scores = Official.scores(given, row["answers"]["text"], version)
        exact.append(scores[0])
        f1.append(scores[1])
        unanswered.append(not row["answers"]["text"])
    assert place == len(features)
    assert figures["exact_match"] == pytest.approx(100 * np.mean(exact))
    assert figures["f1"] == pytest.approx(100 * np.mean(f1))
    without = [score for score, none in zip(f1, unanswered, strict=True) if not none]
    assert figures.get("has_answer_f1", figures["f1"]) == pytest.approx(100 * np.mean(without))
    assert ("no_answer_exact_match" in figures) == (version == 2)
    losses = [
        torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(places)).item()
        for logits, places in zip((starts, ends), labels, strict=True)
    ]
    assert figures["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
