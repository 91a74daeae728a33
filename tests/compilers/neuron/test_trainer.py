"""A split model on Neuron, by optimum-neuron's own NeuronTrainer over XLA's graphs: `make test-xla`.

The trainer, its arguments, its models and its adapters are the installed package's. neuronx-distributed is stood in for
(`neuron_sdk/split_packages`) by a world of one worker that holds all of the model: what workers exchange is not in
these graphs. What is handed over is compared with the package's sources, so that a change there fails here.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from cachekit.compilers.neuron import facts
from cachekit.recipe import load, zoo
from tests.compilers.neuron.neuron_machine import Machine
from tests.support.neuron_sdk import PACKAGES, neuron_host

pytestmark = pytest.mark.xla
SMALL = (
    "tinyllama-lora", "--tiny", "--set", "parallel.zero_1=true", "--set", "training.per_device_train_batch_size=2",
    "--set", "training.max_steps=8", "--set", "training.logging_steps=2",
)  # fmt: skip


def source(*path: str) -> ast.Module:
    """A file of the installed optimum-neuron, which need not import."""
    (root,) = find_spec("optimum").submodule_search_locations
    return ast.parse(Path(root, "neuron", *path).read_text())


def class_of(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def parameters(tree: ast.Module, owner: str, name: str) -> set[str]:
    function = next(
        node for node in class_of(tree, owner).body if isinstance(node, ast.FunctionDef) and node.name == name
    )
    return {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}


def fields() -> dict[str, str]:
    """Name and type of each of NeuronTrainingArguments' fields."""
    found = class_of(source("trainers", "training_args.py"), "NeuronTrainingArguments").body
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in found
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


@pytest.mark.parametrize("trial", [True, False])
@pytest.mark.parametrize("name", ["llama3-8b-lora", "llama3.2-1b-sft", "qwen3-8b-lora", "granite-3.3-2b-lora"])
def test_every_argument_is_one_of_theirs_and_of_its_type(name, trial):
    from cachekit.training import split as training_split

    given = training_split.arguments(load(zoo.recipe_path(name)), precision="bf16", output_dir="out", trial=trial)
    known = fields()
    assert given.keys() <= known.keys()
    kinds = {"bool": bool, "int": int, "float": (int, float), "str": str, "list[str]": list, "None": type(None)}
    for field, value in given.items():
        names = [part.strip() for part in known[field].split("|")]
        allowed = tuple(kind for one in names if one in kinds for kind in [kinds[one]])
        flat = tuple(kind for one in allowed for kind in (one if isinstance(one, tuple) else (one,)))
        assert isinstance(value, flat), f"{field}: {known[field]} is given {value!r}"
    assert given["skip_cache_push"] is True


@pytest.mark.parametrize("rows, accumulated", [(16, 1), (3, 4), (8, 2)])
def test_its_own_checks_of_a_pipeline_take_every_batch_size(rows, accumulated):
    """It evaluates nothing, and refuses what it takes for batches of an evaluation."""
    from cachekit.training import split as training_split

    recipe = load(
        zoo.recipe_path("llama3-8b-lora"),
        [
            "parallel.pipeline_parallel_size=2",
            f"training.per_device_train_batch_size={rows}",
            f"training.gradient_accumulation_steps={accumulated}",
        ],
    )
    given = training_split.arguments(recipe, precision="bf16", output_dir="out", trial=False)
    body = class_of(source("trainers", "training_args.py"), "NeuronTrainingArguments").body
    (after,) = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == "__post_init__")
    (block,) = (
        node
        for node in ast.walk(after)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "self.pipeline_parallel_size > 1"
    )
    made = SimpleNamespace(**given, pipeline_parallel_num_microbatches=-1)
    exec(compile(ast.Module([block], []), "theirs", "exec"), {"self": made, "is_main_worker": lambda: False})
    assert made.per_device_train_batch_size == rows * accumulated
    assert made.pipeline_parallel_num_microbatches == rows * accumulated


