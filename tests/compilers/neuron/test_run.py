"""`cachekit run` on Neuron: the command's own log is read, and its modules are kept; on a host that is stood in for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.compilers.neuron.neuron_cases import place  # noqa: F401 - fixture
from tests.compilers.neuron.neuron_machine import LIMIT, Machine
from tests.compilers.neuron.one_neuron import neuron_alone
from tests.support.neuron_sdk import PACKAGES, neuron_host

SCRIPTS = PACKAGES.parent / "scripts"


@pytest.fixture
def machine(place):
    made = Machine(place / "user")
    with neuron_alone():
        yield made


def run(machine: Machine, *graphs: str, code: int = 0, options: tuple[str, ...] = ()) -> dict:
    report = machine.folder / "report.json"
    report.unlink(missing_ok=True)
    words = [sys.executable, str(SCRIPTS / "graphs.py"), *graphs]
    machine.said = subprocess.run(
        [sys.executable, "-m", "cachekit", "run", "--report", str(report), *options, "--", *words],
        cwd=machine.work,
        env={name: value for name, value in machine.environment.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert machine.said.returncode == code, machine.said
    return json.loads(report.read_text()) if report.exists() else {}


@pytest.mark.feature("F1", "M3")
def test_a_command_finds_its_modules_on_another_host(machine, place):
    first = run(machine, "1", "2")
    assert (first["status"], first["compiled"], len(first["modules"]), first["kept"]) == ("miss", 2, 2, True)
    assert "Compil" in machine.said.stdout, "its own words are where they were"
    other = Machine(place / "other", host=neuron_host(place / "other-host"))
    other.environment["CACHEKIT_HOME"] = str(machine.home)
    second = run(other, "1", "2", options=("--require-warm",))
    assert (second["status"], second["compiled"], second["found"], other.host.compiles) == ("hit", 0, 2, 0)
    assert second["key"] == first["key"]
    run(other, "1", "2", "3", code=3, options=("--require-warm",))


def test_a_command_whose_graph_cannot_compile_keeps_the_others(machine):
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": "user-error"}])
    done = run(machine, "1", "2", code=1)
    assert done["exit_code"] == 1
    assert [name.partition("MODULE_")[2][:1] for name in done["modules"]] == ["1"]
