"""Stores of many records: who reads them all says so, and who needs not, does not."""

import sys

import pytest
from msgspec import structs

from cachekit.cli import progress
from cachekit.events import Journal
from cachekit.store import Store, index, index_rows, store
from cachekit.store.record import encode
from tests.support.standins import make_record

pytest_plugins = ["tests.support.cli_session"]

MANY = 250


@pytest.fixture
def reads(monkeypatch):
    """The keys of the records that were decoded, one entry each time."""
    seen = []

    def decode(raw):
        record = plain(raw)
        seen.append(record.key if record else "")
        return record

    plain = store.decode
    monkeypatch.setattr(store, "decode", decode)
    monkeypatch.setattr(index_rows, "decode", decode)
    return seen


def fill(home, count, **changes):
    """That many record files, without what `publish` does for their blobs."""
    layout = Store(home, Journal(None, "test")).layout
    made = [structs.replace(make_record(number)[0], modules=(), **changes) for number in range(count)]
    for record in made:
        path = layout.record(record.place)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(record))
    return made


@pytest.mark.parametrize("words", [("store", "ls"), ("plan", "tiny.yaml")], ids=" ".join)
def test_the_first_look_at_many_records_says_how_far_it_is(command, home, monkeypatch, words):
    fill(home, MANY)
    monkeypatch.setattr(progress, "MANY", MANY)
    monkeypatch.setattr(progress, "EVERY", 0.0)
    first = command(*words)
    told = [line for line in first.err.splitlines() if "reading records" in line]
    assert told == [f"  reading records: {done} of {MANY}" for done in range(0, MANY, index.TOLD)]
    assert "reading records" not in command(*words).err, "the index knows them"


def test_who_wants_no_notes_gets_none(command, home, monkeypatch):
    fill(home, MANY)
    monkeypatch.setattr(progress, "MANY", MANY)
    assert command("store", "ls", "--quiet").err == ""


def test_the_live_line_ends_with_the_reading(home, monkeypatch):
    told = []
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    shown = progress.Progress(told.append, live=True, quiet=False)
    shown.event({"event": "store.reading", "done": 0, "of": progress.MANY})
    assert shown._status is not None
    shown.event({"event": "store.reading", "done": progress.MANY, "of": progress.MANY})
    assert shown._status is None
    assert told == []


# Who chooses among them reads those that are chosen


def test_a_folder_without_records_is_no_trouble(tmp_path):
    opened = Store(tmp_path, Journal(None, "test"))
    (opened.layout.records / "inductor-2.13.0" / "bert").mkdir(parents=True)
    assert opened.rows() == []


# Removal
