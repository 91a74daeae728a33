"""Multi-label classification: the forms of labels, what a batch is made of, figures, and what is refused."""

from __future__ import annotations

import json
import random

import pytest

from cachekit.data import preview, shapes
from cachekit.errors import DataError, RecipeError
from cachekit.recipe import load_text
from cachekit.recipe.schema import Data
from tests.training.jobs import recipe_of, write
from tests.training.task_jobs import WatchedJob, rows_job

pytestmark = pytest.mark.versions
TASK = "multi-label-classification"
NAMES = ("anger", "joy", "love")
# Three forms of the same labels: none, one, several.
FORMS = {
    "lists of names": [[], ["joy"], ["love", "anger"]],
    "lists of numbers": [[], [1], [2, 0]],
    "names in a text": ["", "joy", "love|anger"],
    "numbers in a text": ["", "1", "2,0"],
    "a printed list": ["[]", "[1]", "[2, 0]"],
    "one number": [None, 1, [2, 0]],
}


def made(count, seed=1):
    chosen = random.Random(seed)
    return [
        {"text": " ".join(chosen.choices(["sea", "wind", "東京"], k=4)), "labels": chosen.sample(NAMES, number % 4)}
        for number in range(count)
    ]


def rows_of(folder, labels, names=NAMES):
    from cachekit.training import tasks

    rows = [{"text": "a", "labels": one} for one in labels] * 2
    splits = tasks.select(TASK).rows(rows_job(folder, TASK, {"train": rows, "test": rows}, labels=names), print)
    return [row["label"] for row in splits["test"]]


@pytest.mark.feature("F1")
@pytest.mark.parametrize("labels", FORMS.values(), ids=FORMS)
def test_a_row_has_none_one_or_several_classes(tmp_path, labels):
    assert rows_of(tmp_path, labels)[:3] == [(), (1,), (2, 0)]


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_classes_are_read_from_local_files(tmp_path, suffix):
    """As GoEmotions' own files have them: `3,6`."""
    rows = [("so proud", "3,6"), ("sad", "2"), ("no", "3")]
    if suffix == "jsonl":
        write(tmp_path, train=[{"text": text, "labels": list(map(int, labels.split(",")))} for text, labels in rows])
    else:
        joint = "\t" if suffix == "tsv" else ","
        lines = [joint.join((text, labels if suffix == "tsv" else f'"{labels}"')) for text, labels in rows]
        (tmp_path / f"train.{suffix}").write_text("\n".join([f"text{joint}labels", *lines, ""]))
    recipe = recipe_of(TASK, Data(path=str(tmp_path)))
    shapes.check_data(recipe)
    assert shapes.labels_of(recipe) == list("0123456"), "numbered from 0, not a class for each list"
    found = preview.preview(recipe)
    assert (found.labels, found.doubts) == ({"3": 2, "6": 1, "2": 1}, ())


def test_figures_are_scikit_learns_over_every_row(tmp_path, monkeypatch):
    import numpy as np
    from sklearn.metrics import accuracy_score, f1_score, log_loss

    splits = {"train": made(13), "validation": made(9, 2), "test": made(6, 3)}
    job = rows_job(tmp_path, TASK, splits, labels=NAMES, eval_strategy="epoch", max_steps=4)
    done = WatchedJob(job, monkeypatch)
    assert len(done.shapes) == 1
    assert dict(*done.shapes)["labels"] == (4, 3)
    assert {name: figures["rows"] for name, figures in done.result.metrics.items()} == {"validation": 9, "test": 6}
    _, logits, _, figures = next(one for one in done.scored if one[3]["rows"] == 6)
    right = np.array([[name in row["labels"] for name in NAMES] for row in splits["test"]])
    logits = np.asarray(logits, dtype=np.float64)
    shares = 1 / (1 + np.exp(-logits))
    assert figures["accuracy"] == pytest.approx(accuracy_score(right, shares > 0.5))
    for kind in ("micro", "macro"):
        expected = f1_score(right, shares > 0.5, average=kind, zero_division=0.0)
        assert figures[f"f1_{kind}"] == pytest.approx(expected)
    losses = [log_loss(right[:, number], shares[:, number], labels=[0, 1]) for number in range(3)]
    assert figures["loss"] == pytest.approx(np.mean(losses))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([[0, 1, 0]], "train row 1 has a class twice: 0, 1, 0"),
        (["[1 2]"], r"train row 1: the labels '\[1 2\]' are written with spaces between them"),
        (["['joy' 'love']"], "are written with spaces between them"),
        (["0 1", "2", "0"], "are written with spaces between them"),
        ([["joy", ["love"]]], "train row 1: the labels are not a list of classes"),
        ([["joy"], ["sorrow"]], "train row 2: unknown label 'sorrow'"),
        ([[], ""], "no row of the training data has a label"),
    ],
)
def test_rows_that_are_refused(tmp_path, labels, said):
    with pytest.raises(DataError, match=said):
        rows_of(tmp_path, labels)


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (["3,6", "2", "3"], "multi-label-classification"),
        (["3 6", "2", "3"], "multi-label-classification"),
        (["[1]", "[1, 2]"], "multi-label-classification"),
        (["joy|love", "joy"], "multi-label-classification"),
        (["joy, love", "joy", "love"], "multi-label-classification"),
        (["3.8", "5.0", "5"], "text-regression"),
        (["0.5", "1.5", "-2"], "text-regression"),
        (["rock, paper", "scissors"], ""),
        (["1.5-turbo", "2.5-pro"], ""),
        (["1.0", "2.0"], ""),
        (["a-b", "c:d"], ""),
    ],
)
def test_text_classification_takes_no_list_and_no_fraction_for_a_class(tmp_path, labels, task):
    write(tmp_path, train=[{"text": "a", "label": one} for one in labels])
    recipe = recipe_of("text-classification", Data(path=str(tmp_path)))
    if not task:
        assert shapes.labels_of(recipe) == sorted(labels)
        return
    with pytest.raises(DataError, match="labels such as") as refused:
        shapes.labels_of(recipe)
    assert f"set task: {task}" in refused.value.hint
    named = recipe_of("text-classification", Data(path=str(tmp_path), labels=tuple(labels)))
    assert shapes.labels_of(named) == labels, "whoever lists them means them"


def test_what_does_not_reach_this_loss_is_refused():
    text = {"name": "x", "task": TASK, "model": {"id": "bert-base-uncased"}, "data": {"path": "d"}}
    with pytest.raises(RecipeError, match=f"training.label_smoothing_factor has no effect on {TASK}"):
        load_text(json.dumps({**text, "training": {"label_smoothing_factor": 0.1}}))
