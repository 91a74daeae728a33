"""The rule that `stats` counts by: a hand count of any journal comes to the same."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.store.counting import COUNTS, count
from cachekit.verbs.stats import Figures, figures
from tests.store.hand_count import by_hand, lines

NAMES = [*COUNTS, "worker.phase", "unheard.of", "plan.b", ""]
KEYS = ["a" * 64, "b" * 64, ""]
ODD = st.sampled_from(
    [None, True, "", "7", [1], {"graphs": "no"}, float("nan"), float("-inf"), 1e300, 10**400, "\udcff"]
)
COUNT = st.integers(0, 50)
# Quarters of seconds: their sums are the same in whatever order they are made.
SECONDS = st.integers(-400, 4000).map(lambda quarters: quarters / 4)
FIELDS = {
    "key": st.sampled_from(KEYS),
    "keys": st.lists(st.sampled_from(KEYS), max_size=2),
    "recipe": st.sampled_from(["bert", "vit", "<b>&", ""]),
    "remote": st.sampled_from(["local", "hf://team/cache", ""]),
    "status": st.sampled_from(["hit", "miss"]),
    "reason": st.sampled_from(["recache", "no-network", ""]),
    "verb": st.sampled_from(["warm", "train"]),
    **dict.fromkeys(["compiled", "found", "graphs", "bytes", "restored_bytes"], COUNT),
    **dict.fromkeys(
        ["seconds", "compile_seconds", "cold_seconds", "saved_seconds", "overhead_seconds", "waited_seconds"], SECONDS
    ),
    "phases": st.fixed_dictionaries({"graphs": SECONDS}),
    "time": SECONDS,  # clocks go backwards
}
EVENT = st.fixed_dictionaries(
    {"event": st.one_of(st.sampled_from(NAMES), st.sampled_from(NAMES), ODD)},
    optional={name: st.one_of(value, value, value, ODD) for name, value in FIELDS.items()},
)


STRANGE = ["", "null", "[1]", '"x"', "{", '{"event": "plan"', "\\", '{"event":"plan"}', "[" * 5000]


@st.composite
def journal(draw):
    """The bytes of a journal: as it was written, torn at its end, with lines that are none."""
    written = [json.dumps(event) for event in draw(st.lists(EVENT, max_size=14))]
    for _ in range(draw(st.integers(0, 2))):
        written.insert(draw(st.integers(0, len(written))), draw(st.sampled_from(STRANGE)))
    raw = "\n".join(written).encode()
    return raw[: draw(st.integers(0, len(raw)))] if draw(st.booleans()) else raw + b"\n"


def same(raw):
    counted = figures(count(raw).cells)
    expected, bypasses = by_hand(lines(raw))
    expected = {name: max(value, 0) if isinstance(value, int) else value for name, value in expected.items()}
    found = {name: getattr(counted, name) for name in expected}
    assert found == pytest.approx(expected)
    assert counted.bypasses == bypasses
    assert counted.saved_seconds == pytest.approx(expected["recorded_seconds"] - expected["retrieval_seconds"])
    left = set(Figures.__struct_fields__) - expected.keys()
    assert left == {"bypasses", "saved_seconds", "saved_dollars"}


@pytest.mark.feature("D1", "D3")
@settings(max_examples=120)
@given(journal())
def test_any_journal_comes_to_what_a_hand_count_does(raw):
    same(raw)


@settings(max_examples=30)
@given(journal(), st.binary(max_size=200))
def test_no_bytes_fail_the_count(raw, noise):
    for bad in (noise, raw + noise, noise + b"\n" + raw):
        same(bad)


def line(name, **fields):
    return json.dumps({"event": name, "key": "k", **fields}).encode() + b"\n"


def counted(*events):
    found = figures(count(b"".join(events)).cells)
    return {name: getattr(found, name) for name in Figures.__struct_fields__ if getattr(found, name)}


@pytest.mark.feature("W1")
def test_reasons_are_counted_by_name():
    names = ["recache", "uncachable-flag", "custom-op"]
    events = [line("cache.bypass", reason=name, detail="x") for name in names]
    assert counted(*events)["bypasses"] == dict.fromkeys(names, 1)
    assert counted(*events, line("cache.bypass", reason="recache"))["bypasses"]["recache"] == 2


def test_a_hit_whose_fetch_failed_is_a_miss():
    assert counted(line("plan", status="hit"), line("compile.start"))["misses"] == 1
    assert "hits" not in counted(line("plan", status="hit"), line("compile.start"))


def test_what_another_process_compiled_meanwhile_is_a_hit_and_the_wait_is_subtracted():
    found = counted(
        line("plan", status="miss"),
        line("lock.wait", holder="x"),
        line("lock.wait", holder="y"),
        line("warm.end", compiled=0, graphs=3, compile_seconds=100, seconds=130, waited_seconds=128),
    )
    assert (found["hits"], found["graphs_found"], found["waits"], found["waited_seconds"]) == (1, 3, 1, 128)
    assert found["saved_seconds"] == -30


@pytest.mark.feature("D2")
def test_a_train_that_warms_first_counts_its_graphs_once():
    found = counted(
        line("plan", status="miss"),
        line("compile.start"),
        line("warm.end", compiled=3, graphs=3, compile_seconds=100, seconds=130),
        line("restore", bytes=7),
        line("train.end", found=3, compiled=0, saved_seconds=96, overhead_seconds=1, phases={"graphs": 4}),
    )
    assert (found["misses"], found["graphs_compiled"], found["compile_seconds"]) == (1, 3, 100)
    assert "graphs_found" not in found
    assert found["saved_seconds"] == -5, "nothing was saved yet, and putting it to use took 5 s"


def test_a_command_that_was_given_nothing_found_nothing_in_the_cache():
    """One graph twice in a process: the second time Inductor finds what it has just written."""
    done = {"compiled": 2, "found": 2, "compile_seconds": 160}
    cold = counted(line("plan", status="miss"), line("command.done", **done, restored_bytes=0))
    assert (cold["graphs_compiled"], cold.get("graphs_found")) == (2, None)
    given = [line("plan", status="hit"), line("restore", bytes=7)]
    warm = counted(*given, line("command.done", found=4, compiled=0, restored_bytes=7))
    assert (warm["graphs_found"], warm["hits"]) == (4, 1)


@pytest.mark.feature("D3")
def test_getting_the_nearest_record_is_subtracted_and_its_remote_saved_the_rest():
    """One that was fetched for nothing cost time."""
    hub = {"remote": "hf://team/cache", "nearest": "n", "bytes": 9, "seconds": 40}
    begun = [line("plan", status="miss", recipe="toy", remote=""), line("compile.start")]
    restored = line("reuse.restored", recipe="other", **hub)
    reused = line("reuse.end", recipe="other", graphs=2, of=3).replace(b'"key": "k"', b'"key": "n"')
    end = line("warm.end", recipe="toy", graphs=3, compiled=1, compile_seconds=50, cold_seconds=250, seconds=120)
    found = count(b"".join([*begun, restored, reused, end]))
    by_remote = {cell.remote: cell.figures for cell in found.cells}
    assert by_remote["hf://team/cache"] == {"graphs_found": 2, "recorded_seconds": 200, "retrieval_seconds": 40}
    assert figures(found.cells).saved_seconds == 160
    cold = line("warm.end", recipe="toy", graphs=3, compiled=3, compile_seconds=250, seconds=320)
    assert counted(*begun, restored, cold)["saved_seconds"] == -40


def test_every_line_that_is_skipped_undecoded_is_of_no_interest(monkeypatch):
    """Lines are told apart by how ours begin; other spellings of the same JSON count alike."""
    ours = line("plan", status="hit")
    for raw in (
        ours,
        ours.replace(b": ", b":"),
        b" " + ours,
        ours.replace(b'"plan"', b'"pl\\u0061n"'),
        re.sub(rb'"event": "plan", (.*)}', rb'\1, "event": "plan"}', ours).replace(b'"key"', b'{"key"', 1)[1:],
    ):
        assert counted(raw).get("hits") == 1, raw
