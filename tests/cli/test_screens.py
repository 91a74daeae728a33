"""Screens: what a verb prints fits the terminal that it prints to; what goes to a file stays as it is."""

from __future__ import annotations

import re

import pytest
from msgspec import structs

from cachekit.cli import out
from cachekit.recipe import zoo
from cachekit.text import one_line
from tests.cli.cli_cases import Terminal
from tests.support.cli_session import publish_record, small_record

pytestmark = pytest.mark.versions

pytest_plugins = ["tests.support.cli_session"]


def on_a_terminal(*arguments: str, columns: int) -> list[str]:
    """The lines of a command whose stdout and stderr are a terminal of that width."""
    terminal = Terminal("-m", "cachekit", *arguments, whole=True, COLUMNS=str(columns), TERM="xterm")
    terminal.end()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.text).replace("\r\n", "\n").split("\n")


@pytest.mark.feature("U2")
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["zoo"],
        ["zoo", "ls", "models"],
        ["zoo", "ls", "instances"],
        ["zoo", "ls", "toolchains"],
        ["zoo", "show", "trn1.2xlarge"],
        ["plan", "bert"],
        ["store", "ls"],
        ["run"],
        ["zoo", "new"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_a_screen_fits(work, home, arguments, columns):
    publish_record(home, small_record())
    lines = on_a_terminal(*arguments, columns=columns)
    free = re.compile(r"  file     /|the store at /")  # where this checkout lies
    assert [line for line in lines if len(line) > columns and not free.match(line)] == []
    assert any(lines)


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
    assert any(record.key[:12] in line and "camembert-" in line and "neuronxcc-" in line for line in lines)
    assert record.directory in command(*arguments).out, "what is no terminal gets all of it"


def test_columns_stay_where_a_name_is_shown_escaped():
    lines = out.table([["a\x1b[1m\nb", "second"], ["c", "second"]], ["name", "which"])
    assert len({line.index("second") for line in lines[1:]}) == 1
    assert lines == [one_line(line) for line in lines]


def test_what_goes_to_a_file_stays_as_it_is(command):
    text = zoo.recipes()["bert"].read_text(encoding="utf-8")
    assert command("zoo", "show", "bert").out.endswith(text)
