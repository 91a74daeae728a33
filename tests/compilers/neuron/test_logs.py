"""Logs of Neuron runs: what was found, compiled and waited for, cut anywhere, broken or hostile."""

# ruff: noqa: E501 - quoted lines are as long as they are

import io
import itertools
import json
import random
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.compilers.neuron.failures import classify
from cachekit.compilers.neuron.log.reader import LONGEST, LogReader
from cachekit.compilers.neuron.log.summary import read
from tests.compilers.neuron.neuron_log_texts import NCC, events_of, module, real_log, run_of
from tests.compilers.neuron.test_failures import CASES, COMMAND
from tests.support.places import real_dir

# One run with everything, in the words of libneuronxla 2.2.17.
NEW = f"""\
root: Found libneuronpjrt.so. Setting PJRT_DEVICE=NEURON.
2026-07-29 17:25:16.000037:  10451  [INFO]: run_train_script: executing trial run cmd: ['python', 'train.py']
[2026-07-29 17:25:29.935: I neuronx_distributed/parallel_layers/parallel_state.py:638] > initializing
2026-07-29 17:25:29.000941:  10477  [INFO]: Using a cached neff at {NCC}/{module(1)}/model.neff
2026-07-29 17:25:29.000943:  10476  [INFO]: Using a cached neff at {NCC}/{module(1)}/model.neff
neuronxcc-2.26.6360.0+6f180f47/{module(2)}/model.done not found in aws-neuron/optimum-neuron-cache: the corresponding \
graph will be recompiled. This may take up to one hour for large models.
2026-07-29 17:27:22.000687:  10477  [INFO]: Extracting graphs ({NCC}/{module(2)}/model.hlo_module.pb) for ahead-of-time \
parallel compilation. No compilation was done.
2026-07-29 17:27:22.000688:  10476  [INFO]: Extracting graphs ({NCC}/{module(2)}/model.hlo_module.pb) for ahead-of-time \
parallel compilation. No compilation was done.
{{'loss': 1.72, 'learning_rate': 0.0001, 'train/step_time': 277.9}}
2026-07-29 17:28:55.000525:  10451  [INFO]: New graph list from script: {NCC}/{module(2)}/model.hlo_module.pb
\t{NCC}/{module(2)}/model.hlo_module.pb
2026-07-29 17:28:55.000653:  10617  [INFO]: Worker 0/None starting dynamic scheduling for 2 HLOs
...........
Compiler status PASS
2026-07-29 17:32:34.000996:  10617  [INFO]: Compilation Successfully Completed for model.{module(2)}.hlo_module.pb
2026-07-29 17:32:35.000100:  10617  [INFO]: Another process must be compiling {NCC}/{module(3)}/model.hlo_module.pb, \
been waiting for: 22.0 minutes
2026-07-29 17:32:36.000100:  10617  [ERROR]: Got a cached failed neff at {NCC}/{module(4)}/model.neff. Will skip \
compilation, please set --retry_failed_compilation for recompilation:
 Failed compilation with ['neuronx-cc', 'compile', '--framework=XLA', '/tmp/w/model.{module(4)}.hlo_module.pb', \
'--output', '/tmp/w/model.{module(4)}.neff', '--target=trn1', '--verbose=35']: 2026-07-29T01:00:00Z [ERROR] [NCC_EOOM002] \
Maximum peak HBM usage of 18.12GB exceeds HBM limit of 16.00GB
2026-07-29 17:33:00.000000:  10617  [INFO]: Got a cached failed neff at {NCC}/{module(5)}/model.neff. With eror log: \
[Failed compilation with ['neuronx-cc', 'compile', '--output', '/tmp/w/model.{module(5)}.neff']: killed]. Retrying...
2026-07-29 17:34:00.000000:  10617  [ERROR]: Failed compilation with ['neuronx-cc', 'compile', '--framework=XLA', \
'/tmp/w/model.{module(6)}.hlo_module.pb', '--output', '/tmp/w/model.{module(6)}.neff']: 2026-07-29T17:33:59Z
[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient system memory.
2026-07-29 17:34:01.000734:  10617  [INFO]: Worker 0 completed: 1 tasks compiled
2026-07-29 17:34:01.000740:  10617  [INFO]: Current remaining items are 0, locked are 1, failed are 3, done are 2, total is 6
2026-07-29 17:34:01.000755:  10451  [INFO]: Compilation summary - Total graphs: 2, Success: 1, Failed: 1
2026-07-29 17:34:01.000755:  10451  [INFO]: Total successful compilations: 1
2026-07-29 17:34:01.000755:  10451  [INFO]: Compilation summary: 1/2 failed, 1 succeeded
"""


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


