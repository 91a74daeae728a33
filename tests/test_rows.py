"""Labelled rows from local files: what is read, and what is said of a file that cannot be."""

import csv
import io
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit import rows
from cachekit.errors import DataError

COLUMNS = ["text", "label"]
ROWS = [{"text": "fine", "label": "good"}, {"text": "not so", "label": "bad"}]
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def put(tmp_path):
    """Write a file, give its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write


def named(columns):
    """Each with the field of a recipe that names it."""
    return {column: f"{column}_column" for column in columns}


def read(path, columns=COLUMNS, **options):
    return list(rows.read(path, named(columns), **options))


def refused(path, columns=COLUMNS, **options):
    with pytest.raises(DataError) as caught:
        read(path, columns, **options)
    assert caught.value.exit_code == 2
    return caught.value


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


@pytest.mark.parametrize("inner", [char for char in INNER if char >= " "])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_only_newlines_end_a_line_of_json(put, name, inner):
    table = [{"text": f"a{inner}b", "label": "x"}, {"text": "c", "label": "y"}]
    assert read(put(name, "\n".join(json.dumps(row, ensure_ascii=False) for row in table))) == table


def test_a_long_text_is_read(put):
    text = "word " * 40_000
    assert read(put("a.csv", f"text,label\n{text},x\n")) == [{"text": text, "label": "x"}]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "LATIN1", "utf-8", "UTF-8", "utf_8", "utf8", "U8"])
def test_another_encoding_is_read(put, encoding):
    path = put("a.csv", "text,label\ncafé,good\n".encode(encoding))
    assert read(path, encoding=encoding) == [{"text": "café", "label": "good"}]


@pytest.mark.parametrize("encoding", ["utf-8", "UTF-8", "utf_8", "utf8", "UTF8", "utf-8-sig"])
def test_a_byte_order_mark_is_no_part_of_the_first_column(put, encoding):
    path = put("a.csv", b"\xef\xbb\xbftext,label\na,b\n")
    assert read(path, encoding=encoding) == [{"text": "a", "label": "b"}]


@settings(max_examples=150, deadline=None)
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


# What is refused


@pytest.mark.parametrize(
    "name, content, near",
    [
        ("a.csv", "text,lable\na,b\n", "lable"),
        ("a.csv", "text,Label\na,b\n", "Label"),
        ("a.tsv", "text\tlabels\na\tb\n", "labels"),
        ("a.jsonl", '{"text": "a", "lable": 1}', "lable"),
        ("a.json", '[{"text": "a", "lable": 1}]', "lable"),
    ],
)
def test_a_missing_column_gets_the_nearest(put, name, content, near):
    path = put(name, content)
    error = refused(path)
    assert str(path) in error.message
    assert "no column 'label'" in error.message
    assert f"text, {near}" in error.cause
    assert f"'{near}'" in error.hint
    assert "data.label_column" in error.hint


def test_a_missing_column_like_no_other(put):
    error = refused(put("a.csv", "q,w\na,b\n"))
    assert "no column 'text'" in error.message
    assert error.cause == "columns are q, w"
    assert "perhaps" not in error.hint


@pytest.mark.parametrize(
    "name, content, where",
    [
        ("a.jsonl", '{"text": "a", "label": 1}\n\n{"text": "b"}\n', "line 3"),
        ("a.json", '[{"text": "a", "label": 1}, {"text": "b"}]', "row 2"),
        ("a.json", '{"text": "a", "label": 1}\n{"text": "b"}\n', "line 2"),
    ],
)
def test_a_column_missing_further_down_has_its_place(put, name, content, where):
    assert f"{where}: no column 'label'" in refused(put(name, content)).message


@pytest.mark.parametrize(
    "content, line, words",
    [
        ("text,label\na,b\nc\n", 3, ["1 of 2 columns"]),
        ("text,label\na,b,c\n", 2, ["3 columns", "names 2"]),
        ('text,label\n"a\nb",c\nd\n', 4, ["1 of 2 columns"]),
        ('text,label\na,b\n"c,d\n', 3, ["1 of 2 columns"]),
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
        rows.label_names((row["label"] for row in rows.read(path, named(COLUMNS))), str(path))


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
    assert refused(path).message == f"{path} is no list of rows"


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize("content", ["[" * 100_000, '[{"a":' * 50_000, '[{"text": "a", "label": ' + "1" * 5000 + "}]"])
def test_json_that_python_cannot_hold_is_refused(put, name, content):
    path = put(name, content)
    assert str(path) in refused(path).message


@pytest.mark.parametrize(
    "raw, line, byte",
    [
        (b"text,label\na,b\ncaf\xe9,b\n", 3, "0xe9"),
        (b"\xff\xfet\0e\0", 1, "0xff"),
        (b"text,label\n\xc3", 2, "0xc3"),
        (b"text,label\na,b\n\xff,b\n", 3, "0xff"),
    ],
)
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["", "bom"])
def test_text_that_is_not_utf_8_has_its_line(put, start, raw, line, byte):
    path = put("a.csv", start + raw)
    error = refused(path)
    assert error.message == f"{path}, line {line}: not utf-8"
    assert byte in error.cause
    assert "data.encoding" in error.hint


@pytest.mark.parametrize("encoding", ["klingon", "", "hex", "rot13", "a\0b", "undefined", "é"])
def test_an_encoding_that_is_none_is_refused(put, encoding):
    error = refused(put("a.csv", "text,label\na,b\n"), encoding=encoding)
    assert "encoding" in error.message
    assert "latin-1" in error.hint


def test_text_in_another_encoding_than_said_is_refused(put):
    error = refused(put("a.csv", "text,label\ncafé,b\n"), encoding="ascii")
    assert "line 2: not ascii" in error.message


@pytest.mark.parametrize("name", ["a.xls", "a", "a.csv.gz", "csv"])
def test_a_file_of_an_unknown_kind_is_refused(put, name):
    error = refused(put(name, "text,label\na,b\n"))
    assert "no known kind" in error.message
    assert all(suffix in error.cause for suffix in rows.SUFFIXES)


def test_parquet_is_the_workers(put):
    assert "parquet" in refused(put("a.parquet", b"PAR1")).message


@pytest.mark.parametrize("name", ["no.csv", "a.csv/b.csv", "a\0b.csv", "a" * 5000 + ".csv"])
def test_a_file_that_is_not_there_is_refused(put, tmp_path, name):
    put("a.csv", "")
    assert refused(tmp_path / name).message


def test_a_missing_file_is_named(tmp_path):
    error = refused(tmp_path / "no.csv")
    assert error.message == f"{tmp_path / 'no.csv'} does not exist"
    assert "data.train_file" in error.hint


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "a.csv").mkdir()
    assert "cannot be read" in refused(tmp_path / "a.csv").message


@pytest.mark.parametrize("delimiter", ['"', "\n", "\r", "\0"])
def test_a_delimiter_that_separates_nothing_is_refused(put, delimiter):
    """Each Python's csv takes some of them, and gives up on others."""
    assert refused(put("a.csv", "text,label\na,b\n"), delimiter=delimiter).message


