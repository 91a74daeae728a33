"""TorchNeuron's adapter: where it is chosen and refused, what is in its key, and many graphs in one archive."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from cachekit.compilers import select
from cachekit.compilers.command import prepare_command
from cachekit.compilers.neuron import chip, facts, presence
from cachekit.compilers.neuron.host import NeuronHost
from cachekit.compilers.neuron.native_compiler import NeuronNative
from cachekit.compilers.prepare import prepare
from cachekit.errors import CompileError, CompilerUnavailableError, IntegrityError, RecipeError, UsageError
from cachekit.recipe import load_text, zoo
from cachekit.recipe.command import read
from cachekit.store.archive import UnsafeArchiveError
from cachekit.store.record import Module
from tests.compilers.neuron.neuron_files import make_neff
from tests.compilers.neuron.neuron_trees import tree

pytest_plugins = ["tests.support.cli_session"]

TEXT = """
name: toy
model: {id: sentence-transformers/all-MiniLM-L6-v2}
data: {id: nobody/nothing, labels: ["no", "yes"]}
compiler: {name: neuron-native}
"""
PACKAGES = {"neuronx-cc": "2.27.5334.0+bbbbbbbb", "torch-neuronx": "2.11.3.0.1278", "torch": "2.11.0"}


def machine(**changes) -> NeuronHost:
    fields = {"packages": PACKAGES, "target": "trn2", "cores": 2, "lnc": 2, "instance": "trn2.48xlarge", "here": True}
    return NeuronHost(**{**fields, **changes})


def key(text: str = TEXT, **changes) -> str:
    return prepare(load_text(text), NeuronNative(machine(**changes))).key


@pytest.fixture
def installed(monkeypatch):
    """Say which packages are installed, with their code."""

    def say(**versions: str) -> None:
        found = {name.replace("_", "-"): version for name, version in versions.items()}
        monkeypatch.setattr("cachekit.compilers.neuron.installed.versions", lambda: found)
        monkeypatch.setattr("cachekit.compilers.neuron.installed.without_code", lambda _: [])
        monkeypatch.setattr(presence, "possible", lambda: True)
        monkeypatch.setattr(chip, "listed", lambda: (None, ""))

    return say


def test_a_shells_compile_only_mode_is_in_the_key_of_a_command_and_in_no_recipes(tmp_path, monkeypatch):
    """Of a recipe's worker cachekit sets or removes it."""
    (tmp_path / "train.py").write_text("import torch\n")

    def keys() -> tuple[str, str]:
        command = read((sys.executable, "train.py"))
        return key(), prepare_command(command, NeuronNative(machine()), cwd=tmp_path).key

    monkeypatch.delenv(facts.NATIVE_COMPILE_ONLY, raising=False)
    recipe, run = keys()
    monkeypatch.setenv(facts.NATIVE_COMPILE_ONLY, "1")
    assert keys()[0] == recipe
    assert keys()[1] != run


