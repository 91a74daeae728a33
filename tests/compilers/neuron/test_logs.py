"""Logs of Neuron runs: what was found, compiled and waited for, cut anywhere, broken or hostile."""

# ruff: noqa: E501 - quoted lines are as long as they are

import itertools
import json
import random
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.compilers.neuron.log.reader import LONGEST, LogReader
from tests.compilers.neuron.neuron_log_texts import NCC, NEW, events_of, module, real_log, run_of
from tests.support.places import real_dir


def counts(run):
    """What must not depend on prefixes and noise: everything but names of processes."""
    report = msgspec.to_builtins(run)
    return {name: value for name, value in report.items() if name != "by_process"}


@pytest.mark.feature("D2")
def test_a_run_is_added_up():
    run = run_of(NEW)
    assert run.hits == {module(1): 2}
    assert run.extracted == {module(2): 2}
    assert run.compiled == {module(2): (219.343, "worker")}
    assert run.waits == {module(3): 22.0}
    assert list(run.remembered) == [module(4)]
    assert list(run.failed) == [module(6)]
    assert run.modules == [module(1), module(2)], "as they were first mentioned"
    assert run.compilers == {"neuronxcc-2.26.6360.0+6f180f47"}
    assert run.summary == {"total": 2, "success": 1, "failed": 1}
    assert run.failures()[module(4)].kind.name == "device-oom"
    assert run.failures()[module(6)].kind.name == "host-oom"
    assert run.by_process["pid 10477"] == {module(1), module(2)}


def test_every_kind_of_event_is_told():
    kinds = [
        "hit", "hit", "not-found", "extracted", "extracted", "listed", "listed", "worker-started", "status",
        "compiled", "waiting", "cached-failure", "quoted", "error", "retrying", "failed", "error", "worker-done",
        "remaining", "summary", "summary", "summary",
    ]  # fmt: skip
    assert [event.kind for event in events_of(NEW)] == kinds


@given(st.lists(st.integers(0, len(NEW.encode())), max_size=60), st.booleans())
@settings(max_examples=40)
def test_the_stream_may_be_cut_anywhere(cuts, as_text):
    data = NEW if as_text else NEW.encode()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = LogReader()
    events = [event for a, b in itertools.pairwise(places) for event in reader.feed(data[a:b])]
    assert events + reader.close() == events_of(NEW)


def noisy(text, seed):
    """The same lines as another launcher, terminal or progress bar leaves them."""
    chance = random.Random(seed)
    prefixes = [
        "", "[rank0]:", "[rank1]: ", "[default0]:", "[default3]:[rank3]: ", "(EngineCore_DP0 pid=37707) ",
        "\x1b[36m(RayTrainWorker pid=31, ip=10.0.0.7)\x1b[0m ", "[36m(RayTrainWorker pid=31, ip=10.0.0.7)[0m ",
        "[1,0]<stdout>:", "0: ",
    ]  # fmt: skip
    bar = " 10%|█         | 1/10 [00:15<01:17,  8.64s/it]"
    front = ["", "....", ".", "\x1b[2K\x1b[1G", "\x1b]0;title\x07", bar, f"{bar}\r", "{'loss': 0.0, 'epoch': 0.0}"]
    ends = ["\n", "\r\n", "\n\n", "\r\r\n", "\n.......\n", "\nÿ\x80\n", "\n\x1b[0m\n"]
    prefix = chance.choice(prefixes)
    lines = []
    for line in text.splitlines():
        starts_event = "]: " in line and line[:4].isdigit()
        lines.append(prefix + (chance.choice(front) if starts_event else "") + line + chance.choice(ends))
    return "".join(lines)


@given(st.integers(0, 10**9))
@settings(max_examples=40)
def test_prefixes_dots_and_colours_change_nothing(seed):
    assert counts(run_of(noisy(NEW, seed))) == counts(run_of(NEW))


def test_prefixes_name_the_worker():
    line = f"2026-07-29 17:19:00.000611:  10142  [INFO]: Using a cached neff at {NCC}/{module(1)}/model.neff\n"
    (torchrun,) = events_of(f"[default3]:[rank3]: {line}")
    (vllm,) = events_of(f"(EngineCore_DP0 pid=37707) {line}")
    assert (torchrun.rank, torchrun.pid) == (3, 10142)
    assert (vllm.worker, vllm.pid, vllm.rank) == ("EngineCore_DP0 pid=37707", 10142, None)
    assert run_of(f"[rank3]: {line}").by_process == {"rank 3": {module(1)}}
    assert run_of(f"[rank3]: 10%|█   | 1/10\r[rank4]: {line}").by_process == {"rank 4": {module(1)}}


def test_lines_glued_together_are_told_apart():
    line = "2026-07-29 17:19:00.000611:  {}  [INFO]: Using a cached neff at " + NCC + "/{}/model.neff"
    first, second = events_of(line.format(1, module(1)) + line.format(2, module(2)) + "\n\n")
    assert (first.module, first.pid, second.module, second.pid) == (module(1), 1, module(2), 2)