@pytest.mark.parametrize(
    "unit",
    [
        " ",
        "Using a cached neff at ",
        "Compiler status PASS",
        "[INFO]: ",
        "\x1b[1",
        "[rank0]:",
        "Failed compilation with ['",
    ],
)
def test_long_lines_are_bounded_and_do_not_hide_what_follows(unit):
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


# A whole log, as `why --log` tells it


def told(text):
    return read(io.BytesIO(text.encode()))


@pytest.mark.feature("D2")
def test_a_log_is_told_as_a_whole():
    found = told(NEW)
    assert (found.of, found.compilers) == ("run", ("neuronxcc-2.26.6360.0+6f180f47",))
    assert (found.found, found.extracted) == (1, 0)
    assert [(one.module, one.seconds, one.at_most) for one in found.compiled] == [(module(2), 219.343, False)]
    assert {one.module: (one.kind, one.earlier) for one in found.failed} == {
        module(4): ("device-oom", True),
        module(6): ("host-oom", False),
    }
    assert found.waits == {module(3): 22 * 60}
    # The wait holds the compile, which went on at the same time; the failed one was told of a minute after a line.
    assert found.lost_seconds == 22 * 60 + 60
    assert [(one.seconds, one.at_most) for one in found.failed] == [(None, False), (60.0, False)]


def test_a_failed_compile_has_its_seconds():
    call = "['neuronx-cc', 'compile', '/tmp/w/model.{0}.hlo_module.pb', '--output', '/tmp/w/model.{0}.neff']"
    begun = f"2026-07-29 17:00:00.000000:  7  [INFO]: Call compiler with cmd: {call.format(module(1))}\n"
    failed = (
        f"2026-07-29 17:22:03.000000:  7  [ERROR]: Failed compilation with {call.format(module(1))}: [NCC_EOOM002] no\n"
    )
    (one,) = told(begun + failed).failed
    assert (one.seconds, one.at_most, one.code) == (22 * 60 + 3, False, "NCC_EOOM002")
    assert told(begun + failed).lost_seconds == 22 * 60 + 3
    (untimed,) = told(failed).failed
    assert untimed.seconds is None
    gave_up = (
        f"2026-07-29 17:22:04.000000:  7  [ERROR]: Compilation failed for /w/model.{module(1)}.neff after 0 retries."
    )
    (one,) = told(begun + failed + gave_up).failed
    assert (one.seconds, one.at_most) == (22 * 60 + 3, False), "a second line about the same failure adds nothing"


def test_ranks_that_report_one_failure_lost_its_time_once():
    line = f"Failed compilation with ['neuronx-cc', 'model.{module(1)}.hlo_module.pb']: [NCC_EOOM002] no"
    text = "".join(f"2026-07-29 17:00:00.000000:  {pid}  [INFO]: Call compiler with cmd: x\n" for pid in range(4))
    text += "".join(f"2026-07-29 17:22:00.000000:  {pid}  [ERROR]: {line}\n" for pid in range(4))
    (one,) = told(text).failed
    assert (one.seconds, told(text).lost_seconds) == (22 * 60, 22 * 60)


def test_what_only_npcs_report_says_is_lost_too():
    done = f"2025-01-17 01:16:00.000000:  1  [INFO]: Call compiler with cmd: neuronx-cc model.{module(1)}.neff\n"
    done += f"2025-01-17 01:17:40.000000:  1  [INFO]: Compilation Successfully Completed for model.{module(1)}.neff\n"
    report = {
        f"{NCC}/{module(number)}/model.hlo_module.pb": {"status": ended, "retry": 0, "compile_time": took}
        for number, ended, took in ((1, True, 90.0), (2, False, 30.5))
    }
    found = told(done + f"2025-01-17 01:17:50.000000:  2  [INFO]: {json.dumps(report)}\n")
    assert [(one.module, one.seconds) for one in found.failed] == [(module(2), 30.5)]
    # The one that its own lines tell, and the other, which may have failed at the same time.
    assert (found.lost_seconds, found.lost_at_most) == (130.5, True)


KILLED = [("[F137] neuronx-cc was forcibly killed", "host-oom")]


