"""A package that an interrupted pip left by half: metadata without a version. It was an unexpected error everywhere."""

from __future__ import annotations

import os
import shutil

import pytest

from cachekit.compilers.neuron.contract import asked, native
from cachekit.compilers.neuron.contract.bench import Bench
from cachekit.compilers.neuron.contract.lab import Lab
from cachekit.verbs.neuron_contract import neuron_contract
from tests.compilers.neuron.contract_cases import enter, look
from tests.compilers.neuron.native_machine import NativeMachine
from tests.support.neuron_sdk import NATIVE_PACKAGES, neuron_host

LEFT = {"no file": None, "an empty file": b"", "half a file": b"Name: torch-neuronx\nVersion: \xff\xfe"}


def cut(info, left: bytes | None) -> None:
    (info / "METADATA").unlink()
    if left is not None:
        (info / "METADATA").write_bytes(left)


@pytest.mark.feature("N2")
@pytest.mark.parametrize("left", LEFT)
def test_what_is_half_installed_is_explained(tmp_path, left):
    machine = NativeMachine(tmp_path)
    (info,) = machine.packages.glob("torch_neuronx-*.dist-info")
    cut(info, LEFT[left])
    error = machine("plan", "tiny.yaml", code=1)["error"]
    assert (error["code"], error["message"]) == ("compiler-unavailable", "torch-neuronx cannot be used")
    assert error["cause"] == "half-installed: the package's metadata tells no version"
    assert "--force-reinstall" in error["hint"]
    found = machine("doctor", code=1)["findings"]
    assert [one["said"] for one in found if one["check"] == "neuron-packages"] == [
        "torch-neuronx: half-installed, its metadata tells no version"
    ]
    error = machine("plan", "tiny.yaml", "--set", "compiler.name=auto", code=1)["error"]
    assert "this machine has Neuron devices" in error["message"]
    assert error["cause"] == "torch-neuronx cannot be used"
    assert machine("plan", "tiny.yaml", "--set", "compiler.name=inductor")["compiler"] == "inductor"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A trn2 with TorchNeuron, whose packages are the test's own."""
    made = neuron_host(tmp_path / "host", cores=4, instance_type="trn2.3xlarge")
    shutil.copytree(NATIVE_PACKAGES, tmp_path / "site")
    made.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "site"), made.environment["PYTHONPATH"]])
    enter(made, monkeypatch)
    return tmp_path / "site"


@pytest.mark.parametrize("left", LEFT)
def test_the_contract_says_which_package_is_half_installed(site, left):
    cut(site / "torch_neuronx-2.14.3.0.dist-info", LEFT[left])
    found = neuron_contract(quick=True)
    assert found.problem == "torch-neuronx: half-installed, its metadata tells no version"
    assert not found.good


@pytest.mark.parametrize(
    "text, said",
    [
        ("raise RuntimeError('no device')", "torch_neuronx: RuntimeError: no device"),
        ("import sys; sys.exit(3)", "torch_neuronx: SystemExit: 3"),
        ("import os; os.abort()", "torch_neuronx: exit code -6"),
        ("import os; os._exit(0)", "torch_neuronx: exit code 0"),
    ],
)
def test_an_import_that_ends_its_process_is_that_packages_alone(site, tmp_path, text, said):
    """It was taken for a host without Neuron, with the checks of the cache on XLA."""
    (site / "torch_neuronx" / "__init__.py").write_text(text + "\n")
    lab = Lab(tmp_path / "lab")
    found = look(native.CHECKS[:3], lab)
    assert lab.is_native
    assert {name: one.state for name, one in found.items()} == {
        "native-packages": "ok", "native-imports": "differs", "version-source": "ok",
    }  # fmt: skip
    assert found["native-imports"].seen == said


def test_an_import_that_never_ends_is_waited_for_once(site, tmp_path):
    (site / "torch_neuronx" / "__init__.py").write_text("import time; time.sleep(3600)\n")
    (site / "libneuronxla.py").write_text("import os; os._exit(4)\n")
    found = asked.packages(Bench.make(tmp_path / "lab", os.environ), limit=2)
    assert found.failed == {"libneuronxla": "exit code 4", "torch_neuronx": "did not end within 2 s"}
    assert list(found.modules) == ["neuronxcc"]
    assert found.metadata["torch-neuronx"] == "2.14.3.0"
