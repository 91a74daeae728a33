"""What the user's shell and a recipe's `environment` may do to the key and to the worker."""

from __future__ import annotations

import pytest

from cachekit.compilers.inductor.compiler import Inductor
from cachekit.compilers.prepare import prepare
from cachekit.errors import RecipeError, UsageError
from cachekit.recipe import load_text
from cachekit.training.run import LAUNCHERS
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.support.standins import StandIn, Watched, recipe

TEXT = """
name: toy
model: {id: sentence-transformers/all-MiniLM-L6-v2}
data: {id: nobody/nothing, labels: ["no", "yes"]}
"""


def prepared(*overrides):
    return prepare(load_text(TEXT, overrides), StandIn())


@pytest.mark.feature("K5")
def test_a_variable_in_a_recipes_environment_is_in_the_key_by_its_value(monkeypatch):
    keys = set()
    for value in ("0", "1"):
        monkeypatch.setenv("MINE", value)
        keys.add(prepared("environment.NEURON_FUSE_SOFTMAX=$MINE").key)
        keys.add(prepared(f"environment.NEURON_FUSE_SOFTMAX={value}").key)
    assert len(keys) == 2
    monkeypatch.setenv("MINE", "\udcff")  # which is no UTF-8
    assert prepared("environment.NEURON_FUSE_SOFTMAX=$MINE").key not in keys


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "AWS_ACCESS_KEY_ID"]
)
def test_secrets_are_nowhere(name):
    plain, secret = prepared(), prepared(f"environment.{name}=hush123")
    assert secret.key == plain.key
    assert "hush123" not in str(secret.ingredients)


@pytest.mark.parametrize(
    "name", ["TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCH_COMPILE_DISABLE"]
)
def test_a_recipe_may_not_set_what_cachekit_sets(name):
    with pytest.raises(RecipeError, match=name):
        Inductor().ingredients(load_text(TEXT, [f"environment.{name}=1"]))
    assert Inductor().ingredients(load_text(TEXT, ["environment.TORCHINDUCTOR_COMPILE_THREADS=1"]))


def test_threads_of_a_recipe_are_expanded(monkeypatch):
    monkeypatch.setenv("MINE", "3")
    assert Inductor().ingredients(load_text(TEXT, ["environment.OMP_NUM_THREADS=$MINE"]))["threads"] == 3


def test_other_launchers_settings_do_not_reach_the_worker(tmp_path, monkeypatch):
    """Transformers reads ACCELERATE_MIXED_PRECISION by itself: the run would compile graphs that nobody planned."""
    watched = Watched(tmp_path / "home")
    seen = {}
    run = watched.session.launcher().run

    def launch(job, environment, log, sink, watch=None):
        seen.update(environment)
        return run(job, environment, log, sink, watch)

    monkeypatch.setattr(watched.session.launcher(), "run", launch, raising=False)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    warm(watched.session, watched.prepare())
    assert seen["ACCELERATE_MIXED_PRECISION"] is None
    assert all(seen[name] is None for name in LAUNCHERS)


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        (
            "model.config.num_attention_heads=7",
            "model.config.num_attention_heads=6",
            "hidden_size 384 cannot be shared by num_attention_heads 7",
        ),
        ("training.max_seq_length=513", "training.max_seq_length=512", "512 positions"),
    ],
)
def test_what_the_model_cannot_do_is_refused_at_once(wrong, right, said):
    with pytest.raises(RecipeError, match=said):
        prepared(wrong)
    assert prepared(right).key


def test_a_checkpoint_that_is_not_there_is_found_out_at_once(tmp_path):
    watched = Watched(tmp_path / "home")
    with pytest.raises(UsageError, match="checkpoint"):
        train(watched.session, watched.prepare(recipe()), output_dir=tmp_path / "out", resume="nowhere")
    assert not (tmp_path / "out").exists()
    assert watched.told("worker.start") == []
