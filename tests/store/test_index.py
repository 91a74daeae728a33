"""The index of the records: the same answers as reading each of them, whatever becomes of either."""

import errno
import fcntl
import os
import resource
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cachekit.errors import IntegrityError, StoreError
from cachekit.events import Journal
from cachekit.key.canonical import canonical_json, difference, key_of
from cachekit.key.nearest import distance
from cachekit.store import Store, index_file, index_rows
from cachekit.store.gc import Keep
from cachekit.store.index import Index
from cachekit.store.layout import Layout, Place
from cachekit.store.record import decode, encode, sealed, serialise, to_document
from cachekit.verbs.entry import find as find_by_key
from cachekit.verbs.plan import plan
from cachekit.verbs.verify import verify
from cachekit.verbs.warm import warm
from tests.store.store_cases import home  # noqa: F401 - a fixture
from tests.support.doctor_cases import another_user, public  # noqa: F401 - a fixture
from tests.support.processes import side_by_side
from tests.support.standins import Watched, make_record, publish, recipe
from tests.support.users import ONE

FIELDS = ("key", "directory", "model_type", "compiler", "recipe", "graphs", "compile_seconds", "cold_seconds")


@pytest.fixture
def settled(monkeypatch):
    """What was written a moment ago is old enough for its times to be believed."""
    monkeypatch.setattr(index_rows, "SETTLED", 0)


@pytest.fixture
def reads(monkeypatch):
    """The records that the index decoded, one entry each time."""
    seen = []

    def counted(raw):
        seen.append(raw)
        return decode(raw)

    monkeypatch.setattr(index_rows, "decode", counted)
    return seen


def opened(home):
    return Store(home, Journal(None, "test"))


def made(number, **changes):
    return structs.replace(make_record(number)[0], modules=(), **changes)


def put(home, record):
    """A record file that something else than cachekit put there."""
    path = opened(home).layout.record(record.place)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(encode(record))
    fresh.replace(path)
    time.sleep(0.005)  # the next change is in another tick of the file system's clock
    return path


def fill(home, count=5):
    records = [made(number) for number in range(count)]
    for record in records:
        put(home, record)
    return records


def in_short(record):
    """What a row is to say of a record."""
    by = record.provenance
    return (
        *(getattr(record, name) for name in FIELDS),
        (len(record.modules), record.size, by.created, by.user, by.host, by.instance),
        canonical_json(record.hard),
    )


def listed(store, *, exact=False):
    if exact:
        store.refresh(exact=True)
    return [
        (
            *(getattr(each, name) for name in FIELDS),
            (each.modules, each.bytes, each.created, each.user, each.host, each.instance),
            canonical_json(store.index.hard(each)),
        )
        for each in store.rows()
    ]


def plainly(home):
    paths = sorted((home / "v1" / "records").glob("*/*/*.json"))
    return [in_short(record) for path in paths if (record := decode(path.read_bytes()))]


def test_what_is_known_is_not_read_again(home, settled, reads):
    fill(home)
    first = listed(opened(home))
    assert len(reads) == 5
    assert listed(opened(home)) == first == plainly(home)
    assert len(reads) == 5
    put(home, made(9))
    again = opened(home)
    assert len(listed(again)) == len(listed(again)) == 6
    assert len(reads) == 6, "one more record is one more to read, once"


def test_a_record_of_this_moment_is_looked_at_again_where_it_must_be_exact(home):
    path = put(home, made(1, recipe="r000"))
    store = opened(home)
    for number in range(1, 30):
        assert [each.recipe for each in store.refresh(exact=True).rows()] == [f"r{number - 1:03}"]
        with path.open("r+b") as target:  # the same size and inode, and most often the same tick
            target.write(encode(made(1, recipe=f"r{number:03}")))


def test_another_schema_is_read_once_and_is_not_listed(home, settled, reads):
    record = made(1)
    path = put(home, record)
    path.write_bytes(serialise(sealed("record", to_document(record)["record"] | {"schema": 2})))
    assert listed(opened(home)) == listed(opened(home)) == []
    assert len(reads) == 1
    assert path.exists()
    put(home, record)
    assert find_by_key(opened(home), record.key) == record


