"""What `plan` shows of local rows, and what it finds odd about them."""

import json

import pytest
from msgspec import structs

from cachekit.cli.plan import _data
from cachekit.data import preview as previewing
from cachekit.data.preview import preview
from cachekit.errors import DataError
from cachekit.recipe.schema import Data, Model, Recipe, Training


def recipe(path, *, task="text-classification", length=16, **data):
    return Recipe(
        name="r",
        model=Model(id="bert-base-uncased"),
        data=Data(path=str(path), **data),
        training=Training(max_seq_length=length),
        task=task,
    )


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def write(path, pairs, header="text,label"):
    path.write_text("\n".join([header, *(f'"{text}",{label}' for text, label in pairs), ""]))


@pytest.mark.feature("P6")
def test_rows_columns_labels_and_examples(folder):
    write(folder / "train.csv", [("the sea is still", "calm"), ("stop", "loud"), ("go " * 20, "loud")])
    write(folder / "dev.csv", [("a new text", "calm")])
    found = preview(recipe(folder))
    assert [(one.name, one.rows, one.exact) for one in found.splits] == [("train", 3, True), ("validation", 1, True)]
    assert (found.columns, found.unread) == (("text", "label"), ())
    assert list(found.labels.items()) == [("loud", 2), ("calm", 1)]
    assert found.examples[0] == {"text": "the sea is still", "label": "calm"}
    assert found.examples[2]["text"].endswith("…")
    assert (found.cut, found.doubts, found.ignored) == (1, (), {})


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_json_has_further_columns_that_are_not_read(folder, suffix):
    rows = [{"id": number, "text": f"text {number}", "label": number % 2} for number in range(4)]
    lines = "\n".join(map(json.dumps, rows)) if suffix == "jsonl" else json.dumps(rows)
    (folder / f"train.{suffix}").write_text(lines)
    found = preview(recipe(folder))
    assert (found.splits[0].rows, found.unread, found.labels) == (4, ("id",), {"0": 2, "1": 2})
    many = structs.replace(found, unread=tuple(f"c{number}" for number in range(40)))
    assert "c9 and 30 more" in " ".join(" ".join(_data(many)).split())


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
def test_of_a_large_file_the_first_rows_tell(folder, monkeypatch, suffix):
    """The number of rows is an estimate, but for a file that is read as a whole."""
    monkeypatch.setattr(previewing, "LOOKED_AT", 100)
    pairs = [(f"text, number\n{number:05}", str(number % 2)) for number in range(2_000)]
    if suffix == "csv":
        write(folder / "train.csv", pairs)
    else:
        rows = [json.dumps({"text": text, "label": label}) for text, label in pairs]
        (folder / f"train.{suffix}").write_text("\n".join(rows) if suffix == "jsonl" else f"[{','.join(rows)}]")
    (split,) = preview(recipe(folder)).splits
    assert (split.exact, split.looked_at) == (suffix == "json", 100)
    assert split.rows == pytest.approx(2_000, rel=0.01)


@pytest.mark.feature("P6")
@pytest.mark.parametrize(
    ("pairs", "header", "says"),
    [
        (
            [(f"t{n}", "no" if n else "yes") for n in range(200)],
            "text,label",
            "199 of 200 training rows are in class",
        ),
        ([(f"t{n}", "no" if n else "yes") for n in range(20)], "text,label", ""),
        (
            [
                (
                    "a",
                    "calm",
                ),
                ("b", "loud"),
            ],
            "text,label",
            "",
        ),
    ],
)
def test_what_is_odd_about_labels(folder, pairs, header, says):
    (folder / "train.tsv").write_text("\n".join(["\t".join(header.split(",")), *("\t".join(one) for one in pairs), ""]))
    doubts = preview(recipe(folder)).doubts
    assert says in " ".join(doubts)
    assert bool(doubts) is bool(says)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["good", "Good", "bad", " bad"], ["'Good', 'good' are different classes"]),
        (["good  one", "good one", "bad", "bad"], ["'good  one', 'good one' are different classes"]),
        ([str(number) for number in range(60)], ["60 training rows have 60 classes: most have one row"]),
    ],
)
def test_labels_that_are_hardly_classes(folder, labels, says):
    write(folder / "train.csv", [(f"text {number}", labels[number % len(labels)]) for number in range(60)])
    doubts = preview(recipe(folder)).doubts
    assert len(doubts) == len(says)
    assert all(word in doubt for word, doubt in zip(says, doubts, strict=True))


