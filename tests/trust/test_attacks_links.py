"""Attacks by another user who may write to a store that is shared: links out of it, names that wait, and notes."""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import json, structs

from cachekit import config_files, events, files
from cachekit.errors import StoreError, UsageError
from cachekit.events import Journal
from cachekit.executors import fleet as fleets
from cachekit.executors.port import FleetUnit
from cachekit.remotes.hub.account import is_own
from cachekit.remotes.notes import Notes
from cachekit.store import Store, divergent, history, notes, partial, pins
from cachekit.store.compile_lock import CompileLock
from cachekit.store.counting import Counted
from cachekit.store.gc import Keep
from cachekit.store.layout import Layout
from cachekit.store.notes import Last, last_in, note_last
from tests.support.standins import Watched, expected, find, make_record, publish, served
from tests.support.users import ONE

pytestmark = pytest.mark.feature("T2")
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
OLD = time.time() - 400 * 86_400
MADE = make_record(1)
# What cachekit makes may be called so; what it never makes must stay the more.
NAMES = [
    "thesis.tex", "123-0123456789ab", "run-1-0123456789ab.lock", "old.log", "20260101T000000Z-00000000.jsonl",
    "a" * 64, f"{'b' * 64}.lock", f"{MADE[0].key}.json", f"{MADE[0].key}.lock", MADE[0].files[0].sha256,
    "20200101T000000-1-x",
]  # fmt: skip
LINE = history._Line("20260101T000000Z-00000000", history.RULE, 0, 0, Counted("warm", "host", []))
PLACES = [
    "in-use", "logs", "journal", "journal/UID", "tmp", "cache_dirs", "quarantine", "locks", "partial", "partial/UID",
    "used", "pins", "trust", "records", "records/COMPILER", "records/COMPILER/TYPE", "blobs", "blobs/AB", "state",
    "state/stats/UID", "fleets", "fleets/UID", "staying", "state/attempts", "state/builds", "state/last/UID",
    "state/remotes/UID",
]  # fmt: skip


def plant(path, target, owner=ONE):
    """Put a link of another user's in the place of what is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.rename(path.with_name(f"{path.name}-before"))
    path.symlink_to(target)
    os.chown(path, owner, owner, follow_symlinks=False)


def given(path, raw):
    """A file that another user wrote."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    os.chown(path, ONE, ONE)


@pytest.fixture
def thesis(tmp_path):
    """A folder of this user's, whose names cachekit might use."""
    folder = tmp_path / "thesis"
    for name in (*NAMES, "run-1-0123456789ab/chapter.tex", "202601/20260101T000000Z-00000000.jsonl"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"mine")
        os.utime(path, (OLD, OLD))
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@ROOT_ONLY
@pytest.mark.parametrize("place", PLACES)
def test_a_strangers_link_in_the_place_of_a_folder_loses_nobody_a_file(tmp_path, thesis, place):
    watched = Watched(tmp_path / "store", cache_dirs=tmp_path / "store" / "v1" / "cache_dirs")
    publish(watched.store, MADE)
    record, layout = MADE[0], watched.store.layout
    words = {"UID": str(os.geteuid()), "COMPILER": record.directory, "TYPE": record.model_type}
    words["AB"] = record.files[0].sha256[:2]
    before = contents(thesis)
    plant(layout.root.joinpath(*(words.get(one, one) for one in place.split("/"))), thesis)
    watched = Watched(tmp_path / "store", cache_dirs=tmp_path / "store" / "v1" / "cache_dirs")
    store = watched.store
    history.retire(layout, 30)
    fleets.retire(layout, 30)
    events.prune(layout.logs, 30, inside=layout.inside)
    partial.sweep(layout)
    with store.using():
        find(store, record)
        pins.note_use(layout, record.key)
    with suppress(StoreError):
        publish(store, MADE)
    with suppress(StoreError), CompileLock(layout, record.key, "x", store.rwlock).hold(0, lambda *_: None):
        pass
    notes.note_attempt(layout, record.key, StoreError("x"), Path("log"), ())
    divergent.tell(layout, store.journal, record, _other_build(record), "x")
    with suppress(StoreError):
        watched.gc(Keep(max_size=0))
    made = {path.name for path in contents(thesis).keys() - before}
    assert {path: raw for path, raw in contents(thesis).items() if path in before} == before
    assert made == set()