@pytest.mark.parametrize("after", ["", "subprocess.CalledProcessError: Command 'neuronx-cc' returned exit status 1.\n"])
@pytest.mark.parametrize(
    "said",
    [
        "[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient memory.",
        "2026-07-31T05:09:00Z [F137] neuronx-cc was forcibly killed",
        "[F137] killed",
        "Killed",
    ],
)
def test_a_compile_that_is_said_to_be_killed_has_failed(said, after):
    """Where nobody else tells it: neither `F137` nor a shell names a module, and it is the one that was compiled."""
    call = f"Call compiler with cmd: neuronx-cc compile /tmp/w/model.{module(5)}.hlo_module.pb --target=trn1"
    begun = f"2026-07-31 05:08:00.000100:  5  [INFO]: {call}\n"
    killed = f"...\n{said}\n"
    (failed,) = told(begun + killed + after).failed
    assert (failed.module, failed.kind) == (module(5), "host-oom")
    done = f"2026-07-31 05:09:30.000100:  5  [INFO]: Compilation Successfully Completed for model.{module(5)}.neff\n"
    assert told(begun + killed + done).failed == ()


@pytest.mark.parametrize(
    "code, kind", [("[NCC_EOOM002] Maximum peak HBM usage of 18.12GB exceeds HBM limit", "device-oom"), *KILLED]
)
@pytest.mark.parametrize(
    "after, seconds",
    [
        (f"2026-07-31 05:30:00.000100:  5  [ERROR]: Compilation failed for /tmp/w/model.{module(5)}.pb after 0 retries.", 1320),
        ("RuntimeError: Bad StatusOr access: INTERNAL: RunNeuronCCImpl: error condition", None),
    ],
)  # fmt: skip
def test_what_the_compiler_says_before_the_failure_is_told_is_its_cause(code, kind, after, seconds):
    """The compiler's own lines come before its parent's, which names the module."""
    call = f"Call compiler with cmd: neuronx-cc compile /tmp/w/model.{module(5)}.hlo_module.pb --target=trn1"
    begun = f"2026-07-31 05:08:00.000100:  5  [INFO]: {call}\n"
    (failed,) = told(f"{begun}2026-07-31T05:29:59Z [ERROR] {code}\n{after}\n").failed
    assert (failed.module, failed.kind, failed.seconds) == (module(5), kind, seconds)
    done = f"2026-07-31 05:31:30.000100:  5  [INFO]: Compilation Successfully Completed for model.{module(5)}.neff\n"
    again = f"2026-07-31 05:31:40.000100:  5  [INFO]: {call}\n"
    other = "2026-07-31 05:32:00.000100:  5  [ERROR]: Compilation failed for "
    (failed,) = told(
        f"{begun}[ERROR] {code}\n{done}{again}{other}/tmp/w/model.{module(5)}.pb after 0 retries.\n"
    ).failed
    assert failed.kind == "unknown", "what was said of a compile that ended well says nothing of the next one"


def test_a_code_alone_is_read_as_the_failure_that_it_is():
    """What somebody has cut out of a log, and no other program's code."""
    (failed,) = told(
        "[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient memory."
    ).failed
    assert (failed.module, failed.kind, failed.code) == ("", "host-oom", "F137")
    assert read(io.BytesIO(b"[WEB500] Internal Server Error\n")) is None


def test_a_compile_that_failed_before_is_told_with_its_failure():
    call = f"['neuronx-cc', '--output', '/tmp/w/model.{module(1)}.neff']: [F137] neuronx-cc was forcibly killed"
    failed = f"2026-07-31 05:08:00.000100:  5  [ERROR]: Failed compilation with {call}\n"
    old = f"2026-07-31 05:08:00.000100:  5  [INFO]: Got a cached failed neff at {NCC}/{module(1)}/model.neff. "
    old += f"With eror log: \n Failed compilation with {call}. Retrying...\n"
    done = f"2026-07-31 05:09:00.000100:  5  [INFO]: Compilation Successfully Completed for model.{module(1)}.neff\n"
    assert [one.failed_before for one in told(failed + done).compiled] == ["host-oom"]
    assert [one.failed_before for one in told(old + done).compiled] == ["host-oom"]
    assert [one.failed_before for one in told(done).compiled] == [""]