def test_a_label_that_the_recipe_does_not_name(folder):
    """A number stands for the class of that number, where there is one."""
    for wrong, right in (("lout", "calm"), ("2", "1")):
        write(folder / "train.csv", [("a", right), ("b", wrong)])
        (doubt,) = preview(recipe(folder, labels=("calm", "loud"))).doubts
        assert doubt == f"the training rows have 1 label that data.labels does not name: {wrong!r}"


def test_a_label_that_no_training_row_has(folder, monkeypatch):
    """A training refuses such a row."""
    write(folder / "train.csv", [("a", "calm"), ("b", "loud")])
    write(folder / "test.csv", [("c", "calm"), ("d", "lout")])
    assert preview(recipe(folder)).doubts == ("the test rows have 1 label that no training row has: 'lout'",)
    assert preview(recipe(folder, num_labels=3)).doubts == ()
    monkeypatch.setattr(previewing, "LOOKED_AT", 1)
    write(folder / "train.csv", [("a", "calm"), ("d", "lout")])
    write(folder / "test.csv", [("c", "lout")])
    assert preview(recipe(folder)).doubts == (), "a row that was not looked at may have it"


def test_numbers_that_are_all_the_same(folder):
    write(folder / "train.csv", [("a", "3.5"), ("b", "3.50")])
    assert preview(recipe(folder, task="text-regression")).doubts == ("all 2 training rows have one label, 3.5",)


@pytest.mark.parametrize("label", ["one", "", '"1,5"'])
def test_a_row_without_the_number_that_is_learnt_is_an_error(folder, label):
    write(folder / "train.csv", [("a", "1"), ("b", "1.0"), ("c", "-3e2")])
    assert preview(recipe(folder, task="text-regression")).doubts == ()
    write(folder / "dev.csv", [("a", "1"), ("b", label)])
    with pytest.raises(DataError, match=r"dev\.csv, row 2"):
        preview(recipe(folder, task="text-regression"))


def test_a_first_line_that_is_a_row(folder):
    """The columns are named by the recipe, so that only the others look strange."""
    (folder / "train.tsv").write_text("text\tlabel\tI never said that it was you\nb\tcalm\tno\nc\tloud\tyes\n")
    (doubt,) = preview(recipe(folder)).doubts
    assert "'I never said that it was you' looks like a row" in doubt or "looks like a row" in doubt


@pytest.mark.feature("P6")
def test_rows_that_are_in_two_splits(folder):
    write(folder / "train.csv", [("a", "calm"), ("b", "loud"), ("c", "calm")])
    write(folder / "test.csv", [("b", "loud"), ("d", "calm"), ("c", "loud")])
    (doubt,) = preview(recipe(folder)).doubts
    assert doubt == "1 of 3 test rows are among the training rows, too"


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("train.csv", "text,label\na,calm\nb\nc,loud\n", "line 3: 1 instead of 2 columns"),
        ("train.jsonl", '{"text": "a", "label": "calm"}\n{"text": "b", "label"\n', "line 2: not JSON"),
        ("train.jsonl", '{"text": "a", "label": "calm"}\n{"text": ["b"], "label": "calm"}\n', "line 2: text is a list"),
    ],
)
def test_a_row_that_no_training_can_read_is_an_error(folder, file, text, says):
    (folder / file).write_text(text)
    with pytest.raises(DataError, match=says):
        preview(recipe(folder, labels=("calm", "loud")))


def test_a_file_that_is_not_here_is_told(folder):
    there = recipe(folder, labels=("calm", "loud"))
    absent = structs.replace(there, data=structs.replace(there.data, path=None, train_file=str(folder / "absent.csv")))
    assert preview(absent).unread_splits == (f"train: {folder / 'absent.csv'} is not on this machine",)