def test_a_header_with_a_null_character_is_refused(put):
    """Python 3.10's csv gives up on it, later ones take it for a letter."""
    assert refused(put("a.csv", "text,la\0bel\na,b\n")).message


def test_a_line_without_end_is_refused(put):
    """The header of a file that is one long line: csv gives up on it."""
    assert refused(put("a.csv", "x" * 300_000)).message


@settings(max_examples=300, deadline=None)
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


# Labels


def test_one_number_in_two_spellings_is_refused():
    """They were two classes: half of the rows got the one, half the other."""
    with pytest.raises(DataError, match=r"'1' and '1.0' are one number"):
        rows.label_names(["0", "1", "0", "1.0"], "a.csv")
    assert rows.label_names(["0.0", "1.0"], "a.csv") == ["0.0", "1.0"]


@pytest.mark.parametrize(
    "values, names",
    [
        (["b", "a", "b"], ["a", "b"]),
        (["neutral", "bad", "good"], ["bad", "good", "neutral"]),
        ([" a ", "a", "b"], ["a", "b"]),
        ([1, 0], ["0", "1"]),
        (["1", "0"], ["0", "1"]),
        ([10, 9, 2], [str(n) for n in range(11)]),
        (["10", "9"], [str(n) for n in range(11)]),
        ([2, 0], ["0", "1", "2"]),
        ([1.0, 0.0], ["0", "1"]),
        ([True, False], ["0", "1"]),
        ([1, 1.0, "1", True, 0], ["0", "1"]),
        ([0.5, 1.0], ["0.5", "1"]),
        (["1", "a"], ["1", "a"]),
        (["True", "False"], ["False", "True"]),
        (["1-2", "3-4"], ["1-2", "3-4"]),
        (["-", "+"], ["+", "-"]),
        (["--1", "--2"], ["--1", "--2"]),
    ],
)
def test_classes_are_in_the_order_of_their_numbers_or_the_alphabet(values, names):
    assert rows.label_names(values, "a.csv") == names


@pytest.mark.parametrize("empty", [None, "", "  ", float("nan")])
def test_a_missing_label_has_its_row(empty):
    with pytest.raises(DataError) as caught:
        rows.label_names(["a", "b", empty, "a"], "a.csv")
    assert caught.value.message == "a.csv, row 3 has no label"
    assert "data.label_column" in caught.value.hint