@pytest.mark.parametrize("minutes", ["9999999999.0", "1" + "0" * 307, "9" * 400])
@pytest.mark.parametrize("day", ["2026-07-29", "0001-01-01"])
def test_a_wait_from_before_the_calendar_loses_no_time(day, minutes):
    line = (
        f"{day} 00:00:00.000000:  1  [INFO]: Another process must be compiling {NCC}/{module(9)}/model.hlo_module.pb, "
    )
    found = told(line + f"been waiting for: {minutes} minutes\n")
    assert (list(found.waits), found.lost_seconds) == ([module(9)], None)


def test_a_compile_without_an_end_is_told():
    begun = "2026-07-29 17:30:00.000000:  7  [INFO]: Call compiler with cmd: neuronx-cc compile "
    begun += f"/tmp/w/model.{module(3)}.hlo_module.pb\n....."
    next_one = (
        f"neuronxcc-2.26/{module(4)}/model.done not found in org/cache: the corresponding graph will be recompiled.\n"
    )
    retried = (
        f"2026-07-29 17:33:00.000000:  8  [INFO]: Got a cached failed neff at {NCC}/{module(5)}/model.neff. Retrying\n"
    )
    assert [told(text).unfinished for text in (begun, next_one, retried, begun + "\n" + next_one)] == [1, 1, 1, 2]
    ended = f"\n2026-07-29 17:31:00.000000:  7  [INFO]: Compilation Successfully Completed for model.{module(3)}.neff\n"
    found = f"2026-07-29 17:31:00.000000:  7  [INFO]: Using a cached neff at {NCC}/{module(4)}/model.neff\n"
    assert told(begun + ended + next_one + found).unfinished == 0


def test_runs_that_one_log_holds_are_counted():
    line = f"2026-07-31 05:{{}}:00.000100:  {{}}  [INFO]: Using a cached neff at {NCC}/{module(1)}/model.neff\n"
    one = line.format("08", 5) + line.format("08", 6) + line.format("09", 5) + line.format("09", 6)
    later = line.format(10, 7) + line.format(10, 8)
    assert [told(text).groups for text in (one, one + later, later + one, one + line.format(10, 5))] == [1, 2, 2, 1]


def test_extracted_graphs_wait_for_a_compile_unless_npc_has_been_there():
    graph = f"2026-07-29 17:27:22.000687:  1  [INFO]: Extracting graphs ({NCC}/{module(2)}/model.hlo_module.pb) for ahead-of-time parallel compilation.\n"
    assert (told(graph).extracted, told(graph).found) == (1, 0)
    done = told(graph + "2026-07-29 17:28:01.000755:  1  [INFO]: Total graphs: 1\n")
    assert (done.extracted, done.found) == (0, 1)


def test_what_nxd_says_of_all_graphs_is_the_time_where_lines_have_none():
    """It compiles one graph first, which is not among all: a public log of NxD Inference has these two figures."""
    first = "INFO:Neuron:Done compilation for the priority HLO in 45.15 seconds\n"
    others = "(EngineCore_DP0 pid=272) INFO:Neuron:Finished Compilation for all HLOs in 49.70 seconds\n"
    assert [told(text).lost_seconds for text in (first, others, first + others)] == [45.15, 49.7, 94.85]


PASS = "....\nCompiler status PASS\n"


def test_the_export_of_a_model_is_told_by_its_parts():
    """As optimum-neuron writes it, whose export keeps its graphs elsewhere than in the compiler's cache."""
    part = f"***** Compiling {{}} *****\n{PASS}[Compilation Time] {{}} seconds.\n"
    text = part.format("encoder", 101.86) + part.format("decoder", 55.2) + "[Total compilation Time] 157.06 seconds.\n"
    found = told(f"{text}Model cached in: {NCC}/MODULE_6151d82caf2d3b2f7a6f.\n")
    assert [(one.module, one.seconds, one.at_most) for one in found.compiled] == [
        ("encoder", 101.86, True),
        ("decoder", 55.2, True),
    ]
    assert (found.of, found.lost_seconds, found.lost_at_most) == ("export", pytest.approx(157.06), True)


@pytest.mark.parametrize(
    ("text", "compiled", "unfinished"),
    [
        (PASS, [""], 0),
        (f"{PASS}hello\n{PASS}", ["", ""], 0),
        ("{one}{two}" + PASS, [""], 1),
        ("{one}" + PASS, [module(1)], 0),
        ("{one}" + PASS + "{ended}", [module(1)], 0),
        ("{one}{ended}{two}", [module(1)], 1),
    ],
)
def test_a_compile_that_ends_well_counts_whether_or_not_its_graph_is_named(text, compiled, unfinished):
    lines = {"one": calls(0, 5, 1), "two": calls(1, 6, 2), "ended": ends(2, 5, 1)}
    found = told(text.format(**{name: f"{line}\n" for name, line in lines.items()}))
    assert ([one.module for one in found.compiled], found.unfinished) == (compiled, unfinished)