def test_damage_that_came_later_is_met_by_whoever_reads_the_record_or_must_be_exact(home, settled):
    records = fill(home, 3)
    assert len(listed(opened(home))) == 3
    paths = [opened(home).layout.record(record.place) for record in records]
    for path in paths[:2]:
        path.write_bytes(b"x" * path.stat().st_size)
    watched = Watched(home)
    with pytest.raises(IntegrityError, match=f"the store's record {records[0].key[:12]} cannot be used"):
        find_by_key(watched.store, records[0].key)
    assert len(watched.damage()) == 1, "whoever reads it finds out"
    assert len(watched.store.rows()) == 1, "one of them was set aside, so all files of the folder are looked at"
    assert len(watched.store.rows()) == 1
    paths[2].write_bytes(b"x" * paths[2].stat().st_size)
    assert len(watched.store.rows()) == 1
    assert listed(watched.store, exact=True) == []


def test_what_records_needed_that_are_gone_makes_room(home):
    watched = Watched(home)
    for number in range(20):
        publish(watched.store, make_record(number, (f"own {number}",)))
    before = listed(watched.store)
    watched.gc(Keep(max_size=sum(row.bytes for row in watched.store.rows()) // 2))
    after = listed(watched.store)
    assert 0 < len(after) < 20
    assert set(after) < set(before), "what others need stays"
    watched.gc(Keep(max_size=0))
    with closing(sqlite3.connect(watched.store.layout.index)) as database:
        sizes = [database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("part", "whole", "named")]
    assert sizes == [0, 0, 0]


def test_many_records_are_listed_in_order_also_where_no_temporary_file_has_room(home):
    """SQLite sorts the rows of more than some thousand records in a file."""
    fill(home, 1)
    store = opened(home)
    assert len(listed(store)) == 1
    with closing(sqlite3.connect(store.layout.index)) as database, database:
        columns = [name for _, name, *_ in database.execute("PRAGMA table_info(record)")]
        values = {"id": "NULL", "key": "key || n", "created": "printf('%05d', (n * 7919) % 20011)"}
        database.execute(
            f"WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < 20000) "
            f"INSERT INTO record SELECT {', '.join(values.get(name, name) for name in columns)} FROM record, count"
        )
    roomy = store.index.listed()
    size = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, size[1]))
    try:
        assert store.index.listed() == roomy
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, size)
    order = [(row.created, row.key) for row in roomy]
    assert len(order) == 20_001
    assert order == sorted(order, reverse=True)


DAMAGED = [
    "DELETE FROM named WHERE record % 2",
    "UPDATE named SET digest = digest || x'00' WHERE record = 1",
    "UPDATE named SET size = size + 1 WHERE record = 1",
    "UPDATE record SET parts = 'x'",
    "UPDATE record SET parts = '[1, 99999]'",
    "UPDATE record SET recipe = 'another' WHERE id = 1",
    "UPDATE record SET usable = 0",
    "DELETE FROM part WHERE id % 2",
    "UPDATE part SET body = '{' || id",
    "UPDATE folder SET common = '{'",
    "UPDATE folder SET common = '[]'",
    "DELETE FROM folder",
]


@pytest.mark.feature("S1")
def test_nothing_is_removed_and_nothing_fails_by_a_damaged_index_that_sqlite_can_read(home, settled):
    """SQLite has no checksums: what a bad disk or somebody's hand has changed looks like any other row."""
    records = [publish(opened(home), make_record(number)) for number in range(4)]
    expected = listed(opened(home))
    blobs = sorted(opened(home).layout.blobs.rglob("*"))

    def damage(how):
        with closing(sqlite3.connect(opened(home).layout.index, isolation_level=None)) as database:
            assert database.execute(how).rowcount > 0, how

    for how in DAMAGED:
        damage(how)
        watched = Watched(home)
        assert len(list(watched.store.around(records[0].hard).nearest())) <= 4, how
        assert len(watched.store.listed()) <= 4, how
        watched.store.layout.index.unlink(missing_ok=True)
        listed(opened(home))
        damage(how)
        assert watched.gc(Keep()).bytes == 0, how
        assert sorted(watched.store.layout.blobs.rglob("*")) == blobs, how
        assert not verify(watched.session, quick=True).problems, how
        assert listed(opened(home)) == expected, how


