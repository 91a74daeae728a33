"""Packages of Neuron that are no toolchain: each is explained, by what compiles and by `doctor` in the same words."""

from __future__ import annotations

import json
import os
import re

import pytest

from cachekit.compilers import select
from cachekit.compilers.neuron import caches, doctor, facts, host, installed, presence
from cachekit.errors import CompilerUnavailableError
from cachekit.recipe import zoo
from tests.compilers.neuron.unusable_cases import MESSAGE, NATIVE, RECIPE, WHOLE, answer, machine, recipe, whole  # noqa: F401 - fixtures
from tests.support.doctor_cases import findings, fine, the_problem
from tests.support.places import ROOT
from tests.support.processes import run_cachekit

pytest_plugins = ["tests.support.cli_session"]


APART = "-m venv ~/neuron && ~/neuron/bin/pip install --extra-index-url "
XLA_APART = f"{APART}https://pip.repos.neuron.amazonaws.com neuronx-cc=="
NATIVE_APART = f"{APART}https://download.pytorch.org/whl/cpu"
TWO = {
    "TorchNeuron with PyPI's placeholder of NKI": (
        NATIVE | {"nki": "0.0.1"},
        "nki 0.0.1 cannot be used",
        "'torch-neuronx==2.14.*'",
    ),
    "PyPI's placeholders on a Trn3, which has another stack": (
        {"neuronx-cc": "1.0.post1", "torch-neuronx": "1.0"},
        "neuronx-cc 1.0.post1, torch-neuronx 1.0 cannot be used",
        "'torch-neuronx==2.14.*'",
    ),
    "XLA without torch-neuronx on a Trn3": (
        {"neuronx-cc": "2.26.6360.0", "torch-xla": "2.9.0", "libneuronxla": "2.2.17544.0"},
        "torch-neuronx is not installed",
        "torch-neuronx==2.9.0.2.15.32035",
    ),
    "TorchNeuron beside XLA": (
        {"neuronx-cc": "2.28.7631.0", "torch-neuronx": "2.14.3.0", "torch-xla": "2.9.0"},
        "torch-neuronx 2.14.3.0 with torch-xla 2.9.0 cannot be used; these belong to two stacks",
        NATIVE_APART,
    ),
    "TorchNeuron beside XLA's plugin": (
        {"neuronx-cc": "2.28.7631.0", "torch-neuronx": "2.14.3.0", "libneuronxla": "2.2.17544.0"},
        "torch-neuronx 2.14.3.0 with libneuronxla 2.2.17544.0 cannot be used; these belong to two stacks",
        NATIVE_APART,
    ),
    "TorchNeuron beside the package for serving": (
        {"neuronx-cc": "2.28.7631.0", "torch-neuronx": "2.14.3.0", "libtorch-neuronx-lite": "2.12.0.1.0.1284"},
        "with libtorch-neuronx-lite 2.12.0.1.0.1284 cannot be used; these belong to two stacks",
        NATIVE_APART,
    ),
    "XLA beside the package for serving": (
        WHOLE | {"libtorch-neuronx-lite": "2.12.0.1.0.1284"},
        "torch-neuronx 2.9.0.2.15.32035 with libtorch-neuronx-lite 2.12.0.1.0.1284 cannot be used",
        XLA_APART,
    ),
    "a release for other chips": (
        {
            "neuronx-cc": "2.21.33363.0",
            "torch-neuronx": "2.8.0.2.10.16998",
            "libneuronxla": "2.2.12677.0",
            "torch-xla": "2.8.0",
        },
        "does not compile for trn3; these are of neuron-2.26.1, which knows trn1, inf2, trn2",
        "torch-neuronx==2.14.*",
    ),
    "TorchNeuron on a Trn1": (
        {"neuronx-cc": "2.28.7631.0", "torch-neuronx": "2.14.3.0"},
        "is TorchNeuron, which does not run on trn1",
        "pip uninstall -y torch-neuronx && pip install",
    ),
    "TorchNeuron without its compiler": (
        {"torch-neuronx": "2.14.3.0", "torch": "2.14.0"},
        "neuronx-cc is not installed",
        "torch-neuronx==2.14.*",
    ),
    "TorchNeuron without torch-neuronx": (
        {"neuronx-cc": "2.28.7631.0", "torch": "2.14.0"},
        "torch-neuronx is not installed",
        "'torch-neuronx==2.14.*'",
    ),
    "TorchNeuron under PyPI's placeholder of it": (
        {"torch-neuronx": "1.0.0.0", "torch": "2.14.0", "nki": "0.7.0"},
        "torch-neuronx 1.0.0.0 cannot be used",
        "'torch-neuronx==2.14.*'",
    ),
    "a compiler that TorchNeuron shares with JAX on a Trn1": (
        {"neuronx-cc": "2.28.7631.0", "torch": "2.14.0"},
        "libneuronxla, torch-neuronx, torch-xla are not installed",
        "torch-neuronx==2.9.0.2.15.32035",
    ),
    "TorchNeuron with a later compiler, and without torch-neuronx": (
        {"neuronx-cc": "2.29.1.0", "torch": "2.14.0"},
        "torch-neuronx is not installed",
        "'torch-neuronx==2.14.*'",
    ),
    "a compiler of XLA's alone on a Trn3": (
        {"neuronx-cc": "2.26.6360.0"},
        "libneuronxla, torch-neuronx, torch-xla are not installed",
        "torch-neuronx==2.9.0.2.15.32035",
    ),
    "TorchNeuron without its compiler on a Trn1": (
        {"torch-neuronx": "2.14.3.0", "torch": "2.14.0"},
        "is TorchNeuron, which does not run on trn1",
        "pip uninstall -y torch-neuronx && pip install",
    ),
    "the package for serving": (
        {"neuronx-cc": "2.27.5334.0", "libtorch-neuronx-lite": "2.12.0.1.0.1284"},
        "libtorch-neuronx-lite serves models and trains none; SDK 2.30 to 2.32 have it for vLLM",
        "-m venv ~/neuron",
    ),
    "JAX's environment": (
        {"neuronx-cc": "2.27.5334.0", "libneuronxla": "3.0.5356.0"},
        "3.0.5356.0 is installed, and no torch-neuronx; libneuronxla is JAX's (cachekit run --compiler jax);",
        "-m venv ~/neuron",
    ),
}