@pytest.mark.parametrize("text", ["", "\n\n", "hello\n", '{"loss": 1.2}\n', "\x00\xff" * 100])
def test_a_log_without_a_word_of_neurons_tells_nothing(text):
    assert told(text) is None


@pytest.mark.parametrize(
    ("kind", "counts", "lost"),
    [
        ("neurontrainer.tinyllama*.log", ("run", 8, 4, 0), 271),  # its own figure: 273.42 s
        ("neuron_parallel_compile.llama31*.log", ("run", 6, 6, 0), 1269),  # of 1,498 s in all
        ("log-neuron-cc.trn1*failure*.txt", ("compiler", 0, 0, 1), 1),
        ("log-neuron-cc.trn3*success*.txt", ("compiler", 0, 1, 0), 1),
    ],
)
def test_real_logs_are_told_as_a_whole(kind, counts, lost):
    with real_log(kind).open("rb") as log:
        said = read(log)
    assert (said.of, said.found, len(said.compiled), len(said.failed)) == counts
    assert said.lost_seconds == pytest.approx(lost, abs=1)


# What the compiler says of a failure on a line of its own, which names no module

OOM = "[NCC_EOOM002] Maximum peak HBM usage of 18.12GB exceeds HBM limit of 16.00GB"
F137 = "[F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient system memory."


def at(minute, pid, text):
    return f"2026-07-31 05:{minute:02}:00.000100:  {pid}  [INFO]: {text}"


def calls(minute, pid, number):
    return at(minute, pid, f"Call compiler with cmd: neuronx-cc compile /tmp/w/model.{module(number)}.hlo_module.pb")


def fails(minute, pid, number):
    return at(minute, pid, f"Compilation failed for /tmp/w/model.{module(number)}.hlo_module.pb after 0 retries.")


def ends(minute, pid, number):
    return at(minute, pid, f"Compilation Successfully Completed for model.{module(number)}.hlo_module.pb")


def twice(minute, pid, number, said=""):
    """A failure as SDK 2.31 tells it at its default level, without a line before the compile."""
    quoted = f"Failed compilation with ['neuronx-cc', 'compile', '/tmp/w/model.{module(number)}.hlo_module.pb']: {said}"
    return f"{at(minute, pid, quoted)}\n{fails(minute, pid, number)}"


