"""Runs on a Neuron host that are killed, find locks that others left, or never end by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compilers.neuron.neuron_cases import (  # noqa: F401 - fixtures
    OLD,
    _once,
    age,
    another,
    ask,
    entry,
    machine,
    name,
    place,
    recorded,
    warmed,
)
from tests.compilers.neuron.neuron_machine import Machine, end, left_behind
from tests.support.neuron_sdk import SCRIPTS
from tests.support.processes import LONGEST, until

# --- kills ----------------------------------------------------------------------------------------------------------


@pytest.mark.feature("S2")
@pytest.mark.parametrize(
    "npc", [pytest.param(True, marks=pytest.mark.slow, id="parallel-compile"), pytest.param(False, id="directly")]
)
def test_a_kill_during_a_compile_leaves_no_process_and_the_next_warm_finishes(machine, npc):
    if not npc:
        (machine.host.bin / "neuron_parallel_compile").unlink()
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": "hang", "times": 1}])
    process = machine.start("warm", "tiny.yaml", "--set", "compiler.options.num_parallel=1")
    until(lambda: machine.host.events("failed"), "a compile that hangs")
    end(process)
    process.communicate()
    until(lambda: not left_behind(machine.host), "the end of every process")
    assert not list((machine.home / "v1" / "records").rglob("*.json"))
    lock = entry(machine, 2).path / "model.hlo_module.pb.lock"
    assert lock.exists(), "Neuron's lock has no owner who could take it away"
    assert not entry(machine, 2).finished

    age(entry(machine, 2).path)
    done = machine("warm", "tiny.yaml")
    assert f"cleared the lock of {name(2)}" in machine.said
    assert (done["status"], recorded(machine)) == ("compiled", [name(1), name(2), name(3)])
    assert not lock.exists()
    assert len(machine.host.events("compiled")) == 3, "what was finished was not compiled again"


@pytest.mark.feature("C2")
def test_modules_that_had_compiled_before_ctrl_c_are_not_compiled_on_another_machine(machine, place):
    (machine.host.bin / "neuron_parallel_compile").unlink()
    machine.host.knobs(failures=[{"match": "*MODULE_2+*", "class": "hang", "times": 1}])
    warm = ("warm", "tiny.yaml", "--set", "compiler.options.num_parallel=1")
    process = machine.start(*warm)
    until(lambda: machine.host.events("failed"), "a compile that hangs")
    ask(machine, 9)  # another project's, in the folder of the whole host
    end(process, 2)
    process.communicate()
    had = {one.name for one in machine.host.entries() if one.finished}
    other = another(machine, place / "other")
    other(*warm)
    assert (len(had), other.host.compiles) == (2, 2)
    assert {one.name for one in other.host.entries()} == {name(1), name(2), name(3)}, "and not the other project's"


@pytest.mark.slow
@pytest.mark.feature("F6", "S2")
def test_a_kill_during_a_restore_leaves_nothing_half_visible(machine, place):
    machine.graphs(*range(1, 20))
    machine("warm", "tiny.yaml")
    other = another(machine, place / "other")
    process = other.start("train", "tiny.yaml", "--require-warm")
    until(other.host.entries, "the restore")
    end(process)
    process.communicate()
    until(lambda: not left_behind(other.host), "the end of every process")
    assert all(found.finished and (found.path / "model.neff").exists() for found in other.host.entries())
    result = other("train", "tiny.yaml", "--require-warm")
    assert (result["compiled"], result["found"], other.host.compiles) == (0, 19, 0)
    assert not [path for path in other.host.root.rglob(".cachekit-*") if path.is_dir()]


def test_ctrl_c_ends_compilers_in_sessions_of_their_own(warmed):
    machine = warmed
    machine.graphs(1, 2, train=[["8", "evaluation"]])
    machine.host.knobs(failures=[{"match": "*MODULE_8+*", "class": "hang"}])
    process = machine.start("train", "tiny.yaml")
    until(lambda: machine.host.events("failed"), "a compile that hangs")
    end(process, 2)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not left_behind(machine.host)
    assert not (entry(machine, 8).path / "model.log").exists(), "Neuron would never compile it again"


# --- locks ----------------------------------------------------------------------------------------------------------


def lock(machine: Machine, graph: object, seconds: float = 0) -> Path:
    ask(machine, graph, NEURON_EXTRACT_GRAPHS_ONLY="1")
    path = entry(machine, graph).path / "model.hlo_module.pb.lock"
    path.touch()
    if seconds:
        age(path.parent, seconds)
    return path


def test_a_stale_lock_is_cleared_before_a_restore(warmed, place):
    other = another(warmed, place / "other")
    lock(other, 2, OLD)
    result = other("train", "tiny.yaml", "--require-warm")
    assert (result["found"], other.host.compiles) == (3, 0)
    assert f"cleared the lock of {name(2)}" in other.said


@pytest.mark.slow
@pytest.mark.parametrize("npc", [True, False], ids=["parallel-compile", "directly"])
def test_a_lock_that_becomes_stale_while_it_is_waited_for_is_cleared(machine, npc):
    """It may belong to somebody until two minutes have passed; who waits for it does not hold it."""
    if not npc:
        (machine.host.bin / "neuron_parallel_compile").unlink()
    lock(machine, 2, 100)
    done = machine("warm", "tiny.yaml")
    assert f"{name(2)} is locked, and may stay so: it, or its module, was written 1" in machine.said
    assert (done["status"], len(machine.host.events("compiled"))) == ("compiled", 3)


def test_a_live_lock_is_waited_for(machine):
    held = machine.folder / "held"
    held.touch()
    machine.host.knobs(held=str(held), lock_minute=0.5)
    stranger = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "graphs.py"), "2"], env=machine.host.environment, stdout=subprocess.DEVNULL
    )
    until(lambda: machine.host.compiles, "a stranger's compile")
    machine.graphs(2)
    process = machine.start("warm", "tiny.yaml")
    waits = f"{name(2)} is being compiled by another process: neuronx-cc"
    assert any(waits in line for line in process.stderr)
    held.unlink()
    process.communicate(timeout=LONGEST)
    assert (process.returncode, stranger.wait(60)) == (0, 0)
    assert (machine.host.compiles, recorded(machine)) == (1, [name(2)])


# --- hangs at exit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knob", ["trial_hangs", pytest.param("parallel_compile_hangs", marks=pytest.mark.slow)])
def test_a_warm_that_never_ends_by_itself_is_ended_and_completed(machine, knob):
    machine.host.knobs(**{knob: True})
    done = machine("warm", "tiny.yaml", "--set", "compiler.options.exit_timeout=1")
    assert (done["status"], recorded(machine)) == ("compiled", [name(1), name(2), name(3)])
    assert (done["compiled"], len(machine.host.events("compiled"))) == (3, 3)
    assert not left_behind(machine.host)