def test_a_record_that_goes_while_the_nearest_is_searched_for_harms_no_search(home, monkeypatch):
    records = [publish(opened(home), make_record(number, (f"own {number}",))) for number in range(3)]
    searcher, other = Watched(home), Watched(home)
    file = searcher.store.layout.index.stat().st_ino
    parts = Index._parts
    waited = []

    def slow(index, numbers):
        if not waited:
            waited.append(threading.Thread(target=other.gc, args=(Keep(max_size=0),)))
            waited[0].start()
            time.sleep(0.3)  # it has all that it needs but the index
        return parts(index, numbers)

    monkeypatch.setattr(Index, "_parts", slow)
    found = [near.hard for near in searcher.store.around(records[0].hard).nearest()]
    waited[0].join()
    assert all(hard in [record.hard for record in records] for hard in found)
    assert searcher.store.rows() == []
    assert searcher.store.layout.index.stat().st_ino == file, "the index was not taken for damaged"


def test_what_is_published_while_checksums_are_compared_is_no_damage(home, monkeypatch):
    store, other = opened(home), Watched(home).store
    for number in range(3):
        publish(store, make_record(number))
    file = store.layout.index.stat().st_ino
    waited = []

    def slow(*values):
        if not waited:
            waited.append(threading.Thread(target=publish, args=(other, make_record(9, ("another",)))))
            waited[0].start()
            time.sleep(0.3)
        return crc32(*values)

    monkeypatch.setattr(index_rows, "crc32", slow)
    store.refresh(exact=True, checked=True)
    waited[0].join()
    assert len(store.rows()) == 4
    assert store.layout.index.stat().st_ino == file


def test_numbers_that_sqlite_has_not_harm_no_index(home, settled):
    good = put(home, made(1))
    put(home, structs.replace(made(2), compile_seconds=-0.0))
    large = structs.replace(made(3), graphs=1 << 63)
    path = put(home, large)
    store = opened(home)
    file = store.refresh(exact=True, checked=True) and store.layout.index.stat().st_ino
    assert len(store.refresh(exact=True, checked=True).keys()) == 3
    assert [row.key for row in store.rows()] == sorted({made(1).key, made(2).key})
    assert store.layout.index.stat().st_ino == file
    assert good.exists()
    assert not path.exists(), "it is damaged, and was set aside"


def test_an_index_with_a_text_that_is_none_is_made_anew(home):
    fill(home, 2)
    expected = listed(opened(home))
    path = opened(home).layout.index
    path.write_bytes(path.read_bytes().replace(b"bert", b"ber\xff"))
    assert listed(opened(home)) == expected
    assert b"ber\xff" not in path.read_bytes()


@settings(max_examples=25)
@given(st.data())
def test_a_damaged_index_does_no_harm(many_folders, data):
    """Cut off, or with pages of another file: it is made anew, or says what it said."""
    home = many_folders() / "home"
    fill(home, 2)
    expected = listed(opened(home))
    path = opened(home).layout.index
    raw = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(raw) // 4096 - 1)) * 4096
        raw[at : at + 4096] = data.draw(st.sampled_from([bytes(4096), b"\xff" * 4096, raw[:4096]]))
    else:
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    path.write_bytes(raw)
    shutil.rmtree(opened(home).layout.records / "standin-1.0" / "bert" / "none", ignore_errors=True)
    put(home, made(5))
    assert listed(opened(home), exact=True) == plainly(home) != expected


@pytest.mark.parametrize("instead", [b"", b"\0" * 4000, b"text", "a folder", "another version"])
def test_what_is_no_index_does_not_disturb(home, instead):
    fill(home, 3)
    place = opened(home).layout.index
    if instead == "a folder":
        place.mkdir()
    elif instead == "another version":
        listed(opened(home))
        with closing(sqlite3.connect(place)) as database:
            database.execute("PRAGMA user_version = 99")
            database.execute("DROP TABLE record")
    else:
        place.write_bytes(instead)
    assert listed(opened(home)) == plainly(home)


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


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "publish", "delete", "damage", "index", "folder", "again"]),
        st.integers(0, 4),
        st.text("ab"),
    ),
    max_size=12,
)


