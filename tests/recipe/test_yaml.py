"""YAML as recipes are read: its surprises, and anything at all."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.errors import CachekitError, RecipeError
from cachekit.recipe import Recipe, yaml_text
from tests.recipe.recipe_texts import FIELDS, MINIMAL, SECTIONS, read, refused, with_section

pytestmark = pytest.mark.versions


def attempt(call, *arguments):
    """What a call returns, or the error of ours that it raises."""
    try:
        return call(*arguments)
    except CachekitError as error:
        return error


def config_value(text):
    """What YAML text means, read through a field that takes anything."""
    return read(f"name: x\nmodel:\n  id: b\n  config:\n    v: {text}\n").model.config["v"]


# YAML's surprises


# Numbers, truth values and dates to YAML 1.1.
WORDS_THERE = ["1:30", "no", "No", "NO", "yes", "on", "off", "y", "n", "2024-01-01", "1.2.3", "1e", "e5", "é"]
NUMBERS = {"5e-5": 5e-5, "5E-5": 5e-5, "+5e5": 5e5, "1e3": 1000.0, "-1.5": -1.5, "1.": 1.0, ".5": 0.5, "1.5e3": 1500.0}
NUMBERS |= {"12": 12, "-12": -12, "+12": 12, "0": 0, "0x1F": 31, "010": 10}
OTHERS = {"true": True, "True": True, "FALSE": False, "null": None, "~": None, "": None, "'null'": "null"}
OTHERS |= {"'5e-5'": "5e-5", "2024-01-01 10:00:00": "2024-01-01 10:00:00", "!!str 5": "5"}
OTHERS |= {"[1, 2.0, a, null]": [1, 2.0, "a", None]}


def test_plain_values_are_those_of_yaml_1_2():
    for text, value in [*NUMBERS.items(), *OTHERS.items(), *((word, word) for word in WORDS_THERE)]:
        found = config_value(text)
        assert found == value
        assert type(found) is type(value)


def test_what_is_not_finite_is_refused_where_it_stands():
    for value in [".inf", "-.inf", "+.INF", ".nan", ".NaN", "1e999", "-1e999"]:
        error = refused(with_section("training", "seed: 1", f"learning_rate: {value}")[0])
        assert error.message == "r.yaml, line 6: training.learning_rate is not a finite number"
        assert error.hint == "correct that line"


def test_a_name_that_stands_twice_is_refused():
    for text, line, name in [
        (MINIMAL + "name: y\n", 4, "name"),
        (MINIMAL + "name: x\n", 4, "name"),
        (MINIMAL + "training:\n  seed: 1\n  lr: 1\n  seed: 1\n", 7, "training.seed"),
        (MINIMAL + "training: {seed: 1,\n  seed: 2}\n", 5, "training.seed"),
        ("name: x\nmodel:\n  id: b\n  config:\n    a: 1\n    'a': 1\n", 6, "model.config.a"),
        (MINIMAL + "expect:\n  - instance: a\n    instance: b\n", 6, "expect.0.instance"),
        (MINIMAL + "environment: {1: a, '1': b}\n", 4, "environment.1"),
    ]:
        error = refused(text)
        assert error.message == f"r.yaml, line {line}: {name} appears twice"
        assert "first on line" in error.cause


def test_a_tag_and_a_value_that_cannot_be_made_are_refused_where_they_stand():
    for value in [
        *("!!python/name:os.system ''", "!!python/object/apply:os.system [echo]", "!!python/object:os.system {a: b}"),
        *("!!python/tuple [a]", "!own a", "!own [a]", "!own {a: b}", "!!set {a, b}", "!!omap [a: b]"),
        *("!!binary aGk=", "!!timestamp 2024-01-01", "!!int abc", "!!float abc", "9" * 5000, "=", "<<"),
    ]:
        error = refused(f"name: x\nmodel:\n  id: b\n  config:\n    v: {value}\n")
        assert error.message.startswith("r.yaml, line 5: ")


def test_what_is_a_number_to_some_is_a_word_or_refused():
    for text in ["0b_", "0x_", "0_", "-_", "0x", "0b", "1_000", "0b11", "1_0.5", "1:30.5"]:
        found = attempt(config_value, text)
        assert isinstance(found, RecipeError) or found == text


@pytest.mark.parametrize("text", ["[a]: 1", "{a: b}: 1", "? [a]\n: 1", "<<: {a: 1}", "? \n: 1\n? !!null x\n: [*a]"])
def test_a_name_that_is_no_word_is_refused(text):
    refused(MINIMAL + text)


def test_an_anchor_gives_a_value_again():
    recipe = read("""
