"""On a Neuron host that is stood in for: reused modules save compiles, and coverage names what failed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cachekit.events import Journal
from cachekit.store import Store
from tests.compilers.neuron.neuron_cases import machine, name, place  # noqa: F401 - fixtures
from tests.compilers.neuron.neuron_machine import Machine
from tests.support.neuron_sdk import neuron_host

EVALUATION = ("--set", "training.per_device_eval_batch_size=16")


def another(machine: Machine, folder: Path) -> Machine:
    """Another host, with an empty root, that has a copy of the store."""
    other = Machine(folder, host=neuron_host(folder / "other-host"))
    if machine.home.exists():
        shutil.copytree(machine.home, other.home)
    other.plan.write_text(machine.plan.read_text())
    return other


def records(machine: Machine) -> dict:
    return {record.key: record for record in Store(machine.home, Journal(None, "test")).records()}


def test_modules_of_the_nearest_record_are_found_and_are_in_the_new_record(machine, place):
    first = machine("warm", "tiny.yaml")
    again = machine("warm", "tiny.yaml", *EVALUATION)
    assert (again["compiled"], again["reused"]) == (0, None), "what lay in the root already came from no record"
    (machine.home / "v1" / "records" / again["directory"] / "bert" / f"{again['key']}.json").unlink()
    other = another(machine, place / "other")
    other.graphs(1, 2, 4)  # and what it does not need of that record stays out of its own
    done = other("warm", "tiny.yaml", *EVALUATION)
    assert (done["status"], done["compiled"], other.host.compiles) == ("compiled", 1, 1)
    assert (done["reused"]["key"], done["reused"]["graphs"], done["reused"]["of"]) == (first["key"], 2, 3)
    assert "2 of 3 graphs came from the nearest record" in other.said
    record = records(other)[done["key"]]
    assert [module.name.partition("/")[2] for module in record.modules] == [name(graph) for graph in (1, 2, 4)]
    (other.home / "v1" / "records" / record.directory / record.model_type / f"{first['key']}.json").unlink()
    third = another(other, place / "third")
    result = third("train", "tiny.yaml", "--require-warm", *EVALUATION)
    assert (result["compiled"], third.host.compiles) == (0, 0)


@pytest.mark.feature("F3")
def test_coverage_after_a_warm_of_which_one_graph_failed(machine):
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": "device-oom"}])
    assert machine("warm", "tiny.yaml", code=6)
    found = machine("coverage", "tiny.yaml")["recipes"][0]
    assert (found["basis"], found["needed"], found["cached"], found["failed"]) == ("trial", 3, 2, 1)
    (failed,) = [module for module in found["modules"] if module["status"] == "failed"]
    assert failed["name"].endswith(name(2))
    assert failed["failed"]["kind"] == "device-oom"
    assert Path(failed["failed"]["log"]).is_file()
    assert {tuple(module["where"]) for module in found["modules"] if module is not failed} == {("compiler cache dir",)}
    machine.host.knobs(failures=[])
    machine("warm", "tiny.yaml", NEURON_CC_FLAGS="--retry_failed_compilation")
    found = machine("coverage", "tiny.yaml", "--require-warm")["recipes"][0]
    assert (found["basis"], found["cached"], found["trial"]) == ("record", 3, None)
    assert {tuple(module["where"]) for module in found["modules"]} == {("local", "compiler cache dir")}