@pytest.mark.feature("K1")
def test_it_is_chosen_by_itself_where_torch_neuronx_is_no_longer_on_xla(installed, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    installed(neuronx_cc="2.27.5334.0", torch_neuronx="2.11.3.0.1278")
    assert select("auto").name == "neuron-native"
    assert select("auto").fingerprint().directory == "torchneuron-2.27.5334.0"
    alone = select("auto").fingerprint().toolchain
    installed(neuronx_cc="2.27.5334.0", torch_neuronx="2.11.3.0.1278", libneuronxla="3.0.5356.0")
    assert select("auto").fingerprint().toolchain == alone, "what XLA needs is not its"
    with pytest.raises(CompilerUnavailableError, match="is TorchNeuron") as caught:
        select("neuron").fingerprint()
    assert caught.value.hint == "--compiler neuron-native"
    installed(neuronx_cc="2.26.6360.0", torch_neuronx="2.9.0.2.15.32035", libneuronxla="2.2.17544.0", torch_xla="2.9.0")
    assert select("auto").name == "neuron"
    with pytest.raises(CompilerUnavailableError, match="runs on PyTorch/XLA") as caught:
        select("neuron-native").fingerprint()
    assert caught.value.hint == "--compiler neuron is for this one"
    installed(neuronx_cc="2.27.5334.0", torch_neuronx="1.0")  # PyPI's
    assert select("auto").name == "inductor"
    with pytest.raises(CompilerUnavailableError, match="cannot be used"):
        select("neuron-native").fingerprint()


@pytest.mark.feature("U3")
def test_machines_and_toolchains_without_it_are_refused(installed, monkeypatch):
    installed(neuronx_cc="2.27.5334.0", torch_neuronx="2.11.3.0.1278")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(CompilerUnavailableError, match="does not run on trn1"):
        select("neuron-native").fingerprint()
    with pytest.raises(UsageError, match=r"neuron-2\.31 is a toolchain of neuron, not of neuron-native") as caught:
        select("neuron-native", toolchain="neuron-2.31", instance="trn2.48xlarge")
    assert caught.value.hint == "--compiler neuron, or --toolchain neuron-2.33"
    with pytest.raises(UsageError, match=r"neuron-2\.33 is a toolchain of neuron-native, not of neuron") as caught:
        select("neuron", toolchain="neuron-2.33", instance="trn2.48xlarge")
    assert caught.value.hint == "--compiler neuron-native, or --toolchain neuron-2.31"
    with pytest.raises(UsageError, match=r"neuron-2\.33 does not compile for trn1\.2xlarge"):
        select("neuron-native", toolchain="neuron-2.33", instance="trn1.2xlarge")
    with pytest.raises(UsageError, match="no toolchain of the registry compiles for trn1 with neuron-native") as caught:
        select("neuron-native", instance="trn1.2xlarge")
    assert caught.value.hint == "--compiler neuron"


@pytest.mark.feature("P2")
def test_a_plan_on_a_laptop_says_that_its_key_is_no_hosts(monkeypatch, command):
    """AWS's pages name no build of torch-neuronx, and no Transformers."""
    elsewhere = ("plan", "bert", "--instance", "trn2.3xlarge")
    for words in (("--toolchain", "neuron-2.33"), ("--compiler", "neuron-native")):
        planned = command(*elsewhere, *words, "--format", "json").json
        assert (planned["compiler"], planned["directory"]) == ("neuron-native", "torchneuron-2.28.7631.0")
        assert planned["ingredients"]["hard"]["toolchain.torch-neuronx"] == "2.14.3.0"
        assert [*planned["lacks"]] == ["evidence", "prediction"]
        assert planned["lacks"]["evidence"].startswith("TorchNeuron is experimental")
        assert "2.14.3.0.*" in planned["lacks"]["prediction"]
        assert "transformers: " in planned["lacks"]["prediction"]
    assert "uncertain: a host's key" in command(*elsewhere, "--toolchain", "neuron-2.33").out
    alone = command(*elsewhere, "--format", "json").json
    assert alone["compiler"] == "neuron", "of an instance alone it is XLA still"
    complete = {name: structs.replace(one, open={}) for name, one in zoo.toolchains().items()}
    monkeypatch.setattr(zoo, "toolchains", lambda: complete)
    assert command(*elsewhere, "--toolchain", "neuron-2.33", "--format", "json").json["lacks"].keys() == {"evidence"}


@pytest.mark.feature("K1")
def test_its_key_has_what_shapes_its_graphs(monkeypatch):
    base = key()
    assert key(packages={**PACKAGES, "neuronx-cc": "2.28.1.0"}) != base
    assert key(packages={**PACKAGES, "neuronx-cc": "2.27.5334.0+cccccccc"}) == base
    assert key(TEXT + "environment: {TORCH_NEURONX_LOG_LEVEL: 3}\n") == base
    assert key(TEXT + "environment: {TORCH_NEURONX_COMPLEX_DECOMPOSE: 1}\n") != base
    assert key(TEXT.replace("native}", "native, flags: [-O1]}")) != base
    assert key(TEXT.replace("native}", "native, options: {execution: eager}}")) != base
    monkeypatch.setenv("TORCH_NEURONX_LOG_LEVEL", "3")
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", "/elsewhere")
    assert key() == base
    monkeypatch.setenv("NEURON_COMPILER_OPT_LEVEL", "1")
    assert key() != base


@pytest.mark.parametrize(
    "text, said",
    [
        ("environment: {TORCH_NEURONX_NEFF_CACHE_DIR: /x}", "cachekit sets it for the worker"),
        ("environment: {NEURON_CC_FLAGS: -O1}", "cachekit sets it for the worker"),
        ("parallel: {tensor_parallel_size: 2}", "parallel.tensor_parallel_size splits the model"),
    ],
)
def test_what_it_cannot_take_is_refused(text, said):
    with pytest.raises(RecipeError, match=said):
        key(TEXT + text + "\n")


@pytest.mark.parametrize("options", ["{num_parallel: 2}", "{execution: slowly}"])
def test_options_that_it_lacks_are_refused(options):
    with pytest.raises(RecipeError, match=r"compiler\.options\."):
        key(TEXT.replace("native}", f"native, options: {options}}}"))


# In and out


def fill(root: Path, count: int) -> None:
    raw = make_neff(version=PACKAGES["neuronx-cc"])
    for number in range(count):
        name = hashlib.md5(str(number).encode()).hexdigest()
        path = root / "torchneuron-2.27.5334.0" / name[:2] / name[2:4] / f"{name}.neff"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)


def blob(path: Path):
    def through(sink):
        sink(0, memoryview(path.read_bytes()))

    return SimpleNamespace(location=path, path=path, through=through)


@pytest.mark.feature("F6")
def test_an_archive_of_another_compiler_is_refused_even_under_this_ones_name(tmp_path):
    compiler, root = NeuronNative(machine()), tmp_path / "root"
    fill(root, 2)
    harvest = compiler.harvest(root, frozenset(), compiler.fingerprint(), tmp_path)
    (module,), (packed,) = harvest.modules, harvest.files.values()
    newer, target = NeuronNative(machine(packages={**PACKAGES, "neuronx-cc": "2.28.1.0"})), tmp_path / "newer"
    target.mkdir()
    with pytest.raises(UnsafeArchiveError, match=r"not an archive of torchneuron-2\.28\.1\.0"):
        newer.restore(module, [blob(packed)], target)
    lying = Module(module.name.replace("2.27.5334.0", "2.28.1.0"), module.files)
    with pytest.raises(IntegrityError) as caught:
        newer.restore(lying, [blob(packed)], target)
    assert "it was compiled by 2.27.5334.0" in caught.value.cause
    assert not tree(target)


@pytest.mark.feature("F6", "S2")
def test_graphs_of_another_chip_or_half_of_one_are_never_kept(tmp_path):
    compiler, root = NeuronNative(machine()), tmp_path / "root"
    fill(root, 2)
    first, second = sorted(path for path in root.rglob("*.neff"))
    first.write_bytes(first.read_bytes()[:-1])
    for _ in range(2):
        with pytest.raises(CompileError, match="a compiled graph cannot be kept"):
            compiler.harvest(root, frozenset(), compiler.fingerprint(), tmp_path)
        first.write_bytes(make_neff(version=PACKAGES["neuronx-cc"], target="sunda"))
    shutil.copy(second, first)
    assert compiler.harvest(root, frozenset(), compiler.fingerprint(), tmp_path) is not None
