"""Models that are split over Neuron cores: their keys and plans on any laptop, what is refused, how workers start."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cachekit.compilers.neuron import compiler, facts, host, install, split
from cachekit.compilers.port import Run
from cachekit.compilers.prepare import prepare
from cachekit.errors import CompilerUnavailableError
from cachekit.recipe import load, zoo

pytest_plugins = ["tests.support.cli_session"]

# Name, cores that share a copy, attention.
RECIPES = [
    ("llama3-8b-lora", 8, "flash_attention_2"),
    ("llama3.2-1b-sft", 2, "flash_attention_2"),
    ("qwen3-8b-lora", 8, "eager"),
    ("granite-3.3-2b-lora", 2, "flash_attention_2"),
    ("tinyllama-lora", 2, "flash_attention_2"),
]
LARGE = ("--compiler", "neuron", "--instance", "trn1.32xlarge")
PACKAGES = {
    "neuronx-cc": "2.21.33363.0+82129205",
    "libneuronxla": "2.2.12677.0",
    "torch-neuronx": "2.8.0.2.10.16998",
    "neuronx-distributed": "0.15.22404",
    "optimum-neuron": "0.4.5",
    "peft": "0.17.0",
}


def plan(command, *arguments, code=0):
    return command("plan", *arguments, "--format", "json", code=code).json


def machine(cores=32, instance="trn1.32xlarge", here=True, without=(), **packages):
    found = {name: version for name, version in {**PACKAGES, **packages}.items() if name not in without}
    return host.NeuronHost(found, "trn1", cores, 1, instance, here=here)


@pytest.mark.feature("P2")
@pytest.mark.parametrize("toolchain", ["neuron-2.26.1", "neuron-2.31"])
@pytest.mark.parametrize("name, share, attention", RECIPES)
def test_each_has_a_plan_on_any_laptop(command, toolchain, name, share, attention):
    planned = plan(command, name, *LARGE, "--toolchain", toolchain)
    hard = planned["ingredients"]["hard"]
    assert (hard["parallel.tensor_parallel_size"], hard["parallel.data_parallel_size"]) == (share, 32 // share)
    assert (hard["compiler.trainer.name"], hard["compiler.trainer.attention"]) == ("optimum-neuron", attention)
    assert hard["compiler.trainer.sequence_parallel"] is True
    known = zoo.toolchain(toolchain).packages
    assert hard["toolchain.optimum-neuron"] == known["optimum-neuron"]
    assert hard["toolchain.neuronx-distributed"] == known["neuronx-distributed"].partition("+")[0]
    assert hard.get("toolchain.peft") == (known["peft"] if "lora" in name else None)
    assert planned["lacks"].keys() == {"evaluation", "resume"}


def test_the_version_of_the_trainer_and_of_the_layers_is_in_the_key():
    recipe = load(zoo.recipe_path("llama3.2-1b-sft"))

    def key(**packages):
        return prepare(recipe, compiler.Neuron(machine(here=False, **packages))).key

    changed = [key(), key(**{"optimum-neuron": "0.4.4"}), key(**{"neuronx-distributed": "0.16.1"})]
    assert len(set(changed)) == 3
    assert key(peft="0.18.0") == key(), "it has no adapters"


def test_people_are_told_the_layout_and_what_is_lacking(command):
    lines = command("plan", "llama3-8b-lora", *LARGE).out.splitlines()
    assert "  8 cores share a copy of the model; 4 copies train" in lines
    said = " ".join(line.strip() for line in lines)
    assert "no evaluation: NeuronTrainer has none" in said
    assert "no --resume" in said
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    "name, settings, message, hint",
    [
        ("gpt2-clm", ["parallel.tensor_parallel_size=2"], "a gpt2 model trains as a full copy", "size=1"),
        ("bert", ["parallel.zero_1=true"], "text-classification trains a full copy", "parallel.zero_1=false"),
        ("llama3-8b-lora", ["parallel.tensor_parallel_size=3"], "num_attention_heads is 32", "size=1"),
        ("llama3-8b-lora", ["parallel.tensor_parallel_size=16", "model.config.num_key_value_heads=32",
                            "model.config.vocab_size=128008"], "vocab_size is 128008", "size=8"),
        ("llama3-8b-lora", ["training.max_seq_length=2044"], "training.max_seq_length is 2044", "size=4"),
        ("llama3-8b-lora", ["parallel.pipeline_parallel_size=64", "parallel.tensor_parallel_size=1"], "32 layers", ""),
        ("granite-3.3-2b-lora", ["parallel.pipeline_parallel_size=2"], "no pipeline for granite", "_size=1"),
        ("llama3-8b-lora", ["parallel.data_parallel_size=5"], "there are 32 cores", "data_parallel_size=auto"),
        ("llama3-8b-lora", ["training.optim=adafactor"], "training.optim is adafactor", "adamw_torch"),
        ("llama3-8b-lora", ["training.lora.target_modules=[all-linear]"], "target_modules is all-linear", "q_proj"),
        ("llama3-8b-lora", ["training.lora.target_modules=null"], "target_modules is empty", "q_proj"),
    ],
)  # fmt: skip
def test_what_cannot_be_split_is_refused_by_the_field(command, name, settings, message, hint):
    given = [word for one in settings for word in ("--set", one)]
    error = plan(command, name, *LARGE, *given, code=2)["error"]
    assert error["code"] == "bad-recipe"
    assert message in error["message"]
    assert hint in error["hint"]


def test_granite_keeps_its_words_whole_and_few_key_heads_are_repeated(command):
    """49,159 words are no multiple of 2; 8 key heads for 16 cores are one for two."""
    assert plan(command, "granite-3.3-2b-lora", *LARGE)["status"] == "miss"
    assert plan(command, "llama3-8b-lora", *LARGE, "--set", "parallel.tensor_parallel_size=16")["status"] == "miss"


@pytest.mark.parametrize(
    "instance, settings, message",
    [
        ("trn1.2xlarge", [], "tensor_parallel_size is 8, but there are 2 cores"),
        ("trn2.48xlarge", ["parallel.pipeline_parallel_size=3"], "24 cores share a model, but there are 64"),
    ],
)
def test_a_machine_that_does_not_hold_whole_copies_is_refused(command, instance, settings, message):
    given = [word for one in settings for word in ("--set", one)]
    error = plan(command, "llama3-8b-lora", "--compiler", "neuron", "--instance", instance, *given, code=2)["error"]
    assert message in error["message"]


@pytest.mark.parametrize("kind", ["trial", "train"])
def test_there_is_a_worker_for_each_core(tmp_path, kind):
    recipe = load(zoo.recipe_path("llama3-8b-lora"))
    neuron = compiler.Neuron(machine())
    watch = neuron.watch(Run(recipe, tmp_path, kind, found=kind == "train"))
    assert watch.workers == 32
    assert "--nproc_per_node=32" in watch.prefix
    assert neuron.settings(recipe)["split"]
    two = load(zoo.recipe_path("llama3-8b-lora"), ["parallel.data_parallel_size=2"])
    assert neuron.watch(Run(two, tmp_path, kind, found=True)).workers == 16
    assert neuron.settings(load(zoo.recipe_path("bert"))) == {}


@pytest.mark.parametrize(
    "found, words",
    [
        ({"without": ["optimum-neuron"]}, "optimum-neuron is not installed: parallel.tensor_parallel_size needs it"),
        ({"neuronx-distributed": "0.1"}, "neuronx-distributed is not installed"),  # PyPI's placeholder
        ({"without": ["peft"]}, "peft is not installed"),
        ({"optimum-neuron": "0.3.0"}, "optimum-neuron 0.3.0 is too old"),
        ({"without": ["optimum-neuron"], "here": False}, "the registry does not have for this toolchain"),
    ],
)
def test_without_what_splits_models_nothing_is_planned(found, words):
    recipe = load(zoo.recipe_path("llama3-8b-lora"))
    with pytest.raises(CompilerUnavailableError, match=words) as raised:
        prepare(recipe, compiler.Neuron(machine(**found)))
    assert raised.value.hint
    assert prepare(load(zoo.recipe_path("bert")), compiler.Neuron(machine(**found))).key


def test_a_training_that_cannot_be_resumed_says_so_before_anything_runs(command, monkeypatch, tmp_path):
    monkeypatch.setattr(host, "this_host", lambda _: machine())
    monkeypatch.setenv(facts.CACHE_URL, str(tmp_path / "root"))
    words = ["train", "llama3-8b-lora", "--compiler", "neuron", "--resume", "auto", "--format", "json"]
    error = command(*words, code=2).json["error"]
    assert error["message"] == "llama3-8b-lora cannot be resumed"
    assert "NeuronTrainer" in error["cause"]


@pytest.mark.parametrize(
    "framework, pinned", [("2.8.0.2.10.16998", "==0.4.5'"), ("2.9.0.2.15.32035", "neuronx-distributed==0.19.28492")]
)
def test_the_trainer_to_install_is_the_one_of_these_packages(framework, pinned):
    """The trainer's own pins, of SDK 2.26.1, would take the packages of SDK 2.31 away."""
    line = split.install_line({"torch-neuronx": framework}).run
    assert pinned in line
    assert ("[neuronx" in line) == framework.startswith("2.8")


def test_a_python_without_the_trainer_gets_an_environment_that_has_all(monkeypatch):
    """numpy, as optimum-neuron 0.4 pins it, has no wheel for 3.13, for which AWS's packages have one."""
    monkeypatch.setattr(install, "sys", SimpleNamespace(version_info=SimpleNamespace(major=3, minor=13)))
    found = {"without": ["optimum-neuron"], "torch-neuronx": "2.9.0.2.15.32035"}
    with pytest.raises(CompilerUnavailableError, match="optimum-neuron is not installed") as raised:
        prepare(load(zoo.recipe_path("llama3-8b-lora")), compiler.Neuron(machine(**found)))
    assert raised.value.cause == "optimum-neuron has no wheels for Python 3.13, only for 3.11, 3.12"
    assert raised.value.hint.startswith("python3.12 -m venv ~/neuron && ~/neuron/bin/pip install --extra-index-url ")
    for package in ("torch-neuronx==2.9.0.2.15.32035", "optimum-neuron==0.4.3", "'cachekit-neuron[neuron]'"):
        assert package in raised.value.hint
