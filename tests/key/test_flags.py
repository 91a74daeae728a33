"""Inductor's flags and options in a key."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.compilers.inductor.facts import IRRELEVANT_OPTION_PREFIXES, IRRELEVANT_OPTIONS
from cachekit.compilers.inductor.options import all_options
from cachekit.compilers.inductor.options import canonical as canonical_flags
from cachekit.errors import RecipeError
from cachekit.key.canonical import (
    canonical_json,
)
from cachekit.recipe.schema import Compiler
from tests.key.key_cases import ingredients


def options(flags=(), **named):
    return canonical_flags(Compiler(flags=tuple(flags), options=named))


def key_with(*flags, **named):
    return ingredients(compiler={"options": options(flags, **named)}).key


FLAGS = ["--max-autotune", "--epilogue_fusion=false", "--cpp.threads=2", "--mode=max-autotune"]


@pytest.mark.feature("K2")
def test_the_order_of_inductors_flags_is_not_in_the_key():
    for order in list(itertools.permutations(FLAGS)):
        assert options(order) == options(FLAGS)
        assert list(options(order)) == sorted(options(order))
        assert key_with(*order) == key_with(*FLAGS)


@pytest.mark.feature("K2")
def test_flags_that_reach_no_code_are_not_in_the_key():
    for place in [0, 2, 4]:
        for flag in ["--verbose", "--verbose=true", "--quiet", "--trace.enabled=true", "--compile-threads=4"]:
            assert key_with(*FLAGS[:place], flag, *FLAGS[place:]) == key_with(*FLAGS)


@pytest.mark.feature("K2")
def test_a_changed_flag_is_another_key():
    for flags in [
        [*FLAGS[:3], "--mode=reduce-overhead"],
        ["--max-autotune=false", *FLAGS[1:]],
        ["--max-autotune", "--epilogue_fusion=true", *FLAGS[2:]],
        ["--max-autotune", "--epilogue_fusion=0", *FLAGS[2:]],
        [*FLAGS[:2], "--cpp.threads=3", FLAGS[3]],
        FLAGS[1:],
        [*FLAGS, "--optimization-level=2"],
        [],
    ]:
        assert key_with(*flags) != key_with(*FLAGS)


@pytest.mark.feature("K2")
def test_the_list_of_what_reaches_no_code_is_written_with_reasons():
    assert all(reason.strip() for reason in IRRELEVANT_OPTIONS.values())
    for name in [*IRRELEVANT_OPTIONS, *(f"{prefix}x" for prefix in IRRELEVANT_OPTION_PREFIXES)]:
        assert options([f"--{name}=7"]) == options(**{name: 7}) == {}
        assert name in all_options(Compiler(flags=(f"--{name}=7",))), "it still reaches the compiler"


def test_a_flag_and_an_option_set_the_same():
    for flags, named in [
        (["--max-autotune"], {"max_autotune": True}),
        (["--max_autotune=true"], {"max_autotune": True}),
        (["--size=5"], {"size": 5}),
        (["--rate=5e-1"], {"rate": 0.5}),
        (["--words=no"], {"words": "no"}),
        (["--cpp.simdlen=8"], {"cpp.simdlen": 8}),
        (["--mode=max-autotune", "--mode=max-autotune"], {"mode": "max-autotune"}),
    ]:
        assert options(flags) == options(**named) == options(flags, **named) != {}


@pytest.mark.parametrize("flags", [["--mode=default"], ["--threads=4"], ["--mode=default", "--quiet"]])
def test_what_is_the_default_or_an_ingredient_of_its_own_is_left_out(flags):
    assert options(flags) == {}


def test_a_flag_that_is_none_is_refused():
    for flag in ["", "-", "--", "--=1", "-O2", "verbose", "mode=default", "—mode"]:
        with pytest.raises(RecipeError, match=r"compiler\.flags") as caught:
            options([flag])
        assert repr(flag) in caught.value.message
        assert "--name=value" in caught.value.cause


@pytest.mark.parametrize(
    "flags, named",
    [(["--a=1", "--a=2"], {}), (["--a=1"], {"a": 2}), (["--a-b"], {"a_b": False}), (["--a=1"], {"a": "1"})],
)
def test_two_values_for_one_name_are_refused(flags, named):
    with pytest.raises(RecipeError, match=r"compiler: a\w* is ") as caught:
        options(flags, **named)
    assert caught.value.hint == "keep one of them"


@pytest.mark.parametrize("mode", ["fast", "", "1", "[a]", "max_autotune"])
def test_an_unknown_mode_is_refused(mode):
    with pytest.raises(RecipeError, match=r"compiler\.options\.mode") as caught:
        options([f"--mode={mode}"])
    assert "max-autotune" in caught.value.hint


def test_an_impossible_number_of_threads_is_refused():
    for threads in ["0", "-1", "many", "1.5", "true", "", "[1]"]:
        with pytest.raises(RecipeError, match=r"compiler\.options\.threads") as caught:
            options([f"--threads={threads}"])
        assert caught.value.hint


@pytest.mark.parametrize("value", ["[", "{a", "'", ".inf"])
def test_a_flags_value_that_is_no_yaml_is_refused_as_the_flag_it_is(value):
    with pytest.raises(RecipeError) as caught:
        options([f"--a={value}"])
    assert f"--a={value}" in caught.value.message
    assert "--set" not in "".join(caught.value.lines())


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.integers(0, 3) | st.booleans() | st.sampled_from(["x", "no"]), max_size=6
    ),
    st.randoms(use_true_random=False),
)
def test_any_flags_in_any_order_are_their_options(named, random):
    flags = [f"--{name}={json.dumps(value)}" for name, value in named.items()]
    random.shuffle(flags)
    assert canonical_json(options(flags)) == canonical_json(named)


@settings(max_examples=100)
@given(st.lists(st.text(max_size=8) | st.text("-=abm.:[{'1", max_size=8).map("--".__add__), max_size=3))
def test_any_flag_is_read_or_refused(flags):
    try:
        found = options(flags)
    except RecipeError:
        return
    assert set(found) <= {flag[2:].partition("=")[0].replace("-", "_") for flag in flags}
