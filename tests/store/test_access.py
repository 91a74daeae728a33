"""Stores of other users, things in the way of a record, and removals that hang: told at once, with the repair."""

import os

import pytest

from cachekit.errors import StoreError
from cachekit.store import rwlock
from cachekit.verbs.warm import warm
from tests.support.cli_session import publish, publish_record, small_record, the_error
from tests.support.doctor_cases import another_user, public  # noqa: F401 - a fixture
from tests.support.standins import Watched, compiles, make_record
from tests.support.standins import publish as publish_made

pytest_plugins = ["tests.support.cli_session"]

VERBS = [
    "store ls",
    "plan tiny.yaml",
    "warm tiny.yaml",
    "stats",
    "store verify --quick",
    "store gc --max-size 0",
    "store pin --list",
]


@pytest.fixture
def theirs(public, command, machine, monkeypatch):
    """A store that root made with the umask that is asked for; and the recipe where anybody reads it."""

    def make(umask):
        home = public / "home"
        before = os.umask(umask)
        try:
            publish_record(home, small_record())
        finally:
            os.umask(before)
        monkeypatch.setenv("CACHEKIT_HOME", str(home))
        return home

    for folder in (command.work, *command.work.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o055)
    for path in command.work.rglob("*"):
        path.chmod(path.stat().st_mode | 0o055)
    return make


@pytest.mark.parametrize("words", VERBS)
def test_a_store_that_is_closed_says_so_and_how_to_repair_it(command, theirs, words):
    home = theirs(0o077)
    with another_user():
        answer = command(*words.split(), code=1)
    code, message, cause, hint = the_error(answer)
    assert (code, message) == ("store", f"the store at {home} is closed to this user")
    assert "belongs to root" in cause
    assert hint.startswith(f"sudo chmod -R a+rX {home}, or set CACHEKIT_HOME")


def test_a_store_that_is_only_read_is_looked_into_and_refused_before_anything_compiles(command, theirs, worker):
    home = theirs(0o022)
    with another_user():
        assert command("store", "ls", "--format", "quiet").out
        assert "miss" in command("plan", "tiny.yaml").out
        _, message, cause, hint = the_error(command("warm", "tiny.yaml", code=1))
    assert message == f"the store at {home} cannot be written"
    assert "belongs to root" in cause
    assert hint.startswith("set CACHEKIT_HOME"), "nobody makes a stranger's records one's own"
    assert not (home / "v1" / "cache_dirs").exists(), "nothing was begun"


def test_a_folder_in_the_place_of_the_record_is_told_before_compiling(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    watched = Watched(tmp_path / "home")
    prepared = watched.prepare()
    path = watched.store.layout.record(prepared.place)
    path.mkdir(parents=True)
    with pytest.raises(StoreError, match="is a folder") as caught:
        warm(watched.session, prepared)
    assert caught.value.hint == f"remove it: rm -r {path}"
    assert compiles(tmp_path / "log") == []
    path.rmdir()
    path.parent.rmdir()
    path.parent.write_text("in the way")
    with pytest.raises(StoreError, match="is not a folder"):
        warm(watched.session, prepared)
    assert compiles(tmp_path / "log") == []
    path.parent.unlink()
    assert warm(watched.session, prepared).compiled


def test_who_removes_is_named_while_one_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(rwlock, "TELL", 0.0)
    monkeypatch.setattr(rwlock, "PATIENCE", 0.3)
    first, second = Watched(tmp_path), Watched(tmp_path)
    publish_made(first.store, make_record(1))
    with first.store.rwlock.write_lock(1.0):
        publish_made(second.store, make_record(2))
        (waiting, *_), (unguarded,) = second.told("store.waiting"), second.told("store.unguarded")
    assert waiting["holder"].startswith(f"process {os.getpid()} (")
    assert unguarded["holder"] == waiting["holder"]
    assert unguarded["waited"] >= 0.3
    publish_made(second.store, make_record(3))
    assert len(second.told("store.unguarded")) == 1, "nobody removes now"


def test_people_are_told_whom_they_wait_for(command, home, machine, monkeypatch):
    monkeypatch.setattr(rwlock, "TELL", 0.0)
    monkeypatch.setattr(rwlock, "PATIENCE", 0.3)
    record = publish(home)
    watched = Watched(home)
    with watched.store.rwlock.write_lock(1.0):
        told = command("store", "pin", record.key[:12]).err.splitlines()
    assert any("waiting: process " in line and "is removing files from the store" in line for line in told)
    assert any(line.startswith("warning: process ") and "continuing without waiting" in line for line in told)
