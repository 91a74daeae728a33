"""The line that installs Neuron: that of the chip, of this Python, of the image and of the system."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cachekit.compilers import select
from cachekit.compilers.neuron import install
from cachekit.errors import CompilerUnavailableError
from tests.compilers.neuron.unusable_cases import MESSAGE, machine  # noqa: F401 - fixtures
from tests.support.doctor_cases import the_problem

pytest_plugins = ["tests.support.cli_session"]


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


def test_a_trn3_without_packages_is_told_what_its_own_line_brings(tmp_path, machine):
    """No package of the XLA stack, which the line does not install."""
    (machine / "neuron0").touch()
    (tmp_path / "product_name").write_text("trn3.48xlarge")
    with pytest.raises(CompilerUnavailableError) as raised:
        select("auto")
    assert "not available: neuronx-cc, torch-neuronx are not installed" in raised.value.cause
    found = the_problem("neuron-packages")
    assert found["said"] == f"{raised.value.message}; {raised.value.cause}"


@pytest.mark.parametrize("name", ["trn9.large", "inf1.xlarge"])
def test_a_chip_that_is_not_in_the_table_gets_no_other_chips_line(tmp_path, machine, name):
    (machine / "neuron0").touch()
    (tmp_path / "product_name").write_text(name)
    with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
        select("auto")
    family = name.partition(".")[0]
    assert f"no release in the table is for {family}: it has inf2, trn1, trn2, trn3" in raised.value.cause
    assert raised.value.hint.startswith(f"{install.PAGE}; or --compiler inductor")
    assert the_problem("neuron-packages")["repair"].startswith(f"{install.PAGE}, or choose another compiler: ")


def test_a_compiler_that_does_not_have_the_chip_is_told_with_the_one_that_has(tmp_path, machine):
    (machine / "neuron0").touch()
    (tmp_path / "product_name").write_text("trn1.2xlarge")
    with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
        assert select("auto", "neuron-native").machine
    assert "neuron-native has no trn1, only trn2, trn3: use --compiler neuron" in raised.value.cause
    assert "torch-neuronx==2.9.0.2.15.32035" in raised.value.hint
    found = the_problem("neuron-packages", compiler="neuron-native")
    assert found["said"] == f"{raised.value.message}; {raised.value.cause}"


@pytest.mark.parametrize("name", ["trn2.3xlarge", "trn3.48xlarge"])
@pytest.mark.parametrize("compiler, words", [("neuron", "2.9.0.2.15"), ("neuron-native", "'torch-neuronx==2.14.*'")])
def test_the_line_to_install_is_that_of_the_compiler_that_was_named(tmp_path, machine, compiler, words, name):
    (machine / "neuron0").touch()
    (tmp_path / "product_name").write_text(name)
    with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
        assert select("auto", compiler).machine
    found = the_problem("neuron-packages", compiler=compiler)
    assert words in found["run"]
    assert raised.value.hint.startswith(f"{found['run']}; or ")
    assert found["said"] == f"{raised.value.message}; {raised.value.cause}"


@pytest.mark.parametrize("name, guessed", [("trn1.2xlarge", False), ("", True)])
def test_a_line_for_a_chip_that_nothing_names_is_called_a_guess(tmp_path, machine, name, guessed):
    (machine / "neuron0").touch()
    (tmp_path / "product_name").write_text(name)
    said = "the chip could not be identified; this command is for trn1, inf2, trn2"
    assert (said in the_problem("neuron-packages")["said"]) == guessed


def test_an_image_for_the_chip_is_found_whatever_its_stack(tmp_path, machine):
    """AWS's image of TorchNeuron on a Trn2, where the table's own line is XLA's."""
    for name in ("aws_neuronx_venv_torch_neuronx_2_9_1", "aws_neuronx_venv_torch_neuronx_2_14_0"):
        (tmp_path / "opt" / name / "bin").mkdir(parents=True)
        (tmp_path / "opt" / name / "bin" / "neuronx-cc").touch()
    newest = tmp_path / "opt" / "aws_neuronx_venv_torch_neuronx_2_14_0"
    assert install.way("trn2").run == f". {newest}/bin/activate && pip install 'cachekit-neuron[train]'"
    assert "AWS's image has TorchNeuron in" in install.way("trn2").why
    assert install.way("trn1").run.startswith("pip install")


