"""`cachekit doctor`: what is wrong with this host's set-up is found, with the command that repairs it."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from cachekit import disk
from cachekit.compilers import select
from cachekit.compilers.neuron import installed, presence, processes
from cachekit.config import load
from cachekit.errors import CompilerUnavailableError, StoreError
from cachekit.verbs.doctor import Finding, checks, doctor
from tests.compilers.neuron.neuron_trees import make
from tests.support.doctor_cases import findings

pytest_plugins = ["tests.support.cli_session"]

FAILURES = {
    "device-oom": b"Failed compilation with ['neuronx-cc']: [ERROR] [NCC_EOOM002] exceeds the HBM limit of 16.0GB",
    "host-oom": b"Failed compilation with ['neuronx-cc']: [F137] neuronx-cc was forcibly killed - insufficient memory",
}


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """The Neuron root of this environment."""
    folder = tmp_path / "neuron-root"
    folder.mkdir()
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(folder))
    monkeypatch.delenv("NEURON_CC_FLAGS", raising=False)
    return folder


@pytest.fixture
def quiet_host(monkeypatch, tmp_path) -> None:
    """A whole host on which nothing compiles, and whose disks are its own."""
    only = processes.Process(1, "init", 0, ("init",), (), uses_cache=False)
    seen = processes.Snapshot((only,), whole=True, boot=1.0, container=False)
    monkeypatch.setattr("cachekit.compilers.neuron.locks.look", lambda: seen)
    table = tmp_path / "mounts"
    table.write_text("/dev/nvme0n1p1 / ext4 rw 0 0\n")
    monkeypatch.setattr(disk, "MOUNTS", table)


def problems(name: str) -> list[dict]:
    return [one for one in findings(name) if one["state"] == "problem"]


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    for one in (*path.iterdir(), path):
        os.utime(one, (then, then))


@pytest.mark.feature("U1")
def test_a_host_in_order_has_no_problem(root, quiet_host):
    make(root, "success")
    found = doctor(load(), checks())
    document = found.as_dict()
    assert [one for one in document["findings"] if one["state"] != "ok"] == []
    assert {one["check"] for one in document["findings"]} == {"settings", *(check.name for check in checks())}
    assert found.good


@pytest.mark.parametrize(
    "gone, said", [(["torch"], "torch is not installed"), (["torch", "datasets"], "torch, datasets are not installed")]
)
def test_packages_that_training_needs_are_missed(monkeypatch, quiet_host, gone, said):
    """Without torch there was no problem: "Inductor compiles here"."""
    found = {
        "torch": "2.13.0",
        "transformers": "5.23.0",
        "accelerate": "1.10.1",
        "datasets": "4.0",
        "scikit-learn": "1.7",
    }
    monkeypatch.setattr("cachekit.host.optional_version", found.get)
    assert not problems("training")
    monkeypatch.setattr("cachekit.host.optional_version", lambda name: "" if name in gone else found.get(name, ""))
    (problem,) = problems("training")
    assert said in problem["said"]
    assert "cachekit-neuron[train]" in problem["repair"]


@pytest.mark.feature("U1")
def test_a_stale_lock_is_found_and_the_command_removes_it(root, quiet_host):
    entry = make(root, "locked", seed=1)
    make(root, "success", seed=2)
    age(entry, 7200)
    (found,) = problems("neuron-locks")
    assert entry.name in found["said"]
    assert "lock of 2 hours, stale: no process of this host" in found["said"]
    subprocess.run(shlex.split(found["run"]), check=True)
    assert findings("neuron-locks") == [
        {"check": "neuron-locks", "state": "ok", "said": "2 modules, no lock", "repair": "", "run": ""}
    ]


def test_a_lock_that_may_be_held_is_not_called_stale(root, quiet_host):
    make(root, "locked")
    (found,) = problems("neuron-locks")
    assert "perhaps stale: it, or its module, was written" in found["said"]
    assert found["repair"].startswith("look again in")


@pytest.mark.feature("U1")
def test_remembered_failures_are_explained(root, quiet_host):
    for seed, text in enumerate(FAILURES.values()):
        (make(root, "failed", seed=seed) / "model.log").write_bytes(text)
    device, memory = problems("neuron-failures")
    assert "device-oom: " in device["said"]
    assert "NCC_EOOM002" in device["said"]
    assert device["repair"].endswith("; to compile it again anyway:")
    assert device["run"].startswith("rm ")
    assert "host-oom: " in memory["said"]
    assert memory["repair"] == ""
    subprocess.run(shlex.split(memory["run"]), check=True)
    assert problems("neuron-failures") == [device]


def test_a_root_on_a_network_file_system_is_found(root, quiet_host):
    disk.MOUNTS.write_text(f"/dev/nvme0n1p1 / ext4 rw 0 0\nfs-1.efs:/ {root} nfs4 rw 0 0\n")
    (found,) = problems("neuron-root")
    assert "is on NFS (EFS, FSx)" in found["said"]
    home = load().home
    disk.MOUNTS.write_text(f"/dev/nvme0n1p1 / ext4 rw 0 0\nfs-1.efs:/ {home} nfs4 rw 0 0\n")
    (found,) = problems("compiler-cache-dir")
    assert "is on NFS (EFS, FSx)" in found["said"]
    assert "CACHEKIT_COMPILER_CACHE_DIR" in found["repair"]


@pytest.mark.feature("U3")
@pytest.mark.parametrize("folder", [False, True], ids=["nothing", "a bare folder"])
def test_packages_without_code_are_no_neuron(monkeypatch, tmp_path, folder):
    """Four versions that look right, and nothing to import: whoever installed torch-neuronx does not mean Inductor."""
    found = {"neuronx-cc": "2.26.6360.0", "libneuronxla": "2.2.1", "torch-neuronx": "2.9.0", "torch-xla": "2.9.0"}
    monkeypatch.setattr(installed, "versions", lambda: found)
    monkeypatch.setattr(presence, "is_named", found.__contains__)
    if folder:
        for name in ("neuronxcc", "libneuronxla", "torch_neuronx"):
            (tmp_path / name).mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    (said,) = problems("neuron-packages")
    assert said["said"].startswith(
        "neuronx-cc, libneuronxla, torch-neuronx, torch-xla cannot be used; installed by name"
    )
    for asked in ("auto", "neuron"):
        with pytest.raises(CompilerUnavailableError, match="neuronx-cc, libneuronxla, torch-neuronx") as raised:
            select(asked).fingerprint()
        assert "no module neuronxcc" in raised.value.cause
    assert select("inductor").name == "inductor"


class _Raises:
    name = "raises"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def look(self, config):
        raise self._error


class _Fine:
    name = "fine"

    def look(self, config):
        yield Finding("ok", "yes")


def test_a_check_that_fails_stops_no_other():
    checks = [_Raises(ValueError("x")), _Raises(OSError("y")), _Raises(StoreError("z", hint="do this")), _Fine()]
    document = doctor(load(), checks).as_dict()
    assert [(one["state"], one["repair"]) for one in document["findings"]] == [
        ("ok", ""),  # settings
        ("unknown", ""),
        ("unknown", ""),
        ("problem", "do this"),
        ("ok", ""),
    ]
    assert document["counts"] == {"ok": 2, "problem": 1, "unknown": 2}


@pytest.mark.feature("U1")
def test_the_command_line(root, quiet_host, command):
    for seed in range(15):
        age(make(root, "locked", seed=seed), 7200)
    printed = command("doctor", code=1).out
    assert "... and 3 more of neuron-locks (--format json)" in printed
    assert printed.splitlines()[-1] == f"15 problems, {len(checks())} ok, 0 unknown"
    assert printed.count("\n         run:    rm /") == 12
    # A path is never broken: it is there to be copied.
    assert [line for line in printed.splitlines() if len(line) > 80 and "/" not in line] == []
    assert command("doctor", "--format", "json", code=1).json["counts"]["problem"] == 15
    assert command("doctor", "--format", "quiet", code=1).out == "neuron-locks\n"
