"""What Neuron's logs say in words: those of older versions, of failures, and of reports."""

# ruff: noqa: E501 - quoted lines are as long as they are

import json

import pytest

from tests.compilers.neuron.neuron_log_texts import NCC, ROOT, events_of, module, run_of

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
    assert list(run.remembered) == [f"MODULE_8+{HASH}"]
    assert events_of(text)[0].text == "PASS"


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
    assert (list(run.failed), list(run.remembered)) == ([module(1)], [module(2)])
    assert {failure.code for failure in run.failures().values()} == {"NCC_EOOM002"}


def test_a_retried_failure_is_quoted_and_may_end_well_or_fail_again():
    retry = skipped(1, 5, 1, "With eror log: ") + ". Retrying...\n"
    (again, quoted, code) = events_of(retry)
    assert (again.kind, quoted.kind, code.text) == ("retrying", "quoted", OOM.removeprefix("[ERROR] "))
    run = run_of(retry)
    assert (run.failed, run.remembered) == ({}, {})
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
    assert run.failures()[f"MODULE_1+{HASH}"].code == "TEN404"


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
    assert run.summary == {"total": 2, "success": 1, "failed": 1}
