"""Rows in a folder that `datasets` wrote with `save_to_disk`, as the recipe `bert-notebook` has them."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from cachekit.data import saved_rows, shapes
from cachekit.errors import DataError
from tests.support.cli_session import the_error
from tests.training.task_jobs import WatchedJob, rows_job

pytest_plugins = ["tests.support.cli_session"]

pytestmark = pytest.mark.versions

MOODS = ["sadness", "joy", "love"]
WORDS = ["O", "B-PER", "I-PER"]
COLUMNS = {"text": "text_column", "label": "label_column"}


@pytest.fixture
def texts():
    datasets = pytest.importorskip("datasets")
    kinds = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=MOODS)})

    def make(count):
        rows = {"text": [f"row {number} is here" for number in range(count)], "label": [n % 3 for n in range(count)]}
        return datasets.Dataset.from_dict(rows, features=kinds)

    return make


def saved(folder, **splits):
    import datasets

    datasets.DatasetDict(splits).save_to_disk(str(folder))
    return folder


def of(folder, task="text-classification", **data):
    """A job whose recipe names that folder, and no labels."""
    job = rows_job(folder.parent / "job", task, {}, save_strategy="no")
    recipe = structs.replace(job.recipe, data=structs.replace(job.recipe.data, path=str(folder), **data))
    return structs.replace(job, recipe=recipe, labels=tuple(shapes.labels_of(recipe)))


def test_a_training_reads_every_split_with_the_classes_that_were_saved(tmp_path, texts, monkeypatch):
    job = of(saved(tmp_path / "emotion", train=texts(8), validation=texts(5), test=texts(6)))
    assert job.labels == tuple(MOODS)
    shapes.check_data(job.recipe)
    run = WatchedJob(job, monkeypatch)
    assert run.result.failure is None
    assert run.result.rows == {"train": 8, "validation": 5, "test": 6}
    assert {name: figures["rows"] for name, figures in run.result.metrics.items()} == {"validation": 5, "test": 6}
    features = run.scored[0][0]
    assert [(row["text"], row["label"]) for row in features] == [(f"row {n} is here", n % 3) for n in range(5)]


def test_one_split_alone_is_the_training_rows(tmp_path, texts):
    from cachekit.training import tasks

    folder = tmp_path / "rows"
    texts(10).with_format("torch").save_to_disk(str(folder))  # as people keep what they feed to a loader
    splits = tasks.select("text-classification").rows(of(folder), print)
    assert {name: len(split) for name, split in splits.items()} == {"train": 9, "validation": 1}
    assert isinstance(splits["train"][0]["label"], int)


def test_a_folder_a_split_needs_no_file_that_joins_them(tmp_path, texts):
    """As who saves each split by itself has them."""
    for name, count in (("train", 7), ("eval", 3)):
        texts(count).save_to_disk(str(tmp_path / "rows" / name))
    assert saved_rows.of(str(tmp_path / "rows")) == {
        "train": tmp_path / "rows" / "train",
        "validation": tmp_path / "rows" / "eval",
    }


def test_the_classes_of_words_are_known(tmp_path):
    datasets = pytest.importorskip("datasets")
    kinds = {"tokens": [datasets.Value("string")], "ner_tags": [datasets.ClassLabel(names=WORDS)]}
    table = datasets.Dataset.from_dict(
        {"tokens": [["a", "b"]] * 3, "ner_tags": [[0, 1]] * 3}, features=datasets.Features(kinds)
    )
    assert of(saved(tmp_path / "words", train=table), "token-classification").labels == tuple(WORDS)
    # As datasets of before 4 wrote it.
    path = tmp_path / "words" / "train" / "dataset_info.json"
    kind = {"names": WORDS, "num_classes": 3, "id": None, "_type": "ClassLabel"}
    for form in ({"feature": kind, "length": -1, "_type": "Sequence"}, [kind]):
        path.write_text(json.dumps({"features": {"ner_tags": form}}))
        assert saved_rows.classes(path.parent, "ner_tags") == WORDS


@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
def test_classes_in_another_order_than_the_data_sets_own_are_refused(tmp_path, texts, task):
    """Every figure would be right, and every name in the model wrong."""
    import datasets

    from cachekit.training import tasks

    if task == "text-classification":
        table, names = texts(8), MOODS
    else:
        kinds = {"tokens": [datasets.Value("string")], "ner_tags": [datasets.ClassLabel(names=WORDS)]}
        rows = {"tokens": [["a", "b"]] * 4, "ner_tags": [[0, 1]] * 4}
        table, names = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds)), WORDS
    folder = saved(tmp_path / "rows", train=table)
    tasks.select(task).rows(of(folder, task, labels=tuple(names)), print)
    tasks.select(task).rows(of(folder, task, labels=("x", "y", "z")), print)  # names of one's own
    with pytest.raises(DataError, match=r"data\.labels has the data set's classes in another order") as refused:
        tasks.select(task).rows(of(folder, task, labels=(names[0], names[2], names[1])), print)
    assert refused.value.cause == f"number 1 is {names[2]!r} in the recipe, and {names[1]!r} in the data set"
    assert refused.value.hint == f"set data.labels: [{', '.join(names)}]"


def test_classes_that_were_not_saved_must_be_said(tmp_path, texts):
    datasets = pytest.importorskip("datasets")
    folder = saved(tmp_path / "rows", train=texts(4).cast_column("label", datasets.Value("int64")))
    with pytest.raises(DataError, match="does not say its labels"):
        of(folder)
    assert of(folder, num_labels=3).labels == ("0", "1", "2")


@pytest.mark.feature("U2")
def test_what_a_saved_data_set_lacks_is_told_by_the_recipes_field(tmp_path, texts, command, machine, worker):
    columns = saved(tmp_path / "a", train=texts(4).rename_column("text", "content"))
    splits = saved(tmp_path / "b", validation=texts(4), unsupervised=texts(4))
    prepared = texts(4).map(lambda row: {"input_ids": [1], "attention_mask": [1]}, remove_columns="text")
    tokens = saved(tmp_path / "c", train=prepared)
    said = ["tiny.yaml", "--set", "data.labels=null", "--set"]
    for folder, field, words in [
        (columns, "data.text_column, 'content' perhaps", "no column 'text'"),
        (splits, "data.path", "without training rows"),
        (tokens, "before it is tokenized", "no column 'text': these rows are tokenized already"),
    ]:
        for verb in (["plan"], ["warm", "--dry-run"], ["train"]):
            code, message, _, hint = the_error(command(*verb, *said, f"data.path={folder}", code=2))
            assert code == "bad-data"
            assert words in message
            assert field in hint


@pytest.mark.parametrize("text", ["", "[]", '{"features": null}', '{"features": 3}', "{", "\xff"])
def test_a_description_that_is_damaged_is_an_error_or_says_nothing(tmp_path, text):
    (tmp_path / "state.json").write_text("{}")
    (tmp_path / "dataset_info.json").write_bytes(text.encode("latin-1"))
    assert saved_rows.of(str(tmp_path)) == {"train": tmp_path}
    try:
        assert saved_rows.classes(tmp_path, "label") == []
        saved_rows.check(tmp_path, COLUMNS)
    except DataError as error:
        assert "dataset_info.json" in error.message  # noqa: PT017 - both answers are right


def test_rows_that_are_damaged_are_told(tmp_path, texts):
    from cachekit.training import tasks

    folder = saved(tmp_path / "rows", train=texts(4))
    (folder / "train" / "data-00000-of-00001.arrow").write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be loaded as a saved data set"):
        tasks.select("text-classification").rows(of(folder), print)


# What a recipe says of its rows, and they make useless


@pytest.mark.feature("U2")
@pytest.mark.parametrize("verb", [["plan"], ["warm", "--dry-run"], ["train", "--dry-run"], ["warm"], ["train"]])
def test_a_fraction_for_validation_beside_validation_rows_is_refused(command, work, machine, worker, verb):
    said = [*verb, "tiny.yaml", "--set", "data.validation_fraction=0.1"]
    command("plan", *said[-3:])
    (work / "data" / "dev.csv").write_text("text,label\nall is well,calm\n")
    code, message, cause, hint = the_error(command(*said, code=2))
    assert (code, message) == ("bad-data", "data.validation_fraction is 0.1, and has no effect here")
    assert "dev.csv" in cause
    assert hint == "remove data.validation_fraction"


@pytest.mark.parametrize("field", ["data.validation_fraction=0.5", "data.delimiter=;"])
def test_what_a_saved_data_set_does_not_need_is_refused(tmp_path, texts, command, machine, field):
    folder = saved(tmp_path / "rows", train=texts(4), validation=texts(4))
    said = ["plan", "tiny.yaml", "--set", f"data.path={folder}"]
    command(*said)
    assert field.partition("=")[0] in the_error(command(*said, "--set", field, code=2))[1]


@pytest.mark.parametrize("field", ["data.delimiter=;", "data.encoding=latin-1"])
def test_how_text_is_written_means_nothing_of_parquet(tmp_path, work, command, machine, field):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (work / "parquet").mkdir()
    pq.write_table(pa.table({"text": ["a", "b"], "label": ["calm", "loud"]}), work / "parquet" / "train.parquet")
    said = ["plan", "tiny.yaml", "--set", "data.path=parquet"]
    command(*said)
    assert field.partition("=")[0] in the_error(command(*said, "--set", field, code=2))[1]
