"""The index's file: where it lies, who else uses it, and what is done where it cannot serve."""

import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
from contextlib import closing

import pytest

from cachekit.store import index_file
from cachekit.store.layout import Layout
from tests.store.index_cases import (  # noqa: F401 - fixtures
    fill,
    in_short,
    listed,
    made,
    opened,
    plainly,
    put,
    reads,
    settled,
)
from tests.store.store_cases import home  # noqa: F401 - a fixture
from tests.support.doctor_cases import another_user, public  # noqa: F401 - a fixture
from tests.support.processes import side_by_side
from tests.support.users import ONE


def without_any(*_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def without_waiting(path, connect=index_file._connect):
    assert path == ":memory:", "SQLite waits where there are no locks"
    return connect(path)


def without_locks(path, connect=index_file._connect):
    if path != ":memory:":
        raise sqlite3.OperationalError("locking protocol")
    return connect(path)


@pytest.mark.parametrize("way", ["read-only", "no locks", "locks of other files only"])
def test_where_the_file_cannot_serve_the_records_are_read_without_it(public, monkeypatch, way):
    home = public / "home"
    fill(home, 3)
    listed(opened(home))
    put(home, made(9))
    before = opened(home).layout.index.read_bytes()
    if way != "read-only":
        if way == "no locks":
            monkeypatch.setattr(fcntl, "flock", without_any)
        monkeypatch.setattr(index_file, "_connect", without_waiting if way == "no locks" else without_locks)
        assert listed(opened(home)) == plainly(home)
        assert next(one.row.key for one in opened(home).around(made(9).hard).nearest()) == made(9).key
    else:
        with another_user():
            assert listed(opened(home)) == plainly(home)
    assert opened(home).layout.index.read_bytes() == before


def test_a_damaged_file_that_cannot_serve_is_not_read(home, monkeypatch):
    fill(home, 3)
    listed(opened(home))
    put(home, made(9))
    with closing(sqlite3.connect(opened(home).layout.index)) as database, database:
        ((root,),) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'record'").fetchall()
        ((size,),) = database.execute("PRAGMA page_size").fetchall()
    with opened(home).layout.index.open("r+b") as index:
        index.seek((root - 1) * size)
        index.write(b"\xff" * size)
    monkeypatch.setattr(index_file, "_connect", without_locks)
    assert listed(opened(home)) == plainly(home)


def test_all_answers_around_a_job_are_of_one_look_until_the_index_is_lost(home):
    fill(home, 3)
    store = opened(home)
    around = store.around(made(1).hard)
    put(home, made(9))
    assert len(list(around.nearest())) == 3
    store.layout.index.unlink()
    assert len(list(around.nearest())) == 3, "the same question again has the same answer"
    assert len(list(around.nearest(directory="standin-1.0"))) == 4


def test_what_is_asked_together_opens_the_index_once(home, settled, monkeypatch):
    fill(home, 3)
    store, opens, connect = opened(home), [], sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: opens.append(args) or connect(*args, **options))
    around = store.around(made(1).hard)
    assert len(opens) == 1
    assert next(around.nearest()).distance == 0
    assert len(opens) == 2
    assert len(around.same_job()) == 1
    assert len(opens) == 3


def test_many_readers_and_writers_at_once(home):
    def work(number):
        own = opened(home)
        for turn in range(6):
            if number % 2:
                own.publish(made(100 * number + turn), {})
            keys = [each.key for each in own.rows()]
            mine = {made(100 * number + past).key for past in range(turn + 1)} if number % 2 else set()
            assert mine <= set(keys), "what I have written, I see"
            assert keys == sorted(keys)
        return len(keys)

    fill(home, 4)
    assert None not in side_by_side(6, work)
    assert listed(opened(home)) == plainly(home)
    assert len(plainly(home)) == 4 + 3 * 6


def test_what_a_process_asks_meanwhile_does_not_end_the_lock_under_which_it_writes(home):
    fill(home, 1)
    listed(opened(home))
    index = opened(home).layout.index

    begin = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"

    def another_writes():  # a fork of this process would believe what this one knows of its locks
        return subprocess.run([sys.executable, "-c", begin, index], stderr=subprocess.PIPE, text=True, check=False)

    def write(database):
        index_file.IndexFile(Layout(home)).ask("SELECT count(*) FROM record")
        assert another_writes().stderr.endswith("database is locked\n")

    index_file.IndexFile(Layout(home)).change(write)
    assert another_writes().returncode == 0


def plant(index, target):
    """Put a hot journal beside an index: it has no pages, and names a file as its super-journal [pager.c]."""
    with closing(sqlite3.connect(index)) as database:
        ((pages,),), ((size,),) = (database.execute(f"PRAGMA page_{what}").fetchall() for what in ("count", "size"))
    magic, name = bytes.fromhex("d9d505f920a163d7"), os.fsencode(target)
    head = (magic + struct.pack(">5I", 0, 1, pages, 512, size)).ljust(512, b"\0")
    tail = struct.pack(">I", 0x40000000 // size + 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    index.with_name(f"{index.name}-journal").write_bytes(head + tail)


@pytest.mark.feature("T2")
@pytest.mark.parametrize("whose", ["everybody's", "a group's", "another user's", "own"])
def test_no_journal_that_another_user_put_beside_an_index_removes_a_file(public, monkeypatch, whose):
    if os.geteuid():
        pytest.skip("only root gives files away")
    home, target = public / "home", public / "precious"
    target.write_bytes(b"mine")
    monkeypatch.setattr(tempfile, "tempdir", str(public))
    fill(home, 3)
    listed(opened(home))
    index = Layout(home).index
    shutil.copy(index, public / "copy")
    plant(public / "copy", target)
    with closing(sqlite3.connect(public / "copy")) as database:
        database.execute("SELECT * FROM record").fetchall()
    assert not target.exists(), "the journal does what it is made for"
    target.write_bytes(b"mine")
    plant(index, target)
    for path in (index, index.with_name("index.sqlite-journal")):
        os.chown(path, ONE, ONE)
    if whose == "a group's":
        os.chown(index.parent, 0, ONE)
    index.parent.chmod({"everybody's": 0o777, "a group's": 0o2775}.get(whose, 0o755))
    if whose == "another user's":
        os.chown(index.parent, ONE, ONE)
    for _ in range(2):
        assert listed(opened(home)) == plainly(home)
    assert target.read_bytes() == b"mine"
    found = list(public.glob("cachekit-0/indexes/*.sqlite"))
    assert len(found) == (whose != "own")
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in found or [index])