def test_what_cannot_be_asked_of_it_is_still_so():
    """When it learns to evaluate or to resume, the sentences in `split.LACKS` and the checks there are to go."""
    trainer = ast.unparse(source("trainers", "transformers.py"))
    arguments = ast.unparse(source("trainers", "training_args.py"))
    assert "Evaluation is not supported in NeuronTrainer." in trainer
    assert "`resume_from_checkpoint` is not supported by the NeuronTrainer." in trainer
    assert "Evaluation is not supported yet." in arguments
    assert {"model", "args", "data_collator", "train_dataset", "callbacks"} <= parameters(
        source("trainers", "transformers.py"), "NeuronTrainer", "__init__"
    )
    optimizers = {word for word in ("ADAMW_TORCH", "SGD", "ADAFACTOR") if f"OptimizerNames.{word}" in trainer}
    assert optimizers == {name.upper() for name in facts.SPLIT_OPTIMIZERS}


def test_the_table_of_models_is_theirs():
    tree = source("models", "training", "auto_models.py")
    registered = {
        tuple(argument.value for argument in node.args)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "register_neuron_model_for_training"
        and all(isinstance(argument, ast.Constant) for argument in node.args)
    }
    assert {kind for kind, task in registered if task == "text-generation"} == facts.SPLIT_MODELS.keys()
    for kind, pipeline in facts.SPLIT_MODELS.items():
        text = ast.unparse(source("models", "training", kind, f"modeling_{kind}.py"))
        assert f"SUPPORTS_PIPELINE_PARALLELISM = {pipeline}" in text
        assert ("nn.Embedding(" not in text) == (kind in facts.SPLIT_VOCABULARIES)


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """A user whose recipe was warmed on a host of one core: the one cold compile."""
    pytest.importorskip("peft")
    machine = on(tmp_path_factory.mktemp("split"), trial_zeros=True)
    done = machine("warm", *SMALL)
    assert done["status"] == "compiled"
    assert machine.host.compiles == done["compiled"] == done["graphs"] == len(done["modules"])
    machine.host.forget()
    return machine


def on(folder: Path, **knobs) -> Machine:
    """A user of a host that has neuronx-distributed as well."""
    machine = Machine(folder, real=True, host=neuron_host(folder / "host-one", cores=1, **knobs))
    more = str(PACKAGES.parent / "split_packages")
    machine.environment["PYTHONPATH"] = os.pathsep.join([more, machine.environment["PYTHONPATH"]])
    return machine


@pytest.mark.feature("F1", "P1")
def test_a_training_by_neuron_trainer_compiles_nothing(warmed, tmp_path):
    """On another host, with an empty root, after a checkpoint, at other rates; it says what it did not do."""
    other = on(tmp_path, trial_zeros=True)
    shutil.copytree(warmed.home, other.home)
    result = other(
        "train", *SMALL, "--require-warm", "--output-dir", "out",
        "--set", "training.learning_rate=1e-3", "--set", "training.save_strategy=steps",
        "--set", "training.save_steps=3",
    )  # fmt: skip
    assert other.host.compiles == 0
    assert other.host.events("loaded"), "the stand-in was in use"
    assert (result["compiled"], result["built"], result["surprises"], result["steps"]) == (0, 0, [], 8)
    assert (result["metrics"], result["lacks"].keys()) == ({}, {"evaluation", "resume"})
    saved = {path.relative_to(other.work / "out").as_posix() for path in (other.work / "out").rglob("*.pt")}
    assert any(name.startswith("adapter_default/adapter_shards/") for name in saved)
    assert (other.work / "out" / "tokenizer.json").exists()
    (kept,) = (other.work / "out").glob("checkpoint-*")
    assert kept.name == "checkpoint-8"
    history = json.loads((kept / "trainer_state.json").read_text())["log_history"]
    losses = [entry["loss"] for entry in history]
    # Each step has other rows, so that not each loss is below the one before.
    assert min(losses[:2]) > max(losses[-2:]) > 0, "adapters learn"
    assert "not used" in other.said or "not used" in other.log()
    error = other("train", *SMALL, "--resume", "auto", "--output-dir", "out", code=2)["error"]
    assert "cannot be resumed" in error["message"]
