"""`cachekit run` on Neuron: the command's own log is read, and its modules are kept; on a host that is stood in for."""

from __future__ import annotations

import json

import pytest

from tests.compilers.neuron.neuron_cases import place  # noqa: F401 - fixture
from tests.compilers.neuron.neuron_machine import Machine
from tests.compilers.neuron.one_neuron import neuron_alone
from tests.support.neuron_sdk import SCRIPTS, neuron_host

GRAPHS = str(SCRIPTS / "graphs.py")


@pytest.fixture
def machine(place):
    made = Machine(place / "user")
    with neuron_alone():
        yield made


@pytest.mark.feature("F1", "M3")
def test_a_command_finds_its_modules_on_another_host(machine, place):
    machine.run(GRAPHS, "1", "2", options=("--dry-run", "-f", "json"))
    planned = json.loads(machine.said)  # what others published is of a model, and a command may train any
    assert (planned["status"], planned["expected"], planned["unpriced"]) == ("miss", None, "")
    first = machine.run(GRAPHS, "1", "2")
    assert (first["status"], first["compiled"], len(first["modules"]), first["kept"]) == ("miss", 2, 2, True)
    assert "Compil" in machine.said, "its own words are where they were"
    other = Machine(place / "other", host=neuron_host(place / "other-host"))
    other.environment["CACHEKIT_HOME"] = str(machine.home)
    second = other.run(GRAPHS, "1", "2", options=("--require-warm",))
    assert (second["status"], second["compiled"], second["found"], other.host.compiles) == ("hit", 0, 2, 0)
    assert second["key"] == first["key"]
    other.run(GRAPHS, "1", "2", "3", code=3, options=("--require-warm",))


def test_a_command_whose_graph_cannot_compile_keeps_the_others(machine):
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": "user-error"}])
    done = machine.run(GRAPHS, "1", "2", code=1)
    assert done["exit_code"] == 1
    assert [name.partition("MODULE_")[2][:1] for name in done["modules"]] == ["1"]