@pytest.mark.feature("U3")
@pytest.mark.parametrize("case", TWO)
def test_packages_that_do_not_go_together_are_named_by_plan_and_doctor(tmp_path, machine, monkeypatch, case):
    versions, said, run = TWO[case]
    (machine / "neuron0").touch()
    other = "trn1.2xlarge" if case.endswith("Trn1") else "trn3.48xlarge"
    elsewhere = case.endswith("Trn1") or "Trn3" in case or "other chips" in case
    (tmp_path / "product_name").write_text(other if elsewhere else "trn2.3xlarge")
    monkeypatch.setattr(installed, "versions", lambda: versions)
    monkeypatch.setattr(installed, "without_code", lambda found: [])
    with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
        select("auto")
    assert said in raised.value.cause
    assert run in raised.value.hint
    found = the_problem("neuron-packages")
    assert found["said"] == f"{raised.value.message}; {raised.value.cause}"


@pytest.mark.feature("U3")
@pytest.mark.parametrize("compiler", ["auto", "neuron"])
def test_an_image_with_the_stack_is_named_also_to_who_asks_for_the_stack(machine, tmp_path, monkeypatch, compiler):
    (machine / "neuron0").touch()
    (tmp_path / "product_name").write_text("trn1.2xlarge")
    image = tmp_path / "opt" / "aws_neuronx_venv_pytorch_2_9"
    (image / "bin").mkdir(parents=True)
    (image / "bin" / "neuronx-cc").touch()
    monkeypatch.setattr(installed, "versions", dict)
    with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
        assert select(compiler).machine
    assert raised.value.hint.startswith(f". {image}/bin/activate && pip install ")
    assert f"AWS's image has PyTorch/XLA in {image}" in raised.value.cause
    assert the_problem("neuron-packages", compiler=compiler)["said"] == f"{raised.value.message}; {raised.value.cause}"


