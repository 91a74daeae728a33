"""A training goes on with the weights, the rows and the hidden tokens of its checkpoint, uncompiled and in small."""

from __future__ import annotations

from functools import partial

import pytest

from cachekit.data.shapes import labels_of
from cachekit.recipe import architecture, load, tiny, zoo
from tests.training.grids import representative
from tests.training.jobs import job_of, told, train_here, uncompiled  # noqa: F401 - a fixture

pytestmark = pytest.mark.versions
SETTINGS = ("max_steps=6", "save_strategy=steps", "save_steps=2", "save_total_limit=9", "logging_steps=1")


def train(name, folder, resume=""):
    """One run of a recipe in small: its result, and its losses by step."""
    path = zoo.recipes()[name]
    recipe = tiny.in_small([f"training.{setting}" for setting in SETTINGS], partial(load, path))
    config = architecture.resolve(recipe).config
    tokenizer = recipe.model.tokenizer
    job = job_of(folder, recipe, config=config, labels=labels_of(recipe), tokenizer=tokenizer, resume=resume)
    return train_here(job), {event["step"]: event["loss"] for event in told(job, "log") if "loss" in event}


# ViT's and DeiT's weights are stored under other names; masked tokens are drawn anew in each pass.
@pytest.mark.feature("M3")
@pytest.mark.parametrize(
    "name", representative(["vit", "deit", "resnet50", "roberta-mlm", "bert"], ["vit", "roberta-mlm"])
)
def test_what_follows_a_checkpoint_is_the_same_as_without_it(tmp_path, uncompiled, name):
    whole, losses = train(name, tmp_path / "whole")
    resumed, after = train(name, tmp_path / "resumed", resume=tmp_path / "whole" / "out" / "checkpoint-2")
    assert list(after) == [3, 4, 5, 6]
    assert after == pytest.approx({step: losses[step] for step in after}, rel=1e-4)
    assert resumed.metrics["validation"] == pytest.approx(whole.metrics["validation"], rel=1e-4)
