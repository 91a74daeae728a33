"""The stand-in's `neuron_parallel_compile` keeps the contract that is documented."""

from __future__ import annotations

import json
import re
import signal
import subprocess

import pytest

from tests.compilers.neuron.sdk_cases import (  # noqa: F401 - fixtures
    EXTRACTED,
    FAILED,
    FINISHED,
    LIMIT,
    STAMP,
    ask,
    entry,
    host,
    run,
    start,
    stop,
    until,
)
from tests.support.neuron_sdk import NeuronHost

pytestmark = pytest.mark.slow  # these hold the stand-in to what is documented, and not cachekit


def npc(host: NeuronHost, *arguments: object, **variables: str) -> tuple[int, str]:
    return run(host, "neuron_parallel_compile", *arguments, **variables)


def test_a_trial_extracts_then_its_graphs_are_compiled_once_each(host):
    run(host, *ask(31))
    host.forget()
    code, said = npc(host, *ask(31, 32, 32, 33), NEURON_PARALLEL_COMPILE_DUMP_RESULTS="1")
    assert (code, host.compiles) == (0, 2)
    assert {found.name: found.files for found in host.entries()} == {
        f"MODULE_{graph}+e30acd3a": FINISHED for graph in (31, 32, 33)
    }
    lines = [re.sub(STAMP, "", line) for line in said.splitlines()]
    graph = f"{host.root}/neuronxcc-2.26.6360.0+6f180f47/MODULE_%d+e30acd3a/model.hlo_module.pb"
    at = lines.index(f"New graph list from script: {graph % 31}")
    assert lines[at + 1 : at + 5] == [
        *(f"\t{graph % number}" for number in (32, 32, 33)),
        "Worker 0/None starting dynamic scheduling for 4 HLOs",
    ]
    assert lines[-5:] == [
        "Worker 0 completed: 2 tasks compiled",
        "Current remaining items are 0, locked are 0, failed are 0, done are 3, total is 3",
        "Compilation summary - Total graphs: 2, Success: 2, Failed: 0",
        "Total successful compilations: 2",
        "Compilation summary: 0/2 failed, 2 succeeded",
    ]
    report = json.loads(next(host.folder.glob("neuron_parallel_compile_results_*.json")).read_text())
    assert report["compilation_summary"] == {"true": 2}
    assert {path: found["status"] for path, found in report["compilation_report"].items()} == {
        graph % 32: True,
        graph % 33: True,
    }


def test_old_failures_are_hidden_but_in_one_number(host):
    host.knobs(failures=[{"match": "MODULE_34+*", "class": "device-oom"}])
    assert npc(host, *ask(34, 35))[0] == 1
    code, said = npc(host, *ask(34, 35, 36))
    assert code == 0, "a remembered failure is skipped, and no failure of this run"
    assert "locked are 0, failed are 1, done are 2, total is 3\n" in said
    assert "Compilation summary: 0/1 failed, 1 succeeded" in said
    assert npc(host, *ask(34), NEURON_CC_FLAGS="--retry_failed_compilation")[0] == 1
    host.knobs(failures=[])
    assert npc(host, *ask(34), NEURON_CC_FLAGS="--retry_failed_compilation")[0] == 0


def test_a_failure_is_tried_again_as_often_as_asked(host):
    host.knobs(failures=[{"class": "host-oom", "times": 1}])
    code, _ = npc(host, *ask(37), NEURON_PARALLEL_COMPILE_MAX_RETRIES="1")
    assert (code, host.compiles, entry(host, 37).files) == (0, 2, FINISHED)


@pytest.mark.parametrize("parallel", [1, 3])
def test_as_many_compilers_run_as_asked(host, parallel):
    host.knobs(compile_seconds=2 if parallel > 1 else 0.3)
    code, said = npc(host, "--num_parallel", parallel, *ask(41, 42, 43))
    running = most = 0
    for event in host.events("compile", "compiled"):
        running += 1 if event["event"] == "compile" else -1
        most = max(most, running)
    assert (code, most) == (0, parallel)
    assert said.count("starting dynamic scheduling") == parallel


def test_a_script_error_ends_it_before_any_compile(host):
    assert npc(host, *ask(44, "error"))[0] == 1
    assert host.compiles == 0
    assert npc(host, *ask(44, "error"), NEURON_IGNORE_TRAINING_SCRIPT_ERROR_AND_COMPILE="1")[0] == 0
    assert host.compiles == 1


def test_its_commands_apart(host):
    assert npc(host, "--command", "collect", *ask(45))[0] == 0
    assert (entry(host, 45).files, host.compiles) == (EXTRACTED, 0)
    assert npc(host, "--command", "compile", *ask(45))[0] == 0
    assert entry(host, 45).files == FINISHED
    lock = entry(host, 45).path / "model.hlo_module.pb.lock"
    lock.touch()
    assert npc(host, "--command", "clear-locks")[0] == 0
    assert not lock.exists()
    assert npc(host, "--command", "clean")[0] == 0
    assert not host.entries()


def test_its_work_folder_is_removed_as_it_starts(host):
    work = host.folder / "work"
    (work / "old").mkdir(parents=True)
    _, said = npc(host, "--parallel_compile_workdir", work, *ask(46))
    assert f"Removing existing workdir {work}\n" in said
    assert not (work / "old").exists()


def test_it_waits_for_a_lock_and_says_what_remains(host):
    host.knobs(lock_minute=0.2)
    npc(host, "--command", "collect", *ask(47))
    lock = entry(host, 47).path / "model.hlo_module.pb.lock"
    lock.touch()
    process = start(host, "neuron_parallel_compile", *ask(47, 48))
    assert process.stdout is not None
    seen = ""
    while "locked are 1" not in seen:
        line = process.stdout.readline()
        assert line, seen
        seen += line
    lock.unlink()
    process.communicate(timeout=LIMIT)
    assert (process.returncode, entry(host, 47).files, entry(host, 48).files) == (0, FINISHED, FINISHED)


def test_it_hangs_at_its_end_when_told_to(host):
    host.knobs(parallel_compile_hangs=True)
    process = start(host, "neuron_parallel_compile", *ask(49))
    assert process.stdout is not None
    for line in process.stdout:
        if "Compilation summary: 0/1" in line:
            break
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=1)
    stop(process)
    process.communicate()
    assert entry(host, 49).files == FINISHED


def test_an_interrupt_marks_what_compiles_as_failed(host):
    host.knobs(failures=[{"match": "MODULE_50+*", "class": "hang"}])
    process = start(host, "neuron_parallel_compile", *ask(50))
    until(lambda: host.compiles, "the compiler runs")
    stop(process, signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode != 0
    assert entry(host, 50).files == FAILED