@pytest.mark.parametrize(
    "versions, line",
    [(("2.9.0.2.14.27725", "2.9.0.2.15.32035"), XLA_APART), (("2.13.3.0", "2.14.3.0"), NATIVE_APART)],
)
def test_a_package_of_which_one_folder_has_two_versions(machine, tmp_path, monkeypatch, versions, line):
    """Whichever of the two the metadata tells first."""
    (tmp_path / "product_name").write_text("trn2.48xlarge")
    for name, version in (*(("torch_neuronx", version) for version in versions), ("neuronx_cc", "2.28")):
        folder = tmp_path / "site" / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    asked = (installed.versions, installed._told, installed.installed_twice)
    for one in asked:
        one.cache_clear()
    try:
        (machine / "neuron0").touch()
        with pytest.raises(CompilerUnavailableError, match=MESSAGE) as raised:
            select("auto")
        assert raised.value.cause.startswith(f"torch-neuronx is installed twice: {', '.join(versions)}; ")
        assert line in raised.value.hint
        assert the_problem("neuron-packages")["said"] == f"{raised.value.message}; {raised.value.cause}"
        assert fine("installed-once"), "one line mends it, and pip's own would take the wrong index"
    finally:
        for one in asked:
            one.cache_clear()


@pytest.mark.feature("U3")
def test_half_an_sdk_without_a_device_is_no_reason_for_inductor(tmp_path, work):
    """The command itself: metadata is looked for once, by the names of its folders."""
    (work / "tiny.yaml").write_text(RECIPE)
    site = tmp_path / "site"
    for name in ("neuronx_cc-2.26.6360.0", "torch_neuronx-2.9.0.2.15.32035"):
        (site / f"{name}.dist-info").mkdir(parents=True)
        (site / f"{name}.dist-info" / "METADATA").write_text("Name: {}\nVersion: {}\n".format(*name.split("-")))
    environment = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}", "CACHEKIT_HOME": str(tmp_path / "home")}

    def run(*words, code):
        done = run_cachekit(*words, "--format", "json", folder=work, environment=environment, code=code)
        return json.loads(done.stdout)

    error = run("plan", "tiny.yaml", code=1)["error"]
    assert "libneuronxla, torch-xla are not installed" in error["message"]
    (found,) = (one for one in run("doctor", code=1)["findings"] if one["check"] == "neuron-packages")
    assert (found["state"], found["said"]) == ("problem", f"{error['message']}; {error['cause']}")
    assert error["hint"].startswith(f"{found['run']}; or --compiler inductor")
    assert run("plan", "tiny.yaml", "--compiler", "inductor", code=0)["compiler"] == "inductor"


@pytest.mark.usefixtures("whole")
def test_the_last_release_on_xla_is_for_a_trn3_as_its_table_says(tmp_path, monkeypatch):
    (tmp_path / "product_name").write_text("trn3.48xlarge")
    assert fine("neuron-packages")
    assert host.this_host().target in zoo.toolchain("neuron-2.31").targets


@pytest.mark.usefixtures("whole", "recipe")
@pytest.mark.parametrize("compiler, said", [("2.26.6360.0", True), ("2.28.7631.0", False), ("2.29.1.0", False)])
def test_torchneuron_with_a_compiler_from_before_it_is_told(tmp_path, monkeypatch, command, compiler, said):
    (tmp_path / "product_name").write_text("trn2.3xlarge")
    monkeypatch.setattr(installed, "versions", lambda: {"neuronx-cc": compiler, "torch-neuronx": "2.14.3.0"})
    words = f"no release in the table has torch-neuronx 2.14.3.0 with neuronx-cc {compiler}"
    lacks = answer(command, "plan", "tiny.yaml", code=0)["lacks"]
    assert lacks.get("release", "").startswith(words) == said
    (found,) = findings("neuron-packages")
    assert found["said"].startswith(words) == said


@pytest.mark.parametrize(
    "versions, said",
    [
        (WHOLE | {"libneuronxla": "3.0.5356.0"}, "3.x is JAX's"),
        (WHOLE, ""),
        (NATIVE | {"libneuronxla": "3.0.10135.0"}, ""),
        (WHOLE | {"torch": "2.13.0"}, "with torch 2.13.0 cannot be used; it loads only beside torch 2.9"),
        (WHOLE | {"torch-xla": "2.7.0"}, "with torch-xla 2.7.0 cannot be used; it loads only beside torch 2.9 and"),
        ({name: one for name, one in WHOLE.items() if name != "torch-xla"}, "torch-xla is not installed"),
        (NATIVE | {"torch": "2.9.1"}, "with torch 2.9.1 cannot be used; it loads only beside torch"),
    ],
)
@pytest.mark.parametrize("devices", [True, False])
@pytest.mark.usefixtures("whole")
def test_packages_that_do_not_load_together_are_refused_in_doctors_words(machine, monkeypatch, versions, said, devices):
    monkeypatch.setattr(installed, "versions", lambda: versions)
    for node in () if devices else machine.iterdir():
        node.unlink()
    if not said:
        assert fine("neuron-packages")
        (found,) = findings("neuron-packages")
        assert ("TorchNeuron is experimental" in found["said"]) == (versions["torch"] == "2.14.0")
        return
    found = the_problem("neuron-packages")
    ours = "neuron-native" if "2.14" in versions["torch-neuronx"] else "neuron"
    for compiler in ("auto", ours):
        with pytest.raises(CompilerUnavailableError) as raised:
            assert select("auto", compiler).machine
        assert said in found["said"]
        assert found["said"] == f"{raised.value.message}; {raised.value.cause}"
        assert found["run"] in raised.value.hint
    assert (MESSAGE in found["said"]) == devices


