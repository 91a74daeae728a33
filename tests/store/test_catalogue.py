"""The catalogue of the records: the same answers as reading each of them, whatever becomes of either."""

import os
import random
import shutil
import signal
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cachekit.errors import UnknownNameError
from cachekit.events import Journal
from cachekit.key.canonical import canonical_json, difference, distance, key_of, nearest
from cachekit.store import Store, Summary, catalogue, store
from cachekit.store.record import encode, serialise, to_document
from cachekit.verbs.inspect import find as find_by_key
from cachekit.verbs.plan import plan
from cachekit.verbs.warm import warm
from tests.support.standins import Watched, leftovers_of, make_record, publish, recipe, side_by_side

FIELDS = ("key", "directory", "model_type", "compiler", "recipe", "graphs", "compile_seconds")


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def eager(monkeypatch):
    """Catalogues are written for a single record, and for one of this moment too."""
    monkeypatch.setattr(catalogue, "WORTH", 1)
    monkeypatch.setattr(catalogue, "SETTLED", 0)


@pytest.fixture
def reads(monkeypatch):
    """The records that were decoded, one entry each time."""
    seen = []

    def decode(raw):
        seen.append(raw)
        return plain(raw)

    plain = store.decode
    monkeypatch.setattr(store, "decode", decode)
    return seen


def opened(home):
    return Store(home, Journal(None, "test"))


def made(number, **changes):
    return structs.replace(make_record(number)[0], modules=(), **changes)


