"""Labelled rows from local files and folders: what is read, and real data."""

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.data import labels, rows, shapes
from cachekit.errors import DataError
from cachekit.recipe import zoo
from cachekit.recipe.variant import Variant
from tests.data.rows_files import COLUMNS, put, read, refused  # noqa: F401 - fixtures
from tests.support.places import real_dir

ROWS = [{"text": "fine", "label": "good"}, {"text": "not so", "label": "bad"}]


# What is read


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.csv", "text,label\nfine,good\nnot so,bad\n"),
        ("a.CSV", "text,label\nfine,good\nnot so,bad\n"),
        ("a.csv", "text,label\r\nfine,good\r\nnot so,bad\r\n"),
        ("a.csv", "text,label\nfine,good\nnot so,bad"),
        ("a.csv", "text,label\nfine,good\n\nnot so,bad\n\n"),
        ("a.csv", '"text","label"\n"fine","good"\n"not so","bad"\n'),
        ("a.csv", " text , label \nfine,good\nnot so,bad\n"),
        ("a.csv", "\ufefftext,label\nfine,good\nnot so,bad\n"),
        ("a.csv", "text;label\nfine;good\nnot so;bad\n"),
        ("a.csv", "text\tlabel\nfine\tgood\nnot so\tbad\n"),
        ("a.csv", "text|label\nfine|good\nnot so|bad\n"),
        ("a.txt", "text;label\nfine;good\nnot so;bad\n"),
        ("a.tsv", "text\tlabel\nfine\tgood\nnot so\tbad\n"),
        ("a.tsv", "text,label\nfine,good\nnot so,bad\n"),
        ("a.jsonl", '{"text": "fine", "label": "good"}\n\n{"text": "not so", "label": "bad"}\n'),
        ("a.jsonl", '\ufeff{"text": "fine", "label": "good"}\r\n{"text": "not so", "label": "bad"}'),
        ("a.json", json.dumps(ROWS)),
        ("a.json", json.dumps(ROWS, indent=2)),
        ("a.json", json.dumps({"data": ROWS})),
        ("a.json", "\n".join(json.dumps(row) for row in ROWS)),
        ("a.json", "\r\n".join(json.dumps(row) for row in ROWS) + "\r\n"),
    ],
)
def test_each_format_is_read(put, name, content):
    assert read(put(name, content)) == ROWS


def test_other_columns_come_along(put):
    assert read(put("a.csv", "id,text,label\n1,fine,good\n")) == [{"id": "1", "text": "fine", "label": "good"}]
    assert read(put("a.jsonl", '{"id": 1, "text": "a", "label": 0}')) == [{"id": 1, "text": "a", "label": 0}]


@pytest.mark.parametrize(
    "header, row, columns",
    [
        ("text;label_name", "a, b, c;x", ["text", "label_name"]),
        ("text,with comma;label", "a;x", ["label"]),
        ("label\ttext, or tweet", "x\ta", ["label"]),
    ],
)
def test_the_delimiter_is_the_one_that_gives_the_wanted_columns(put, header, row, columns):
    (found,) = read(put("a.csv", f"{header}\n{row}\n"), columns)
    assert set(columns) <= set(found)


def test_a_delimiter_that_is_given_wins(put):
    path = put("a.csv", "text,label;text\na,b;c\n")
    assert read(path, ["text"], delimiter=";") == [{"text,label": "a,b", "text": "c"}]
    assert read(put("b.csv", "text~label\na~b\n"), delimiter="~") == [{"text": "a", "label": "b"}]


@pytest.mark.parametrize(
    "line, text",
    [
        ('"a, b",x', "a, b"),
        ('"a\nb",x', "a\nb"),
        ('"a\r\nb",x', "a\r\nb"),
        ('"she said ""hi""",x', 'she said "hi"'),
        ('say "hi",x', 'say "hi"'),
        ("it's,x", "it's"),
        (" a ,x", " a "),
        (",x", ""),
        ('"",x', ""),
        ("naïve 😀,x", "naïve 😀"),
    ],
)
def test_quotes_and_delimiters_in_texts(put, line, text):
    assert read(put("a.csv", f"text,label\n{line}\n")) == [{"text": text, "label": "x"}]


# Characters that str.splitlines() ends a line at, and that stand in the middle of real tweets.
INNER = ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("inner", INNER)
def test_only_newlines_end_a_line_of_delimited_text(put, inner):
    assert read(put("a.csv", f"text\tlabel\na{inner}b\tx\nc\ty\n")) == [
        {"text": f"a{inner}b", "label": "x"},
        {"text": "c", "label": "y"},
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
@pytest.mark.parametrize("text", ["NaN", r'"half a pair: \ud83d"', "1e999", "123456789012345678901234567890", "-0.0"])
def test_what_python_writes_as_json_is_read_as_python_reads_it(put, name, text):
    row = f'{{"text": {text}, "label": 1}}'
    (found,) = read(put(name, row if name == "a.jsonl" else f"[{row}]"))
    assert repr(found) == repr(json.loads(row))


@pytest.mark.parametrize("inner", [char for char in INNER if char >= " "])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_only_newlines_end_a_line_of_json(put, name, inner):
    table = [{"text": f"a{inner}b", "label": "x"}, {"text": "c", "label": "y"}]
    assert read(put(name, "\n".join(json.dumps(row, ensure_ascii=False) for row in table))) == table


def test_a_long_text_is_read(put):
    text = "word " * 40_000
    assert read(put("a.csv", f"text,label\n{text},x\n")) == [{"text": text, "label": "x"}]


@pytest.mark.parametrize(
    "encoding, bom",
    [
        *(("latin-1", b""), ("LATIN1", b""), ("cp1252", b""), ("utf-16", b""), ("utf-8", b""), ("utf-8-sig", b"")),
        *(("utf-8", b"\xef\xbb\xbf"), ("UTF8", b"\xef\xbb\xbf"), ("U8", b"\xef\xbb\xbf")),
    ],
)
def test_another_encoding_is_read_and_a_byte_order_mark_is_no_part_of_a_column(put, encoding, bom):
    path = put("a.csv", bom + "text,label\ncafé,good\n".encode(encoding))
    assert read(path, encoding=encoding) == [{"text": "café", "label": "good"}]


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.text("ab", min_size=1)
        ),
        min_size=1,
    ),
    st.sampled_from([",", "\t", ";", "|"]),
)
def test_what_python_writes_is_read_back(tmp_path_factory, table, delimiter):
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL)
    writer.writerows([COLUMNS, *table])
    folder = tmp_path_factory.getbasetemp()
    (folder / "fuzz.csv").write_bytes(out.getvalue().encode("utf-8"))
    found = [dict(zip(COLUMNS, row, strict=True)) for row in table]
    assert read(folder / "fuzz.csv") == found
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in found)
    (folder / "fuzz.jsonl").write_bytes(lines.encode("utf-8"))
    assert read(folder / "fuzz.jsonl") == found


