"""A package that an interrupted pip left by half: metadata without a version. It was an unexpected error everywhere."""

from __future__ import annotations

import pytest

from tests.compilers.neuron.native_machine import NativeMachine

LEFT = {"no file": None, "an empty file": b"", "half a file": b"Name: torch-neuronx\nVersion: \xff\xfe"}


def cut(info, left: bytes | None) -> None:
    (info / "METADATA").unlink()
    if left is not None:
        (info / "METADATA").write_bytes(left)


@pytest.mark.feature("N2")
@pytest.mark.parametrize("left", ["no file", *(pytest.param(left, marks=pytest.mark.slow) for left in [*LEFT][1:])])
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
    assert machine("doctor", "--neuron-contract", code=1)["problem"].endswith("torch-neuronx cannot be used")
    assert machine("plan", "tiny.yaml", "--set", "compiler.name=inductor")["compiler"] == "inductor"
