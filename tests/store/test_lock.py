"""`cachekit store lock`: what it pins is what comes, or nothing does, whatever becomes of the remotes meanwhile."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachekit.errors import IntegrityError, RemoteError, UsageError
from cachekit.recipe.variant import Variant
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.push import push
from cachekit.store import lock_file
from cachekit.store.lock_file import Locked, anonymous
from cachekit.store.record import covers, file_path
from cachekit.verbs.lock import lock, pull_locked
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.remotes.storage_processes import serve
from tests.support.cli_session import publish as publish_recipe
from tests.support.cli_session import the_error
from tests.support.standins import StandIn, Watched, expected, find, make_record, publish, served

pytest_plugins = ["tests.support.cli_session"]


@pytest.fixture
def make(request, tmp_path):
    """Opens the same cache anew, as another machine would."""
    with serve(getattr(request, "param", "folder"), tmp_path / "server") as opened:
        yield opened


WITH_AND_WITHOUT_REVISIONS = pytest.mark.parametrize("make", ["folder", "hub"], indirect=True)


@pytest.fixture
def member(tmp_path, make):
    def join(name, **options):
        return Watched(tmp_path / name, shared=[(make(), "rw")], **options)

    return join


def locked_of(watched):
    return lock(watched.session, watched.prepare(), Variant("toy"))


def cache_dir(watched, record):
    return watched.restored(record.key, record)


@pytest.mark.feature("F5")
@WITH_AND_WITHOUT_REVISIONS
def test_what_is_locked_is_what_comes(member):
    ann, bob = member("ann"), member("bob")
    made = warm(ann.session, ann.prepare()).record
    locked = locked_of(ann)
    assert locked.remote == ann.session.remotes.readable[0].name
    assert pull_locked(bob.session, locked, dry_run=True).state == "would-fetch"
    assert bob.lookup(bob.prepare()) is None
    assert pull_locked(bob.session, locked).state == "fetched"
    assert bob.lookup(bob.prepare()) == made
    assert cache_dir(bob, made) == cache_dir(ann, made)
    assert pull_locked(bob.session, locked).state == "present"


@pytest.mark.feature("F5")
@WITH_AND_WITHOUT_REVISIONS
def test_after_the_cache_was_given_another_build_the_old_bytes_come(member):
    """The record there names other files now; the old ones lie where they lay, or in the history."""
    ann, eve, bob = member("ann"), member("eve", compiler=StandIn(salt="other")), member("bob")
    made = warm(ann.session, ann.prepare()).record
    locked = locked_of(ann)
    other = warm(eve.session, eve.prepare(), recache=True).record
    assert other.key == made.key
    push(eve.store, eve.session.remotes, [other], replaces=True)
    found = member("now").session.remotes.find(made.place)
    assert not covers(found.shared.record, made)
    pull_locked(bob.session, locked)
    assert covers(bob.lookup(bob.prepare()), made)
    assert cache_dir(bob, made) == cache_dir(ann, made)


@pytest.mark.feature("F5")
def test_another_build_in_the_store_gives_way(member):
    ann, eve = member("ann"), Watched(member("x").store.layout.home.parent / "eve", compiler=StandIn(salt="other"))
    made = warm(ann.session, ann.prepare()).record
    locked = locked_of(ann)
    warm(eve.session, eve.prepare())
    with_cache = member("eve")
    assert not covers(with_cache.lookup(with_cache.prepare()), made)
    assert pull_locked(with_cache.session, locked).state == "fetched"
    assert cache_dir(with_cache, made) == cache_dir(ann, made)


def test_a_record_that_grew_on_the_cache_gives_what_is_locked(member):
    ann, bob = member("ann"), member("bob")
    made = warm(ann.session, ann.prepare()).record
    locked = locked_of(ann)
    more = member("ann", compiler=StandIn(extra=1))
    train(more.session, more.prepare(), output_dir=more.store.layout.home.parent / "output")
    assert len(more.lookup(more.prepare()).modules) > len(made.modules)
    pull_locked(bob.session, locked)
    assert bob.lookup(bob.prepare()).modules == made.modules
    assert pull_locked(more.session, locked).state == "present"  # it has them, and more


# In a folder


@pytest.fixture
def shared(tmp_path):
    """A locked record on a shared folder: the entry, what it was made of, and the folder."""
    folder = tmp_path / "remote"
    folder.mkdir()
    ann = Watched(tmp_path / "ann", shared=[(FolderStorage(folder), "rw")])
    # Larger than what travels inside of a record.
    record = publish(ann.store, made := make_record(size=9000))
    push(ann.store, ann.session.remotes, [record])
    return Locked("toy", (), record.digest, anonymous(record), remote=str(folder)), made, folder


def joined(tmp_path, folder, name="bob"):
    return Watched(tmp_path / name, shared=[(FolderStorage(folder), "rw")])


@pytest.mark.feature("F5")
@pytest.mark.parametrize("harm", ["other bytes", "flipped", "gone", "all gone"])
def test_what_cannot_be_had_is_exit_5_and_changes_nothing(tmp_path, shared, harm):
    locked, made, folder = shared
    bob = joined(tmp_path, folder)
    mine = publish(bob.store, make_record(artifacts=("x", "y")))
    path = folder / file_path(made[0].modules[0], made[0].files[0])
    path.chmod(0o644)
    raw = path.read_bytes()
    if harm == "other bytes":
        path.write_bytes(raw + b"more")
    elif harm == "flipped":
        path.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    else:
        path.unlink()
    if harm == "all gone":
        for one in (folder / "cachekit").rglob("*"):
            if one.is_file():
                one.unlink()
    with pytest.raises(IntegrityError) as raised:
        pull_locked(bob.session, locked)
    assert raised.value.exit_code == 5
    assert "cachekit store lock toy" in raised.value.hint
    assert find(bob.store, mine) == mine


@pytest.mark.feature("F5")
def test_without_the_record_the_files_are_enough(tmp_path, shared):
    locked, made, folder = shared
    for one in (folder / "cachekit" / "v1" / "records").rglob("*"):
        if one.is_file():
            one.unlink()
    bob = joined(tmp_path, folder)
    assert pull_locked(bob.session, locked).state == "fetched"
    assert find(bob.store, locked.record) == locked.record
    assert served(bob.store, locked.record) == expected(made)


def test_a_cache_that_is_away_is_no_damage(tmp_path, shared):
    locked, _, folder = shared
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(RemoteError):
        pull_locked(joined(tmp_path, folder).session, locked)


def test_what_only_the_store_has_is_locked_and_said_so(tmp_path):
    watched = Watched(tmp_path / "home")
    warm(watched.session, watched.prepare())
    locked = locked_of(watched)
    assert (locked.remote, pull_locked(watched.session, locked).state) == ("local", "present")
    with pytest.raises(IntegrityError, match="cannot be found") as raised:
        pull_locked(Watched(tmp_path / "bob").session, locked)
    assert "no remote" in raised.value.cause


# The file


WORDS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=12)


@given(st.lists(st.tuples(WORDS, st.lists(WORDS, max_size=2), WORDS, st.integers(0, 9)), max_size=4))
@settings(max_examples=60)
def test_a_lock_file_says_what_was_written_in_any_order(rows):
    entries = [
        Locked(name, tuple(overrides), "d", anonymous(make_record(number)[0]), "t", "r", instance=word)
        for name, overrides, word, number in rows
    ]
    text = lock_file.text(entries)
    assert lock_file.text(entries[::-1]) == text
    document = json.loads(text)
    assert [lock_file._entry(item) for item in document["locked"]] == sorted(
        entries, key=lambda entry: (*map(str, entry.name), entry.record.key)
    )


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", b"[]", b"\xff", b'{"version": 2, "locked": []}', b'{"version": 1}', b'{"version": 1, "locked": [1]}',
     b'{"version": 1, "locked": [{"recipe": "x"}]}', b"<<<<<<< HEAD\n{}"],
)  # fmt: skip
def test_what_is_no_lock_file_is_said(tmp_path, raw):
    (tmp_path / "cachekit.lock").write_bytes(raw)
    with pytest.raises(UsageError) as raised:
        lock_file.read(tmp_path / "cachekit.lock")
    assert raised.value.hint


def test_a_lock_with_a_record_that_is_changed_is_refused(tmp_path, shared):
    locked, _, _ = shared
    path = tmp_path / "cachekit.lock"
    for old, new in (('"number": 1', '"number": 2'), ("standin-1.0/MODULE_1", "../MODULE_1")):
        text = lock_file.text([locked])
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(UsageError, match="is not a lock file"):
            lock_file.read(path)


# The command line


@pytest.mark.feature("F5")
def test_the_command_line(command, machine, home, work):
    folder = work.parent / "remote"
    folder.mkdir()
    remotes = ("--cache", f"local:rw,{folder}:rw")
    record = publish_recipe(home)
    assert "no remote has tiny.yaml" in command("store", "lock", "tiny.yaml").err
    assert command("pull", "--locked").out.startswith("tiny.yaml: already in the store")
    command("push", record.key, *remotes)
    said = command("store", "lock", "tiny.yaml", *remotes)
    assert said.err == ""
    assert said.out.splitlines() == [
        "wrote cachekit.lock: 1 recipe locked",
        f"  tiny.yaml: 1 module, 4.7 MB, key {record.key[:16]}",
        f"    inductor-2.13.0, on {folder}",
    ]
    before = (work / "cachekit.lock").read_text()
    assert "nothing changes in cachekit.lock" in command("store", "lock", *remotes).out
    assert (work / "cachekit.lock").read_text() == before
    assert command("store", "lock", "--check").out == f"tiny.yaml: unchanged  key {record.key[:16]}\n"
    box = str(work.parent / "box")
    assert (
        command("pull", "--locked", "--home", box, *remotes, "--format", "json").json["pulled"][0]["state"] == "fetched"
    )
    assert command("plan", "tiny.yaml", "--home", box).out.startswith("tiny: hit")
    assert "already in the store" in command("pull", "tiny.yaml", "--locked", "--home", box).out


def test_what_cannot_be_locked_is_said(command, machine, home, work):
    assert "locks nothing yet" in command("store", "lock", code=2).err
    assert "not-warm" in command("store", "lock", "tiny.yaml", code=3).err
    assert not (work / "cachekit.lock").exists()
    assert "cannot be read" in command("pull", "--locked", code=2).err
    publish_recipe(home)
    command("store", "lock", "tiny.yaml", "--dry-run")
    assert not (work / "cachekit.lock").exists()
    command("store", "lock", "tiny.yaml")
    assert "other.yaml is not in" in command("pull", "other.yaml", "--locked", code=2).err
    assert "--locked takes recipes" in command("pull", "--locked", "--all-of", "neuronxcc-2", code=2).err


@pytest.mark.feature("F5")
def test_a_recipe_of_the_file_is_found_from_every_folder_of_the_project(command, machine, home, work, monkeypatch):
    """The lock file is found above; a path in it is one from there, however it was named and wherever one stands."""
    key = publish_recipe(home).key
    command("store", "lock", "./tiny.yaml")
    inner = work / "scripts"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert command("store", "lock", "--check").out == f"tiny.yaml: unchanged  key {key[:16]}\n"
    command("store", "lock")
    command("store", "lock", "../tiny.yaml")
    assert [entry.recipe for entry in lock_file.read(work / lock_file.NAME)] == ["tiny.yaml"]
    assert "already in the store" in command("pull", "--locked", "../tiny.yaml").out
    text = (work / "tiny.yaml").read_text()
    (work / "tiny.yaml").write_text(text.replace("max_seq_length: 8", "max_seq_length: 16"))
    assert (
        the_error(command("store", "lock", "--check", code=3))[3]
        == "cachekit warm ../tiny.yaml, then cachekit store lock ../tiny.yaml"
    )
    monkeypatch.chdir(work)
    assert (
        the_error(command("store", "lock", "--check", code=3))[3]
        == "cachekit warm tiny.yaml, then cachekit store lock tiny.yaml"
    )