@pytest.mark.campaign
@settings(max_examples=15)
@given(STEPS)
def test_each_change_is_seen_at_once(many_folders, steps):
    home = many_folders() / "home"
    old = opened(home)
    fill(home, 2)
    for what, number, words in steps:
        directory = f"standin-{number % 2}"
        path = old.layout.record(Place(directory, "bert", made(number).key))
        if what == "put":
            put(home, made(number, directory=directory, recipe=words))
        elif what == "publish":
            opened(home).publish(made(number, directory=directory, recipe=words), {})
        elif what == "damage" and path.exists():
            path.chmod(0o644)
            path.write_bytes(path.read_bytes()[:-9])
        elif what == "delete":
            path.unlink(missing_ok=True)
        elif what == "folder":
            shutil.rmtree(old.layout.records / directory, ignore_errors=True)
        elif what == "index":
            old.layout.index.unlink(missing_ok=True)
        elif what == "again":
            old = opened(home)
        assert listed(old, exact=what == "damage") == listed(opened(home)) == plainly(home)


# The nearest

VALUES = st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.sampled_from([0.0, 1.0, 0.5, "a", "1"]))
VALUES |= st.lists(VALUES, max_size=2)
SETS = st.dictionaries(
    st.sampled_from(["model.a", "model.b", "training.a", "target.a", "compiler.a", "toolchain.a", "a", "b"]), VALUES
)


@settings(max_examples=40)
@given(SETS, st.lists(st.tuples(SETS, st.sampled_from("ab")), max_size=6))
def test_records_are_ranked_by_distance_and_number_of_changes(many_folders, wanted, candidates):
    home = many_folders() / "home"
    records = {key_of(hard): made(0, hard=hard, key=key_of(hard), model_type=kind) for hard, kind in candidates}
    for record in records.values():
        path = opened(home).layout.record(record.place)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(record))
    found = list(opened(home).around(wanted).nearest())

    def rank(key):
        changes = difference(records[key].hard, wanted)
        return distance(changes), len(changes), records[key].model_type, key

    assert [near.row.key for near in found] == sorted(records, key=rank)
    for near in found:
        assert (near.distance, canonical_json(near.hard)) == (
            rank(near.row.key)[0],
            canonical_json(records[near.row.key].hard),
        )

    def job(hard):
        return canonical_json({name: value for name, value in hard.items() if not name.startswith("toolchain.")})

    same = {one.row.key for one in opened(home).around(wanted).same_job()}
    assert same == {key for key, record in records.items() if job(record.hard) == job(wanted)}


def test_the_nearest_of_a_compiler_and_of_its_directory(home):
    for number, (compiler, directory) in enumerate([("x", "x-1"), ("x", "x-2"), ("y", "y-1")]):
        put(home, made(number, compiler=compiler, directory=directory))
    store = opened(home)
    assert {near.row.directory for near in store.around({}).nearest(compiler="x")} == {"x-1", "x-2"}
    assert {near.row.directory for near in store.around({}).nearest(directory="y-1")} == {"y-1"}


def test_a_plan_passes_over_a_near_record_that_was_damaged_since(home, settled):
    watched = Watched(home)
    near = warm(watched.session, watched.prepare(recipe(8))).record
    far = warm(watched.session, watched.prepare(recipe(8, max_seq_length=64))).record
    wanted = watched.prepare(recipe(16))
    assert plan(wanted, Watched(home).store).nearest.record == near
    path = watched.store.layout.record(near.place)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-3])
    other = Watched(home)
    assert plan(wanted, other.store).nearest.record == far
    assert len(other.damage()) == 1
    assert not path.exists()


# References


def test_nothing_is_removed_while_a_folder_of_records_cannot_be_read(public):
    watched = Watched(public / "home")
    publish(watched.store, make_record(1))
    folder = watched.store.layout.record(Place("standin-1.0", "bert", "x")).parent
    folder.chmod(0o700)
    with another_user(), pytest.raises(StoreError, match="cannot be read"):
        Watched(public / "home").store.refresh(exact=True)


# Many at once, and killed ones


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
