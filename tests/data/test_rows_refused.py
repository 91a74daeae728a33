"""Files that hold no labelled rows: what is said of each, and where in the file."""

import gzip
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.data import labels, rows, shapes
from cachekit.errors import DataError
from cachekit.recipe import load_text
from tests.data.rows_files import COLUMNS, named, put, read, refused  # noqa: F401 - fixtures

# What is refused


@pytest.mark.parametrize(
    "name, content, where, near",
    [
        ("a.csv", "text,lable\na,b\n", "", "lable"),
        ("a.tsv", "text\tLabels\na\tb\n", "", "Labels"),
        ("a.csv", "text,q\na,b\n", "", ""),
        ("a.jsonl", '{"text": "a", "label": 1}\n\n{"text": "b", "lable": 2}\n', ", line 3", "lable"),
        ("a.json", '[{"text": "a", "label": 1}, {"text": "b", "lable": 2}]', ", row 2", "lable"),
        ("a.json", '{"text": "a", "label": 1}\n{"text": "b"}\n', ", line 2", ""),
    ],
)
def test_a_missing_column_has_its_place_and_the_nearest(put, name, content, where, near):
    path = put(name, content)
    error = refused(path)
    assert error.message == f"{path}{where}: no column 'label'"
    assert error.cause.startswith("columns are text")
    assert error.hint == "name the column with data.label_column" + (f", {near!r} perhaps" if near else "")


def test_a_table_without_a_header_is_told_that_it_needs_one(put):
    error = refused(put("a.csv", "I never said that it was you,loud\nthe sea is still,calm\n"))
    assert error.hint == "the first line must name the columns, and looks like a row: put one with 'text' above it"


@pytest.mark.parametrize(
    "content, line, words",
    [
        ("text,label\na,b\nc\n", 3, ["1 instead of 2 columns"]),
        ("text,label\na,b,c\n", 2, ["3 instead of 2 columns"]),
        ('text,label\n"a\nb",c\nd\n', 4, ["1 instead of 2 columns"]),
        ("text,label\na,b\n\n\nc\n", 5, ["1 instead of 2 columns"]),
        ('text,label\n"a,b\nc,"d\ne,f\n', 2, ["1 instead of 2 columns"]),
        ('text,label\na,b\n"c,d\n', 3, ["a quoted field without an end"]),
        ('text,label\na,b\nc,"d\ne,f\n', 3, ["a quoted field without an end"]),
    ],
)
def test_a_line_with_too_few_or_too_many_columns_has_its_number(put, content, line, words):
    path = put("a.csv", content)
    error = refused(path)
    assert error.message.startswith(f"{path}, line {line}: ")
    assert all(word in error.message for word in words)
    assert "data.delimiter" in error.hint


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.txt"])
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(put, name, content):
    path = put(name, content)
    error = refused(path)
    assert error.message == f"{path} is empty"
    assert "columns" in error.hint


@pytest.mark.parametrize(
    "name, content", [("a.csv", "text,label\n"), ("a.jsonl", ""), ("a.jsonl", "\n"), ("a.json", "[]")]
)
def test_a_file_without_rows_has_no_labels(put, name, content):
    path = put(name, content)
    assert read(path) == []
    with pytest.raises(DataError, match="has no rows"):
        labels.label_names((row["label"] for row in rows.read(path, named(COLUMNS))), str(path))


@pytest.mark.parametrize(
    "name, content, where",
    [
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": \n', "line 2: not JSON"),
        ("a.jsonl", "text,label\n", "line 1: not JSON"),
        ("a.jsonl", "[1]\n", "line 1: not an object"),
        ("a.json", "", "line 1: not JSON"),
        ("a.json", '[{"text": "a", "label": 1},\n\n{"text"]', "line 3: not JSON"),
        ("a.json", '{"text": "a", "label": 1}\n{"text": ', "line 2: not JSON"),
        ("a.json", '["a"]', "row 1: not an object"),
        ("a.json", "[[1]]", "row 1: not an object"),
    ],
)
def test_what_is_no_json_has_its_place(put, name, content, where):
    path = put(name, content)
    assert refused(path).message == f"{path}, {where}"


@pytest.mark.parametrize("content", ['{"text": "a", "label": 1}', "5", '"a"', "null", '{"data": 5}', '{"data": {}}'])
def test_json_that_is_no_list_of_rows_is_refused(put, content):
    path = put("a.json", content)
    assert refused(path).message == f"{path} is not a list of rows"


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize("content", ["[" * 100_000, '[{"a":' * 50_000, '[{"text": "a", "label": ' + "1" * 5000 + "}]"])
def test_json_that_python_cannot_hold_is_refused(put, name, content):
    path = put(name, content)
    assert str(path) in refused(path).message


@pytest.mark.parametrize(
    "raw, line, byte",
    [
        (b"text,label\na,b\ncaf\xe9,b\n", 3, "0xe9"),
        (b"\xfft\0e\0", 1, "0xff"),
        (b"text,label\n\xc3", 2, "0xc3"),
    ],
)
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["", "bom"])
def test_text_that_is_not_utf_8_has_its_line(put, start, raw, line, byte):
    path = put("a.csv", start + raw)
    error = refused(path)
    assert error.message == f"{path}, line {line}: not utf-8"
    assert byte in error.cause
    assert "data.encoding" in error.hint