@pytest.mark.parametrize(
    "versions, words",
    [
        (
            {"neuronx-cc": "2.27.5334.0", "libneuronxla": "3.0.5356.0"},
            ["libneuronxla==2.2.17544.0", "neuronx-cc==2.26.6360.0"],
        ),
        ({"torch": "2.13.0"}, ["'torch==2.9.*'"]),
        (
            {"torch": "2.13.0", "torch-xla": "2.13.0", "neuronx-cc": "2.21.33363.0", "libneuronxla": "2.2.12677.0"},
            ["'torch==2.9.*'", "'torch-xla==2.9.*'", "libneuronxla==2.2.17544.0", "neuronx-cc==2.26.6360.0"],
        ),
    ],
)
@pytest.mark.usefixtures("whole")
def test_one_line_mends_all_that_does_not_fit(monkeypatch, versions, words):
    monkeypatch.setattr(installed, "versions", lambda: WHOLE | versions)
    run = the_problem("neuron-packages")["run"]
    assert run == f"pip install --extra-index-url https://pip.repos.neuron.amazonaws.com {' '.join(words)}"


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("release, torch", [("2.13.3.0", "2.14.0"), ("2.14.3.0", "2.13.0")])
def test_torch_beside_any_torchneuron_is_that_without_cuda(tmp_path, monkeypatch, release, torch):
    """Also beside one that the table of releases names in words only."""
    (tmp_path / "product_name").write_text("trn2.48xlarge")
    monkeypatch.setattr(installed, "versions", lambda: NATIVE | {"torch-neuronx": release, "torch": torch})
    run = the_problem("neuron-packages")["run"]
    assert run.startswith("pip install --extra-index-url https://download.pytorch.org/whl/cpu --extra-index-url ")
    assert run.endswith(f" 'torch=={release[:4]}.*'")


@pytest.mark.usefixtures("whole", "machine")
@pytest.mark.parametrize(
    "versions, theirs",
    [
        ({"neuronx-cc": "2.21.33363.0", "libneuronxla": "2.2.12677.0"}, "neuron-2.31 has it with neuronx-cc 2.26.6360"),
        (
            {"torch-neuronx": "2.8.0.2.10.16998", "torch": "2.8.0", "torch-xla": "2.8.0"},
            "neuron-2.26.1 has it with neuronx-cc 2.21.33363.0",
        ),
        # of 2023, and no placeholder of PyPI's
        ({"libneuronxla": "0.5.971"}, "neuron-2.31 has it with libneuronxla 2.2.17544.0"),
        ({"libneuronxla": "2.2.12677.0"}, "neuron-2.31 has it with libneuronxla 2.2.17544.0"),
        ({"libneuronxla": "2.2.99999.0"}, ""),
        ({"torch-neuronx": "2.1.2.2.2.0", "torch": "2.1.2", "torch-xla": "2.1.2"}, ""),
        ({"torch-neuronx": "2.9.0.9.9", "neuronx-cc": "2.24.1.0"}, ""),
    ],
)
def test_a_package_of_another_release_is_told(recipe, command, monkeypatch, versions, theirs):
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "trn1")
    monkeypatch.setattr(installed, "versions", lambda: WHOLE | versions)
    told = answer(command, "plan", recipe, code=0)["lacks"].get("release", "")
    assert theirs in told
    if not theirs:
        assert (told, fine("neuron-packages")) == ("", True)
        return
    assert the_problem("neuron-packages")["said"] == told


