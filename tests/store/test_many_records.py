"""Stores of many records: who reads them all says so, and who needs not, does not."""

import sys
import tracemalloc

import pytest
from msgspec import structs

from cachekit import config
from cachekit.cli import progress
from cachekit.events import Journal
from cachekit.store import Store, index, index_rows, store
from cachekit.store.gc import Keep, gc
from cachekit.store.record import encode
from cachekit.verbs.session import open_session
from tests.support.cli_session import publish, publish_record, small_record
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


@pytest.fixture
def filled(command, home, reads):
    """A store that is indexed: fifty records of one compiler, three of another. Those three."""
    fill(home, 50)
    few = [publish_record(home, small_record(number=number)) for number in range(3)]
    command("store", "ls")
    reads.clear()
    return few


def test_pins_are_shown_without_reading_a_record(command, filled, reads):
    command("store", "pin", filled[0].key[:8])
    shown = command("store", "pin", "--list", "--format", "json").json
    assert [(one["key"], one["bytes"], one["recipe"]) for one in shown] == [
        (filled[0].key, filled[0].size, filled[0].recipe)
    ]
    assert reads == []
    command("store", "unpin", filled[0].key[:8])
    assert reads == []


def test_an_export_reads_what_it_carries(command, filled, reads):
    answer = command("store", "export", "few.tar", "--all-of", filled[0].directory, "--format", "json").json
    assert {record["key"] for record in answer["records"]} == {record.key for record in filled}
    assert set(reads) == {record.key for record in filled}


def test_an_export_of_a_recipe_finds_it_by_its_key(command, machine, home, filled, reads):
    record = publish(home)
    reads.clear()
    command("store", "export", "one.tar", "tiny.yaml")
    assert set(reads) == {record.key}
    reads.clear()
    command("store", "export", "none.tar", "tiny.yaml", "--set", "training.max_seq_length=16", code=3)
    assert reads == []


def test_what_waits_for_a_cache_is_read_and_no_more(command, home, work, filled, reads):
    shared = work.parent / "shared"
    shared.mkdir()
    waits = filled[1]
    with open_session(config.load({"home": home, "cache": f"local:rw,{shared}:rw"}), "") as session:
        session.remotes.writable[0].keep_pending(waits.key)
    reads.clear()
    answer = command("push", "--pending", "--cache", f"local:rw,{shared}:rw", "--format", "json").json
    assert [len(one["records"]) for one in answer["pushed"]] == [1]
    assert set(reads) == {waits.key}


def test_a_folder_without_records_is_no_trouble(tmp_path):
    opened = Store(tmp_path, Journal(None, "test"))
    (opened.layout.records / "inductor-2.13.0" / "bert").mkdir(parents=True)
    assert opened.rows() == []


# Removal


def test_a_removal_asks_for_what_many_records_name_at_once(home, monkeypatch):
    made = fill(home, MANY)
    asked = []
    plain = index.Index.named_by
    monkeypatch.setattr(index.Index, "named_by", lambda self, rows: plain(self, asked.append(1) or rows))
    told = gc(Store(home, Journal(None, "test")), home / "caches", Keep(max_size=0), dry_run=True)
    assert {one.key for one in told.records} == {record.key for record in made}
    assert len(asked) < 10


def test_where_nothing_is_to_go_no_record_is_held(home, monkeypatch):
    """So that a small machine looks after a hundred thousand: those of one folder are in memory, and no others."""

    monkeypatch.setattr(index_rows, "SETTLED", -1)  # else records as young as these are read again

    def peak(folders):
        for number in range(folders):
            fill(home, 50, directory=f"neuronxcc-2.{number}")
        here = Store(home, Journal(None, "test"))
        here.refresh(exact=True)
        tracemalloc.start()
        try:
            told = gc(here, home / "caches", Keep(max_size=1 << 40), dry_run=True)
            assert told.records == ()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)  # which imports what it needs
    few, many = peak(4), peak(24)
    assert many - few < 500 * 20 * 50  # bytes