name: &name x
description: *name
model: {id: b}
environment: &env {A: "1"}
compiler: {options: *env}
""")
    assert recipe.description == "x"
    assert recipe.compiler.options == recipe.environment == {"A": "1"}


@pytest.mark.parametrize("text", ["description: *nobody", "environment: &a {A: *a}", "expect: &a [*a]"])
def test_an_anchor_that_is_not_there_or_holds_itself_is_refused(text):
    refused(MINIMAL + text)


def test_anchors_that_multiply_are_refused():
    """A page of text that stands for a hundred thousand items; one more line would be a million."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 5)]
    text = "name: x\nmodel:\n  id: b\n  config:\n" + "".join(f"    {line}\n" for line in lines)
    assert "r.yaml" in refused(text).message


def test_what_is_no_yaml_is_refused_with_its_line():
    for text, line in [
        ("name: x\n\tmodel: 1\n", 2),
        ("name: x\nmodel:\n\tid: b\n", 3),
        ("name: x\nmodel: {id: b\ndata: {}\n", 3),
        ("name: x\nmodel: [a\n", 3),
        ("name: x\ndescription: 'a\n", 3),
        ("name: x\n  model: {id: b}\n", 2),
        ("name: x\ndescription: a: b\n", 2),
        ("name: x\nmodel: @b\n", 2),
        ("name: x\n---\nname: y\n", 2),
        ("%YAML 1.2\nname: x\n", 2),
    ]:
        error = refused(text)
        assert error.message == f"r.yaml, line {line}: not valid YAML"
        assert error.cause
        assert ("spaces" in error.hint) == ("\t" in text)


def test_what_is_no_mapping_is_refused():
    for text in ["", "\n\n", "# nothing\n", "---\n", "null", "~", "[]", "- name: x", "text", "5", "true"]:
        error = refused(text)
        assert error.message == "r.yaml: a recipe is a mapping of fields"
        assert error.cause.startswith("this is ")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_any_newline_will_do(newline):
    text = "name: x\nmodel:\n  id: b\ntraining:\n  sed: 1\n".replace("\n", newline)
    assert refused(text).message == "r.yaml, line 5: unknown field training.sed"


