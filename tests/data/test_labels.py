"""Labels of local data as the training worker reads them: names or numbers, one of them for a whole data set."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cachekit.errors import DataError
from cachekit.recipe.schema import Data
from tests.training.test_training_model import job

pytestmark = pytest.mark.versions

STARS = ["1", "2", "3", "4", "5"]


def load(folder, labels, tell):
    """The rows of a folder, as the worker reads them for text classification."""
    from cachekit.training.tasks import select

    wanted = structs.replace(job(), labels=tuple(labels))
    recipe = structs.replace(wanted.recipe, data=Data(path=str(folder)))
    return select(recipe.task).rows(structs.replace(wanted, recipe=recipe), tell)


@pytest.fixture
def classes(tmp_path):
    """Write splits, load them as the worker does; gives each split's classes, and what was told."""

    def read(labels, **splits):
        for name, values in splits.items():
            rows = [{"text": f"{name} {number}", "label": value} for number, value in enumerate(values)]
            (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        told = []
        found = load(tmp_path, labels, told.append)
        return {name: [split[i]["label"] for i in range(len(split))] for name, split in found.items()}, told

    return read


def test_names_that_are_numbers(classes):
    found, told = classes(STARS, train=["1", "5", "3"], validation=["2", "4"])
    assert found == {"train": [0, 4, 2], "validation": [1, 3]}
    assert told == ["the labels 1, 2, 3, 4, 5 are read as names of data.labels, not as numbers of classes"]


def test_numbers_of_classes_whose_names_are_numbers(classes):
    """Once 0 and 1 were one class, and the last class never occurred."""
    found, told = classes(STARS, train=[0, 1, 2, 3, 4], validation=[4, 0])
    assert found == {"train": [0, 1, 2, 3, 4], "validation": [4, 0]}
    assert told == ["the labels 0, 1, 2, 3, 4 are read as numbers of classes, 0 for '1': '0' is not one of data.labels"]


def test_one_split_decides_for_all(classes):
    """By itself the training data could be names."""
    found, _ = classes(STARS, train=[1, 2, 3, 4], validation=[0, 1])
    assert found == {"train": [1, 2, 3, 4], "validation": [0, 1]}


@pytest.mark.parametrize("labels, values", [(["no", "yes"], [1, 0, 1]), (["0", "1", "2"], [2, 0, 1])])
def test_where_there_is_no_doubt_nothing_is_told(classes, labels, values):
    found, told = classes(labels, train=values, validation=values)
    assert (found["train"], told) == (values, [])


def test_names_and_numbers_in_one_data_set(classes):
    with pytest.raises(DataError) as caught:
        classes(["no", "yes"], train=["no", "yes"], validation=["yes", 1])
    assert caught.value.message == (
        "some labels are names, and some are numbers: 'no' in train row 1, '1' in validation row 2"
    )


@pytest.mark.parametrize("stranger", ["maybe", "7", "-1", "1.5", "9" * 5000])
def test_an_unknown_label(classes, stranger):
    with pytest.raises(DataError, match="validation row 2: unknown label"):
        classes(["no", "yes"], train=["no", "yes"], validation=["no", stranger])


@given(st.lists(st.sampled_from(["0", "1", "2", "3", "x"]), min_size=1), st.permutations(["0", "1", "2", "3", "x"]))
def test_each_class_has_one_label(values, names):
    """Whatever the names are: two labels are never one class, and one label never two."""
    from cachekit.training.tasks.labels import numbering

    labels = names[:4]
    try:
        number_of = numbering(labels, {"train": [(f"row {i}", value) for i, value in enumerate(values)]}, str)
    except DataError:
        return
    assert len({number_of(value, "") for value in values}) == len(set(values))


def test_a_text_may_be_a_number(tmp_path):
    """A zero was an empty text."""
    (tmp_path / "train.jsonl").write_text("".join(json.dumps({"text": n, "label": n}) + "\n" for n in (0, 1, None) * 2))
    with pytest.raises(DataError, match="row 3 has no label"):
        load(tmp_path, ["a", "b"], print)
    (tmp_path / "train.jsonl").write_text("".join(json.dumps({"text": n, "label": n}) + "\n" for n in (0, 1) * 2))
    (tmp_path / "test.jsonl").write_text('{"text": null, "label": 1}\n{"text": 0, "label": 0}\n')
    found = load(tmp_path, ["a", "b"], print)
    assert [row["text"] for row in found["test"]] == ["", "0"]


def test_lists_in_a_parquet_file_are_no_texts(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": [["a", "b"], ["c"]], "label": ["x", "y"]})
    parquet.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(DataError, match="train data: text is a list"):
        load(tmp_path, ["x", "y"], print)
