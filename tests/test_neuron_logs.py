"""Logs of Neuron runs: what was found, compiled, waited for and failed, from any version's wording, cut anywhere."""

# ruff: noqa: E501 - quoted lines are as long as they are

import itertools
import json
import random
import tracemalloc

import pytest
from conftest import real_dir
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.compilers.neuron import log_events as ev
from cachekit.compilers.neuron.command import parse_command
from cachekit.compilers.neuron.compiler_log import read_compiler_log
from cachekit.compilers.neuron.logs import LONGEST, LogReader
from cachekit.compilers.neuron.run_log import RunLog

ROOT = "/var/tmp/neuron-compile-cache"
NCC = f"{ROOT}/neuronxcc-2.26.6360.0+6f180f47"


def module(number):
    return f"MODULE_{number}+f7f529f3"


def events_of(text):
    reader = LogReader()
    return reader.feed(text) + reader.close()


def run_of(text):
    return RunLog().add_all(events_of(text))


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
    """What must not depend on prefixes and noise: everything but times and names of processes."""
    report = run.as_dict()
    return {name: value for name, value in report.items() if name not in {"processes", "seconds"}}


def test_a_run_is_added_up():
    run = run_of(NEW)
    assert run.hits == {module(1): 2}
    assert (run.extracted, run.listed) == ({module(2): 2}, {module(2): 2})
    assert run.compiled == {module(2): (219.343, "worker")}
    assert run.waits == {module(3): 22.0}
    assert run.failed_before == 2  # three in the root, one of them of this run
    assert list(run.cached_failures) == [module(4)]
    assert run.retried == {module(5)}
    assert list(run.failed) == [module(6)]
    assert list(run.not_found) == [module(2)]
    assert run.modules == [module(2), module(1)]
    assert run.compilers == {"neuronxcc-2.26.6360.0+6f180f47"}
    assert run.seconds == pytest.approx(525.718)
    assert run.unfinished == []
    assert run.failures()[module(4)].kind.name == "device-oom"
    assert run.failures()[module(6)].kind.name == "host-oom"
    assert run.by_process["pid 10477"] == {module(1), module(2)}


@pytest.mark.feature("D2")
def test_the_report_is_plain_json():
    report = run_of(NEW).as_dict()
    assert json.loads(json.dumps(report)) == report
    assert report["compiled"] == [{"module": module(2), "seconds": 219.343, "exact": True, "basis": "worker"}]
    assert report["summary"] == {"total": 2, "success": 1, "failed": 1}


def test_old_failures_that_the_summary_hides_are_counted():
    text = (
        "2026-07-29 17:50:04.000740:  1  [INFO]: Current remaining items are 0, locked are 0, failed are 2, done are 22,"
        " total is 24\n2026-07-29 17:50:04.000755:  1  [INFO]: Compilation summary: 0/6 failed, 6 succeeded\n"
    )
    run = run_of(text)
    assert run.failed_before == 2
    assert run.as_dict()["failed"] == []