def _other_build(record):
    files_ = [structs.replace(file, sha256="f" * 64) for file in record.modules[0].files]
    return structs.replace(record, modules=(structs.replace(record.modules[0], files=tuple(files_)),))


@ROOT_ONLY
def test_a_strangers_link_is_told_by_who_cannot_remove_what_lies_there(tmp_path, thesis):
    watched = Watched(tmp_path / "store")
    publish(watched.store, MADE)
    plant(watched.store.layout.blobs / MADE[0].files[0].sha256[:2], thesis)
    with pytest.raises(StoreError) as told:
        watched.gc(Keep(max_size=0))
    assert "is a link that another user made or can replace" in told.value.cause


@ROOT_ONLY
def test_what_is_asked_to_be_forgotten_is_not_removed_behind_a_strangers_link(tmp_path, thesis):
    layout, before = Layout(tmp_path / "store"), contents(thesis)
    plant(layout.pins, thesis)
    plant(layout.state / "attempts", thesis)
    with pytest.raises(StoreError):
        pins.unpin(layout, MADE[0].key)
    notes.forget_attempt(layout, MADE[0].key)
    assert contents(thesis) == before


def test_a_link_of_ones_own_is_followed_where_nobody_else_could_put_another_one(tmp_path):
    home = tmp_path / "store"
    publish(Watched(home).store, MADE)
    (home / "v1" / "blobs").rename(tmp_path / "large disk")
    (home / "v1" / "blobs").symlink_to(tmp_path / "large disk")
    watched = Watched(home)
    other = make_record(2, ("more",))
    publish(watched.store, other)
    assert served(watched.store, other[0]) == expected(other)
    assert watched.gc(Keep(max_size=0)).records
    assert [path for path in (tmp_path / "large disk").rglob("*") if path.is_file()] == []


def test_a_link_of_ones_own_is_not_followed_where_others_can_put_another_folder_in_the_stores_place(tmp_path, thesis):
    """A clone of a stranger's code may have links, which git makes as this user."""
    home = tmp_path / "scratch" / "store"
    publish(Watched(home).store, MADE)
    shutil.rmtree(home / "v1" / "locks")
    (home / "v1" / "locks").symlink_to(thesis)
    before = contents(thesis)
    home.parent.chmod(0o777)
    layout = Layout(home)
    with pytest.raises(PermissionError), layout.inside.folder(layout.locks):
        pass
    with (
        suppress(StoreError),
        CompileLock(layout, MADE[0].key, "x", Watched(home).store.rwlock).hold(0, lambda *_: None),
    ):
        pass
    assert contents(thesis) == before


@ROOT_ONLY
def test_a_fleet_that_a_stranger_may_have_noted_is_none(tmp_path):
    """It says which process `fleet cancel` ends, and what runs."""
    layout = Layout(tmp_path / "store")
    layout.fleets.parent.mkdir(parents=True)
    unit = FleetUnit("x", ("true",))
    made = fleets.create(layout, engine="local", queue="", cwd="/", jobs=1, seconds=None, units=(unit,))
    assert list(fleets.every(layout)) == [made]
    layout.root.chmod(0o777)
    assert list(fleets.every(layout)) == []
    layout.root.chmod(0o755)
    os.chown(layout.fleets, ONE, ONE)
    assert list(fleets.every(layout)) == []


# Names that wait