def put(home, record, *, wait=True):
    """A record file, without what `publish` does for its blobs."""
    layout = opened(home).layout
    path = layout.record(record.directory, record.model_type, record.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    (layout.records / ".complete").touch()
    fresh = path.with_suffix(".new")
    fresh.write_bytes(encode(record))
    fresh.replace(path)
    if wait:
        time.sleep(0.005)  # the next change is in another tick of the file system's clock
    return path


def fill(home, count=5):
    records = [made(number) for number in range(count)]
    for record in records:
        put(home, record)
    return records


def in_short(record):
    """What a summary is to say of a record."""
    by = record.provenance
    return (
        *(getattr(record, name) for name in FIELDS),
        (len(record.modules), record.size, by.created, by.user, by.host, by.instance),
        canonical_json(record.hard),
    )


def listed(store, **options):
    found = store.summaries(**options)
    return [
        (
            *(getattr(each, name) for name in FIELDS),
            (each.modules, each.bytes, each.created, each.user, each.host, each.instance),
            canonical_json(found.hard(each)),
        )
        for each in found
    ]


def plainly(home, **options):
    return [in_short(record) for record in opened(home).records(**options)]


def test_a_summary_says_what_its_record_says(home):
    watched = Watched(home)
    for number in range(3):
        publish(watched.store, make_record(number, tuple("abc"[: number + 1])))
    odd = {"model.type": "t5", "a": 1.0, "b": [1, True, None], "c": {"x": 0.5}, "d": "é", "": -0.0}
    put(home, made(1, hard=odd, key=key_of(odd), model_type="t5", recipe="odd", compile_seconds=1.25))
    assert listed(watched.store) == plainly(home)
    assert len(listed(watched.store)) == 4
    found = watched.store.summaries()
    assert (len(found), found[0], isinstance(found[-1], Summary)) == (4, next(iter(found)), True)
    assert all(key_of(found.hard(each)) == each.key for each in found)


def test_a_store_without_records_gets_no_catalogue(home, eager):
    assert listed(opened(home)) == []
    assert not home.exists()


def test_what_is_known_is_not_read_again(home, eager, reads):
    fill(home)
    first = listed(opened(home))
    assert len(reads) == 5
    assert listed(opened(home)) == first == plainly(home)
    assert len(reads) == 5 + 5, "only the plain reading reads"
    put(home, made(9))
    again = opened(home)
    assert len(listed(again)) == len(listed(again)) == 6
    assert len(reads) == 11, "one more record is one more to read, once"


def test_a_small_store_has_no_use_for_one(home):
    fill(home)
    listed(opened(home))
    assert not opened(home).layout.catalogue.exists()


def test_a_record_of_this_moment_is_looked_at_again(home, monkeypatch, reads):
    monkeypatch.setattr(catalogue, "WORTH", 1)
    path = put(home, made(1, recipe="r000"))
    store = opened(home)
    for number in range(1, 30):
        assert [each.recipe for each in store.summaries()] == [f"r{number - 1:03}"]
        with path.open("r+b") as target:  # the same size and inode, and most often the same tick
            target.write(encode(made(1, recipe=f"r{number:03}")))
    assert not store.layout.catalogue.exists(), "nothing is settled yet"


def test_another_schema_is_read_once_and_is_no_summary(home, eager, reads):
    record = made(1)
    path = put(home, record)
    path.write_bytes(serialise(to_document(structs.replace(record, schema=2))))
    assert listed(opened(home)) == listed(opened(home)) == []
    assert len(reads) == 1
    assert path.exists()


def test_a_record_in_place_of_another_schemas_is_found_by_a_glance(home, eager):
    fill(home, 2)
    record = made(7)
    path = put(home, record)
    path.write_bytes(serialise(to_document(structs.replace(record, schema=2))))
    assert len(opened(home).summaries()) == len(opened(home).summaries(glance=True)) == 2
    put(home, record)
    assert find_by_key(opened(home), record.key) == record


@pytest.mark.parametrize("glance", [False, True])
def test_damage_is_set_aside_and_told_when_it_is_met(home, eager, glance):
    fill(home, 3)
    damaged = put(home, made(7))
    damaged.write_bytes(b'{"record": 1}')
    watched = Watched(home)
    assert len(listed(watched.store, glance=glance)) == 3
    assert [told["path"] for told in watched.told("store.damaged")] == [str(damaged)]
    assert not damaged.exists()


def test_damage_that_came_later_is_seen_unless_only_names_are_asked_for(home, eager):
    records = fill(home, 3)
    assert len(listed(opened(home))) == 3
    path = opened(home).layout.record("standin-1.0", "bert", records[0].key)
    path.write_bytes(b"x" * path.stat().st_size)
    watched = Watched(home)
    assert len(watched.store.summaries(glance=True)) == 3
    with pytest.raises(UnknownNameError, match="no records"):
        find_by_key(watched.store, records[0].key)
    assert len(watched.damage()) == 1, "whoever reads it finds out"
    assert len(watched.store.summaries()) == len(watched.store.summaries(glance=True)) == 2


def test_damage_that_stays_is_told_by_everyone(home, eager, monkeypatch):
    fill(home, 3)
    folder = put(home, made(7)).with_name("f" * 64 + ".json")
    folder.mkdir()
    for _ in range(2):
        watched = Watched(home)
        assert len(listed(watched.store)) == 4
        assert [told["kept"] for told in watched.told("store.damaged")] == [True]


def test_a_model_type_that_is_left_out_stays_known(home, eager, reads):
    fill(home, 3)
    hard = {"model.type": "imported"}
    put(home, made(1, hard=hard, key=key_of(hard), model_type="imported"))
    listed(opened(home))
    put(home, made(9))
    reads.clear()
    assert listed(opened(home), without="imported") == plainly(home, without="imported")
    assert len(listed(opened(home))) == 5
    assert len(reads) == 1 + 4, "the new one once; the rest are the plain reading's"


def test_a_catalogue_says_nothing_of_records_that_are_gone(home, eager, monkeypatch):
    monkeypatch.setattr(catalogue, "DEAD", 1)
    fill(home, 20)
    listed(opened(home))
    large = opened(home).layout.catalogue.stat().st_size
    shutil.rmtree(opened(home).layout.records / "standin-1.0")
    put(home, made(3))
    assert listed(opened(home)) == plainly(home)
    assert opened(home).layout.catalogue.stat().st_size < large / 4


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_catalogue_is_never_believed(tmp_path_factory, data):
    home = tmp_path_factory.mktemp("store") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "WORTH", 1)
        patch.setattr(catalogue, "SETTLED", 0)
        fill(home, 2)
        expected = listed(opened(home))
        path = opened(home).layout.catalogue
        raw = bytearray(path.read_bytes())
        if data.draw(st.booleans()):
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del raw[data.draw(st.integers(0, len(raw) - 1)) :]
        path.write_bytes(raw)
        assert listed(opened(home)) == expected == plainly(home)
        assert path.read_bytes() != raw, "and it is written anew"


@pytest.mark.parametrize("instead", [b"", b"\0" * 4000, None])
def test_what_is_no_catalogue_does_not_disturb(home, eager, instead):
    fill(home, 3)
    place = opened(home).layout.catalogue
    place.write_bytes(instead) if instead is not None else place.mkdir()
    assert listed(opened(home)) == plainly(home)


def test_a_store_that_cannot_be_written_does_without(home, eager, reads):
    fill(home, 3)
    opened(home).layout.tmp.write_bytes(b"no folder can be made here")
    assert listed(opened(home)) == listed(opened(home)) == plainly(home)
    assert len(reads) == 9
    assert not opened(home).layout.catalogue.exists()


