"""Runs on a Neuron host that is stood in for, from the command line down to the compiler: kills, locks, failures.

The worker asks for graphs by their numbers (`neuron_worker`), so that a run takes a second; the same over real graphs
is `test_neuron_main_job`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compilers.neuron.neuron_cases import _once, another, ask, entry, machine, name, place, recorded, warmed  # noqa: F401 - fixtures
from tests.compilers.neuron.neuron_machine import RECIPE, left_behind
from tests.support.neuron_sdk import COMPILER_DIRECTORY, SCRIPTS

# --- warm and train -------------------------------------------------------------------------------------------------


@pytest.mark.feature("F1", "M3")
def test_all_ranks_graphs_are_in_the_record_and_nothing_compiles_twice(machine, place):
    for module in ("argparse", "signal", "subprocess"):  # neither the launcher nor the tools around it import these
        (machine.work / f"{module}.py").write_text("raise SystemExit('my own file ran')")
    done = machine("warm", "tiny.yaml")
    assert (done["compiled"], recorded(machine)) == (3, [name(1), name(2), name(3)])
    machine.host.forget()
    assert machine("warm", "tiny.yaml")["compiled"] == 0
    other = another(machine, place / "other")
    for one in (machine, other):
        result = one("train", "tiny.yaml", "--require-warm")
        assert (result["compiled"], result["found"], one.host.compiles) == (0, 3, 0)
        assert len(one.host.events("loaded")) == 5, "two workers share two graphs, one has a third"
        assert "some of the workers used graphs that others did not use" in one.said
        assert not left_behind(one.host)


def test_a_process_that_knows_nothing_of_cachekit_uses_the_same_root(machine):
    """Its modules are not taken for ours; ours are found by it."""
    machine.host.knobs(compile_seconds=0.3)
    stranger = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "graphs.py"), "71", "72", "73", "2"],
        env=machine.host.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    machine("warm", "tiny.yaml")
    said, _ = stranger.communicate(timeout=60)
    assert (stranger.returncode, machine.host.compiles) == (0, 6)
    assert recorded(machine) == [name(1), name(2), name(3)]
    assert len(said.splitlines()) > 4
    later = ask(machine, 1, 2, 3)
    assert (later.returncode, later.stdout.count("Using a cached neff"), machine.host.compiles) == (0, 3, 6)


@pytest.mark.feature("M3")
def test_what_the_record_lacks_compiles_and_is_added_with_where(warmed):
    machine = warmed
    machine.host.knobs(compile_seconds=1)  # the log and the worker's words are two files: each is read in between
    machine.graphs(1, 2, **{"1": ["3"]}, train=[["8", "evaluation"], ["9", "training step after a checkpoint"]])
    result = machine("train", "tiny.yaml")
    assert (result["compiled"], result["built"]) == (2, 2)
    assert result["surprises"] == ["evaluation", "training step after a checkpoint"]
    assert "compiled in: evaluation, training step after a checkpoint" in machine.said
    assert recorded(machine) == [name(graph) for graph in (1, 2, 3, 8, 9)]
    machine.host.forget()
    assert machine("train", "tiny.yaml", "--require-warm")["found"] == 5
    assert machine.host.compiles == 0


@pytest.mark.feature("M3")
def test_a_strict_training_stops_as_a_compile_begins(warmed):
    """The log tells of it only at its end, an hour later perhaps."""
    machine = warmed
    machine.graphs(1, 2, train=[["8", "evaluation"]])
    machine.host.knobs(compile_seconds=300)
    refused = machine("train", "tiny.yaml", "--require-warm", code=3)
    assert name(8) in refused["error"]["message"]
    assert refused["error"]["cause"] == "the graph began to compile in: evaluation"
    assert "the record lacks it" in refused["error"]["hint"]
    assert not left_behind(machine.host)
    assert not entry(machine, 8).finished
    assert recorded(machine) == [name(1), name(2), name(3)]


def test_a_trial_in_which_a_worker_dies_is_no_warm(machine):
    machine.graphs(1, 2, **{"1": ["3"]}, die=1)
    failed = machine("warm", "tiny.yaml", code=1)
    assert failed["error"]["code"] == "training-failed"
    assert not list((machine.home / "v1" / "records").rglob("*.json"))


@pytest.mark.feature("F6", "M3")
def test_a_module_that_could_not_be_restored_is_told_of_with_its_reason(warmed, place):
    machine = warmed
    other = another(machine, place / "other")
    ask(other, 2, NEURON_EXTRACT_GRAPHS_ONLY="1")
    notes = entry(other, 2).path / "notes.txt"
    notes.touch()
    other.host.knobs(compile_seconds=1)
    refused = other("train", "tiny.yaml", "--require-warm", code=3)["error"]
    reason = "notes.txt is there, which is not part of Neuron's cache"
    assert f"{COMPILER_DIRECTORY}/{name(2)} was left as it is, and not restored: {reason}" in other.said
    assert name(2) in refused["message"]
    assert f"the record has it, but it was not restored: {reason}" in refused["cause"]
    assert str(notes.parent) in refused["hint"]


# --- damaged modules, and those for another machine ---


# --- without neuron_parallel_compile --------------------------------------------------------------------------------


def test_without_neuron_parallel_compile_graphs_are_compiled_directly_the_largest_first(machine):
    (machine.host.bin / "neuron_parallel_compile").unlink()
    machine.graphs(5, 1234567, 678)
    machine("warm", "tiny.yaml", "--set", "compiler.options.num_parallel=1")
    assert recorded(machine) == [*map(name, (5, 1234567, 678))], "as the run came to them"
    sizes = [event["bytes"] for event in machine.host.events("compile")]
    assert sizes == sorted(sizes, reverse=True)


# --- flags, roots, launchers ----------------------------------------------------------------------------------------


@pytest.mark.feature("K2")
def test_flags_reach_the_compiler_in_their_order_and_spelling_and_the_shells_cache_dir_is_the_root(machine, place):
    flags = ["--model-type transformer", "-O1", "--enable-saturate-infinity"]
    machine.recipe(RECIPE + "compiler: {flags: [--model-type, transformer, -O1, --enable-saturate-infinity]}\n")
    root = place / "elsewhere"
    machine("warm", "tiny.yaml", NEURON_CC_FLAGS=f"--cache_dir={root} --model-type=cnn-training")
    assert not machine.host.entries()
    assert len(machine.host.entries(root)) == 3
    wanted = ["--target=trn1", *" ".join(flags).split()]
    flags_files = [found.path / "compile_flags.json" for found in machine.host.entries(root)]
    assert all(json.loads(path.read_text()) == wanted for path in flags_files)
    assert {tuple(event["flags"]) for event in machine.host.events("compile")} == {(*wanted[1:], "--verbose=35")}
    machine.recipe()
    planned = machine("plan", "tiny.yaml", NEURON_CC_FLAGS="-O2 --model-type=transformer --cache_dir=/tmp/x")
    assert planned["ingredients"]["hard"]["compiler.flags"] == ["-O2", "--model-type=transformer"]


# --- hosts ----------------------------------------------------------------------------------------------------------


@pytest.mark.feature("K3", "P2")
def test_a_laptop_predicts_the_key_of_the_instance(machine, place):
    """The registry names the versions; here they are those of the host."""
    here = machine("plan", "tiny.yaml")["ingredients"]["hard"]
    laptop = machine(
        "plan", "tiny.yaml", "--toolchain", "neuron-2.31", "--instance", "trn1.2xlarge", PYTHONPATH=_bare()
    )
    there = laptop["ingredients"]["hard"]
    # The environment that runs this has its own torch and transformers, and perhaps no torch-xla.
    foreign = {"toolchain.torch", "toolchain.torch-xla", "toolchain.transformers"}
    assert {name for name in here.keys() | there.keys() if here.get(name) != there.get(name)} <= foreign
    assert there["toolchain.neuronx-cc"] == "2.26.6360.0"
    assert there["parallel.data_parallel_size"] == 2


def _bare() -> str:
    return str(Path(__file__).resolve().parents[3])
