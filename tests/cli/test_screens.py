"""Screens: what a verb prints fits the terminal that it prints to; what goes to a file stays as it is."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
from pathlib import Path
from select import select

import pytest
from msgspec import structs

from cachekit.cli import out
from cachekit.recipe import zoo
from cachekit.text import cut, first_of, one_line, plain
from tests.support import forked
from tests.support.cli_session import environment, publish_record, small_record

pytestmark = pytest.mark.versions

pytest_plugins = ["tests.support.cli_session"]


def on_a_terminal(*arguments: str, columns: int) -> list[str]:
    """The lines of a command whose stdout and stderr are a terminal of that width."""
    screen, side = pty.openpty()
    variables = environment(COLUMNS=str(columns), TERM="xterm")
    process = forked.begin(["-m", "cachekit", *arguments], Path.cwd(), variables, [os.ttyname(side)] * 3)
    shown = b""
    while screen in select([screen, process.sentinel], [], [])[0]:  # what it wrote before its end comes first
        shown += os.read(screen, 65536)
    process.join()
    os.close(side)
    os.close(screen)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r\n", "\n").split("\n")


@pytest.mark.feature("U2")
def test_a_screen_fits(work, home):
    publish_record(home, small_record())
    free = re.compile(r"  file     /|the store at /")  # where this checkout lies
    for typed, columns in [
        *(("--help", columns) for columns in (80, 120)),
        ("zoo", 80),
        *(("zoo ls models", columns) for columns in (80, 120)),
        ("zoo ls instances", 80),
        ("zoo ls toolchains", 80),
        ("zoo show trn1.2xlarge", 80),
        ("plan bert", 80),
        ("store ls", 80),
        ("run", 80),
        ("zoo new", 80),
        ("nonsense", 80),
    ]:
        lines = on_a_terminal(*typed.split(), columns=columns)
        assert [line for line in lines if len(line) > columns and not free.match(line)] == [], typed
        assert any(lines), typed


@pytest.mark.feature("U2")
@pytest.mark.parametrize(
    "arguments",
    [["store", "ls"], ["store", "gc", "--max-size", "0", "--dry-run"], ["store", "pin", "--list"]],
    ids=" ".join,
)
def test_a_table_of_long_names_fits(work, home, command, arguments):
    """A record of Neuron's SDK, whose folder alone takes 30 of 80 columns."""
    made = small_record("camembert-classification-in-french")
    record = structs.replace(made, compiler="neuron", directory="neuronxcc-2.26.6360.0+6f180f47")
    publish_record(home, record)
    if "pin" in arguments:
        command("store", "pin", record.key)
    lines = on_a_terminal(*arguments, columns=80)
    assert [line for line in lines if len(line) > 80] == []
    assert any(record.key[:12] in line and "camem" in line and "0f47" in line for line in lines), "both ends"
    assert record.directory in command(*arguments).out, "what is no terminal gets all of it"


def test_columns_stay_where_a_name_is_shown_escaped():
    lines = out.table([["a\x1b[1m\nb", "second"], ["c", "second"]], ["name", "which"])
    assert len({line.index("second") for line in lines[1:]}) == 1
    assert lines == [one_line(line) for line in lines]


@pytest.mark.feature("T2")
def test_no_word_of_a_stranger_is_an_order_to_githubs_runner(work, home, command):
    """It looks for `##[command]` anywhere in a line that a step prints [actions/runner: ActionCommand.TryParse]."""
    name = "x ##[set-output name=hit]true"
    publish_record(home, structs.replace(small_record(), recipe=name))
    assert all("##[" not in command("store", "ls", *words).out for words in ([], ["--format", "json"]))
    assert name in str(command("store", "ls", "--format", "json").json)
    # `::command::` is one where a line begins [TryParseV2], as folded words may.
    assert plain("a ::error::b\n   ::error file=a::b") == "a ::error::b\n   :\\x3aerror file=a::b"


@pytest.mark.feature("U2")
def test_what_is_long_says_that_it_was_cut():
    assert [cut("bert-base", most) for most in (9, 8)] == ["bert-base", "bert-ba…"]
    names = [f"n{number}" for number in range(1203)]
    assert [first_of(names[:most]) for most in (0, 3, 4)] == ["", "n0, n1, n2", "n0, n1, n2 and 1 more"]
    assert first_of(iter(names), 2, "; ") == "n0; n1 and 1,201 more"


@pytest.mark.feature("T8")
def test_a_report_replaces_a_link_and_writes_nothing_where_that_leads(work, home, command):
    kept, report = work / "kept", work / "report.json"
    kept.write_text("precious")
    report.symlink_to(kept)
    command("run", "--report", str(report), "--", "true")
    assert kept.read_text() == "precious"
    assert json.loads(report.read_text())["schema"] == "cachekit/run/1"


@pytest.mark.feature("T8")
@pytest.mark.parametrize("names", [1, 2])
def test_a_report_is_written_into_a_file_that_is_mounted_by_itself(work, home, command, monkeypatch, names):
    """No other file takes its name (EBUSY); a test may not mount one. Another name may be a link to somebody's file."""
    report, replace = work / "report.json", os.replace
    report.write_text("before, and longer " * 999)
    if names > 1:
        (work / "other").hardlink_to(report)

    def refuses(one, other, **options):
        if Path(other).name == report.name:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        replace(one, other, **options)

    monkeypatch.setattr(os, "replace", refuses)
    said = command("run", "--report", str(report), "--", "true")
    if names == 1:
        assert json.loads(report.read_text())["schema"] == "cachekit/run/1"
    else:
        assert "mount its folder instead" in said.err.replace("\n", " ")
        assert report.read_text().startswith("before")
    assert list(work.glob(".cachekit-*")) == []


def test_what_goes_to_a_file_stays_as_it_is(command):
    text = zoo.recipes()["bert"].read_text(encoding="utf-8")
    assert command("zoo", "show", "bert").out.endswith(text)