@pytest.mark.parametrize("values", [["a"], ["a", "a "], [0, 0.0, False], ["5"]])
def test_one_class_is_refused(values):
    with pytest.raises(DataError, match="has one class only") as caught:
        rows.label_names(values, "a.csv")
    assert "two" in caught.value.cause


def test_no_rows_are_refused():
    with pytest.raises(DataError, match=r"a\.csv has no rows"):
        rows.label_names([], "a.csv")


@pytest.mark.parametrize("values", [[0, 1000], ["1999", "2004"], [-1, 1], ["-1", "0", "1"], [10**6, 10**6 + 1]])
def test_numbers_that_are_no_class_numbers_are_refused(values):
    with pytest.raises(DataError, match="not class numbers") as caught:
        rows.label_names(values, "a.csv")
    assert str(max(map(int, values))) in caught.value.cause
    assert "names" in caught.value.hint


LABELS = st.one_of(
    st.integers(-3, 30),
    st.integers(-3, 30).map(float),
    st.booleans(),
    st.floats(),
    st.text(max_size=3),
    st.text("0123456789-+. ", max_size=4),
    st.sampled_from(["01", "-0", "\uff11", "²", "--1", "1" * 5000]),
)


@settings(max_examples=600, deadline=None)
@given(st.lists(LABELS, max_size=8))
def test_each_label_is_one_of_the_classes(values):
    """The worker finds a class by its name, or else by its number."""
    try:
        names = rows.label_names(values, "a.csv")
    except DataError:
        return
    assert len(names) == len(set(names)) >= 2
    for text in (rows.label_text(value, "") for value in values):
        assert text in names or (text.isdecimal() and int(text) < len(names))
    assert rows.label_names(reversed(values), "a.csv") == names


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
    "names, split",
    [
        (["train.csv", "train.json"], "train"),
        (["train.csv", "training.csv"], "train"),
        (["train.csv", "val.csv", "dev.csv"], "validation"),
        (["train.csv", "test.csv", "test.tsv"], "test"),
    ],
)
def test_two_files_for_a_split_are_refused(put, tmp_path, names, split):
    for name in names:
        put(name, "")
    with pytest.raises(DataError) as caught:
        rows.split_files(tmp_path)
    assert caught.value.message == f"{tmp_path} has more than one {split} file"
    assert names[-1] in caught.value.cause
    assert "data.train_file" in caught.value.hint


@pytest.mark.parametrize("names", [[], ["test.csv"], ["train.xls"], ["mytrain.csv"]])
def test_a_folder_without_a_training_file_is_refused(put, tmp_path, names):
    for name in names:
        put(name, "")
    with pytest.raises(DataError) as caught:
        rows.split_files(tmp_path)
    assert caught.value.message == f"{tmp_path} has no training file"
    assert "train." in caught.value.cause


def test_what_is_no_folder_is_refused(put):
    for path in (put("train.csv", ""), Path("no/such/folder"), Path("a\0b")):
        with pytest.raises(DataError, match="is not a folder") as caught:
            rows.split_files(path)
        assert "data.train_file" in caught.value.hint


# Real data


@pytest.fixture
def emotion():
    """The 20,000 tweets of dair-ai/emotion, as published: semicolons under the name .txt."""
    folder = Path(os.environ.get("CACHEKIT_REAL_DIR", ROOT.parent / "shared" / "real")) / "data" / "emotion"
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}; CACHEKIT_REAL_DIR says where it is")
    return folder


def test_the_emotion_data_set(emotion):
    files = rows.split_files(emotion)
    assert {split: path.name for split, path in files.items()} == {
        "train": "train.txt",
        "validation": "val.txt",
        "test": "test.txt",
    }
    tables = {split: read(path, ["text", "label_name"]) for split, path in files.items()}
    assert {split: len(table) for split, table in tables.items()} == {
        "train": 16_000,
        "validation": 2_000,
        "test": 2_000,
    }
    names = ["anger", "fear", "joy", "love", "sadness", "surprise"]
    for split, table in tables.items():
        assert rows.label_names((row["label_name"] for row in table), split) == names
        assert all(row["text"].strip() and set(row) == {"text", "label_name"} for row in table)
    count = Counter(row["label_name"] for row in tables["train"])
    assert count == {"joy": 5362, "sadness": 4666, "anger": 2159, "fear": 1937, "love": 1304, "surprise": 572}


def test_the_emotion_data_set_with_the_usual_column_names(emotion):
    error = refused(emotion / "train.txt", COLUMNS)
    assert "no column 'label'" in error.message
    assert "'label_name'" in error.hint


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_ordinary_file_is_not_waited_for(tmp_path, kind):
    path = tmp_path / "train.csv"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match="cannot be read") as caught:
        rows.read(path, named(["text"]))
    assert caught.value.cause == "it is no ordinary file"