@pytest.mark.parametrize(
    "raw, cause, hint",
    [
        ("text,label\na,b\n".encode("utf-16"), "it begins as UTF-16 does", "data.encoding=utf-16"),
        (gzip.compress(b"text,label\na,b\n", mtime=0), "it is compressed, by gzip", "gunzip"),
        (b"PK\x03\x04\x14\0\xff\xff", "it is a zip archive, as .xlsx files are", "csv"),
    ],
)
def test_what_is_no_text_of_bytes_is_told(put, raw, cause, hint):
    error = refused(put("a.csv", raw))
    assert error.cause == cause
    assert hint in error.hint


@pytest.mark.parametrize("encoding", ["klingon", "", "hex", "rot13", "a\0b", "undefined", "é"])
def test_an_encoding_that_is_none_is_refused(put, encoding):
    error = refused(put("a.csv", "text,label\na,b\n"), encoding=encoding)
    assert "encoding" in error.message
    assert "latin-1" in error.hint


@pytest.mark.parametrize("name", ["a.xls", "a", "a.csv.gz", "csv"])
def test_a_file_of_an_unknown_kind_is_refused(put, name):
    error = refused(put(name, "text,label\na,b\n"))
    assert "unknown file type" in error.message
    assert all(suffix in error.cause for suffix in rows.SUFFIXES)


def test_parquet_is_the_workers(put):
    assert "parquet" in refused(put("a.parquet", b"PAR1")).message


@pytest.mark.parametrize("name", ["no.csv", "a.csv/b.csv", "a\0b.csv", "a" * 5000 + ".csv", "folder.csv"])
def test_a_file_that_is_not_there_is_named(put, tmp_path, name):
    put("a.csv", "")
    (tmp_path / "folder.csv").mkdir()
    error = refused(tmp_path / name)
    assert error.message.startswith(str(tmp_path / name)[:199])
    assert "does not exist" in error.message or "cannot be read" in error.message
    assert error.hint


@pytest.mark.parametrize("delimiter", ['"', "\n", "\r", "\0"])
def test_a_delimiter_that_separates_nothing_is_refused(put, delimiter):
    """Each Python's csv takes some of them, and gives up on others."""
    assert refused(put("a.csv", "text,label\na,b\n"), delimiter=delimiter).message


@pytest.mark.parametrize("header", ["text,la\0bel\na,b\n", "x" * 300_000])
def test_a_header_that_csv_gives_up_on_is_refused(put, header):
    """Python 3.10's on a null character, which later ones take for a letter; all on a line without end."""
    assert refused(put("a.csv", header)).message


@settings(max_examples=150)
@given(
    st.binary(max_size=60)
    | st.text(max_size=60).map(str.encode)
    | st.lists(st.sampled_from([*'text,label"\n\r\t;|{}[]:1', "text", "label", "\0"])).map(
        lambda parts: "".join(parts).encode()
    ),
    st.sampled_from([*rows.SUFFIXES, ".xyz"]),
    st.sampled_from(["utf-8", "latin-1", "utf-16", "ascii", "utf-7", "cp1252", "no"]),
    st.sampled_from([None, ",", ";", '"', "a"]),
)
def test_any_file_is_read_or_refused(tmp_path_factory, raw, suffix, encoding, delimiter):
    path = tmp_path_factory.getbasetemp() / f"fuzz{suffix}"
    path.write_bytes(raw)
    try:
        table = read(path, encoding=encoding, delimiter=delimiter)
    except DataError:
        return
    assert all(set(COLUMNS) <= set(row) for row in table)


@pytest.mark.parametrize("header", ["text,label,label", "label,text, label", "text,text,label"])
def test_a_column_that_stands_twice_is_refused(put, header):
    """The last one was taken, without a word."""
    error = refused(put("a.csv", f"{header}\nx,y,z\n"))
    assert "2 columns are called" in error.message
    assert read(put("b.csv", "id,text,label,id\n1,a,b,2\n"))[0]["text"] == "a", "nobody asks for that one"


@pytest.mark.parametrize("row", ['{"text": ["a", "b"], "label": "x"}', '{"text": "a", "label": [1, 0]}'])
@pytest.mark.parametrize("name, form", [("a.jsonl", "{}"), ("a.json", "[{}]")])
def test_a_list_is_neither_a_text_nor_a_class(put, row, name, form):
    """It was taken as Python writes it: the class "[1, 0]"."""
    error = refused(put(name, form.format(row)))
    assert "is a list" in error.message


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path, kind):
    path = tmp_path / "train.csv"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match="cannot be read") as caught:
        rows.read(path, named(["text"]))
    assert caught.value.cause == "it is not a regular file"


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_byte_that_is_no_text_is_found_wherever_it_is_before_a_worker_starts(put, suffix):
    """Rows are read as they are taken, and of a large file a plan takes the first ones."""
    first, row = ("text,label\n", "the sea,1\n") if suffix == "csv" else ("", '{"text": "the sea", "label": 1}\n')
    path = put(f"train.{suffix}", (first + row * 50_000).encode() + b"caf\xe9,1\n")
    recipe = load_text(
        "name: mine\ntask: text-classification\nmodel: {id: bert-base-uncased}\n"
        f"data: {{train_file: {path}, labels: [a, b]}}"
    )
    with pytest.raises(DataError, match=f"line {50_002 if suffix == 'csv' else 50_001}: not utf-8"):
        shapes.check_data(recipe)