TWO_AT_ONCE = [calls(0, 5, 1), calls(0, 6, 2)]
RANKS = [f"[rank0]: {TWO_AT_ONCE[0]}", f"[rank1]: {TWO_AT_ONCE[1]}"]
OF_NOBODY = {
    "no line before the compile": ([OOM, twice(1, 5, 1)], {1: "device-oom"}),
    "the same, of two processes": ([F137, F137, twice(1, 5, 1), twice(1, 6, 2)], {1: "host-oom", 2: "host-oom"}),
    "after each failure its own": ([OOM, twice(1, 5, 1), F137, twice(2, 5, 2)], {1: "device-oom", 2: "host-oom"}),
    "a failure that says why itself": (
        [OOM, twice(1, 5, 1, "[NCC_EVRF059] x"), twice(2, 6, 2)],
        {1: "user-error", 2: "device-oom"},
    ),
    "one that was told of twice": ([OOM, twice(1, 5, 1, OOM), OOM, fails(2, 5, 1)], {1: "device-oom"}),
    "two ranks, each with its own": (
        [*RANKS, f"[rank1]: {OOM}", f"[rank0]: {F137}", f"[rank0]: {fails(1, 5, 1)}", f"[rank1]: {fails(2, 6, 2)}"],
        {1: "host-oom", 2: "device-oom"},
    ),
    "after another rank's failure": (
        [*RANKS, f"[rank0]: {F137}", f"[rank0]: {fails(1, 5, 1)}", f"[rank1]: {OOM}", f"[rank1]: {fails(2, 6, 2)}"],
        {1: "host-oom", 2: "device-oom"},
    ),
    "two at once, of which one fails": ([*TWO_AT_ONCE, OOM, fails(1, 5, 1), ends(2, 6, 2)], {1: "device-oom"}),
    "and the other ends first": ([*TWO_AT_ONCE, OOM, ends(1, 6, 2), fails(2, 5, 1)], {1: "device-oom"}),
    "and another error is the other's": ([*TWO_AT_ONCE, OOM, F137, fails(1, 5, 1), ends(2, 6, 2)], {1: "device-oom"}),
    "two at once, and nothing tells whose is which": (
        [*TWO_AT_ONCE, OOM, F137, fails(1, 5, 1), fails(2, 6, 2)],
        {1: "unknown", 2: "unknown", 0: "device-oom, host-oom"},
    ),
    "a process that goes on to the next": (
        [calls(0, 5, 1), F137, calls(1, 5, 2), OOM, "RuntimeError: Bad StatusOr access: RunNeuronCCImpl"],
        {1: "host-oom", 2: "device-oom"},
    ),
    "the only failure, which another process tells": ([f"[rank3]: {OOM}", f"[rank0]: {fails(1, 5, 1)}"], {1: "device-oom"}),
    "the only failure, which only npc's report tells": (
        [PASS, OOM, f'{{"{NCC}/{module(2)}/model.neff": {{"status": true}}, "{NCC}/{module(1)}/model.neff": {{"status": false}}}}'],
        {1: "device-oom"},
    ),
    "after a hit, in a log that ends": ([HIT := at(0, 5, f"Using a cached neff at {NCC}/{module(9)}/model.neff"), OOM], {0: "device-oom"}),
    "a compile that was tried again": ([calls(0, 5, 1), F137, calls(1, 5, 1), ends(2, 5, 1)], {}),
    "the same without a line before it": ([f"[rank0]: {F137}", f"[rank0]: {ends(2, 5, 1)}"], {}),
    "a warning": ([calls(0, 5, 1), f"2026-07-31T05:03:59Z [WARNING] {OOM}", fails(1, 5, 1)], {1: "unknown"}),
    # Words without a code
    "an option that is refused": ([calls(0, 5, 1), "neuronx-cc compile: error: argument --target: invalid choice: 'trn9'", fails(1, 5, 1)], {1: "user-error"}),
    "the compiler's words alone": (["usage: neuronx-cc compile [-h]", "neuronx-cc: error: unrecognized arguments: --foo"], {0: "user-error"}),
    "no compiler": ([HIT, "ModuleNotFoundError: No module named 'neuronxcc'"], {0: "no-compiler"}),
    "a full disk": ([calls(0, 5, 1), "OSError: [Errno 28] No space left on device", fails(1, 5, 1)], {1: "disk-full"}),
    "a full disk, told later": ([calls(0, 5, 1), fails(1, 5, 1), "OSError: [Errno 28] No space left on device"], {1: "disk-full"}),
    "a full disk that is nobody's": ([HIT, "OSError: [Errno 28] No space left on device"], {}),
    "an interruption after a failure": ([fails(1, 5, 1), "KeyboardInterrupt"], {1: "unknown"}),
    "what torchrun says of another worker": ([fails(1, 5, 1), "  traceback : Signal 9 (SIGKILL) received by PID 78"], {1: "unknown"}),
}  # fmt: skip


@pytest.mark.feature("D2")
@pytest.mark.parametrize("case", OF_NOBODY)
def test_an_error_of_nobody_belongs_to_a_failure_or_is_named_alone(case):
    lines, expected = OF_NOBODY[case]
    found = told("\n".join(lines))
    kinds = {}
    for one in found.failed:
        number = int(one.module.removeprefix("MODULE_").partition("+")[0] or 0)
        kinds[number] = ", ".join(sorted(filter(None, (kinds.get(number), one.kind))))
    assert kinds == expected


SAID = [
    (line, name)
    for text, _, name, _ in CASES
    for line in text.removeprefix(COMMAND).splitlines()
    if classify(line).kind.name == name and "exitcode" not in line
    if name not in {"interrupted", "unknown"} and (classify(line).certain or line == "Killed")
]


@pytest.mark.parametrize(("line", "name"), SAID)
def test_what_tells_a_failures_class_tells_it_on_a_line_before_it_too(line, name):
    (failed,) = told(f"{calls(0, 5, 1)}\n{line}\n{fails(1, 5, 1)}\n").failed
    assert (failed.module, failed.kind) == (module(1), name)
