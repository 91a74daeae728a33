"""Graphs that cannot compile on a Neuron host: what is remembered, tried again, and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compilers.neuron.neuron_cases import _once, age, ask, entry, machine, name, place, recorded, warmed  # noqa: F401 - fixtures
from tests.compilers.neuron.neuron_machine import RECIPE, Machine


def poison(machine: Machine, graph: object, text: str) -> Path:
    """Have Neuron remember that a graph failed."""
    ask(machine, graph, NEURON_EXTRACT_GRAPHS_ONLY="1")
    log = entry(machine, graph).path / "model.log"
    log.write_text(f"Failed compilation with ['neuronx-cc', 'compile']: {text}")
    return log


@pytest.mark.feature("F3", "N2")
def test_a_graph_that_cannot_compile_is_named_and_remembered_and_the_others_are_kept(machine):
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": "device-oom"}])
    error = machine("warm", "tiny.yaml", code=6)["error"]
    assert error["message"] == "1 of 3 graphs did not compile"
    assert f"{name(2)}: device-oom (NCC_EOOM002): " in error["cause"]
    assert "per_device_train_batch_size" in error["hint"]
    assert [entry(machine, graph).finished for graph in (1, 2, 3)] == [True, False, True]
    assert not list((machine.home / "v1" / "records").rglob("*.json"))

    machine.host.forget()
    assert machine("warm", "tiny.yaml", code=6)["error"]["cause"] == error["cause"]
    assert machine.host.compiles == 0, "it is known to fail again"

    age(entry(machine, 2).path, 8 * 86400)
    machine.host.knobs(failures=[])
    done = machine("warm", "tiny.yaml")
    assert f"{name(2)} failed before (device-oom); trying again" in machine.said
    assert (done["compiled"], machine.host.compiles) == (1, 1), "only the rest compiles"
    assert recorded(machine) == [name(1), name(2), name(3)]


@pytest.mark.feature("N2")
def test_graphs_for_another_chip_leave_no_record_that_a_plan_would_hit(machine):
    machine.recipe(f"{RECIPE}compiler: {{name: neuron, flags: [--target=trn2]}}\n")
    error = machine("warm", "tiny.yaml", code=6)["error"]
    assert "its NEFF cannot be used: it was compiled for trn2, and this machine has trn1" in error["cause"]
    assert machine("plan", "tiny.yaml")["status"] == "miss"


@pytest.mark.feature("N2", "N3")
def test_a_remembered_failure_that_will_come_again_is_explained_and_any_other_cleared(machine):
    log = poison(machine, 1, "KeyboardInterrupt")
    poison(machine, 2, "[ERROR] [NCC_EOOM002] The total memory usage of 27.0GB exceeds the HBM limit of 16.0GB.")
    error = machine("warm", "tiny.yaml", code=6)["error"]
    assert f"{name(1)} failed before (interrupted); trying again" in machine.said
    assert not log.exists()
    assert "device-oom (NCC_EOOM002): " in error["cause"]
    assert "27.0GB exceeds the HBM limit" in error["cause"]
    assert [entry(machine, graph).finished for graph in (1, 2, 3)] == [True, False, True]


@pytest.mark.feature("N3")
def test_what_the_advice_says_of_trying_again_is_so(warmed):
    """A training stops at a failure of unknown class; its option has it compiled."""
    machine = warmed
    machine.graphs(1, 2, train=[["9", "evaluation"]])
    log = poison(machine, 9, "odd words")
    error = machine("train", "tiny.yaml", code=6)["error"]
    assert name(9) in error["message"]
    assert str(log) in error["hint"]
    assert "--retry_failed_compilation in NEURON_CC_FLAGS" in error["hint"]
    assert log.exists()
    assert machine("train", "tiny.yaml", NEURON_CC_FLAGS="--retry_failed_compilation")["compiled"] == 1
    assert entry(machine, 9).finished


@pytest.mark.feature("N3")
@pytest.mark.slow
def test_a_compile_that_ran_out_of_the_hosts_memory_is_tried_again(machine):
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": "host-oom", "times": 1}])
    done = machine("warm", "tiny.yaml", "--set", "compiler.options.num_parallel=2")
    assert (done["status"], recorded(machine)) == ("compiled", [name(1), name(2), name(3)])
    assert len(machine.host.events("failed")) == 1
    assert not list(machine.host.root.rglob("model.log"))
