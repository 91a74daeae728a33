"""The backend for split models, with optimum-neuron absent, of another kind, or stood in for; see `test_trainer`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, make_dataclass
from importlib import metadata
from types import ModuleType, SimpleNamespace

import pytest
from msgspec import structs

from cachekit.compilers.neuron import split
from cachekit.errors import CompilerUnavailableError
from cachekit.recipe.schema import Parallel, Training
from cachekit.training.job import CounterWatch, Events
from tests.training.test_training_model import job as toy


@pytest.fixture
def around(tmp_path):
    """Eight workers, of which two share a copy."""
    job = toy()
    recipe = structs.replace(job.recipe, parallel=Parallel(tensor_parallel_size=2))
    out, settings = str(tmp_path / "out"), {**split.settings(recipe, {}), "lacks": ["no evaluation here"]}
    job = structs.replace(job, mode="train", recipe=recipe, settings=settings, output_dir=out)
    events = Events(tmp_path / "events.jsonl")
    yield job, None, events, 8, out
    events.close()


def theirs(recipe, told):
    """Arguments of the kind that is known; `told` gets their values."""
    from cachekit.training import split as training_split

    known = training_split.arguments(recipe, precision="fp32", output_dir="", trial=False)
    return make_dataclass(
        "Theirs",
        [(name, object, None) for name in known],
        namespace={"__post_init__": lambda self: told.update(vars(self))},
    )


def installed(monkeypatch, arguments, trainer=None):
    for name in ("optimum", "optimum.neuron", "optimum.neuron.trainers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["optimum.neuron.trainers"].NeuronTrainingArguments = arguments
    sys.modules["optimum.neuron.trainers"].NeuronTrainer = trainer
    sys.modules["optimum.neuron.trainers"].transformers = ModuleType("transformers")  # its module of that name
    monkeypatch.setattr(metadata, "version", lambda _: "0.9.0")


def test_without_optimum_neuron_it_says_what_to_install(around, monkeypatch):
    from cachekit.training import split as training_split

    monkeypatch.setitem(sys.modules, "optimum", None)
    with pytest.raises(CompilerUnavailableError, match="optimum-neuron does not import") as raised:
        training_split.SplitBackend(*around)
    assert "pip install" in raised.value.hint


def test_a_trainer_of_another_kind_is_refused_by_its_arguments(around, monkeypatch):
    from cachekit.training import split as training_split

    @dataclass
    class Other:
        output_dir: str = ""

    installed(monkeypatch, Other)
    with pytest.raises(CompilerUnavailableError, match="is not the one that cachekit knows") as raised:
        training_split.SplitBackend(*around)
    assert "tensor_parallel_size" in raised.value.cause


def test_workers_that_share_a_copy_take_the_same_batches(around, monkeypatch, tmp_path):
    from cachekit.training import split as training_split

    given = {}
    installed(monkeypatch, theirs(around[0].recipe, given))
    made = training_split.SplitBackend(*around)
    assert (made.copies, made.evaluates) == (4, False)
    assert (given["tensor_parallel_size"], given["zero_1"], given["skip_cache_push"]) == (2, False, True)
    assert given["output_dir"] == str(tmp_path / "out")
    assert "no evaluation here" in (tmp_path / "events.jsonl").read_text()


def test_only_whole_steps_are_taken(around, monkeypatch):
    """Four copies take two rows each: of 19 rows, the last three fill no step."""
    from cachekit.training import split as training_split
    from cachekit.training.tasks.port import Work

    taken = []

    class Trainer:
        state = SimpleNamespace(global_step=2)

        def __init__(self, *, train_dataset, **_):
            taken.extend(train_dataset)

        def train(self):
            pass

    job, *others = around
    recipe = structs.replace(job.recipe, training=Training(per_device_train_batch_size=2))
    installed(monkeypatch, theirs(recipe, {}), Trainer)
    made = training_split.SplitBackend(structs.replace(job, mode="trial", recipe=recipe), *others)
    work = Work({"train": range(19)}, filler=None, collate=None, score=None)
    made.run(None, None, work, CounterWatch(made.events, lambda: {"found": 0, "compiled": 0}))
    assert taken == list(range(16))


@pytest.mark.parametrize(
    "most, left", [(2, {"checkpoint-9", "checkpoint-10"}), (None, {"checkpoint-8", "checkpoint-9", "checkpoint-10"})]
)
@pytest.mark.parametrize("rank", ["0", "1"])
def test_of_checkpoints_the_newest_stay(tmp_path, monkeypatch, most, left, rank):
    from cachekit.training import split as training_split

    names = {f"checkpoint-{number}" for number in (8, 9, 10)}
    for name in names:
        (tmp_path / name).mkdir()
    monkeypatch.setenv("LOCAL_RANK", rank)
    training_split.KeepCheckpoints(str(tmp_path), most).on_save(None, None, None)
    assert {path.name for path in tmp_path.iterdir()} == (left if rank == "0" else names)