def test_what_is_beside_the_splits_is_named_with_the_reason(folder):
    write(folder / "train.csv", [("a", "calm"), ("b", "loud")])
    for name in ("notes.md", "extra.csv", ".hidden"):
        (folder / name).write_text("x")
    (folder / "old").mkdir()
    assert preview(recipe(folder)).ignored == {
        "extra.csv": "not named as a split: train, validation, test",
        "notes.md": "of a kind that is not read",
        "old": "a folder, and the rows are in files",
    }


def test_images_in_folders(folder):
    for name, number in (("cat", 3), ("dog", 1)):
        (folder / "train" / name).mkdir(parents=True)
        for one in range(number):
            (folder / "train" / name / f"{one}.png").write_bytes(b"")
    found = preview(recipe(folder, task="image-classification"))
    assert found.splits[0].rows == 4
    assert found.labels == {"cat": 3, "dog": 1}


def test_parquet_is_looked_at_where_it_can_be_read(folder, monkeypatch):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(previewing, "LOOKED_AT", 3)
    table = pyarrow.table({"id": [1, 2, 3, 4], "text": ["a b", "c", "d", "e"], "label": [0, 1, 1, 0]})
    parquet.write_table(table, folder / "train.parquet")
    parquet.write_table(table.slice(1, 2), folder / "test.parquet")
    found = preview(recipe(folder, num_labels=2))
    assert [(one.name, one.rows, one.exact, one.looked_at) for one in found.splits] == [
        ("train", 4, True, 3),
        ("test", 2, True, 2),
    ]
    assert (found.columns, found.unread, found.labels) == (("text", "label"), ("id",), {"1": 2, "0": 1})
    assert found.examples[0] == {"text": "a b", "label": "0"}
    assert found.doubts == ("2 of 2 test rows are among the training rows, too",)
    assert "first 3 rows of each file" in " ".join(" ".join(_data(found)).split())
    with pytest.raises(DataError, match="no column 'body'"):
        preview(recipe(folder, num_labels=2, text_column="body"))
    (folder / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="is not a Parquet file") as caught:
        preview(recipe(folder, num_labels=2))
    assert ".csv" in caught.value.hint
    parquet.write_table(table.slice(4), folder / "train.parquet")
    with pytest.raises(DataError, match=r"train\.parquet has no rows"):
        preview(recipe(folder, num_labels=2))


def test_texts_that_are_missing_are_odd(folder):
    rows = [{"text": text, "label": number % 2} for number, text in enumerate(["a", None, " ", "b"])]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = preview(recipe(folder))
    assert found.examples[1]["text"] == "(none)"
    assert found.doubts == ("2 of 4 training rows have no text in 'text'",)
    write(folder / "train.csv", [("a", 0), ("", 1)])
    (folder / "train.jsonl").unlink()
    assert preview(recipe(folder)).doubts == ("1 of 2 training rows have no text in 'text'",)


def test_images_in_parquet_are_not_read(folder):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = pyarrow.table({"image": [{"bytes": b"x" * 9}] * 2, "label": [0, 1]})
    for split in ("train", "test"):
        parquet.write_table(rows, folder / f"{split}.parquet")
    found = preview(recipe(folder, task="image-classification", num_labels=2))
    assert (found.columns, found.examples[1], found.doubts) == (("image", "label"), {"label": "1"}, ())


def test_parquet_without_pyarrow_is_told_and_data_of_the_hub_is_not_here(folder, monkeypatch):
    monkeypatch.setattr("cachekit.host.optional_version", lambda name: "" if name == "pyarrow" else "1")
    (folder / "train.parquet").write_bytes(b"PAR1")
    found = preview(recipe(folder, num_labels=2))
    assert (found.splits, found.labels, found.examples) == ((), {}, ())
    assert "only `datasets` (pyarrow) reads" in found.unread_splits[0]
    assert _data(found)[0] == "  rows: none could be read"
    assert preview(Recipe(name="r", model=Model(id="x"), data=Data(id="nobody/nothing", num_labels=2))) is None
    assert preview(recipe(folder / "absent", num_labels=2)) is None
