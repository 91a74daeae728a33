"""Rows that a training could only ignore in silence: texts beyond a row's length are told, empty ones refused."""

from __future__ import annotations

import pytest

from cachekit.errors import DataError
from tests.training.jobs import ready
from tests.training.task_jobs import rows_job

LONG = "the sea is very calm and the wind is very loud over the old town today " * 3
ROWS = {
    "text-classification": [{"text": "the sea", "label": "no"}, {"text": LONG, "label": "yes"}] * 4,
    "token-classification": [
        {"tokens": ["sea"], "ner_tags": ["O"]},
        {"tokens": LONG.split(), "ner_tags": ["B-X", *["O"] * (len(LONG.split()) - 1)]},
    ]
    * 4,
    "multiple-choice": [
        {"question": "which ?", "choices": ["sea", "wind"], "label": 0},
        {"question": LONG, "choices": ["sea", "wind"], "label": 1},
    ]
    * 4,
}
LABELS = {"text-classification": ("no", "yes"), "token-classification": ("B-X", "O")}


def job(folder, task, rows):
    return rows_job(folder, task, {"train": rows, "validation": rows[:2]}, labels=LABELS.get(task, ()))


def notes_of(folder, task, rows):
    work, _ = ready(job(folder, task, rows))
    return [note for note in work.notes if "are cut" in note]


@pytest.mark.parametrize("task", ROWS)
def test_texts_that_are_cut_are_told(tmp_path, task):
    each = 2 if task == "multiple-choice" else 1
    notes = notes_of(tmp_path / "long", task, ROWS[task])
    start = (
        f"{4 * each} of the first {8 * each} train texts are longer than training.max_seq_length 16 and are cut; the "
    )
    assert len(notes) == 2, "train and validation"
    assert notes[0].startswith(start + "longest has ")
    short = [row for row in ROWS[task] if LONG not in str(row) and len(row.get("tokens", ())) < 9] * 3
    other = {**short[0], **({"label": "yes"} if task == "text-classification" else {})}
    assert notes_of(tmp_path / "short", task, [*short, other]) == []


@pytest.mark.parametrize(
    ("task", "rows", "field"),
    [
        ("text-classification", [{"text": " ", "label": "no"}, {"text": None, "label": "yes"}] * 4, "text_column"),
        ("multiple-choice", [{"question": "", "choices": ["sea", "wind"], "label": 0}] * 8, "question_column"),
    ],
)
def test_texts_that_are_all_empty_name_the_field(tmp_path, task, rows, field):
    from cachekit.training import tasks

    with pytest.raises(DataError, match="of the train data is empty") as refused:
        tasks.select(task).rows(job(tmp_path, task, rows), print)
    assert f"data.{field}" in refused.value.hint