def test_an_image_of_the_other_stack_is_better_than_wheels_for_another_system(tmp_path, machine):
    """A Trn3 with the image of SDK 2.31; TorchNeuron's own image comes first."""
    xla, native = (tmp_path / "opt" / f"aws_neuronx_venv_{name}" for name in ("pytorch_2_9", "torch_neuronx_2_14_0"))
    for venv, found in ((xla, "[neuron]"), (native, "[train]")):
        (venv / "bin").mkdir(parents=True)
        (venv / "bin" / "neuronx-cc").touch()
        assert install.way("trn3").run == f". {venv}/bin/activate && pip install 'cachekit-neuron{found}'"
        # Whoever names TorchNeuron is not helped by XLA's.
        named = install.way("trn3", (), "neuron-native").run
        assert (str(venv) in named) == (venv == native)


@pytest.mark.parametrize(
    "system, told",
    [
        ("ubuntu 26.04", ("'torch-neuronx==2.14.*'", "")),
        ("ubuntu 24.04", ("torch-neuronx==2.9.0.2.15", "TorchNeuron: AWS's wheels are for Ubuntu 26.04, not ")),
        ("amzn 2023", (install.PAGE, "AWS's wheels are for Ubuntu 26.04, not for Amzn 2023")),
    ],
)
def test_a_line_whose_wheels_are_for_another_system_is_not_taken_where_one_fits(
    tmp_path, machine, monkeypatch, system, told
):
    """A Trn3: TorchNeuron is its own line, and PyTorch/XLA has it, too, from glibc 2.35 on."""
    (machine / "neuron0").touch()
    (tmp_path / "product_name").write_text("trn3.48xlarge")
    name, version = system.split()
    monkeypatch.setattr(install.platform, "freedesktop_os_release", lambda: {"ID": name, "VERSION_ID": version})
    monkeypatch.setattr(install.platform, "libc_ver", lambda: ("glibc", "2.34" if name == "amzn" else "2.39"))
    with pytest.raises(CompilerUnavailableError) as raised:
        select("auto")
    assert told[0] in raised.value.hint
    assert told[1] in raised.value.cause
    assert ("this line brings PyTorch/XLA" in raised.value.cause) == (version == "24.04")
    assert ("libneuronxla, torch-neuronx, torch-xla are not installed" in raised.value.cause) == (version == "24.04")
    found = the_problem("neuron-packages")
    assert found["said"] == f"{raised.value.message}; {raised.value.cause}"
    with pytest.raises(CompilerUnavailableError) as raised:
        assert select("neuron-native").machine
    own = "'torch-neuronx==2.14.*'" if version == "26.04" else install.PAGE
    assert own in raised.value.hint, "whoever names TorchNeuron gets its own line, or none"
    assert ("pip install" in raised.value.hint) == (version == "26.04")


def test_an_image_without_the_chip_is_not_named(tmp_path, machine):
    """PyTorch 2.8 is of SDK 2.26 to 2.28, which have no Trn3."""
    (tmp_path / "opt" / "aws_neuronx_venv_pytorch_2_8" / "bin").mkdir(parents=True)
    (tmp_path / "opt" / "aws_neuronx_venv_pytorch_2_8" / "bin" / "neuronx-cc").touch()
    assert [name for name in ("trn1", "trn2", "trn3") if "pytorch_2_8" in install.way(name).run] == ["trn1", "trn2"]


def test_a_compiler_that_was_named_gets_no_image_of_the_other_stack(tmp_path, machine):
    (machine / "neuron0").touch()
    (tmp_path / "product_name").write_text("trn3.48xlarge")
    venv = tmp_path / "opt" / "aws_neuronx_venv_pytorch_2_9"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "neuronx-cc").touch()
    with pytest.raises(CompilerUnavailableError) as raised:
        assert select("neuron-native").machine
    found = the_problem("neuron-packages", compiler="neuron-native")
    assert str(venv) not in found["run"]
    assert raised.value.hint.startswith(f"{found['run']}; or ")
    assert "activate && pip install 'cachekit-neuron[neuron]'" in the_problem("neuron-packages")["run"]


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
    assert f"AWS's image has PyTorch/XLA in {venv}" in raised.value.cause
    with monkeypatch.context() as active:
        active.setattr(install.sys, "prefix", str(venv))
        assert install.way("trn1").run.startswith("pip install"), "to activate what is active mends nothing"
    (venv / "bin" / "neuronx-cc").unlink()
    assert install.way("trn1").run.startswith("pip install")
    older = venv.with_name("aws_neuronx_venv_pytorch_2_8")
    (older / "bin").mkdir(parents=True)
    (older / "bin" / "neuronx-cc").touch()
    assert install.way("trn1").run.startswith(f". {older}/bin/activate")


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
