"""Attacks by recipes: what a recipe sets in the environment runs."""

import os

import pytest

from cachekit.api import load_recipe, zoo_entry
from cachekit.errors import UsageError
from cachekit.recipe import matrix
from tests.support.users import ANOTHER, ONE, known

pytestmark = [
    pytest.mark.feature("T2"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
]


@pytest.fixture
def tmp(tmp_path, monkeypatch):
    """A folder like `/tmp`, in which this user works."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.chdir(folder)
    return folder


def written(path, owner=0, mode=0o644, text="name: x\nmodel: {id: google-bert/bert-base-uncased}\n"):
    for folder in (path.parent,) if not path.parent.exists() else ():
        folder.mkdir()
        os.chown(folder, owner, owner)
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, owner, owner)
    return path


@pytest.mark.parametrize("name", ["mine", "bert.yaml", "./bert", "recipes/bert.yaml", "recipes/bert"])
def test_another_users_recipe_in_a_folder_of_everybody_is_not_read(tmp, name):
    written(tmp / name, ONE)
    with pytest.raises(UsageError, match="is not read: a recipe says what runs here") as raised:
        load_recipe(name)
    assert f"another user ({ONE})" in raised.value.cause
    with pytest.raises(UsageError, match="is not read"):
        zoo_entry(name)
    with pytest.raises(UsageError, match="is not read"):
        matrix.read(written(tmp / "list.yaml", ONE, text="- bert\n"))


def test_a_name_of_the_zoo_is_no_file_of_somebody_else(tmp):
    written(tmp / "bert", ONE)
    assert load_recipe("bert").name == "bert"


def test_a_recipe_that_everybody_can_write_to_is_not_read_until_that_ends(tmp):
    """As GitLab's runner checks out in a container: it has a umask of 0000, and all is root's."""
    path = written(tmp / "mine.yaml", mode=0o666)
    with pytest.raises(UsageError, match="is not read") as raised:
        load_recipe("mine.yaml")
    assert raised.value.hint.endswith("chmod o-w mine.yaml")
    tmp.chmod(0o777)
    with pytest.raises(UsageError, match="is not read") as raised:
        load_recipe(path)
    assert raised.value.hint.endswith(f"chmod -R o-w {tmp}")
    path.chmod(0o644)
    assert load_recipe(path).name == "x"


def test_recipes_of_those_with_whom_one_works_are_read(tmp_path, monkeypatch):
    """A checkout that a service made for root in a container, and one that a group shares (umask 002)."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    os.chown(checkout, ONE, ONE)
    monkeypatch.chdir(checkout)
    written(checkout / "recipes" / "x.yaml", ONE)
    assert load_recipe("recipes/x.yaml").name == load_recipe(checkout / "recipes" / "x.yaml").name == "x"
    team, member = 64321, ONE - 7
    known(monkeypatch, {ONE: [team], member: [team]})
    os.chown(checkout, ANOTHER, team)
    checkout.chmod(0o2775)
    own = written(checkout / "mine.yaml", member, 0o664)
    monkeypatch.setattr(os, "getgroups", lambda: [team])
    with pytest.raises(UsageError, match="is not read"):
        load_recipe("mine.yaml")  # the folder's owner is no member
    os.chown(checkout, 0, team)
    assert load_recipe("mine.yaml").name == "x"
    os.chown(own, ANOTHER, team)
    with pytest.raises(UsageError, match="is not read"):
        load_recipe("mine.yaml")
