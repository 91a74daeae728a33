"""What a command on a rented machine is given means there what it means here."""

import pytest

from cachekit import config
from cachekit.errors import RecipeError, SecretError, UsageError
from cachekit.executors.port import Places
from cachekit.recipe.variant import MatrixEntry
from cachekit.remotes.address import links_of
from cachekit.verbs.carry import carried

PLACES = Places("/opt/ml/model", "/opt/ml/checkpoints", "/opt/ml/input/data")
RECIPE = "name: toy\nmodel: {id: bert-base-uncased}\ndata: {id: nobody/nothing, labels: [a, b]}\n"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1xvYVbDl8bLrAnnDWzDJzVdvSAUL7nvxg9tYvSFqjf"
PROJECT = f"""
cache = ["local:rw", "team:rw", "hf://our/cache:r"]
reuse_bytes = "1MB"
push_seconds = "7m"
[remotes.team]
url = "s3://ours/cache"
region = "eu-west-1"
trust = "owner"
[trust]
salt = "pepper"
[trust.signers.alice]
key = "{KEY}"
valid_before = "2030-01-01"
[trust.revoked]
records = ["{"0" * 64}"]
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(RECIPE)
    (tmp_path / "cachekit.toml").write_text(PROJECT)
    return tmp_path


def given(*recipes, options=(), writes=True, cache=None, tiny=False):
    entries = [MatrixEntry(one, one, ()) for one in recipes]
    read = config.load({"cache": cache} if cache else {})
    return carried(read, entries, PLACES, dict(options), tiny=tiny, writes=writes)


def there(files, folder):
    """The settings that a command finds in its working directory on such a machine."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return config.load(cwd=folder, environ={})


def test_settings_mean_the_same_there(here):
    entries, files = given("toy.yaml", "bert")
    assert [one.recipe for one in entries] == ["0-toy.yaml", "bert"], "recipes of the zoo come along with the image"
    assert files["0-toy.yaml"] == RECIPE
    mine, found = config.load(), there(files, here / "there")
    for name in ("reuse_bytes", "push_seconds", "wait_seconds", "compiler", "trust"):
        assert getattr(found, name) == getattr(mine, name)
    described = [(one.address, one.readable, one.writable, one.options, one.trust) for one in links_of(mine)]
    assert [(one.address, one.readable, one.writable, one.options, one.trust) for one in links_of(found)] == described


def test_a_remote_that_is_seen_as_a_folder_is_only_read_and_asks_no_less(here):
    seen = {"places": {"team": "/opt/ml/input/data/remote-0", "hf://our/cache": "/opt/ml/input/data/remote-1"}}
    _, files = given("toy.yaml", options=seen, writes=False)
    first, second = links_of(there(files, here / "there"))
    assert (first.address, first.writable, first.trust) == ("/opt/ml/input/data/remote-0", False, "owner")
    assert (second.address, second.trust) == ("/opt/ml/input/data/remote-1", "signed"), "nobody vouched for it here"


@pytest.mark.parametrize(
    ("cache", "trust", "says"),
    [
        (["local:rw", "/mnt/cache:rw"], "owner", "do not see the folder /mnt/cache"),
        (["local:rw", "team:rw"], "signed", "not signed"),
        (["local:rw", "s3://unknown/cache:rw"], "owner", "not signed"),
    ],
)
def test_a_remote_that_the_machine_could_not_use_is_refused(here, cache, trust, says):
    path = here / "cachekit.toml"
    path.write_text(PROJECT.replace('trust = "owner"', f'trust = "{trust}"'))
    pytest.importorskip("obstore")
    with pytest.raises(UsageError) as caught:
        given("toy.yaml", cache=cache)
    assert says in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("id: nobody/nothing", "path: rows", "do not see"),
        ("id: nobody/nothing", "train_file: rows/train.csv", "do not see"),
        ("id: bert-base-uncased", "path: weights", "do not see"),
    ],
)
def test_a_recipe_that_names_a_path_of_this_machine_is_refused(here, old, new, says):
    (here / "toy.yaml").write_text(RECIPE.replace(old, new))
    with pytest.raises(UsageError) as caught:
        given("toy.yaml")
    assert says in caught.value.message
    assert "/opt/ml/input/data/NAME" in caught.value.hint
    (here / "toy.yaml").write_text(RECIPE.replace("id: nobody/nothing", "path: /opt/ml/input/data/rows"))
    given("toy.yaml")


@pytest.mark.parametrize(
    ("recipe", "refused"),
    [
        (RECIPE, "the data set nobody/nothing"),
        (RECIPE.replace("id: nobody/nothing", "path: /opt/ml/input/data/x"), "bert"),
    ],
)
def test_without_the_hub_a_recipe_that_needs_it_is_refused(here, recipe, refused):
    (here / "toy.yaml").write_text(recipe)
    with pytest.raises(UsageError, match=refused):
        given("toy.yaml", options={"hub": False})
    given("toy.yaml", options={"hub": False}, tiny=True)


def test_a_secret_in_a_recipe_does_not_travel(here):
    (here / "toy.yaml").write_text(RECIPE + "environment: {HF_TOKEN: hf_" + "aBcD1234" * 4 + "}\n")
    with pytest.raises((SecretError, RecipeError)) as caught:
        given("toy.yaml")
    assert "aBcD1234" not in " ".join(caught.value.lines())
