"""Multiple choice: what a batch is made of, which choice a label means, figures, the key, and what is refused."""

from __future__ import annotations

import json
import random

import pytest
from msgspec import structs

from cachekit.data import shapes
from cachekit.errors import DataError, RecipeError
from cachekit.recipe import ingredients, load_text
from cachekit.recipe.schema import Data
from tests.training.jobs import job_of, minilm, recipe_of, write
from tests.training.task_jobs import WatchedJob, rows_job
from tests.training.test_training_model import model_of

pytestmark = pytest.mark.versions
TASK = "multiple-choice"
WORDS = ["sea", "wind", "stone", "moss", "cloud", "Ångström", "東京"]
ENDINGS = ("ending0", "ending1", "ending2", "ending3")
SWAG = {"choices_columns": ENDINGS, "context_column": "sent1", "question_column": "sent2"}


def swag(count, seed=1, longest=6):
    chosen = random.Random(seed)

    def text():
        return " ".join(chosen.choices(WORDS, k=chosen.randint(0, longest)))

    return [
        {"sent1": text(), "sent2": text(), **{name: text() for name in ENDINGS}, "label": number % 4}
        for number in range(count)
    ]


def race(count, seed=1, choices=4, labels="ABCD"):
    chosen = random.Random(seed)
    return [
        {
            "question": f"{chosen.choice(WORDS)} ?",
            "choices": chosen.choices(WORDS, k=choices),
            "label": labels[n % choices],
        }
        for n in range(count)
    ]


def read(job, tell=lambda _: None):
    from cachekit.training import tasks

    return tasks.select(TASK).rows(job, tell)


@pytest.mark.parametrize("context", ["It rained .", None])
def test_a_batch_holds_every_choice_with_its_question(tmp_path, context):
    from transformers import AutoTokenizer

    from cachekit.training.tasks import select

    tokenizer = AutoTokenizer.from_pretrained(minilm())
    features = [
        {"context": context, "question": "Who ?", "choices": ["sea", "wind", "a cloud " * 20], "label": 2},
        {"context": context, "question": "", "choices": ["", "x", "y"], "label": 0},
    ]
    job = job_of(tmp_path, recipe_of(TASK, Data(num_choices=3), max_seq_length=12))
    batch = select(TASK).ready(job, tokenizer, model_of(job), {}, {}).collate(features)
    assert {name: tuple(tensor.shape) for name, tensor in batch.items()} == {
        "input_ids": (2, 3, 12),
        "attention_mask": (2, 3, 12),
        "token_type_ids": (2, 3, 12),
        "labels": (2,),
    }
    texts = [[tokenizer.decode(ids[ids != 0]) for ids in row] for row in batch["input_ids"]]
    expected = "[CLS] it rained. [SEP] who? wind [SEP]" if context else "[CLS] who? [SEP] wind [SEP]"
    assert texts[0][1].replace(" .", ".").replace(" ?", "?") == expected
    assert batch["labels"].tolist() == [2, 0]