# Folders


@pytest.mark.parametrize(
    "names, found",
    [
        (["train.csv"], {"train": "train.csv"}),
        (["train.csv", "val.csv", "test.csv"], {"train": "train.csv", "validation": "val.csv", "test": "test.csv"}),
        (["train.txt", "validation.txt"], {"train": "train.txt", "validation": "validation.txt"}),
        (["training.jsonl", "dev.jsonl"], {"train": "training.jsonl", "validation": "dev.jsonl"}),
        (["train.parquet", "valid.json", "x.csv"], {"train": "train.parquet", "validation": "valid.json"}),
        (["Train.CSV", "eval.tsv"], {"train": "Train.CSV", "validation": "eval.tsv"}),
        (["train.csv", "train.md", "README.md", "mytest.csv"], {"train": "train.csv"}),
    ],
)
def test_the_files_of_a_folder(put, tmp_path, names, found):
    for name in names:
        put(name, "")
    assert rows.split_files(tmp_path) == {split: tmp_path / name for split, name in found.items()}


@pytest.mark.parametrize(
    "names, said",
    [
        (["train.csv", "training.csv"], "has more than one train file"),
        (["train.csv", "val.csv", "dev.csv"], "has more than one validation file"),
        (["train.csv", "test.csv", "test.tsv"], "has more than one test file"),
        ([], "has no training file"),
        (["test.csv"], "has no training file"),
        (["train.xls", "mytrain.csv"], "has no training file"),
    ],
)
def test_a_folder_without_one_training_file_is_refused(put, tmp_path, names, said):
    for name in names:
        put(name, "")
    with pytest.raises(DataError) as caught:
        rows.split_files(tmp_path)
    assert caught.value.message == f"{tmp_path} {said}"
    assert names[-1] in caught.value.cause if "more" in said else "train." in caught.value.cause
    assert "data.train_file" in caught.value.hint


def test_images_without_a_training_file_may_lie_in_folders(tmp_path):
    with pytest.raises(DataError) as caught:
        rows.split_files(tmp_path, of_images=True)
    assert f"{tmp_path / 'train'}/CLASS" in caught.value.hint


def test_what_is_no_folder_is_refused(put):
    for path in (put("train.csv", ""), Path("no/such/folder"), Path("a\0b")):
        with pytest.raises(DataError, match="is not a folder") as caught:
            rows.split_files(path)
        assert "data.train_file" in caught.value.hint


def test_data_that_a_recipe_of_the_zoo_does_not_bring_are_said_to_be_elsewhere():
    """A path beside the installed recipes tells nobody where to put rows."""
    beside = zoo.recipe_path("bert-notebook").parent / ".." / "no-such-rows"
    recipe = Variant("bert-notebook", [f"data.path={beside}"]).load()
    with pytest.raises(DataError, match="the data of bert-notebook do not come with cachekit") as caught:
        shapes.check_data(recipe)
    assert "`cachekit zoo show bert-notebook`" in caught.value.hint
    assert "--set data.path=" in caught.value.hint


# Real data


@pytest.fixture
def emotion():
    """The 20,000 tweets of dair-ai/emotion, as published: semicolons under the name .txt."""
    return real_dir("data") / "emotion"


def test_the_emotion_data_set(emotion):
    files = rows.split_files(emotion)
    assert {split: path.name for split, path in files.items()} == {
        "train": "train.txt", "validation": "val.txt", "test": "test.txt",
    }  # fmt: skip
    tables = {split: read(path, ["text", "label_name"]) for split, path in files.items()}
    assert [len(table) for table in tables.values()] == [16_000, 2_000, 2_000]
    names = ["anger", "fear", "joy", "love", "sadness", "surprise"]
    for split, table in tables.items():
        assert labels.label_names((row["label_name"] for row in table), split) == names
        assert all(row["text"].strip() and set(row) == {"text", "label_name"} for row in table)
    count = Counter(row["label_name"] for row in tables["train"])
    assert count == {"joy": 5362, "sadness": 4666, "anger": 2159, "fear": 1937, "love": 1304, "surprise": 572}


def test_the_emotion_data_set_with_the_usual_column_names(emotion):
    error = refused(emotion / "train.txt", COLUMNS)
    assert "no column 'label'" in error.message
    assert "'label_name'" in error.hint