def test_a_copied_store_is_a_store(home, eager, tmp_path):
    fill(home, 3)
    expected = listed(opened(home))
    shutil.copytree(home, tmp_path / "copy")
    assert listed(opened(tmp_path / "copy")) == expected


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "delete", "damage", "catalogue", "folder", "again"]),
        st.integers(0, 4),
        st.text("ab"),
    ),
    max_size=12,
)


@settings(max_examples=40)
@given(STEPS)
def test_each_change_is_seen_at_once(tmp_path_factory, steps):
    home = tmp_path_factory.mktemp("store") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "WORTH", 1)
        patch.setattr(catalogue, "SETTLED", 0)
        old = opened(home)
        fill(home, 2)
        for what, number, words in steps:
            directory = f"standin-{number % 2}"
            path = old.layout.record(directory, "bert", made(number).key)
            if what == "put":
                put(home, made(number, directory=directory, recipe=words))
            elif what == "damage" and path.exists():
                path.write_bytes(path.read_bytes()[:-9])
            elif what == "delete":
                path.unlink(missing_ok=True)
            elif what == "folder":
                shutil.rmtree(old.layout.records / directory, ignore_errors=True)
            elif what == "catalogue":
                old.layout.catalogue.unlink(missing_ok=True)
            else:
                old = opened(home)
            assert listed(old) == listed(opened(home)) == plainly(home)
            assert [each.key for each in opened(home).summaries(glance=True)] == [each[0] for each in plainly(home)]


# The nearest

VALUES = st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.sampled_from([0.0, 1.0, 0.5, "a", "1"]))
VALUES |= st.lists(VALUES, max_size=2)
SETS = st.dictionaries(
    st.sampled_from(["model.a", "model.b", "training.a", "target.a", "compiler.a", "a", "b"]), VALUES
)


@settings(max_examples=100)
@given(SETS, st.lists(SETS, max_size=6))
def test_records_are_ranked_as_nearest_would(tmp_path_factory, wanted, candidates):
    home = tmp_path_factory.mktemp("store") / "home"
    records = {key_of(hard): made(0, hard=hard, key=key_of(hard)) for hard in candidates}
    for record in records.values():
        put(home, record, wait=False)
    ranked = [each.key for each in opened(home).summaries().ranking(wanted).where()]

    def rank(key):
        changes = difference(records[key].hard, wanted)
        return distance(changes), len(changes), key

    assert ranked == sorted(records, key=rank)
    found = nearest(wanted, {key: record.hard for key, record in records.items()})
    assert found == ((ranked[0], difference(records[ranked[0]].hard, wanted)) if ranked else None)
    even = [each.key for each in opened(home).summaries().ranking(wanted).where(lambda each: each.key < "8")]
    assert even == [key for key in ranked if key < "8"]


def test_a_plan_passes_over_a_neighbour_that_was_damaged_since(home, eager):
    watched = Watched(home)
    near = warm(watched.session, watched.prepare(recipe(8))).record
    far = warm(watched.session, watched.prepare(recipe(8, max_seq_length=64))).record
    wanted = watched.prepare(recipe(16))
    assert plan(wanted, Watched(home).store).neighbour == near
    path = watched.store.layout.record(near.directory, near.model_type, near.key)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-3])
    other = Watched(home)
    assert plan(wanted, other.store).neighbour == far
    assert len(other.damage()) == 1
    assert not path.exists()


# Many at once, and killed ones


def test_many_readers_and_writers_at_once(home, eager):
    def work(number):
        own = opened(home)
        for turn in range(6):
            if number % 2:
                put(home, made(100 * number + turn))
            keys = [each.key for each in own.summaries()]
            mine = {made(100 * number + past).key for past in range(turn + 1)} if number % 2 else set()
            assert mine <= set(keys), "what I have written, I see"
            assert keys == sorted(keys)
        return len(keys)

    fill(home, 4)
    assert None not in side_by_side(6, work)
    assert listed(opened(home)) == plainly(home)
    assert len(plainly(home)) == 4 + 3 * 6


def test_a_killed_writer_leaves_nothing_partial(home, eager):
    fill(home, 30)
    expected = plainly(home)
    dice = random.Random(6)
    for _ in range(25):
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                while True:
                    (home / "v1" / "catalogue").unlink(missing_ok=True)
                    opened(home).summaries()
            os._exit(1)
        time.sleep(dice.uniform(0.01, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with suppress(FileNotFoundError):
            assert (home / "v1" / "catalogue").read_bytes().startswith(catalogue.MAGIC)
        assert listed(opened(home)) == expected
    put(home, made(99))
    listed(opened(home))
    assert leftovers_of(home) == set()
