"""Text regression: figures of texts and of pairs, and what is refused."""

from __future__ import annotations

import json
import random

import pytest

from cachekit.data import shapes
from cachekit.errors import DataError, RecipeError
from cachekit.recipe import ingredients, load_text
from tests.training.task_jobs import WatchedJob, rows_job

pytestmark = pytest.mark.versions
TASK = "text-regression"
PAIRS = {"text_pair_column": "other"}


def made(count, seed=1):
    chosen = random.Random(seed)

    def text():
        return " ".join(chosen.choices(["sea", "wind", "東京"], k=4))

    return [{"text": text(), "other": text(), "label": chosen.randrange(50) / 10} for _ in range(count)]


@pytest.mark.parametrize("data", [{}, PAIRS], ids=["texts", "pairs"])
def test_figures_are_scipys_over_every_row(tmp_path, monkeypatch, data):
    import numpy as np
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import mean_squared_error

    splits = {"train": made(13), "validation": made(9, 2), "test": made(6, 3)}
    done = WatchedJob(rows_job(tmp_path, TASK, splits, data=data, eval_strategy="epoch", max_steps=4), monkeypatch)
    assert len(done.shapes) == 1
    assert dict(*done.shapes)["labels"] == (4,)
    assert {name: figures["rows"] for name, figures in done.result.metrics.items()} == {"validation": 9, "test": 6}
    _, found, _, figures = next(one for one in done.scored if one[3]["rows"] == 6)
    found, right = np.asarray(found, dtype=np.float64)[:, 0], np.array([row["label"] for row in splits["test"]])
    assert figures["mse"] == figures["loss"] == pytest.approx(mean_squared_error(right, found))
    assert figures["pearson"] == pytest.approx(pearsonr(found, right).statistic)
    assert figures["spearman"] == pytest.approx(spearmanr(found, right).statistic)


def test_a_correlation_with_what_is_always_the_same_is_0():
    import numpy as np

    from cachekit.training.tasks.metrics import regression

    figures = regression([{}, {}], np.array([[2.0], [2.0]]), np.array([1.0, 3.0]))
    assert figures == {"mse": 1.0, "pearson": 0.0, "spearman": 0.0, "loss": 1.0, "rows": 2}


def test_there_are_no_classes_and_a_second_text_is_in_no_key(tmp_path):
    single, pairs = (rows_job(tmp_path, TASK, {"train": made(2)}, data=data).recipe for data in ({}, PAIRS))
    assert shapes.labels_of(single) == []
    for recipe in (single, pairs):
        assert ingredients._of_task(recipe, shapes.shapes_of(recipe)) == {}


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("good", "train row 2: the label 'good' is not a number"),
        ("3,5", "train row 2: the label '3,5' is not a number"),
        ("nan", "train row 2: the label 'nan' is not a number"),
        ("inf", "train row 2: the label 'inf' is not a number"),
        (None, "train row 2 has no label"),
    ],
)
def test_rows_that_are_refused(tmp_path, label, said):
    from cachekit.training import tasks

    rows = made(3)
    rows[1]["label"] = label
    with pytest.raises(DataError, match=said):
        tasks.select(TASK).rows(rows_job(tmp_path, TASK, {"train": rows}), print)


def test_a_recipe_with_classes_is_refused():
    data = {"path": "d", "labels": ["a", "b"]}
    text = {"name": "x", "task": TASK, "model": {"id": "bert-base-uncased"}, "data": data}
    with pytest.raises(RecipeError, match=r"data\.labels has no effect on text-regression"):
        load_text(json.dumps(text))
