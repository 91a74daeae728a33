"""Nothing that a file, a folder or a record is called reaches a terminal as a command."""

import json
import os
import shutil
import subprocess
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET, UnsetType, field, structs

from cachekit.cli import out
from cachekit.cli.verb import Shown
from cachekit.compilers.neuron.entries import scan
from cachekit.errors import UsageError
from cachekit.store.gc import GoneFile
from cachekit.store.index_rows import Listed
from cachekit.text import typed
from cachekit.values import Answer, builtins
from tests.compilers.neuron.neuron_trees import COMPILER, check, make, module_name
from tests.support.standins import Watched, make_record, publish

pytestmark = pytest.mark.versions
pytest_plugins = ["tests.support.cli_session"]

EVIL = "a\x1b[31mb\x07\x9b2J\u202ec\udcff\x7f"


@pytest.fixture(autouse=True)
def judge(monkeypatch):
    """The NEFFs made here have a container and nothing in it, which the real judge refuses."""
    monkeypatch.setattr("cachekit.compilers.neuron.fit.check", check)


class Removed(Answer, frozen=True):
    files: tuple[GoneFile, ...] = ()
    named: Mapping[str, list[Any]] = field(default_factory=dict)
    path: Path = Path("x")


class ModelWithoutRecipes(Answer, frozen=True):
    name: str
    recipes: tuple[str, ...] | UnsetType = UNSET


class Nothing(Answer, frozen=True):
    pass


def harmless(words: str) -> bool:
    return all(char in "\n\t" or char.isprintable() for char in words)


@pytest.mark.parametrize("form", out.FORMATS)
def test_no_answer_controls_a_terminal(capsys, monkeypatch, form):
    monkeypatch.setattr(out, "_style", out._Style())
    out.setup(form)
    out.answer(Shown({"name": EVIL}, lambda found: [found["name"], "two\nlines"], lambda found: found["name"]))
    out.note(EVIL)
    out.warning(EVIL)
    out.text(EVIL)
    said = capsys.readouterr()
    assert harmless(said.out)
    assert harmless(said.err)
    if form == "human":
        assert "two\\nlines" in said.out
    if form == "json":
        document, _ = json.JSONDecoder().raw_decode(said.out)
        assert document == {"name": EVIL}


def row(number=0):
    return Listed(
        f"{number:064x}", "modèle", "neuron", "neuronxcc-2.1", "bert", 1, 1, 1, 1.0, 2.0, "2026-01-01T00:00:00", "ann@a"
    )


