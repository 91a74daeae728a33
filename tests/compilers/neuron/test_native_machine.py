"""TorchNeuron, from the command line down to its cache, which is stood in for (`native_worker.py`).

Its worker refuses a NEFF of another compiler, and one of another graph.
"""

from __future__ import annotations

import json
import shutil

import pytest

from tests.compilers.neuron.native_machine import HERE, NEW, OLD, NativeMachine

COMMAND = str(HERE / "native_command.py")


@pytest.fixture
def machine(tmp_path):
    made = NativeMachine(tmp_path / "user")
    made.graphs("forward", "backward", **{"1": ["rank 1"]})
    return made


def compiles(machine: NativeMachine) -> int:
    """How many graphs compiled since the last call."""
    count = machine.host.compiles
    machine.host.forget()
    return count


@pytest.mark.feature("F1", "K3")
def test_a_training_after_a_warm_compiles_nothing_whoever_trains(machine, tmp_path):
    planned = machine("plan", "tiny.yaml")
    assert (planned["status"], planned["ingredients"]["hard"]["compiler.name"]) == ("miss", "neuron-native")
    warmed = machine("warm", "tiny.yaml")
    assert (warmed["status"], warmed["compiled"], compiles(machine)) == ("compiled", 3, 3)
    (module,) = warmed["modules"]
    assert module["name"].startswith("torchneuron-2.27.5334.0/")
    assert warmed["compile_seconds"] == 7.5, "the worker's own measure, as no compiler's process was seen"

    # A folder, a switch and flags of the user's own shell are not this run's.
    said = {"TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "theirs"), "TORCH_NEURONX_NEFF_DISABLE_CACHE": "1"}
    said["NKI_ENABLE_TRACE_CACHE"] = "1"
    trained = machine("train", "tiny.yaml", "--require-warm", **said)
    assert (trained["status"], trained["compiled"], trained["built"], trained["found"]) == ("hit", 0, 0, 3)
    assert compiles(machine) == 0
    assert len(machine.host.events("loaded")) == 0  # forgotten with the compiles
    assert not (tmp_path / "theirs").exists()

    other = NativeMachine(tmp_path / "another user, elsewhere")
    other.plan.write_text(machine.plan.read_text())
    shutil.copytree(machine.home, other.home)
    trained = other("train", "tiny.yaml", "--require-warm", HOME=str(tmp_path), USER="bob")
    assert (trained["compiled"], trained["found"], compiles(other)) == (0, 3, 0)


def test_a_graph_that_does_not_compile_is_a_failure_whatever_the_shell_says(machine):
    """TorchNeuron goes on op by op where it may, and a warm would end well without the graph."""
    machine.plan.write_text(json.dumps({"graphs": ["forward", "backward"], "fails": ["backward"]}))
    for said in ({}, {"TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION": "0"}):
        answer = machine("warm", "tiny.yaml", code=1, **said)
        assert "NCC_EOOM002" in answer["error"]["cause"]


@pytest.mark.feature("K1")
def test_two_compilers_never_share_a_graph(machine):
    """The name of a graph is the same for both; the compiler's version is not in it."""
    machine.install("neuronx-cc", OLD)
    assert machine("warm", "tiny.yaml")["compiled"] == 3
    compiles(machine)
    machine.install("neuronx-cc", NEW)
    planned = machine("plan", "tiny.yaml")
    assert planned["status"] == "miss"
    assert [change["name"] for change in planned["nearest"]["changes"]] == ["toolchain.neuronx-cc"]
    assert machine("warm", "tiny.yaml")["compiled"] == 3, "no record of another compiler is reused"
    assert compiles(machine) == 3
    machine.install("neuronx-cc", OLD)
    assert machine("train", "tiny.yaml", "--require-warm")["compiled"] == 0
    assert compiles(machine) == 0


@pytest.mark.feature("W4")
def test_a_host_without_a_device_compiles_and_promises_nothing_to_one_that_has_it(machine, tmp_path):
    laptop = NativeMachine(tmp_path / "laptop")
    laptop.host.knobs(devices=0)
    laptop.graphs("forward", "backward")
    refused = laptop("warm", "tiny.yaml", code=1)["error"]
    assert "set NEURON_PLATFORM_TARGET_OVERRIDE (trn2, trn2n, trn2u, trn3, trn3u)" in refused["hint"]
    laptop.environment["NEURON_PLATFORM_TARGET_OVERRIDE"] = "trn2"
    assert "TORCH_NEURONX_COMPILE_ONLY=1, experimental" in laptop("plan", "tiny.yaml")["lacks"]["device"]
    cold = laptop("train", "tiny.yaml", code=1)["error"]
    assert "no device here to train on" in cold["message"]
    assert "--set parallel.data_parallel_size=N" in cold["cause"]
    warmed = laptop("warm", "tiny.yaml")  # all of it: the training was refused before it compiled anything
    assert (warmed["compiled"], warmed["next"], laptop.host.events("loaded")) == (2, "cachekit push", [])
    assert "no device here to train on" in laptop("train", "tiny.yaml", code=1)["error"]["message"]

    shutil.copytree(laptop.home, machine.home)
    planned = machine("plan", "tiny.yaml")
    assert (planned["status"], "device" in planned["lacks"]) == ("miss", False)
    assert "compiler.without_device" in {change["name"] for change in planned["nearest"]["changes"]}
    again = machine("warm", "tiny.yaml")
    assert (again["compiled"], again["reused"]["graphs"]) == (1, 2)
    assert len(machine.host.events("loaded")) == 5


@pytest.mark.feature("M3")
def test_what_a_training_compiles_beyond_its_record_is_told_stopped_and_added(machine):
    machine("warm", "tiny.yaml")
    plan = json.loads(machine.plan.read_text())
    machine.plan.write_text(json.dumps({**plan, "train": [["late", "evaluation"]], "linger": 120}))
    machine("train", "tiny.yaml", "--require-warm", code=3)
    assert "began to compile in: evaluation" in machine.said
    machine.plan.write_text(json.dumps({**plan, "train": [["late", "evaluation"]]}))
    trained = machine("train", "tiny.yaml")
    assert (trained["compiled"], trained["built"], trained["surprises"]) == (1, 1, ["evaluation"])
    compiles(machine)
    trained = machine("train", "tiny.yaml", "--require-warm")
    assert (trained["compiled"], trained["found"], compiles(machine)) == (0, 4, 0)
    assert len(machine.record().modules) == 2


@pytest.mark.slow
@pytest.mark.feature("F1")
def test_without_counters_the_files_tell(machine):
    machine.graphs("forward", **{"1": ["rank 1"]}, silent=True, train=[["late", "a checkpoint"]])
    assert machine("warm", "tiny.yaml")["compiled"] == 2
    trained = machine("train", "tiny.yaml")
    assert (trained["compiled"], trained["built"], trained["surprises"]) == (1, 1, ["a checkpoint"])


@pytest.mark.slow
@pytest.mark.feature("W4")
def test_many_graphs_are_one_archive_and_the_nearest_record_gives_those_that_are_the_same(machine):
    machine.graphs("forward", many=20)
    warmed = machine("warm", "tiny.yaml")
    assert (warmed["compiled"], len(warmed["modules"])) == (21, 1)
    assert len(list((machine.home / "v1" / "blobs").glob("*/*"))) == 1, "the archive"
    assert compiles(machine) == 21
    machine.graphs("forward", "longer", many=10)
    near = machine("warm", "tiny.yaml", "--set", "training.max_seq_length=32")
    assert (near["compiled"], compiles(machine)) == (1, 1)
    assert near["reused"]["key"] == warmed["key"]
    trained = machine("train", "tiny.yaml", "--require-warm", "--set", "training.max_seq_length=32")
    assert (trained["compiled"], trained["found"], compiles(machine)) == (0, 12, 0)


@pytest.mark.feature("F1", "M3")
def test_a_users_own_command_finds_its_graphs_again(machine):
    """TorchNeuron is what this host has, so nobody has to name it."""
    first = machine.run(COMMAND, "one", "two")
    assert (first["compiled"], first["kept"], compiles(machine)) == (2, True, 2)
    assert first["modules"][0].startswith("torchneuron-")
    again = machine.run(COMMAND, "one", "two", options=("--require-warm",))
    assert (again["status"], again["compiled"], again["found"], compiles(machine)) == ("hit", 0, 2, 0)
