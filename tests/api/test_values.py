"""What the library takes and gives as values, where the command line, which calls it, has words and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cachekit
from tests.support.cli_session import publish

pytest_plugins = ["tests.support.cli_session"]

LONGER = {"training.max_seq_length": 16}
TRUSTING = cachekit.Cache(trust_all=True)


@pytest.fixture
def stored(home, machine):
    """A store with the record of `tiny.yaml`."""
    return publish(home)


# Questions


@pytest.mark.feature("W2")
def test_compare_takes_recipes_records_keys_and_files(command, stored, work):
    """Whatever names the two, the difference is the same."""
    (work / "record.json").write_text(json.dumps(command("store", "show", stored.key, "--format", "json").json))
    longer = cachekit.load_recipe(cachekit.Variant("tiny.yaml", LONGER))
    (work / "longer.yaml").write_text(Path("tiny.yaml").read_text().replace("max_seq_length: 8", "max_seq_length: 16"))
    for old in ("tiny.yaml", Path("tiny.yaml"), stored, stored.key[:12], work / "record.json"):
        for new in (longer, "longer.yaml"):
            found = cachekit.compare(old, new)
            assert [change.name for change in found.changes] == ["training.max_seq_length"], (old, new)
            assert found.old.key == stored.key
    assert cachekit.compare(stored, "tiny.yaml").same
    with pytest.raises(cachekit.UnknownNameError):
        cachekit.compare("tiny.yaml", "abcdef")


def test_questions_leave_no_store_behind(home, machine):
    for ask in (cachekit.why, cachekit.coverage, cachekit.plan):
        ask("tiny.yaml")
    assert (cachekit.stats().total.runs, cachekit.records(), cachekit.pins()) == (0, [], [])
    assert cachekit.verify().good
    assert not home.exists()


@pytest.mark.parametrize("below", [False, True], ids=["a file", "below a file"])
@pytest.mark.parametrize("ask", ["records", "pins", "stats", "why_run", "open_store", "verify", "gc", "trace"])
def test_a_file_is_no_store(tmp_path, ask, below):
    """Not an empty one, which it would look like."""
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(cachekit.StoreError) as caught:
        getattr(cachekit.Cache(home=taken / "store" if below else taken), ask)()
    assert str(taken) in caught.value.message
    assert (caught.value.cause, bool(caught.value.hint)) == ("it is not a folder", True)
    assert taken.read_text() == "mine"


# Health


@pytest.mark.feature("G2")
@pytest.mark.parametrize("name", ["record", "recipe", "file", "digits"])
def test_pins_hold_until_they_are_let_go(stored, home, name):
    recipe = cachekit.load_recipe("tiny.yaml")
    entry = {"record": stored, "recipe": recipe, "file": "tiny.yaml", "digits": stored.key[:9]}[name]
    (would,) = cachekit.pin(entry, dry_run=True)
    assert (would.key, would.changed, cachekit.pins()) == (stored.key, True, [])
    (pinned,) = cachekit.pin(entry)
    assert (pinned.key, pinned.recipe) == (stored.key, "tiny")
    assert (pinned.changed, cachekit.pin(entry)[0].changed) == (True, False)
    assert [one.key for one in cachekit.pins()] == [stored.key]
    assert cachekit.gc(max_size=0).records == ()
    with pytest.raises(cachekit.UsageError, match="pinned"):
        cachekit.rm(entry)
    assert cachekit.records() == [stored]
    (would,) = cachekit.unpin(entry, dry_run=True)
    assert (would.changed, [one.key for one in cachekit.pins()]) == (True, [stored.key])
    (let,) = cachekit.unpin(entry)
    assert let.changed
    assert cachekit.rm(entry, dry_run=True)[0].key == stored.key
    assert cachekit.records() == [stored]
    (gone,) = cachekit.rm(entry)
    assert gone.key == stored.key
    assert cachekit.records() == []
    with pytest.raises(cachekit.UnknownNameError):
        cachekit.rm(stored)


@pytest.mark.feature("M4")
def test_check_build_answers_instead_of_raising(home, machine, worker):
    with pytest.raises(cachekit.MissError):
        cachekit.check_build("tiny.yaml")
    cachekit.warm("tiny.yaml")
    done = cachekit.check_build("tiny.yaml")
    assert (done.differ, done.error()) == ((), None)


# Bundles


@pytest.mark.feature("F4")
@pytest.mark.parametrize("entry", ["record", "recipe", "file", "digits", "all", "compiler"])
def test_a_bundle_takes_whatever_names_a_record(stored, entry):
    recipe = cachekit.load_recipe("tiny.yaml")
    entries = {"record": [stored], "recipe": [recipe], "file": ["tiny.yaml"], "digits": [stored.key[:9]]}.get(entry, [])
    written = cachekit.export_bundle("tiny.tar", entries, all_of=stored.directory if entry == "compiler" else "")
    assert [one.key for one in written.records] == [stored.key]
    assert TRUSTING.import_bundle("tiny.tar").sha256 == written.sha256


def test_a_bundle_is_called_as_one_likes_and_never_goes_to_the_terminal(stored, work, capfd):
    """What the command line takes for standard output is a file's name here."""
    cachekit.export_bundle("-", [stored])
    assert (work / "-").stat().st_size > 0
    assert TRUSTING.import_bundle("-").records[0].key == stored.key
    assert capfd.readouterr() == ("", "")


def test_one_text_is_no_list_of_entries(stored, tmp_path):
    """Each of its letters would be the beginning of a key."""
    for act in (
        lambda: cachekit.export_bundle("x.tar", "tiny.yaml"),
        lambda: cachekit.export_neuron_cache(tmp_path / "out", "tiny.yaml"),
        lambda: cachekit.Cache(cache=f"local:rw,{tmp_path}:rw").push("tiny.yaml"),
    ):
        with pytest.raises(TypeError, match="not the text"):
            act()


# The lock file


@pytest.mark.feature("F5")
def test_changes_are_locked_as_set_writes_them(home, machine, work, command):
    publish(home, "training.max_seq_length=16")
    cachekit.lock(cachekit.Variant("tiny.yaml", LONGER))
    text = (work / "cachekit.lock").read_text()
    assert not cachekit.lock(cachekit.Variant("tiny.yaml", LONGER)).changed
    command("store", "lock", "tiny.yaml", "--set", "training.max_seq_length=16")
    assert (work / "cachekit.lock").read_text() == text
    assert cachekit.check_lock().good


def test_a_lock_file_names_its_recipes(stored, work):
    """A value has no name that somebody else could read it by."""
    recipe = cachekit.load_recipe("tiny.yaml")
    for act in (cachekit.lock, cachekit.check_lock, cachekit.pull_locked):
        with pytest.raises(cachekit.UsageError, match="names its recipes"):
            act(recipe)
    assert not (work / "cachekit.lock").exists()


# This host


def test_doctor_offline_asks_nobody(home, machine, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)

    def refuse(*_, **__):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    found = cachekit.Cache(cache="local:rw,hf://team/cache:r,s3://bucket/place:r", offline=True).doctor()
    remotes = [one for one in found.findings if one.check == "remotes"]
    assert [one.state for one in remotes] == ["unknown", "unknown"]
    assert "offline" not in {one.check for one in found.findings}
