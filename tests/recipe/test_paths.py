"""Paths in recipes, relative to the recipe or to the working directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cachekit.errors import CachekitError, RecipeError
from cachekit.recipe import load
from tests.recipe.recipe_texts import MINIMAL, with_section
from tests.support.users import ONE


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A recipe's folder, and another that is the working directory."""
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    home.mkdir()
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    return home, cwd


LOCAL = [
    ("data", "path"),
    ("data", "train_file"),
    ("data", "validation_file"),
    ("data", "test_file"),
    ("model", "path"),
]


def put(folder, text):
    path = folder / "r.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("section, field", LOCAL)
@pytest.mark.parametrize("value", ["texts", "../texts"])
def test_relative_paths_start_at_the_recipe(places, section, field, value):
    home, cwd = places
    path = put(home, with_section(section, f"{field}: {value}")[0])
    for spelling in (path, Path(os.path.relpath(path, cwd))):
        found = Path(getattr(getattr(load(spelling), section), field))
        assert found.is_absolute()
        assert os.path.normpath(found) == os.path.normpath(home / value)


@pytest.mark.parametrize("section, field", LOCAL)
@pytest.mark.parametrize("whole_section", [True, False])
def test_relative_paths_of_overrides_start_at_the_working_directory(places, section, field, whole_section):
    home, cwd = places
    path = put(home, with_section(section, f"{field}: elsewhere")[0])
    override = f"{section}={{{field}: texts}}" if whole_section else f"{section}.{field}=texts"
    assert getattr(getattr(load(path, [override]), section), field) == str(cwd / "texts")


def test_an_override_elsewhere_leaves_the_files_paths(places):
    home, _ = places
    path = put(home, MINIMAL + "data: {train: a.csv}\n")
    assert load(path, ["data.label_column=x"]).data.train_file == str(home / "a.csv")


def test_a_tilde_is_the_users_home(places, monkeypatch):
    home, cwd = places
    monkeypatch.setenv("HOME", str(cwd))
    path = put(home, MINIMAL + "data: {path: ~/texts}\n")
    assert load(path).data.path == str(cwd / "texts")
    assert load(path, ["data.path=~/others"]).data.path == str(cwd / "others")


@pytest.mark.parametrize("override", [[], ["data.path=~no-such-user-at-all/x"]])
def test_the_home_of_nobody_is_answered(places, override):
    home, _ = places
    path = put(home, MINIMAL + ("" if override else "data: {path: ~no-such-user-at-all/x}\n"))
    with pytest.raises(CachekitError):
        load(path, override)


def test_a_tokenizer_is_a_folder_only_if_it_is_one(places):
    home, cwd = places
    path = put(home, "name: x\nmodel: {id: b, tokenizer: a/tok}\n")
    assert load(path).model.tokenizer == "a/tok"
    (home / "a" / "tok").mkdir(parents=True)
    assert load(path).model.tokenizer == str(home / "a" / "tok")
    assert load(path, ["model.tokenizer=./tok"]).model.tokenizer == str(cwd / "tok")
    assert load(path, ["model.tokenizer=b/tok"]).model.tokenizer == "b/tok"


@pytest.mark.parametrize("named", ["model.id=./model", "model.id=~/model", "data.id=/rows", "data.id=../rows"])
def test_an_id_is_no_path(places, named):
    """Training would find no such thing on the Hub, after a plan that said nothing of it."""
    section = named.partition(".")[0]
    with pytest.raises(RecipeError, match="is a path, and an id names something on the Hub") as raised:
        load(put(places[0], MINIMAL), [named])
    assert raised.value.hint == f"set {section}.path instead"


@pytest.mark.feature("T2")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_folder_where_everybody_makes_some_is_no_tokenizer(places):
    home, _ = places
    path = put(home, "name: x\nmodel: {id: b, tokenizer: tok}\n")
    (home / "tok").mkdir()
    home.chmod(0o1777)
    assert load(path).model.tokenizer == str(home / "tok")
    os.chown(home / "tok", ONE, ONE)
    assert load(path).model.tokenizer == "tok"
    home.chmod(0o755)
    assert load(path).model.tokenizer == str(home / "tok"), "as in a checkout whose files came from elsewhere"