def test_a_file_that_is_replaced_is_written_under_no_name_that_is_there(tmp_path, monkeypatch):
    secret, note = tmp_path / "keys", tmp_path / "note"
    secret.write_bytes(b"precious")
    secret.chmod(0o600)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr("threading.get_native_id", lambda: 1)
    (tmp_path / ".note.1-1").symlink_to(secret)
    files.replace(note, b"{}")
    with pytest.raises(FileExistsError):
        files.create(tmp_path / ".note.1-1", b"{}")
    names = []
    monkeypatch.setattr(files, "create", lambda path, data, **_: names.append(path) or exec("raise OSError"))
    for _ in range(2):
        assert not files.note(note, b"{}")
    assert len(set(names)) == 2, "nobody can guess one"
    assert (note.read_bytes(), secret.read_bytes(), secret.stat().st_mode & 0o777) == (b"{}", b"precious", 0o600)


def test_a_link_where_something_is_noted_changes_nothing_where_it_leads(tmp_path):
    mine, layout = tmp_path / "mine", Layout(tmp_path / "store")
    mine.write_bytes(b"{}")
    os.utime(mine, (OLD, OLD))
    for path in (layout.used / "key", layout.remotes / "absent" / "key", layout.stats / "202601.jsonl", layout.index):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(mine)
    pins.note_use(layout, "key")
    Notes(layout.remotes / "absent").touch("key")
    with pytest.raises(OSError, match="symbolic link"):
        history._append(layout, [LINE])
    publish(Store(layout.home, Journal(None, "test")), MADE)
    assert (mine.read_bytes(), mine.stat().st_mtime) == (b"{}", OLD)


@ROOT_ONLY
def test_a_strangers_file_gives_its_mode_to_nothing_that_is_written_in_its_place(tmp_path):
    given(tmp_path / "note", b"{}")
    (tmp_path / "note").chmod(0o666)
    files.replace(tmp_path / "note", b"[]", mode=0o600)
    assert (tmp_path / "note").stat().st_mode & 0o777 == 0o600


def test_settings_are_written_so_that_they_are_read_again_whatever_the_umask_is(tmp_path):
    path = tmp_path / "config" / "cachekit" / "config.toml"
    before = os.umask(0)
    try:
        config_files.write(path, "[trust]\n")
    finally:
        os.umask(before)
    assert [one.stat().st_mode & 0o022 for one in (path, *path.parents[:2])] == [0, 0, 0]


# Notes


@ROOT_ONLY
def test_the_recipe_warmed_last_is_what_this_user_noted(tmp_path):
    layout, here = Layout(tmp_path / "store"), tmp_path / "project"
    here.mkdir()
    mine = Last("mine.yaml", ("a=1",), "auto", True)
    assert note_last(layout, here, mine)
    assert last_in(layout, here) == mine
    path = layout.last(notes._place(here))
    assert [one.stat().st_mode & 0o777 for one in (path, path.parent)] == [0o600, 0o700]
    raw = path.read_bytes()
    path.rename(layout.last(notes._place(tmp_path)))
    with pytest.raises(UsageError, match="none was warmed"):  # it is about another directory, whatever its name is
        last_in(layout, tmp_path)
    given(path, raw.replace(b"mine", b"evil"))
    with pytest.raises(UsageError) as told:
        last_in(layout, here)
    assert f"{path} belongs to another user" in told.value.cause
    os.chown(path, 0, 0)
    path.chmod(0o666)
    with pytest.raises(UsageError) as told:
        last_in(layout, here)
    assert "every user of this machine can write to" in told.value.cause
    path.chmod(0o600)
    assert last_in(layout, here) == structs.replace(mine, recipe="evil.yaml"), "it is this user's"
    path.parent.chmod(0o777)
    with pytest.raises(UsageError, match="none was warmed"):  # whoever can write there may have moved it there
        last_in(layout, here)
    path.parent.chmod(0o700)
    os.chown(path.parent, ONE, ONE)
    with pytest.raises(UsageError) as told:  # whose folder it is may have moved it there
        last_in(layout, here)
    assert f"{path.parent} belongs to another user" in told.value.cause