@pytest.mark.parametrize("form", ["swag", "race"])
def test_figures_are_scikit_learns_over_every_row(tmp_path, monkeypatch, form):
    import numpy as np
    from sklearn.metrics import accuracy_score, log_loss

    make, fields, count = (swag, SWAG, 4) if form == "swag" else (race, {}, 4)
    splits = {"train": make(13), "validation": make(9, 2), "test": make(6, 3)}
    done = WatchedJob(rows_job(tmp_path, TASK, splits, data=fields, eval_strategy="epoch", max_steps=4), monkeypatch)
    inputs = [(name, (4, count, 16)) for name in ("attention_mask", "input_ids", "token_type_ids")]
    assert done.shapes == {tuple(sorted([*inputs, ("labels", (4,))]))}
    assert {name: figures["rows"] for name, figures in done.result.metrics.items()} == {"validation": 9, "test": 6}
    features, logits, _, figures = next(one for one in done.scored if one[3]["rows"] == 6)
    right = [row["label"] if form == "swag" else "ABCD".index(row["label"]) for row in splits["test"]]
    assert [row["label"] for row in features] == right
    logits = np.asarray(logits, dtype=np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert figures["accuracy"] == pytest.approx(accuracy_score(right, logits.argmax(axis=1)))
    assert figures["loss"] == pytest.approx(log_loss(right, shares, labels=range(4)))


@pytest.mark.parametrize(
    "labels, said",
    [(list("ABCD"), 0), ([0, 1, 2, 3], 0), (["0", "1", "2", "3"], 0), ([1, 2, 3, 4], 1), (["1", "2", "3", "4"], 1)],
)
def test_a_label_is_a_letter_or_a_number(tmp_path, labels, said):
    told = []
    job = rows_job(tmp_path, TASK, {"train": race(12, labels=labels), "test": race(1, labels=labels)})
    splits = read(job, told.append)
    assert [row["label"] for row in splits["test"]] == [0]
    assert sorted({row["label"] for row in splits["train"]}) == [0, 1, 2, 3]
    assert len(told) == said


def test_choices_that_have_names(tmp_path):
    """As in ARC, where they are letters in one row and numbers in another."""
    made = [
        {"question": "?", "choices": {"text": ["x", "y", "z"], "label": names}, "answerKey": right}
        for names, right in [(["A", "B", "C"], "B"), (["1", "2", "3"], "3"), (["1", "2", "3"], "1")]
    ]
    job = rows_job(tmp_path, TASK, {"train": made, "test": made}, data={"label_column": "answerKey"})
    assert [(row["choices"], row["label"]) for row in read(job)["test"]] == [(["x", "y", "z"], n) for n in (1, 2, 0)]
    assert shapes.choices_of(job.recipe) == 3
    made[1]["answerKey"] = "B"
    write(tmp_path / "data", train=made)
    with pytest.raises(DataError, match="train row 2: the label 'B' is none of the choices") as refused:
        read(job)
    assert refused.value.cause == "they are 1, 2, 3"


def test_the_number_of_choices_is_in_the_key(tmp_path):
    def in_key(**data):
        recipe = rows_job(tmp_path, TASK, {"train": race(4, choices=3)}, data=data).recipe
        return ingredients._of_task(recipe, shapes.shapes_of(recipe))

    assert in_key() == {"data.num_choices": 3}
    assert in_key(num_choices=5) == {"data.num_choices": 5}
    assert in_key(choices_columns=ENDINGS) == {"data.num_choices": 4}
    recipe = rows_job(tmp_path, TASK, {}).recipe
    hub = structs.replace(recipe, data=structs.replace(recipe.data, path=None, id="nobody/nothing"))
    with pytest.raises(DataError, match="does not say how many choices") as refused:
        shapes.choices_of(hub)
    assert "data.num_choices" in refused.value.hint


def test_local_files_are_looked_at_before_a_worker_starts(tmp_path):
    def look(name, rows, data=None):
        shapes.check_data(rows_job(tmp_path / name, TASK, {"train": rows}, data=data).recipe)

    look("race", race(4))
    look("swag", swag(4), SWAG)
    with pytest.raises(DataError, match="choices is one value"):
        look("one value", [{**race(1)[0], "choices": "a"}])
    with pytest.raises(DataError, match="no column 'ending3'"):
        look("no column", [{name: value for name, value in swag(1)[0].items() if name != "ending3"}], SWAG)
    with pytest.raises(DataError, match="ending1 is a list"):
        look("a list", [{**swag(1)[0], "ending1": ["a"]}], SWAG)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"choices": ["a", "b", "c"]}, "train row 3 has 3 choices instead of 4"),
        ({"choices": ["a"]}, "train row 3: choices is not a list of two"),
        ({"choices": [["a"], "b"]}, "train row 3: choices is not a list of two"),
        ({"choices": {"text": ["a", "b"], "label": ["A"]}}, "train row 3: choices is not a list of two"),
        ({"label": "E"}, "train row 3: the label 'E' is none of the choices"),
        ({"label": "2"}, "train row 3: the label '2' is none of the choices"),
        ({"label": ""}, "train row 3 has no label"),
        ({"label": None}, "train row 3 has no label"),
    ],
)
def test_rows_that_are_refused(tmp_path, change, said):
    made = race(4)
    made[2] |= change
    with pytest.raises(DataError, match=said):
        read(rows_job(tmp_path, TASK, {"train": made}))


@pytest.mark.parametrize(
    "data, said",
    [
        ({"choices_columns": ["a", "b"], "num_choices": 3}, "data.num_choices is 3, but data.choices_columns names 2"),
        ({"choices_columns": ["a", "a"]}, "a column is listed twice in data.choices_columns"),
    ],
)
def test_recipes_that_are_refused(data, said):
    text = json.dumps({"name": "x", "task": TASK, "model": {"id": "bert-base-uncased"}, "data": {"path": "d", **data}})
    with pytest.raises(RecipeError, match=said):
        load_text(text)