@pytest.mark.usefixtures("whole", "machine")
@pytest.mark.parametrize(
    "versions, told",
    [
        ({"neuronx-cc": "2.27.5334.0"}, ("every graph of a transformer ended in NCC_ISMP902", "cc==2.26.6360.0")),
        # The kernels of an image's later NKI are another compiler's.
        ({"neuronx-cc": "2.27.5334.0", "nki": "0.6.0"}, ("NCC_ISMP902", "neuronx-cc==2.26.6360.0 'nki<0.6'")),
        ({"nki": "0.6.0+1"}, ("refused the kernels of nki 0.6", "neuron.amazonaws.com 'nki<0.6'")),
        (
            {"neuronx-cc": "2.25.3371.0", "torch-neuronx": "2.9.0.2.14.27725", "libneuronxla": "2.2.16974.0"}
            | {"nki": "0.7.0"},
            ("refused the kernels of nki 0.6", "neuron.amazonaws.com 'nki<0.6'"),
        ),
        (  # a release whose NKI the table does not name
            {"neuronx-cc": "2.24.8799.0", "torch-neuronx": "2.9.0.2.13.26312", "libneuronxla": "2.2.16408"}
            | {"nki": "0.6.0"},
            ("refused the kernels of nki 0.6", "neuron.amazonaws.com 'nki<0.6'"),
        ),
    ],
)
def test_packages_that_somebody_saw_fail_together_are_used_with_a_warning(recipe, command, monkeypatch, versions, told):
    """One of AWS's pages has the first two."""
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "trn1")
    monkeypatch.setattr(installed, "versions", lambda: WHOLE | versions)
    found = the_problem("neuron-packages")
    assert "are reported to fail together: " in found["said"]
    assert told[0] in found["said"]
    assert found["run"].endswith(told[1])
    assert answer(command, "plan", recipe, code=0)["lacks"]["release"] == found["said"]


@pytest.mark.usefixtures("whole", "machine")
def test_torchneuron_beside_a_transformers_that_does_not_know_it_is_told_before_a_worker_says_so(
    recipe, command, monkeypatch
):
    monkeypatch.setenv(facts.TARGET_OVERRIDE, "trn2")
    monkeypatch.setattr(installed, "versions", lambda: NATIVE | {"transformers": "4.57.6"})
    found = the_problem("neuron-packages")
    assert found["run"].endswith("neuron.amazonaws.com 'transformers>=5'")
    assert answer(command, "plan", recipe, code=0)["lacks"]["release"] == found["said"]
    monkeypatch.setattr(installed, "versions", lambda: NATIVE | {"transformers": "5.0.0"})
    assert fine("neuron-packages")


def test_the_extra_keeps_the_stack_on_xla_together():
    for package, version, within in [
        ("torch-neuronx", "2.9.0.2.15.32035", True),
        ("torch-neuronx", "2.14.3.0", False),
        ("torch-neuronx", "1.0", False),
        ("neuronx-cc", "2.26.6360.0", True),
        ("neuronx-cc", "2.27.5334.0", False),
        ("libneuronxla", "2.2.17544.0", True),
        ("libneuronxla", "3.0.10135.0", False),
        ("optimum-neuron", "0.4.5", True),
    ]:
        said = (ROOT / "pyproject.toml").read_text().partition("\nneuron = [\n")[2].partition("\n]")[0]
        (bounds,) = re.findall(rf'"{package}([^"]*)"', said)
        lowest, highest = (installed.release(bound.lstrip("<>=")) for bound in bounds.split(","))
        assert (lowest <= installed.release(version) < highest) == within


def test_an_empty_folder_at_neurons_place_says_nothing_of_neuron(tmp_path, monkeypatch):
    for name in (facts.CC_FLAGS, facts.CACHE_URL, facts.NATIVE_ROOT_VARIABLE, facts.LIBTORCH_ROOT):
        monkeypatch.delenv(name, raising=False)
    for module, name, found in (
        (installed, "versions", {}),
        (installed, "half_installed", {}),
        (presence, "may_have_devices", False),
        (presence, "driver", False),
        (caches, "vllm_folders", []),
    ):
        monkeypatch.setattr(module, name, lambda found=found: found)
    root = tmp_path / "neuron-compile-cache"
    monkeypatch.setattr(facts, "DEFAULT_ROOT", str(root))
    monkeypatch.setattr(facts, "NATIVE_DEFAULT_ROOT", str(tmp_path / "native"))
    root.mkdir()
    assert not doctor.concerned()
    (root / "neuronxcc-2.26").mkdir()
    assert doctor.concerned()