@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_the_recipe_warmed_last_is_not_what_another_folder_of_this_user_in_the_stores_place_says(
    tmp_path, monkeypatch, mode
):
    """A clone beside the store, which whoever can write there renames."""
    scratch, here, mine = tmp_path / "scratch", tmp_path / "project", Last("mine.yaml", (), "auto")
    here.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "a stranger's"))
    (scratch / "clone" / "v1" / "records").mkdir(parents=True)
    assert note_last(Layout(scratch / "clone"), here, structs.replace(mine, overrides=("environment.LD_PRELOAD=x",)))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "mine"))
    scratch.chmod(mode)
    (scratch / "store" / "v1" / "records").mkdir(parents=True)
    assert note_last(Layout(scratch / "store"), here, mine)
    assert last_in(Layout(scratch / "store"), here) == mine
    if mode == 0o777:
        (scratch / "store").rename(scratch / "old")
        (scratch / "clone").rename(scratch / "store")
        with pytest.raises(UsageError, match="none was warmed") as raised:
            last_in(Layout(scratch / "store"), here)
        assert raised.value.cause == "others can write to the store, and this user noted nothing there"


@ROOT_ONLY
def test_what_a_stranger_notes_of_remotes_is_not_believed(tmp_path):
    remembered = Notes(tmp_path)
    assert remembered.write("seen", "2026")
    remembered.touch("absent")
    assert (remembered.read("seen", str), remembered.age("absent") is None) == ("2026", False)
    for name in ("seen", "absent"):
        os.chown(tmp_path / name, ONE, ONE)
    assert (remembered.read("seen", str), remembered.age("absent"), remembered.names()) == (None, None, [])


@ROOT_ONLY
@pytest.mark.parametrize("place", ["remotes/notes/seen", "remotes/notes", "remotes", ""])
def test_what_is_noted_of_remotes_is_not_read_where_a_strangers_link_or_folder_leads(tmp_path, place):
    """What the link leads to is this user's own, and says something else than is asked."""
    mine, remembered = tmp_path / "mine", Notes(tmp_path / "remotes" / "notes")
    (mine / "notes").mkdir(parents=True)
    for folder in (mine, mine / "notes"):
        (folder / "seen").write_bytes(b'"mine"')
    if not place:
        assert remembered.write("seen", "mine")
        os.chown(remembered.folder, ONE, ONE)
    else:
        plant(tmp_path / place, mine / "seen" if place.endswith("seen") else mine)
    before = contents(mine)
    assert (remembered.read("seen", str), remembered.age("seen"), remembered.names()) == (None, None, [])
    if not place.endswith("seen"):
        remembered.touch("new")
        remembered.remove("seen")
        assert not remembered.write("seen", "2026")
    assert contents(mine) == before


@ROOT_ONLY
@pytest.mark.parametrize("forged", ["another user's", "another token's"])
def test_whose_names_a_token_stands_for_is_not_asked_of_a_strangers_note(tmp_path, forged):
    asked = []

    def own(owner, token):
        return is_own(owner, tmp_path, "https://hub", token, lambda: asked.append(token) or {"name": token})

    assert own("mine", "mine")
    (mine,) = tmp_path.iterdir()
    assert own("other", "other")
    (other,) = set(tmp_path.iterdir()) - {mine}
    assert own("mine", "mine")
    assert asked == ["mine", "other"], "what was said counts for a day"
    if forged == "another user's":
        given(mine, json.encode(json.decode(mine.read_bytes()) | {"names": ["other"]}))
    else:
        other.replace(mine)
    assert not own("other", "mine")
    assert asked == ["mine", "other", "mine"]


@ROOT_ONLY
def test_figures_that_a_stranger_wrote_are_not_counted_and_that_is_told(tmp_path):
    layout = Layout(tmp_path)
    history._append(layout, [LINE])
    assert list(history.history(layout).runs) == [LINE.run]
    (path,) = layout.stats.iterdir()
    assert Path(path).stat().st_mode & 0o777 == 0o600
    os.chown(path, ONE, ONE)
    found = history.history(layout)
    assert (found.runs, len(found.problems)) == ({}, 1)
    assert "belongs to another user" in found.problems[0]