@given(st.lists(st.integers(0, len(NEW.encode())), max_size=60), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_stream_may_be_cut_anywhere(cuts, as_text):
    data = NEW if as_text else NEW.encode()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    reader = LogReader()
    events = [event for a, b in itertools.pairwise(places) for event in reader.feed(data[a:b])]
    assert events + reader.close() == events_of(NEW)


def test_byte_by_byte():
    reader = LogReader()
    events = [event for byte in NEW.encode() for event in reader.feed(bytes([byte]))]
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
@settings(max_examples=150, deadline=None)
def test_prefixes_dots_and_colours_change_nothing(seed):
    assert counts(run_of(noisy(NEW, seed))) == counts(run_of(NEW))


MISSING = f"neuronxcc-2.26/{module(1)}/model.done not found in a/b: the corresponding graph will be recompiled."


@pytest.mark.parametrize(
    "text",
    [MISSING, f"....{MISSING}", f" 50%|███\r{MISSING}", f"\x1b[33m{MISSING}", MISSING.replace("not", "\x1b[1mnot\x1b[0m"),
     MISSING.replace("/model", "\x1b]8;;x\x07/model")],
)  # fmt: skip
def test_noise_is_no_part_of_a_path(text):
    (event,) = events_of(f"{text}\r\n")
    assert (event.path, event.repository) == (f"neuronxcc-2.26/{module(1)}/model.done", "a/b")


def test_prefixes_name_the_worker():
    line = f"2026-07-29 17:19:00.000611:  10142  [INFO]: Using a cached neff at {NCC}/{module(1)}/model.neff\n"
    (torchrun,) = events_of(f"[default3]:[rank3]: {line}")
    (vllm,) = events_of(f"(EngineCore_DP0 pid=37707) {line}")
    assert (torchrun.rank, torchrun.pid) == (3, 10142)
    assert (vllm.worker, vllm.pid, vllm.rank) == ("EngineCore_DP0", 10142, None)
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
    (event,) = events_of(f"2026-07-29 17:19:00.{digits}: 7 [INFO]: Compile cache path: {ROOT}\n")
    assert event.at.microsecond == microsecond


# --- older wordings ---------------------------------------------------------------------------------------------

HASH = "d41d8cd9"


def test_sdk_2_8_names_no_process():
    text = f"""\
2023-08-25 21:51:36.000433: INFO ||NCC_WRAPPER||: Compile cache path: {ROOT}
.
Compiler status PASS
2023-08-25 21:52:23.000453: INFO ||NCC_WRAPPER||: Using a cached neff at {ROOT}/neuronxcc-2.8.0.25+a3ad0f342/\
MODULE_7+{HASH}/model.neff. Exiting with a successfully compiled graph.
INFO ||NCC_WRAPPER||: Got a cached failed neff at {ROOT}/neuronxcc-2.8.0.25+a3ad0f342/MODULE_8+{HASH}/model.neff. Will \
skip compilation, please set --retry_failed_compilation for recompilation.
"""
    run = run_of(text)
    assert run.hits == {f"MODULE_7+{HASH}": 1}
    assert run.compiled == {}
    assert list(run.cached_failures) == [f"MODULE_8+{HASH}"]
    assert (run.passed, run.cache_paths) == (1, {ROOT})


def test_before_sdk_2_8_a_compile_has_a_folder_and_an_end():
    old = f"{ROOT}/USER_neuroncc-2.0.0.48+e5fcdf753/MODULE_77"
    inner = "MODULE_0_SyncTensorsGraph.6_77_ip-172-31-43-112.ec2.internal-e7aed083-14217-5e404023e468c"
    text = f"""\
2022-07-17 17:59:53.000541: INFO ||NCC_WRAPPER||: No candidate found under {old}.
2022-07-17 17:59:53.000541: INFO ||NCC_WRAPPER||: Cache dir for the neff: {old}/{inner}/d3d4b823-0872
.
Compiler status PASS
2022-07-17 18:00:01.000117: INFO ||NCC_WRAPPER||: Exiting with a successfully compiled graph
2022-07-17 18:05:37.000179: INFO ||NCC_WRAPPER||: Using a cached neff at {old}/{inner}/d3d4b823-0872/{inner}.neff. \
Exiting with a successfully compiled graph
"""
    run = run_of(text)
    assert run.compiled == {"MODULE_77": (pytest.approx(7.576), "command")}
    assert run.hits == {"MODULE_77": 1}
    assert run.compilers == {"USER_neuroncc-2.0.0.48+e5fcdf753"}


def call(second, pid, number, form="list"):
    arguments = [
        "neuronx-cc", "--target=trn1", "compile", "--framework", "XLA", f"/tmp/w/model.MODULE_{number}+{HASH}.hlo.pb",
        "--output", f"/tmp/w/model.MODULE_{number}+{HASH}.neff", "--verbose=35",
    ]  # fmt: skip
    command = arguments if form == "list" else " ".join(arguments)
    return (
        f"2024-01-11 05:53:{second:02}.000203:  {pid}  INFO ||NEURON_CC_WRAPPER||: Call compiler with cmd: {command}\n"
    )


def cache_path(second, pid):
    return f"2024-01-11 05:53:{second:02}.000498:  {pid}  INFO ||NEURON_CACHE||: Compile cache path: {ROOT}\n"


@pytest.mark.parametrize("form", ["list", "line"])
def test_a_compile_without_a_completion_line_ends_before_the_next_line_of_its_process(form):
    text = call(1, 9, 1, form) + ".\nCompiler status PASS\nloss 0.1\n" + cache_path(21, 9) + call(21, 9, 2, form)
    run = run_of(text + "..\nCompiler status PASS\n")
    assert run.compiled == {
        f"MODULE_1+{HASH}": (pytest.approx(20.295), "next-line"),
        f"MODULE_2+{HASH}": (None, ""),  # the log ends before its process says anything else
    }


def test_passes_of_many_processes_are_given_to_those_that_go_on():
    text = "".join(call(1, pid, pid) for pid in (5, 6, 7)) + "Compiler status PASS\n\nCompiler status PASS\n"
    text += cache_path(11, 6) + "Compiler status PASS\n"
    assert {name: seconds for name, (seconds, _) in run_of(text).compiled.items()} == {
        f"MODULE_6+{HASH}": pytest.approx(10.295),
        f"MODULE_5+{HASH}": None,
        f"MODULE_7+{HASH}": None,
    }


def test_a_pass_is_given_once():
    done = (
        f"2024-01-11 05:53:31.000203:  6  [INFO]: Compilation Successfully Completed for model.MODULE_2+{HASH}.hlo.pb\n"
    )
    text = call(1, 5, 1) + call(1, 6, 2) + "Compiler status PASS\n" + done + cache_path(41, 5)
    assert run_of(text).compiled == {f"MODULE_2+{HASH}": (30.0, "command")}


def test_a_pass_for_one_of_two_graphs_of_a_process_names_none():
    assert run_of(call(1, 5, 1) + call(1, 5, 2) + "Compiler status PASS\n" + cache_path(9, 5)).compiled == {}


def test_a_clock_that_was_set_back_gives_no_seconds():
    done = (
        f"2023-01-01 00:00:00.000000:  5  [INFO]: Compilation Successfully Completed for model.MODULE_1+{HASH}.hlo.pb\n"
    )
    assert run_of(call(1, 5, 1) + done).compiled == {f"MODULE_1+{HASH}": (None, "")}


def test_a_compile_that_nobody_saw_end_is_not_called_compiled():
    text = call(1, 5, 1) + call(2, 6, 2) + "Compiler status PASS\n"
    assert run_of(text).compiled == {}


def test_threads_of_one_process_do_not_end_each_other():
    """NxD compiles several graphs at once from one process."""
    text = call(1, 5, 1) + call(1, 5, 2) + call(2, 5, 3) + "Compiler status PASS\n" * 3
    assert set(run_of(text).compiled) == {f"MODULE_{number}+{HASH}" for number in (1, 2, 3)}


OOM = "[ERROR] [NCC_EOOM002] Maximum peak HBM usage of 18.12GB exceeds HBM limit of 16.00GB"


def failed(second, pid, number):
    return (
        f"2026-07-31 05:00:{second:02}.000100:  {pid}  [ERROR]: Failed compilation with ['neuronx-cc', 'compile', "
        f"'--output', '/tmp/w/model.{module(number)}.neff', '--target=trn1']:\n{OOM}\nBackend exited with code 1\n"
    )


def skipped(
    second, pid, number, tail="Will skip compilation, please set --retry_failed_compilation for recompilation:"
):
    return (
        f"2026-07-31 05:00:{second:02}.000100:  {pid}  [ERROR]: Got a cached failed neff at {NCC}/{module(number)}/model.neff."
        f" {tail}\n Failed compilation with ['neuronx-cc', '--output', '/tmp/w/model.{module(number)}.neff']: {OOM}\n"
    )


def test_a_failure_that_another_rank_meets_is_of_this_run():
    run = run_of(failed(1, 5, 1) + skipped(2, 6, 1) + skipped(3, 6, 2))
    assert (list(run.failed), list(run.cached_failures), run.failed_before) == ([module(1)], [module(2)], 1)
    assert {failure.code for failure in run.failures().values()} == {"NCC_EOOM002"}


def test_a_retried_failure_is_quoted_and_may_end_well_or_fail_again():
    retry = skipped(1, 5, 1, "With eror log: ") + ". Retrying...\n"
    (again, quoted, code) = events_of(retry)
    assert (type(again), quoted.quoted, code.code) == (ev.Retrying, True, "NCC_EOOM002")
    run = run_of(retry)
    assert (run.retried, run.failed, run.cached_failures) == ({module(1)}, {}, {})
    done = f"2026-07-31 05:09:00.000100:  5  [INFO]: Compilation Successfully Completed for model.{module(1)}.hlo_module.pb\n"
    assert run_of(retry + done).failed == {}
    assert list(run_of(retry + done).compiled) == [module(1)]
    assert list(run_of(retry + failed(9, 5, 1)).failed) == [module(1)]
    assert run_of(failed(9, 5, 1) + done).failed == {}


def test_a_failure_ends_a_compile():
    text = call(1, 5, 1) + call(1, 6, 2) + "Compiler status PASS\n"
    text += (
        "2024-01-11 05:54:00.000062:  5  ERROR ||NEURON_CC_WRAPPER||: Failed compilation with ['neuronx-cc', 'compile', "
        f"'--output', '/tmp/w/model.MODULE_1+{HASH}.neff']: 2024-01-11T05:54:00Z [TEN404] (_add.1) Internal tensorizer "
        "error: x - Please open a support ticket at https://github.com/aws-neuron/aws-neuron-sdk/issues/new\n\n"
        f"2024-01-11 05:54:01.000062:  5  ERROR ||NEURON_CC_WRAPPER||: Compilation failed for "
        f"/tmp/w/model.MODULE_1+{HASH}.hlo.pb after 0 retries.\n"
    )
    run = run_of(text)
    assert list(run.compiled) == [f"MODULE_2+{HASH}"]
    assert run.failures()[f"MODULE_1+{HASH}"].as_dict()["code"] == "TEN404"


def test_an_exception_in_the_training_script_names_the_failure_too():
    text = (
        "[rank0]: Traceback (most recent call last):\n"
        "[rank0]: RuntimeError: Failed compilation with ['neuronx-cc', 'compile', '--output', "
        f"'/tmp/w/model.MODULE_9+{HASH}.neff']: 2024-05-10T23:47:40Z [XCG815]  Estimated peak HBM usage (22.8) exceeds 16GB."
        " Neff won't be able to load on chip - Please open a support ticket at https://github.com/x\n"
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 77) of binary: p\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\n"
        "train.py FAILED\n------------------------------------------------------------\nFailures:\n[1]:\n"
        "  time      : 2024-05-10_23:48:00\n  host      : ip-10-0-0-1\n  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : -15 (pid: 78)\n  error_file: <N/A>\n"
        "Root Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 77)\n"
    )
    run = run_of(text)
    assert {name: failure.kind.name for name, failure in run.failures().items()} == {f"MODULE_9+{HASH}": "device-oom"}
    assert run.exits == {"rank 1": -15, "rank 0": 1}