@pytest.mark.parametrize(
    ("digits", "microsecond"),
    [("000611", 611_000), ("000999", 999_000), ("611432", 611_432), ("611", 611_000), ("000000", 0)],
)
def test_six_digits_are_padded_milliseconds(digits, microsecond):
    (event,) = events_of(f"2026-07-29 17:19:00.{digits}: 7 [INFO]: Compiler status PASS\n")
    assert event.at.microsecond == microsecond


# --- hostile and broken streams ---------------------------------------------------------------------------------

FRAGMENTS = [
    "Using a cached neff at ", ".neff", "Failed compilation with [", "']", "MODULE_", "MODULE_1+f7f529f3", "[INFO]: ", "\x1b[",
    "Call compiler with cmd: ['", "2026-07-29 17:19:00.000611:  10142  [INFO]: ", "99999-99-99 99:99:99.9: [INFO]: ", "||: ",
    "Compiler status PASS", "\r", "\n", "\x00", '"a/MODULE_1": {', '"status": true', "}", "New graph list from script: ",
    "been waiting for: 1.1.1 minutes", "Another process must be compiling x, ", "(pid=", "[rank9]:", "exitcode : -9 (pid: 1)",
    "rank : 1 (local_rank: 0)", '"compile_time": 1e999', "Got a cached failed neff at a.neff", "\ud800", "2026-02-31 00:00:00",
]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=20)), max_size=40))
@settings(max_examples=60)
def test_any_text_is_read(parts):
    run = run_of("".join(parts))
    msgspec.json.encode(run)


def test_long_lines_are_bounded_and_do_not_hide_what_follows():
    for unit in [
        " ",
        "Using a cached neff at ",
        "Compiler status PASS",
        "[INFO]: ",
        "\x1b[1",
        "[rank0]:",
        "Failed compilation with ['",
    ]:
        hit = f"2026-07-29 17:19:00.000611:  1  [INFO]: Using a cached neff at {NCC}/{module(1)}/model.neff"
        reader = LogReader()
        chunk = unit * (65536 // len(unit))
        tracemalloc.start()
        for _ in range(16):
            reader.feed(chunk)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 4 * LONGEST
        events = reader.feed(f"{hit}\n{hit}\n") + reader.close()
        assert events[-1].module == module(1)
        assert sum(event.kind == "hit" and event.module == module(1) for event in events) == 2


def test_the_ends_of_a_cut_line_are_not_joined():
    half = LONGEST // 2
    word = "Compiler status "
    assert events_of("x" * (half - len(word)) + word + "y" * LONGEST + "PASS" + "z" * (half - 4)) == []
    assert len(events_of("x" * (half - len(word)) + word + "PASS" + "z" * (half - 4))) == 1


# --- real logs ----------------------------------------------------------------------------------------------------


def seconds(run):
    return sum(took for took, _ in run.compiled.values())


@pytest.mark.feature("F3")
def test_the_real_parallel_compile():
    path = real_log("neuron_parallel_compile.llama31*.log")
    told = json.loads(path.with_suffix(".json").read_text())
    run = run_of(path.read_bytes())
    assert (sum(run.extracted.values()), len(run.extracted)) == (20, 12)
    assert sum(event.kind == "listed" for event in events_of(path.read_bytes())) == 20
    assert len(run.compiled) == told["graphs_compiled"] == 6
    assert {basis for _, basis in run.compiled.values()} == {"worker"}
    assert seconds(run) == pytest.approx(1269.06, abs=0.01)
    # Its own summary says "0/6 failed".
    assert run.summary == {"total": 6, "success": 6, "failed": 0}
    assert (run.hits, run.failed) == ({}, {})
    before = set(run.extracted) - set(run.compiled)
    assert len(before) == 6  # they were there before: only the files can tell
    ranks = [modules for modules in run.by_process.values() if modules & before]
    assert [len(modules) for modules in ranks] == [10, 10]
    assert len(set.intersection(*ranks)) == 8


def test_the_real_training():
    data = real_log("neurontrainer.tinyllama*.log").read_bytes()
    run = run_of(data)
    not_found = {event.module for event in events_of(data) if event.kind == "not-found"}
    assert (len(run.hits), sum(run.hits.values())) == (8, 16)
    assert (len(run.compiled), len(not_found)) == (4, 2)
    assert not_found < set(run.compiled)
    # Both ranks compile at once, so the training itself lost half: 273.4 s beyond its steady step, as it tells itself.
    assert seconds(run) / 2 == pytest.approx(273.4, abs=5)
    assert (run.failed, run.remembered, run.waits) == ({}, {}, {})
    assert len(run.modules) == 12


@pytest.mark.parametrize("size", [7, 4096])
def test_real_logs_may_be_cut_anywhere(size):
    for path in sorted(real_dir("logs").glob("neuron*.log")):
        data = path.read_bytes()
        reader = LogReader()
        events = [event for start in range(0, len(data), size) for event in reader.feed(data[start : start + size])]
        assert events + reader.close() == events_of(data)
