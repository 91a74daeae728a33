"""`--tiny`: every recipe of the zoo in small, without the Hub; and each of them for real, on Inductor."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest

from cachekit.data.shapes import check_data, labels_of
from cachekit.errors import RecipeError
from cachekit.recipe import architecture, load, tasks, tiny, zoo
from tests.recipe.zoo_user import one_fleet, one_user  # noqa: F401 - fixtures

RECIPES = sorted(zoo.recipes())
FIRST_OF_TASK: dict[str, str] = {}
for _name in RECIPES:
    FIRST_OF_TASK.setdefault(load(zoo.recipes()[_name]).task, _name)


def in_small(name: str, *overrides: str):
    path = zoo.recipes()[name]
    return tiny.in_small(overrides, partial(load, path))


@pytest.mark.feature("P2")
def test_each_recipe_is_small_and_needs_no_network(monkeypatch):
    for name in RECIPES:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        recipe = in_small(name)
        full = load(zoo.recipes()[name])
        assert recipe.task == full.task
        assert recipe.model.from_config
        assert recipe.training.max_steps == tiny.STEPS
        found = architecture.resolve(recipe)
        assert found.source == "registry" or recipe.model.package
        assert found.model_type == architecture.resolve(full).model_type, "the same architecture"
        architecture.check(recipe, found)
        check_data(recipe)
        assert bool(labels_of(recipe)) == tasks.fields(recipe).has_classes


def test_a_recipe_of_fewer_steps_keeps_them(tmp_path):
    text = zoo.recipes()["bert"].read_text()
    for steps, small in ((4, 4), (tiny.STEPS + 1, tiny.STEPS)):
        own = tmp_path / "own.yaml"
        own.write_text(text)
        recipe = tiny.small(load(own, [f"training.max_steps={steps}"]))
        assert recipe.training.max_steps == small


def test_what_the_user_sets_wins():
    recipe = in_small("bert", "training.max_steps=3", "model.config.hidden_dropout_prob=0.5")
    assert recipe.training.max_steps == 3
    assert recipe.model.config["hidden_dropout_prob"] == 0.5
    assert recipe.model.config["hidden_size"] == 32


def test_rows_that_the_user_names_are_read_in_the_recipes_columns():
    """Of the recipe's own rows, and of those that come along, nothing is left to complain of."""
    for named, place in [
        ("bert", "path"),
        ("bert", "train_file"),
        ("bert", "id"),
        ("dataset.name", "id"),
        ("demo", "id"),
        ("demo", "path"),
    ]:
        said = named if "." in named else f"data.{place}"
        name = "bert" if "." in named else named
        mine = "mine/rows" if place == "id" else "/mine"
        full, recipe = load(zoo.recipes()[name]), in_small(name, f"{said}={mine}", "data.text_column=body")
        assert {kind: getattr(recipe.data, kind) for kind in tiny.PLACES} == {**dict.fromkeys(tiny.PLACES), place: mine}
        assert (recipe.data.text_column, recipe.data.label_column) == ("body", full.data.label_column)
        assert recipe.data.labels == full.data.labels
        assert recipe.model.config["hidden_size"] == 32


def test_the_library_takes_rows_of_ones_own_in_small_as_the_command_does():
    from cachekit import api

    said = {"data.path": "/mine"}
    by_value = api.load_recipe(api.Variant(load(zoo.recipes()["bert"]), said, tiny=True))
    assert by_value.data == api.load_recipe(api.Variant("bert", said, tiny=True)).data
    assert by_value.data.path == "/mine"


def test_two_places_of_rows_are_still_refused_in_small():
    with pytest.raises(RecipeError, match=r"data.id and data.path are both given"):
        in_small("bert", "data.path=/mine", "data.id=a/b")


def test_the_tokenizer_knows_every_word_of_the_rows():
    """`python recipes/tiny/make_tokenizer.py` was run after the last change."""
    folder = zoo.tiny()
    before = {path.name: path.read_bytes() for path in (folder / "tokenizer").iterdir()}
    subprocess.run([sys.executable, str(folder / "make_tokenizer.py")], check=True)
    assert {path.name: path.read_bytes() for path in (folder / "tokenizer").iterdir()} == before


def test_a_training_remembers_that_the_warm_was_small(user):
    """What `train` takes is what was warmed last: seen by its plan, without a compile."""
    small = user("plan", "bert", "--tiny")
    full = user("plan", "bert")
    assert small["key"] != full["key"]
    assert user("warm", "bert", "--tiny", "--dry-run")["key"] == small["key"]


def warm_and_train(user, name: str, *options: str) -> None:
    warmed = user("warm", name, "--tiny", *options)
    assert warmed["status"] == "compiled" or warmed["remote"] == str(user.fleet)
    trained = user("train")
    assert trained["key"] == warmed["key"], "the recipe warmed last, in small"
    assert (trained["compiled"], trained["built"]) == (0, 0), trained["surprises"]
    assert trained["found"] > 0
    losses = list(user.losses().values())
    assert sum(losses[-2:]) < sum(losses[:2]), f"it learns: {losses}"
    assert trained["metrics"]["validation"]["rows"] > 0


@pytest.mark.slow
@pytest.mark.feature("F1", "P1")
@pytest.mark.parametrize("name", FIRST_OF_TASK.values(), ids=list(FIRST_OF_TASK))
def test_one_recipe_of_each_task_trains_without_compiling(user, name):
    warm_and_train(user, name)


@pytest.mark.slow
@pytest.mark.feature("F1", "P1")
@pytest.mark.parametrize("name", [name for name in RECIPES if name not in FIRST_OF_TASK.values()])
def test_every_other_recipe_trains_without_compiling(user, name):
    warm_and_train(user, name)


@pytest.mark.slow
@pytest.mark.feature("F1", "P1")
def test_adapters_in_one_layer_train_without_compiling(user):
    """That of `make test-job`: with two, as above, it compiles for a minute more."""
    warm_and_train(user, FIRST_OF_TASK["instruction-tuning"], "--set", "model.config.num_hidden_layers=1")