REPORT = {
    "compilation_summary": {"true": 1, "false": 1},
    "compilation_report": {
        f"{NCC}/{module(1)}/model.hlo_module.pb": {"status": True, "retry": 0, "compile_time": 192.86727905273438},
        f"{NCC}/{module(2)}/model.hlo_module.pb": {"status": False, "retry": 1, "compile_time": 9.77},
    },
    "start_time": 1737076372.654127,
    "compilation_time": 195.32730412483215,
}


@pytest.mark.parametrize("indent", [None, 4])
def test_the_json_report_in_the_log_gives_the_seconds(indent):
    head = "2025-01-17 01:16:07.000981:  32201  INFO ||NEURON_PARALLEL_COMPILE||: "
    report = json.dumps(REPORT, indent=indent).replace(
        '"status": true', "{'loss': 0.1}\n" * bool(indent) + '"status": true'
    )
    run = run_of(
        f"2025-01-17 01:16:00.000000:  1  [INFO]: Compilation Successfully Completed for model.{module(1)}.hlo_module.pb\n"
        f"{head}{report}\n{head}Total graphs: 2\n{head}Total successful compilations: 1\n{head}Total failed compilations: 1\n"
    )
    assert run.compiled == {module(1): (192.86727905273438, "report")}
    assert list(run.failed) == [module(2)]
    assert run.as_dict()["summary"] == {"total": 2, "success": 1, "failed": 1}


