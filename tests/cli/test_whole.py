"""The command line as a whole: every verb, those to come too, keeps the same habits."""

from __future__ import annotations

import re

import pytest

from cachekit.cli.app import VERBS
from tests.support import command_words
from tests.support.cli_session import golden, normal_help, process

pytestmark = pytest.mark.versions

pytest_plugins = ["tests.support.cli_session"]

WALKED = dict(command_words.walk())
GROUPS = {path for path, parser in WALKED.items() if hasattr(parser, "commands")}
# Verbs that give no data of ours: groups, which only lead to their verbs.
SCHEMAS = {path for path in WALKED if path[-1] == "schema"}
NO_DATA = {("fleet",), ("hub",), ("store",), ("trust",), *SCHEMAS}
DATA = [path for path in WALKED if path not in NO_DATA]
# Options whose value is a narrower, or a wider, one of the same meaning in some verbs.
NARROWER = {
    "--price": "TYPE= may be left out where one machine is meant",
}


def test_the_walk_finds_verbs_and_their_verbs():
    assert {path[0] for path in WALKED} == set(VERBS)
    assert {("zoo", "ls"), ("hub", "use"), ("store", "gc"), ("plan",)} <= set(WALKED)


@pytest.mark.feature("U2")
def test_every_data_verb_has_the_three_formats():
    for path in DATA:
        options = command_words.options_of(WALKED[path])
        assert {"--format", "-f", "--quiet", "-q", "--verbose", "-v"} <= options.keys(), path
        assert options["--format"].metavar == "human|json|quiet"
        assert options["--format"].default == "human"
        assert "--schema" in options or path == ("zoo",), "a group has none"


@pytest.mark.feature("U2")
def test_help_is_as_it_was_fits_a_terminal_and_has_an_example_that_could_be_typed(command):
    for path in [(), *WALKED]:
        answer = command(*path, "--help")
        assert answer.err == "", path
        lines = answer.out.splitlines()
        assert [line for line in lines if len(line) > 80] == []
        assert [line for line in lines if re.search(r"\w-$", line.rstrip())] == [], "a word was broken at its hyphen"
        whole = re.sub(r"[A-Z|\]]\.\.\.|-- \.\.\.|\[ARGS\]\.\.\.", "", answer.out)
        assert "..." not in whole, "a sentence was cut short"
        golden(f"help-{'-'.join(path) or 'cachekit'}", normal_help(answer.out))
        examples = re.findall(r"^  Example: +(.*(?:\n +\S.*)*)", answer.out, re.MULTILINE)
        assert examples or path in {(), *SCHEMAS}, path
        for example in examples:
            assert "\n" not in example, "an example is one line, to be copied"
            assert command_words.problem(example) == "", example
            assert example.split()[1 : 1 + len(path)] == [*path] or path in GROUPS, "it is about this verb"


@pytest.mark.feature("U2")
def test_one_option_means_one_thing():
    """The same name has the same short form, the same kind of value and the same number of values everywhere."""
    seen: dict[str, dict[tuple, list[str]]] = {}
    for path, parser in WALKED.items():
        for option in parser.params:
            for name in option.opts:
                if name.startswith("--"):
                    short = tuple(sorted(other for other in option.opts if not other.startswith("--")))
                    kind = type(option.type).__name__.removesuffix("ParamType").removesuffix("Range")
                    habit = (short, "" if name in NARROWER else option.metavar or "", kind, option.is_flag)
                    seen.setdefault(name, {}).setdefault(habit, []).append(" ".join(path))
    assert {name: habits for name, habits in seen.items() if len(habits) > 1} == {}


@pytest.mark.feature("U2")
def test_one_short_option_means_one_thing():
    seen: dict[str, set[str]] = {}
    for parser in WALKED.values():
        for option in parser.params:
            for short in option.opts:
                if re.fullmatch("-[^-]", short):
                    seen.setdefault(short, set()).add(next((name for name in option.opts if name.startswith("--")), ""))
    # Where the result goes: a folder of train, a file of zoo new.
    assert {short: names for short, names in seen.items() if len(names) > 1} == {"-o": {"--output-dir", "--output"}}


@pytest.mark.feature("U2")
def test_options_are_words_with_dashes_and_are_explained():
    for path, parser in WALKED.items():
        for option in parser.params:
            names = [name for name in option.opts if name.startswith("-")]
            assert all(re.fullmatch(r"--[a-z][a-z0-9]*(-[a-z0-9]+)*|-[a-z]", name) for name in names), (path, names)
            assert (getattr(option, "help", "") or "").endswith((".", "]")), (path, option.name)


@pytest.mark.feature("U2")
def test_a_mistake_in_json_is_one_document(command):
    """Of every verb: a program gets JSON, whatever went wrong."""
    for path in DATA:
        answer = command(*path, "--format", "json", "--no-such-option", code=2)
        assert answer.json["error"]["code"] == "usage"
        assert answer.json["error"]["exit_code"] == 2
        assert "--no-such-option" in answer.err


@pytest.mark.feature("U2")
def test_a_format_that_is_none_is_refused_before_anything_else(command):
    for path in DATA:
        required = [
            f"abcd{number}"
            for number, one in enumerate(WALKED[path].params)
            if one.required and one.param_type_name == "argument"
        ]
        needed = [
            word
            for one in WALKED[path].params
            if one.required and one.opts[0].startswith("-")
            for word in (one.opts[0], "4")
        ]
        answer = command(*path, *needed, *required, "--format", "nonsense", code=2)
        assert answer.out == ""
        assert "hint: one of human, json, quiet" in answer.err


# The program's own end, after each of the verbs was loaded: a module takes its name in the package.
EACH_VERB = """
import sys
from cachekit.cli import main
from cachekit.cli.app import VERBS, Commands

commands = Commands()
assert all(commands[name] for name in VERBS)
sys.argv = ["cachekit", "--version"]
main()
"""


@pytest.mark.feature("U2")
def test_no_verb_takes_the_place_of_what_the_program_needs(home):
    assert process(program=("-c", EACH_VERB)).err == ""
    assert process("store", "gc").err == ""