@pytest.mark.parametrize(
    "answer",
    [
        [],
        [row(), row(1)],
        [row(number) for number in range(250)],
        [structs.replace(row(), recipe="},\n    {"), {}, {"a": [1]}, {"b": 1}],
        Removed(),
        Removed([GoneFile("a", 1), GoneFile("b", 2, "old")], {"a": [1, {}], "b": []}),
        ModelWithoutRecipes("gpt2"),
        Nothing(),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_json_is_that_of_the_whole_answer(capsys, monkeypatch, answer):
    monkeypatch.setattr(out, "_style", out._Style())
    out.setup("json")
    out.answer(Shown(answer, lambda _: []))
    found = capsys.readouterr().out
    assert found == json.dumps(builtins(answer), indent=2, ensure_ascii=False) + "\n"


def test_a_name_can_be_typed_whatever_it_is():
    hostile = ["-x.yaml", "a b'c.yaml", "e\udcff'\\ f.yaml"]
    words = " ".join(map(typed, hostile, ([],) * 3, ({},) * 3))
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {words}"], stdout=subprocess.PIPE, check=True).stdout
    assert said.split(b"\0")[:-1] == [b"./-x.yaml", b"a b'c.yaml", b"e\xff'\\ f.yaml"]


def test_json_of_many_records_is_written_in_parts(monkeypatch):
    """So that `store ls --format json` of a hundred thousand fits into a small machine's memory."""
    monkeypatch.setattr(out, "_style", out._Style())
    out.setup("json")
    rows = [row(number) for number in range(2_000)]
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        monkeypatch.setattr("sys.stdout", nowhere)
        tracemalloc.start()
        try:
            out.answer(Shown(rows, lambda _: []))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 1_500_000  # bytes; as JSON they have 700,000, and more than ten times that as objects


@pytest.mark.feature("S7")
def test_records_of_others_are_listed_harmlessly(command, home):
    made, contents = make_record()
    evil = structs.replace(made, recipe="x\x1b]0;title\x07\nfake")
    record = publish(Watched(home).store, (evil, contents))
    for words in (
        ["store", "ls"],
        ["store", "ls", "--format", "json"],
        ["store", "show", record.key],
        ["store", "show", record.key, "--format", "json"],
    ):
        answer = command(*words)
        assert harmless(answer.out)
        assert "fake" in answer.out


@pytest.mark.feature("S7")
@pytest.mark.parametrize(
    "name",
    ["neuronxcc-2.1\udcff", "neuronxcc-2.1\nEVIL", "neuronxcc-2\x1b[31m", "neuronxcc-2 .. x", "neuronxcc-2" * 20],
)
def test_a_folder_with_a_name_that_no_compiler_has_is_no_module(command, tmp_path, name):
    """One of them ended the whole import."""
    folder = make(tmp_path / "cache")
    shutil.copytree(folder, tmp_path / "cache" / name / module_name(1))
    answer = command("store", "import", str(tmp_path / "cache"))
    assert "1 module added" in answer.out
    assert "not part of Neuron's cache" in answer.out
    assert harmless(answer.out)
    assert harmless(command("store", "import", str(tmp_path / "cache"), "--format", "json").out)
    assert scan(tmp_path / "cache").compilers == (COMPILER,)
    assert harmless(command("doctor", code=0).out)


# Folders


@pytest.mark.feature("U2")
@pytest.mark.parametrize("spelled", ["{}", "file://{}", "file://localhost{}", "file:{}"])
def test_a_folder_may_be_named_as_neurons_variables_name_it(command, tmp_path, spelled):
    make(tmp_path / "cache")
    assert "1 module added" in command("store", "import", spelled.format(tmp_path / "cache")).out
    command("store", "export", spelled.format(tmp_path / "out"), "--all")
    assert [entry.finished for entry in scan(tmp_path / "out").entries] == [True]


@pytest.mark.feature("U2")
@pytest.mark.parametrize("url", ["s3://bucket/prefix", "https://example.org/x", "s3:/bucket"])
@pytest.mark.parametrize("words", [["store", "import"], ["store", "export", "--all"]])
def test_a_place_that_is_no_folder_is_refused(command, tmp_path, url, words):
    make(tmp_path / "cache")
    command("store", "import", str(tmp_path / "cache"))
    before = sorted(command.work.parent.iterdir())
    answer = command(*words, url, code=UsageError.exit_code)
    assert "is not a local folder" in answer.err
    assert "hint:" in answer.err
    assert sorted(command.work.parent.iterdir()) == before


def test_an_export_that_puts_nothing_anywhere_fails(command, tmp_path):
    make(tmp_path / "cache")
    command("store", "import", str(tmp_path / "cache"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / COMPILER).symlink_to(tmp_path / "elsewhere")
    answer = command("store", "export", str(tmp_path / "out"), "--all", code=2)
    assert "none of 1 modules could be put" in answer.err
    assert "is a link" in answer.err


def test_an_import_says_how_far_it_is(command, tmp_path, monkeypatch):
    from cachekit.cli import progress

    monkeypatch.setattr(progress, "EVERY", 0.0)
    for seed in range(3):
        make(tmp_path / "cache", seed=seed)
    said = command("store", "import", str(tmp_path / "cache")).err
    assert f"reading {COMPILER}: module 3 of 3" in said
    assert "storing 3 modules" in said