def test_npcs_workers_of_older_versions():
    said = events_of(
        "2025-01-17 01:16:07.000934:  42821  INFO ||NEURON_PARALLEL_COMPILE||: worker 6 finished with num of tasks 1....\n"
        "2024-12-24 11:10:32.000606:  788421  INFO ||NEURON_PARALLEL_COMPILE||: sub-process 1 got exception: None\n"
    )
    assert [(type(event), event.number) for event in said] == [(ev.WorkerDone, 6), (ev.WorkerException, 1)]


def test_an_exported_model_has_a_module_without_flags():
    text = f"[Compilation Time] 101.86 seconds.\nModel cached in: {NCC}/MODULE_6151d82caf2d3b2f7a6f.\n"
    seconds, exported = events_of(text)
    assert (seconds.seconds, exported.module) == (101.86, "MODULE_6151d82caf2d3b2f7a6f")
    report = run_of(text).as_dict()
    assert (report["exported"], report["export_seconds"]) == (["MODULE_6151d82caf2d3b2f7a6f"], [101.86])


def test_codes_in_warnings_are_no_errors():
    assert events_of("WARNING [x]: [NCC_EOOM002] may exceed\n") == []
    (error,) = events_of("[ERROR] [NCC_EBVF030] Instructions generated by compiler 1 exceeds the typical limit\n")
    assert (type(error), error.code) == (ev.CompilerError, "NCC_EBVF030")