@pytest.mark.parametrize("text", ["description: a\x00b", "description: a\x07b", "a: \ufffe", "description: \ud800"])
def test_control_characters_and_half_ones_are_refused(text):
    assert refused(MINIMAL + text).message.startswith("r.yaml")


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\x1b[31mb", "a\u2028b"])
def test_an_error_stays_on_its_lines(name):
    """Three lines, whatever stands in the file: what reads them, and a terminal, must not be fooled."""
    for text in (MINIMAL + f"{json.dumps(name)}: 1\n", MINIMAL + f"training: {{optim: {json.dumps(name)}}}\n"):
        error = refused(text)
        assert 1 <= len(error.lines()) <= 3
        for line in error.lines():
            assert line.isprintable()


def test_deep_nesting_is_refused_or_read():
    for left, right in [("[", "]"), ("{a: ", "}")]:
        for depth in [60, 300, 2000]:
            value = attempt(config_value, left * depth + "1" + right * depth)
            if isinstance(value, CachekitError):
                assert value.message.startswith("r.yaml")
                continue
            for _ in range(depth):
                value = value[0] if isinstance(value, list) else value["a"]
            assert value == 1


def test_no_depth_of_nesting_ends_the_process():
    """In a process of its own: libyaml's binding recurses on the C stack."""
    script = (
        "from cachekit.recipe import load_text\n"
        "from cachekit.errors import RecipeError\n"
        "for text in ('[' * 300_000, '- ' * 300_000, '{a: ' * 200_000, 'a: ' + '[' * 300_000 + ']' * 300_000):\n"
        "    try: load_text(text)\n"
        "    except RecipeError: print('refused')\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.split()) == (0, ["refused"] * 4), run.stderr[-500:]


# Anything at all


WORDS = [
    *("name", "model", "data", "training", "parallel", "compiler", "environment", "expect", "id", "config", "flags"),
    *("options", "labels", "learning_rate", "lr", "bf16", "path", "metrics", "instance", "source", "x", "auto", "no"),
]
FRAGMENTS = [
    *WORDS,
    *(": ", ":\n  ", "- ", "\n", "\n  ", "\n    ", ", ", "|\n", ">\n", "? ", "---\n", "\t", *"{}[]'\"#"),
    *("&a ", "*a", "!!int ", "!!float ", "!!bool ", "!!null ", "!!str ", "!!python/name:os ", "!x ", "<<", "=", "~"),
    *("0x", "0b", "0o", "e5", ".inf", ".nan", "1:30", *"01-+._\\\x00\ufeff\x85é"),
]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(WORDS)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)
PLAUSIBLE = st.fixed_dictionaries(
    {"name": st.just("x"), "model": st.just({"id": "b"})},
    optional={
        **{
            section: st.dictionaries(st.sampled_from(struct.__struct_fields__), DOCUMENTS, max_size=3)
            for section, struct in SECTIONS.items()
            if section != "model"
        },
        "environment": DOCUMENTS,
        "expect": st.lists(
            st.fixed_dictionaries(
                {}, optional=dict.fromkeys(("instance", "source", "metrics", "note", "wrong"), DOCUMENTS)
            ),
            max_size=3,
        ),
    },
)


def answered(text, *overrides):
    """Read, or refused with an error of ours that says where."""
    outcome = attempt(read, text, *overrides)
    if isinstance(outcome, CachekitError):
        assert 1 <= len(outcome.lines()) <= 3
        assert "r.yaml" in outcome.message or "--set" in outcome.message
    else:
        assert isinstance(outcome, Recipe)


@settings(max_examples=100)
@given(st.text(max_size=60) | st.lists(st.sampled_from(FRAGMENTS), max_size=15).map("".join))
def test_any_text_is_read_or_refused(text):
    answered(text)
    answered(MINIMAL + text)


@settings(max_examples=60)
@given(PLAUSIBLE)
def test_any_nearly_right_document_is_read_or_refused(document):
    answered(json.dumps(document, indent=1))


@settings(max_examples=80)
@given(
    st.lists(st.sampled_from([*WORDS, ".", "..", " "]), max_size=4).map(".".join)
    | st.sampled_from([f"{section}.{field}" for section, field in FIELDS]),
    st.text(max_size=12) | st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join),
)
def test_any_override_is_read_or_refused(name, value):
    answered(MINIMAL, f"{name}={value}")


def test_what_is_no_yaml_behind_set_has_no_line():
    with pytest.raises(RecipeError) as caught:
        yaml_text.scalar('"a', "--set data.path")
    assert caught.value.message == "--set data.path: not valid YAML"
    assert "--set data.path=" in caught.value.hint
    with pytest.raises(RecipeError, match=r"^--set data\.path: tag:yaml\.org,2002:int is not a plain value"):
        yaml_text.scalar("!!int 3", "--set data.path")
