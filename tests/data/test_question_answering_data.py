"""Data for question answering: its own form and SQuAD's, and what is refused."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from cachekit.data import rows, shapes
from cachekit.errors import DataError, RecipeError
from cachekit.recipe import load_text
from cachekit.recipe.schema import Data
from tests.training.squad_questions import TASK, questions
from tests.training.task_jobs import WatchedJob, rows_job

NONE = {"text": [], "answer_start": []}


def in_squads_form(row):
    answers = [{"text": text, "answer_start": start} for text, start in zip(*row["answers"].values(), strict=True)]
    question = {"id": "1", "question": row["question"], "is_impossible": not answers, "answers": answers}
    return {"context": row["context"], "qas": [question]}


def test_data_in_squads_own_form(tmp_path):
    flat = questions(5)
    paragraphs = [in_squads_form(row) for row in flat]
    nested = {"version": "v2.0", "data": [{"title": "A", "paragraphs": paragraphs[:2]}, {"paragraphs": paragraphs[2:]}]}
    found = {}
    for name, document in (("own", nested), ("flat", flat)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.json").write_text(json.dumps(document))
        job = rows_job(tmp_path / f"job-{name}", TASK, {})
        data = Data(path=str(tmp_path / name), validation_fraction=0.2)
        recipe = structs.replace(job.recipe, data=data)
        shapes.check_data(recipe)
        splits = read(structs.replace(job, recipe=recipe))
        found[name] = {split: list(splits[split]) for split in splits}
    assert found["own"] == found["flat"]
    nested["data"][1]["paragraphs"][0] = {"context": "no questions"}
    (tmp_path / "own" / "train.json").write_text(json.dumps(nested))
    with pytest.raises(DataError, match="article 2, paragraph 1: no questions"):
        list(rows.read(tmp_path / "own" / "train.json", {"question": "question_column"}))


def read(job, tell=lambda _: None):
    from cachekit.training import tasks

    return tasks.select(TASK).rows(job, tell)


GOOD = {"question": "Who?", "context": "Ada won", "answers": {"text": ["Ada"], "answer_start": [0]}}


@pytest.mark.parametrize(
    "answers",
    [
        {"text": ["Ada"]},
        {"text": ["Ada"], "answer_start": []},
        {"text": ["Ada"], "answer_start": [-1]},
        {"text": ["Ada"], "answer_start": ["0"]},
        {"text": [5], "answer_start": [0]},
        {"text": None, "answer_start": None},
        ["Ada"],
    ],
)
def test_answers_of_another_form_are_refused(tmp_path, answers):
    job = rows_job(tmp_path, TASK, {"train": [GOOD, {**GOOD, "answers": answers}]})
    with pytest.raises(DataError, match="train row 2: answers is not of the form") as refused:
        read(job)
    assert "data.answers_column" in refused.value.hint


def test_no_answer_in_either_spelling(tmp_path):
    none = [NONE, [], {"text": [""], "answer_start": [-1]}]
    job = rows_job(tmp_path, TASK, {"train": [GOOD, *({**GOOD, "answers": one} for one in none)], "test": [GOOD]})
    assert all(row["negatives"] for split in read(job).values() for row in split)
    assert not any(row["negatives"] for row in read(rows_job(tmp_path / "b", TASK, {"train": [GOOD] * 4}))["train"])


@pytest.mark.parametrize("split", ["train", "test"])
def test_data_without_answers_is_refused(tmp_path, split):
    job = rows_job(tmp_path, TASK, {"train": [GOOD] * 4, "test": [GOOD]} | {split: [{**GOOD, "answers": NONE}] * 4})
    with pytest.raises(DataError, match=f"no question of the {split} data has an answer"):
        read(job)


def test_answers_that_stand_elsewhere(tmp_path):
    astray = {**GOOD, "answers": {"text": ["Ada"], "answer_start": [3]}}
    told = []
    read(rows_job(tmp_path / "a", TASK, {"train": [GOOD, GOOD, astray]}), told.append)
    assert told == ["1 of 3 answers are not in the text where answer_start says, first in train row 3"]
    with pytest.raises(DataError, match="2 of 2 answers are not in the text"):
        read(rows_job(tmp_path / "b", TASK, {"train": [astray, astray]}))


def test_windows_that_could_not_go_on_are_refused(tmp_path, monkeypatch):
    text = f"name: toy\ntask: {TASK}\nmodel: {{id: bert-base-uncased}}\ndata: {{path: {tmp_path}}}\n"
    with pytest.raises(
        RecipeError, match=r"line 5: training.doc_stride 64 is not smaller than what .*max_seq_length 64"
    ):
        load_text(text + "training: {max_seq_length: 64, doc_stride: 64}\n")
    assert load_text(text).training.doc_stride is None, "a third"
    splits = {"train": [*questions(9), {**GOOD, "question": "who " * 20}]}
    job = rows_job(tmp_path, TASK, splits, max_seq_length=32, doc_stride=12, mode="trial")
    with pytest.raises(
        RecipeError, match=r"doc_stride 12 is not smaller than .* leaves for the text: 9 tokens"
    ) as refused:
        WatchedJob(job, monkeypatch)
    assert "20 tokens (train row" in refused.value.cause
    assert refused.value.hint == "lower training.doc_stride to 4, or raise training.max_seq_length"