# --- hostile and broken streams ---------------------------------------------------------------------------------

FRAGMENTS = [
    "Using a cached neff at ", ".neff", "Failed compilation with [", "']", "MODULE_", "MODULE_1+f7f529f3", "[INFO]: ", "\x1b[",
    "Call compiler with cmd: ['", "2026-07-29 17:19:00.000611:  10142  [INFO]: ", "99999-99-99 99:99:99.9: [INFO]: ", "||: ",
    "Compiler status PASS", "\r", "\n", "\x00", '"a/MODULE_1": {', '"status": true', "}", "New graph list from script: ",
    "been waiting for: 1.1.1 minutes", "Another process must be compiling x, ", "(pid=", "[rank9]:", "exitcode : -9 (pid: 1)",
    "rank : 1 (local_rank: 0)", '"compile_time": 1e999', "Got a cached failed neff at a.neff", "\ud800", "2026-02-31 00:00:00",
]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=20)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read(parts):
    run = run_of("".join(parts))
    json.dumps(run.as_dict())


@given(st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_read(data):
    run_of(data)


@pytest.mark.parametrize(
    "unit",
    [".", "A", " ", "9", "MODULE_1", "Using a cached neff at ", "Compiler status PASS", "[INFO]: ", "\x1b[1", "[rank0]:",
     "INFO ||NEURON_CACHE||: ", "Failed compilation with ['", '"MODULE_1": {', "[NCC_EOOM002]", "(a pid=1) ", "/model.done"],
)  # fmt: skip
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
    assert sum(isinstance(event, ev.Hit) and event.module == module(1) for event in events) == 2


def test_the_ends_of_a_cut_line_are_not_joined():
    half = LONGEST // 2
    word = "Compiler status "
    assert events_of("x" * (half - len(word)) + word + "y" * LONGEST + "PASS" + "z" * (half - 4)) == []
    assert len(events_of("x" * (half - len(word)) + word + "PASS" + "z" * (half - 4))) == 1


# --- the compiler's command and its own log -----------------------------------------------------------------------


def test_commands_in_both_quotations_are_the_same():
    line = (
        "neuronx-cc compile --framework=XLA in.pb --output out.neff --target=trn1 --model-type transformer --verbose=35"
    )
    quoted = parse_command(str(line.split()) + ": 2024-01-01T00:00:00Z [x]")
    assert quoted == parse_command(line)
    assert quoted.flags == ("--target=trn1", "--model-type", "transformer", "--verbose=35")
    assert (quoted.input, quoted.output, quoted.target, quoted.target_in_flags) == ("in.pb", "out.neff", "trn1", True)


def test_a_target_before_the_input_is_not_among_the_flags():
    command = parse_command("neuronx-cc --target trn1 compile --framework XLA in.pb --output=out.neff --auto-cast none")
    assert (command.input, command.output, command.target) == ("in.pb", "out.neff", "trn1")
    assert command.flags == ("--auto-cast", "none")
    assert not command.target_in_flags


LOG = """\
2026-04-23T19:03:57Z INFO 100 [root]: /opt/bin/neuronx-cc compile --framework=XLA m/model.MODULE_1+f7f529f3.hlo_module.pb \
--output m/model.MODULE_1+f7f529f3.neff --target=trn2 '--tensorizer-options=--a --b'
2026-04-23T19:03:57Z INFO 100 [root]: NeuronX Compiler version 2.24.5133.0+58f8de22 Python version 3.12.3 HWM version 2
2026-04-23 19:03:57.522402: I hilo/partition/Partition.cc:83] [INFO] needsModular? No.
2026-04-23T19:03:58Z USER 101 [root/Tensorizer/Tensorizer]: Running Tensorizer
2026-04-23T19:05:00Z INFO 200 [root]: /opt/bin/neuronx-cc compile --framework XLA b.pb --output=b.neff
2026-04-23T19:05:30Z ERROR 201 [neuronxcc.driver.CommandDriver]: [ERROR] [NCC_EOOM002] Maximum peak HBM usage of 18.12GB
  exceeds HBM limit of 16.00GB
2026-04-23T19:05:31Z INFO 200 [root]: Subcommand returned with exitcode=70
2026-04-23T19:06:57Z INFO 100 [root]: Subcommand returned with exitcode=0
2026-04-23T19:07:00Z INFO 300 [root]: /opt/bin/neuronx-cc compile --framework XLA c.pb --output=c.neff
"""


def test_a_compilers_log_tells_each_of_its_compiles():
    good, bad, broken = read_compiler_log(LOG.splitlines(keepends=True))
    assert (good.module, good.version, good.exit_code) == ("MODULE_1+f7f529f3", "2.24.5133.0+58f8de22", 0)
    assert good.flags == ("--target=trn2", "--tensorizer-options=--a --b")
    assert (good.seconds, good.failure, good.errors) == (180.0, None, "")
    assert (bad.exit_code, bad.codes, bad.seconds) == (70, ("NCC_EOOM002",), 31.0)
    assert bad.failure.kind.name == "device-oom"
    assert "exceeds HBM limit" in bad.errors
    assert (broken.exit_code, broken.failure, broken.command.output) == (None, None, "c.neff")


def test_compiles_at_once_end_for_themselves():
    lines = LOG.splitlines()
    lines[7], lines[8] = lines[8], lines[7]
    first, second, _ = read_compiler_log(lines)
    assert (first.exit_code, second.exit_code) == (0, 70)


def test_an_old_compilers_log():
    text = (
        "02/17/2023 04:18:15 PM INFO 57160 [root]: /opt/neuronx-cc compile --framework XLA a.pb --output a.neff\n"
        "02/17/2023 04:18:45 PM ERROR 57168 [neuronx-cc]:   NeuronX Compiler version 2.4.0.21+b7621be18\n"
        "02/17/2023 04:19:15 PM INFO 57160 [root]: Subcommand returned with exitcode=-9\n"
    )
    (run,) = read_compiler_log(text.splitlines())
    assert (run.version, run.exit_code, run.seconds) == ("2.4.0.21+b7621be18", -9, 60.0)
    assert run.failure.kind.name == "host-oom"


@given(st.text(max_size=300))
@settings(max_examples=60, deadline=None)
def test_any_text_is_no_compilers_log_or_one(text):
    for part in (text, LOG[: len(text) * 3] + text):
        for run in read_compiler_log(part.splitlines()):
            assert run.exit_code is None or isinstance(run.exit_code, int)


# --- real logs ----------------------------------------------------------------------------------------------------


def real_log(kind):
    found = sorted(real_dir("logs").glob(kind))
    if not found:
        pytest.skip(f"no {kind} among the real files (CACHEKIT_REAL_DIR)")
    return found[0]


@pytest.mark.feature("F3")
def test_the_real_parallel_compile():
    path = real_log("neuron_parallel_compile.llama31*.log")
    told = json.loads(path.with_suffix(".json").read_text())
    run = run_of(path.read_bytes())
    assert sum(run.extracted.values()) == sum(run.listed.values()) == 20
    assert len(run.extracted) == len(run.listed) == 12
    assert len(run.compiled) == told["graphs_compiled"] == 6
    assert {basis for _, basis in run.compiled.values()} == {"worker"}
    assert run.compile_seconds == pytest.approx(1269.06, abs=0.01)
    assert run.compile_seconds < run.seconds < told["wall_s"]
    assert run.seconds == pytest.approx(told["wall_s"], abs=10)
    # Its own summary says "0/6 failed".
    assert run.as_dict()["summary"] == {"total": 6, "success": 6, "failed": 0}
    assert run.failed_before == 2
    assert (run.hits, run.failed, run.passed) == ({}, {}, 6)
    assert len(run.unfinished) == 6  # they were there before: only the files can tell
    ranks = [modules for name, modules in run.by_process.items() if modules & set(run.unfinished)]
    assert [len(modules) for modules in ranks] == [10, 10]
    assert len(set.intersection(*ranks)) == 8


def test_the_real_training():
    run = run_of(real_log("neurontrainer.tinyllama*.log").read_bytes())
    assert (len(run.hits), sum(run.hits.values())) == (8, 16)
    assert (len(run.compiled), run.passed, len(run.not_found)) == (4, 4, 2)
    assert set(run.not_found) < set(run.compiled)
    # Both ranks compile at once, so the training itself lost half: 273.4 s beyond its steady step, as it tells itself.
    assert run.compile_seconds / 2 == pytest.approx(273.4, abs=5)
    assert (run.failed, run.cached_failures, run.waits, run.failed_before) == ({}, {}, {}, 0)
    assert len(run.modules) == 12


@pytest.mark.parametrize("size", [1, 7, 100, 4096])
def test_real_logs_may_be_cut_anywhere(size):
    for path in sorted(real_dir("logs").glob("neuron*.log")):
        data = path.read_bytes()
        reader = LogReader()
        events = [event for start in range(0, len(data), size) for event in reader.feed(data[start : start + size])]
        assert events + reader.close() == events_of(data)


def test_every_real_log_is_read():
    for path in sorted(real_dir("logs").iterdir()):
        json.dumps(run_of(path.read_bytes()).as_dict())


def test_real_compiler_logs():
    for path in sorted(real_dir("logs").glob("log-neuron-cc*.txt")):
        with path.open(encoding="utf-8", errors="replace") as file:
            runs = read_compiler_log(file)
        assert runs, path
        assert any(run.command and run.version for run in runs), path
        for run in runs:
            if "success" in path.name:
                assert (run.exit_code, run.failure) == (0, None)
            if "failure" in path.name:
                assert run.exit_code
                assert run.failure.message


def test_the_real_failing_compile():
    with real_log("log-neuron-cc.trn1*failure*").open() as file:
        (run,) = read_compiler_log(file)
    assert (run.exit_code, run.failure.kind.name) == (70, "internal")
    assert run.failure.message == "Flat flow tensorizer artifact not found"
    assert run.version == "2.0.99229.0a0+1897edc9"
