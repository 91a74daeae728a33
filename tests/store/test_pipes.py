"""A pipe in the place of a file: it has no end, so nobody waits for it, wherever in the store or project it lies."""

import os
from pathlib import Path

import pytest
from msgspec import structs

from cachekit import config_files
from cachekit.compilers.neuron import flags
from cachekit.errors import UsageError
from cachekit.events import Journal
from cachekit.recipe import command
from cachekit.remotes.notes import Notes
from cachekit.store import Store, archive, divergent, history, lock_file, notes, pins
from cachekit.store.compile_lock import CompileLock
from cachekit.store.record import encode
from cachekit.store.rwlock import used_now
from cachekit.verbs import why
from tests.support.standins import make_record
from tests.verbs.report_store import NOW, warm

RECORD = structs.replace(make_record(1)[0], modules=())


@pytest.fixture
def store(tmp_path):
    """A store with one record and one run, and no index yet."""
    store = Store(tmp_path / "home", Journal(None, "test"))
    warm(tmp_path / "home", "bert", NOW)
    path = store.layout.record(RECORD.place)
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(RECORD))
    return store


def pipe(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("end", ["", "-journal", "-wal"])
def test_a_pipe_as_index_is_damage_and_made_anew(store, end):
    expected = store.listed()
    index = store.layout.index
    pipe(index.with_name(f"{index.name}{end}"))
    assert Store(store.layout.home, Journal(None, "test")).listed() == expected != []
    assert index.is_file(), "the next command has an index again"


def test_an_index_that_is_a_pipe_and_cannot_be_removed_is_done_without(store, monkeypatch):
    def refused(path, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    expected = store.listed()
    index = pipe(store.layout.index)
    monkeypatch.setattr(Path, "unlink", refused)
    assert Store(store.layout.home, Journal(None, "test")).listed() == expected
    assert index.is_fifo()


PLACES = {
    "state/stats/UID/MONTH.jsonl": lambda store: len(history.history(store.layout).runs) == 1,
    f"state/attempts/{RECORD.key}.json": lambda store: notes.attempt_of(store.layout, RECORD.key) is None,
    f"state/builds/{RECORD.key}.json": lambda store: divergent.noted(store.layout, RECORD.key) == [],
    "in-use/1-abc": lambda store: [path.name for path in used_now(store.layout).dead] == ["1-abc"],
    f"pins/{RECORD.key}.json": lambda store: set(pins.pinned(store.layout)) == {RECORD.key},
    f"used/{RECORD.key}": lambda store: pins.note_use(store.layout, RECORD.key) is None,
    f"locks/{RECORD.key}.json": lambda store: (
        CompileLock(store.layout, RECORD.key, "bert", store.rwlock).holder() is None
    ),
    "state/remotes/UID/team/push.json": lambda store: (
        Notes(store.layout.remotes / "team").read("push.json", dict) is None
    ),
    f"records/{RECORD.directory}/{RECORD.model_type}/{RECORD.key}.json": lambda store: store.listed() == [],
}


@pytest.mark.parametrize("place", PLACES)
def test_a_pipe_in_the_store_is_not_waited_for(store, place):
    month = next(iter(history.journals(store.layout)))[:6]
    pipe(store.layout.root / place.replace("UID", str(os.geteuid())).replace("MONTH", month))
    assert PLACES[place](store)


def test_a_pipe_of_another_that_does_not_read_gets_no_figures(store):
    """Whoever holds the pipe open for reading would get what is appended, and nobody would find it again."""
    month = next(iter(history.journals(store.layout)))[:6]
    path = pipe(store.layout.stats / f"{month}.jsonl")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert any("regular" in problem for problem in history.history(store.layout).problems)
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


def test_a_pipe_where_the_note_of_the_last_recipe_lies_is_no_note(store, tmp_path):
    pipe(store.layout.last(notes._place(tmp_path)))
    with pytest.raises(UsageError, match="no recipe was named"):
        notes.last_in(store.layout, tmp_path)


def test_a_pipe_as_lock_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be written") as raised:
        lock_file.write(pipe(tmp_path / "cachekit.lock"), [])
    assert "regular file" in raised.value.cause


def test_a_settings_file_that_is_a_pipe_is_not_added_to(tmp_path):
    path = pipe(tmp_path / "config.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        config_files.text_of(path)
    with pytest.raises(UsageError, match="cannot be written"):
        config_files.write(path, "")
    assert path.is_fifo()


def test_a_record_to_compare_that_is_a_pipe_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        why.of_file(pipe(tmp_path / "record.json"))


def test_a_script_that_is_a_pipe_names_nothing(tmp_path):
    path = pipe(tmp_path / "train.sh")
    assert (command.digest(path), command.content(path), command.named_in_shell(path, tmp_path)) == ("", b"", {})


def test_a_pipe_in_a_compilers_folder_is_not_packed(tmp_path):
    pipe(tmp_path / "entry")
    with pytest.raises(OSError, match="regular file"), (tmp_path / "archive.tar").open("wb") as target:
        archive.pack(tmp_path, ["entry"], target)
    assert flags.read_flags(tmp_path / "entry") is None


def test_a_pyproject_that_is_a_pipe_is_passed_over(tmp_path):
    pipe(tmp_path / "pyproject.toml")
    assert config_files.project_file(tmp_path) is None


def test_a_folder_in_the_place_of_a_note_of_use_stops_no_removal(store):
    (store.layout.in_use / "1-abc").mkdir(parents=True)
    assert used_now(store.layout).dead == ()
