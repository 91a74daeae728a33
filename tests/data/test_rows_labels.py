"""Labels of rows: which classes there are, and what is none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.data import labels, rows, table, text_file
from cachekit.errors import DataError


def test_one_number_in_two_spellings_is_refused():
    """They were two classes: half of the rows got the one, half the other."""
    with pytest.raises(DataError, match=r"'1' and '1.0' are the same number"):
        labels.label_names(["0", "1", "0", "1.0"], "a.csv")
    assert labels.label_names(["0.0", "1.0"], "a.csv") == ["0.0", "1.0"]


def test_classes_are_in_the_order_of_their_numbers_or_the_alphabet():
    for values, names in [
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
    ]:
        assert labels.label_names(values, "a.csv") == names


@pytest.mark.parametrize("empty", [None, "", "  ", float("nan")])
def test_a_missing_label_has_its_row(empty):
    with pytest.raises(DataError) as caught:
        labels.label_names(["a", "b", empty, "a"], "a.csv")
    assert caught.value.message == "a.csv, row 3 has no label"
    assert "data.label_column" in caught.value.hint


@pytest.mark.parametrize("values", [["a"], ["a", "a "], [0, 0.0, False], ["5"]])
def test_one_class_is_refused(values):
    with pytest.raises(DataError, match="has only one class") as caught:
        labels.label_names(values, "a.csv")
    assert "two" in caught.value.cause


def test_no_rows_are_refused():
    with pytest.raises(DataError, match=r"a\.csv has no rows"):
        labels.label_names([], "a.csv")


@pytest.mark.parametrize("values", [[0, 1000], ["1999", "2004"], [-1, 1], ["-1", "0", "1"], [10**6, 10**6 + 1]])
def test_numbers_that_are_no_class_numbers_are_refused(values):
    with pytest.raises(DataError, match="not class numbers") as caught:
        labels.label_names(values, "a.csv")
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


@settings(max_examples=600)
@given(st.lists(LABELS, max_size=8))
def test_each_label_is_one_of_the_classes(values):
    """The worker finds a class by its name, or else by its number."""
    try:
        names = labels.label_names(values, "a.csv")
    except DataError:
        return
    assert len(names) == len(set(names)) >= 2
    for text in (labels.label_text(value, "") for value in values):
        assert text in names or (text.isdecimal() and int(text) < len(names))
    assert labels.label_names(reversed(values), "a.csv") == names


def test_a_column_of_json_lines_is_that_of_its_rows(tmp_path, monkeypatch):
    """Though it is read in pieces, without the other columns; and so are the errors, with their lines."""
    for block in [1, 1 << 20]:
        for text in [
            '{"x": 1, "label": "a"}\n{"label": "b"}\n',
            '\ufeff{"label": "a"}\r\n\n  \n{"label": "b", "x": NaN}',
            '{"label": "a", "x": "\\ud800"}\n{"x": [{"label": 1}], "label": 2.0}\n',
            '{"label": "a", "label": "b"}\n{"label": null}\n',
            '{"label": "a"} {"label": "b"}\n',
            '{"label": "a",\n"x": 1}\n',
            '{"label": "a"}\n\n{"lable": "b"}\n',
            '{"label": "a"}\n{"label": ["b"]}\n',
            '{"label": "a"}\n[1]\n',
            '{"label": "a"}\nlabel\n',
            "",
        ]:
            monkeypatch.setattr(text_file, "_BLOCK", block)
            path, form = tmp_path / "a.jsonl", {"nested": (), "free": (), "delimiter": None, "encoding": "utf-8"}
            path.write_text(text, "utf-8")

            def told(read):
                try:
                    return list(read())
                except DataError as error:
                    return error.said

            by_row = told(lambda: (row["label"] for row in rows.read(path, {"label": "label_column"}, **form)))
            assert told(lambda: rows.column(path, "label", "label_column", **form)) == by_row, text


TABLES = [
    "a,x\n,y\n",
    "a,x\r\nb,y\r\n",
    '"a, b",x\n"c\nd",y\ne,x',
    '"say ""a""",x\n"""b""",y\n"""",z\n"",x\n',
    '"a",""\n"b","x"\n',
    '"a, b","x, y"\n"","z"\n',
    '",""\n"a"a","b"\n',
    '"a","x"\n"b"b","\n',
    '"',
    'five" wide,x\nsix" wide,y\n',
    'five" wide,x\nsix,y\n',
    '"a"b,x\nc,y\n',
    'a,"x\ny"\nb,"x\ny"\n',
    "a,x\rb,y\n",
    '"a\rb",x\nc\n',
    "a,x\n\nb,y\n\n",
    "a,x\nb\nc,y,z\n",
    "a,x,y\nb\n",
    '"a,x\nb,y\n',
    'a,x\nb,"y\n',
    '"a\nb",x\nc,"y\nz\n',
    "a,x\nb,y\0\n",
    "",
]


def test_a_column_of_a_table_is_that_of_its_rows(tmp_path, monkeypatch):
    """Though most of it is found without csv; and so are the errors, with their lines."""
    for block in [1, 7, 1 << 18]:
        for header in ["text,label", "label,text", "\ufefftext,label"]:
            for text in TABLES:
                monkeypatch.setattr(text_file, "_BLOCK", block)
                path = tmp_path / "a.csv"
                path.write_bytes(f"{header}\n{text}".encode())

                def told(read):
                    try:
                        return list(read())
                    except DataError as error:
                        return error.said, error.hint

                by_row = told(lambda: (row["label"] for row in rows.read(path, {"label": "label_column"})))
                form = {"nested": (), "delimiter": None, "encoding": "utf-8"}
                assert told(lambda: rows.column(path, "label", "label_column", **form)) == by_row, text


@pytest.mark.parametrize("text", ['"a, ""b""\nc",x\n', "a,x\r\n", "a,x\n", '"a","x"\r\n'])
def test_a_table_as_most_are_written_is_split_without_csv(tmp_path, monkeypatch, text):
    """That takes 0.7 s of 100 MB in place of 1.2 s (two cores, measured)."""
    path = tmp_path / "a.csv"
    path.write_bytes(f"text,label\n{text * 3}".encode())
    monkeypatch.setattr(table.Table, "_rows", lambda *_: iter(()))
    assert [*rows.column(path, "label", "label_column", nested=(), delimiter=None, encoding="utf-8")] == ["x"] * 3
