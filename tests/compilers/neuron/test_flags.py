"""Flags: the published keys come out, and two lists that give two keys are told apart in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekit.compilers.neuron.explain import flag_lists
from cachekit.compilers.neuron.flags import (
    flags_hash,
    read_flags,
    split,
    without_wrapper_options,
    wrapper_options,
)
from tests.support.places import real_dir

MIXED = "--enable-mixed-precision-accumulation"
# Half-keys of modules in public issues and logs, with the flags that were printed beside them.
PUBLISHED = [
    ("e30acd3a", ["--target=trn1"]),
    ("70e3f644", ["--target=trn3"]),
    ("f7f529f3", ["--target=trn1", "--model-type", "transformer"]),
    ("4eb52b03", ["--target=trn1", "--model-type", "transformer", MIXED]),
    ("d505a3f8", ["--target=trn1", "--model-type=cnn-training", "-O1", "--enable-saturate-infinity"]),
]


@pytest.mark.feature("K2")
@pytest.mark.parametrize(("key", "words"), PUBLISHED)
def test_a_published_key_comes_out(key, words):
    assert flags_hash(words) == key


@pytest.mark.feature("K2")
def test_the_key_of_a_real_log_comes_out():
    """The sixth: the command in the first line of a compiler's log, and the module's name in the same line."""
    found = 0
    for log in real_dir("logs").glob("log-neuron-cc*success*"):
        with log.open(encoding="utf-8") as lines:
            line = next(lines)
        _, _, words = line.partition("--output")
        key = line.partition("+")[2][:8]
        assert flags_hash(split(words)[0][1:]) == key
        found += key == "6af34228"
    assert found == 1


# NEURON_CC_FLAGS


@pytest.mark.feature("K2")
def test_the_wrappers_own_options_are_not_hashed():
    for wrapper in [
        "--cache_dir=/x",
        "--cache_dir /x",
        "--no_cache",
        "--retry_failed_compilation",
        "--log_level=ERROR",
        "--log_level ERROR",
        "--dump=/d",
        "--compile_workdir /w",
    ]:
        words, problem = split(f"--model-type transformer {wrapper} -O1")
        assert problem == ""
        assert without_wrapper_options(words) == ["--model-type", "transformer", "-O1"]


def test_a_wrapper_option_at_the_end_takes_nothing_along():
    assert without_wrapper_options(["-O1", "--cache_dir"]) == ["-O1"]


def test_flags_are_split_as_a_shell_does():
    assert split("--a='b c' -O1") == (["--a=b c", "-O1"], "")
    words, problem = split("--a='b c")
    assert words == ["--a='b", "c"]
    assert problem


# Flags files


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b"null", b"\xff", b"[" * 100_000])
def test_a_flags_file_that_is_none(tmp_path, raw):
    (tmp_path / "f").write_bytes(raw)
    assert read_flags(tmp_path / "f") is None
    assert read_flags(tmp_path / "none") is None


# Why two differ


def test_several_differences_are_all_told_the_target_first():
    said = flag_lists(["--target=trn1", "-O1", "--logfile=/a"], ["--target=trn2", "-O2", "--logfile=/b"])
    assert [("target" in line, "-O1" in line, "--logfile" in line) for line in said] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


WORDS = st.sampled_from(
    ["--a", "--a=1", "1", "-O1", "-O", "-O2", "--optlevel=1", "--optlevel", "--logfile=/x", "--verbose", "-lnc", "2",
     "--lnc=2", "--tensorizer-options",
     "--target=trn1", "--target=trn2", "-", "", "="]
)  # fmt: skip


@given(st.lists(WORDS, max_size=6), st.lists(WORDS, max_size=6))
def test_lists_are_equal_or_there_is_a_reason(a, b):
    assert bool(flag_lists(a, b)) == (a != b)
    assert flag_lists(a, a) == []


def test_the_wrappers_own_options_are_passed_on_as_they_are_spelled():
    words = split(
        "--dump /d -O1 --cache_dir=/a --retry_failed_compilation --log_level=debug --no_cache --cache_dir /b"
    )[0]
    assert wrapper_options(words) == (["--dump", "/d", "--retry_failed_compilation", "--log_level=debug"], [])
    assert without_wrapper_options(words) == ["-O1"]
    passed, said = wrapper_options(["--log_level", "ERROR", "--compile_workdir=/w"])
    assert passed == ["--compile_workdir=/w"]
    assert said == ["--log_level ERROR is left out: what the compiler does is read from lines at INFO"]
    assert wrapper_options(["--log_level"])[0] == []
