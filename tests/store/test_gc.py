"""`gc`, `pin` and `rm`: what goes is what nobody needs, what was used longest ago goes first, and what is said goes."""

import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cachekit.errors import StoreError
from cachekit.files import hold
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.push import push
from cachekit.store.compile_lock import CompileLock
from cachekit.store.durable import Scratch
from cachekit.store.gc import Keep, fits
from cachekit.store.pins import note_use
from cachekit.store.removal import Remover, Victim
from cachekit.verbs.entry import Named
from cachekit.verbs.plan import plan
from cachekit.verbs.records import pin, pins
from cachekit.verbs.train import train
from cachekit.verbs.verify import verify
from cachekit.verbs.warm import warm
from tests.store.aged_store import DAY, age, everything, filled, kept, keys, managed
from tests.store.store_cases import home, watched  # noqa: F401 - fixtures
from tests.support.standins import (
    StandIn,
    Watched,
    expected,
    find,
    make_record,
    overwrite,
    publish,
    recipe,
    served,
    tree,
)

# Size, age, compiler


@pytest.mark.feature("G1")
def test_beyond_the_limit_the_oldest_use_goes_first(home, watched):
    made = filled(watched, 10)
    size = sum(managed(home).values())
    done = watched.gc(Keep(max_size=size // 2))
    assert sum(managed(home).values()) <= size // 2
    assert done.before == size
    assert done.after == sum(managed(home).values())
    assert kept(watched) == keys(made[: len(kept(watched))]), "the youngest stay"
    assert len(kept(watched)) >= 4, "and no more go than must"
    assert [record.key for record in done.records] == [record.key for record, _ in reversed(made[len(kept(watched)) :])]
    for pair in made:
        if pair[0].key in kept(watched):
            assert served(watched.store, find(watched.store, pair[0])) == expected(pair)
    assert watched.damage() == []


@pytest.mark.feature("G1")
def test_the_limit_is_kept_although_others_use_and_publish_meanwhile(home, watched, monkeypatch):
    made = filled(watched, 4)
    size = sum(managed(home).values())
    records, rounds = Remover.records, []

    def beside(remover, victims):
        if not rounds:
            note_use(watched.store.layout, victims[0].row.key)
        records(remover, victims)
        if not rounds:
            publish(watched.store, make_record(9, ("late",), size=4000))
        rounds.append(victims)

    monkeypatch.setattr(Remover, "records", beside)
    done = watched.gc(Keep(max_size=3 * size // 4))
    assert done.after == sum(managed(home).values()) <= 3 * size // 4
    assert done.before == size
    assert [(one.key, one.why) for one in done.kept] == [(made[-1][0].key, "it was used")]


@pytest.mark.feature("G1")
def test_a_use_counts_and_looking_does_not(home):
    watched = Watched(home)
    recipes = [recipe(2), recipe(4), recipe(8)]
    prepared = [watched.prepare(one) for one in recipes]
    for days, one in enumerate(prepared):
        age(watched.store, warm(watched.session, one).record, 30 - days)
    plan(prepared[1], watched.store)
    train(watched.session, prepared[0], output_dir=home.parent / "out")
    watched.gc(Keep(max_size=sum(managed(home).values()) // 2))
    assert [watched.lookup(one) is not None for one in prepared] == [True, False, False]


@pytest.mark.feature("G1")
def test_what_was_not_used_for_so_long_goes(watched):
    made = filled(watched, 10)
    done = watched.gc(Keep(max_age=4.5 * DAY))
    assert kept(watched) == keys(made[:5])
    assert {record.why for record in done.records} == {"not used for that long"}


def other_compiler(pair, directory, number):
    record, contents = pair
    return structs.replace(make_record(number)[0], directory=directory, modules=record.modules), contents


def test_of_one_compiler_all_goes_or_what_is_beyond_a_limit(watched):
    old = [other_compiler(make_record(1, ("a",)), "neuronxcc-2.21.1.0+aa", 10 + number) for number in range(3)]
    new = [other_compiler(make_record(2, ("b",)), "neuronxcc-2.3.1.0+bb", 20 + number) for number in range(3)]
    for days, pair in enumerate((*old, *new)):
        publish(watched.store, pair)
        age(watched.store, pair[0], days)
    watched.gc(Keep(max_age=1.5 * DAY, compiler="neuronxcc-2.2*"))
    assert kept(watched) == keys(old[:2]) | keys(new)
    watched.gc(Keep(compiler="2.21.1.0"))
    assert kept(watched) == keys(new)


def test_patterns_of_compilers():
    for pattern, expected_ in [
        ("", True),
        ("neuronxcc-2.2*", True),
        ("2.26*", True),
        ("2.26.6360.0", True),
        ("neuronxcc-2.26.6360.0", True),
        ("neuronxcc-2.26.6360.0+6f180f47", True),
        ("*", True),
        ("neuronxcc-2.3*", False),
        ("2.26", False),
        ("neuron", False),
    ]:
        assert fits("neuronxcc-2.26.6360.0+6f180f47", pattern) is expected_


@pytest.mark.feature("G1")
def test_shared_blobs_stay_as_long_as_one_record_names_them(watched):
    made = filled(watched, 4, shared=("same",))
    for left in (3, 2, 1):
        watched.gc(Keep(max_age=(left - 0.5) * DAY))
        for pair in made[:left]:
            assert served(watched.store, find(watched.store, pair[0])) == expected(pair)
    watched.gc(Keep(max_size=0))
    assert managed(watched.store.layout.home) == {}


# What no record names


@pytest.mark.feature("G1")
def test_what_no_record_names_goes_whatever_the_limits(home, watched):
    old, new = make_record(1, ("old", "same")), make_record(1, ("new", "same"))
    publish(watched.store, old)
    publish(watched.store, new)
    gone = next(file.sha256 for file in old[0].files if file.path == "model-old.code")
    done = watched.gc(Keep())
    assert [file.path for file in done.files] == [f"v1/blobs/{gone[:2]}/{gone}"]
    assert find(watched.store, new[0]) == new[0]
    assert watched.gc(Keep()).bytes == 0


def test_what_got_a_record_or_a_user_since_it_was_planned_stays(home, watched):
    record = publish(watched.store, make_record(1))
    digests, blobs = [file.sha256 for file in record.files], [watched.store.layout.blob(f.sha256) for f in record.files]
    remover = Remover(watched.store)
    remover.blobs(digests)
    assert served(watched.store, record) == expected(make_record(1))
    watched.store.layout.record(record.place).unlink()
    user = Watched(home).store
    with user.using():
        user.use(record.files)
        remover.blobs(digests)
        assert all(blob.exists() for blob in blobs)
    remover.blobs(digests)
    assert not any(blob.exists() for blob in blobs)


def test_a_record_that_was_published_again_since_it_was_planned_stays(watched):
    record = publish(watched.store, make_record(1))
    row = watched.store.refresh(exact=True).row(record.place)
    again = publish(watched.store, (structs.replace(record, recipe="another"), {}))
    remover = Remover(watched.store)
    remover.records([Victim(row, time.time() + DAY, "beyond the limit")])
    assert [reason for _, reason in remover.removed.kept] == ["it was published again"]
    assert find(watched.store, again) == again


def test_garbage_goes_and_what_lives_stays(home, watched):
    made = filled(watched, 2)
    layout = watched.store.layout
    cache_dirs = layout.cache_dirs
    for folder, name, days in (("partial", "a" * 64, 8), ("partial", "b" * 64, 6)):
        (layout.root / folder / str(os.geteuid())).mkdir(parents=True, exist_ok=True)
        (layout.partial / name).write_bytes(bytes(10))
        os.utime(layout.partial / name, (time.time() - days * DAY,) * 2)
    layout.quarantine.mkdir()
    (layout.quarantine / "20200101T000000-1-x").write_bytes(bytes(20))
    (layout.quarantine / f"{time.strftime('%Y%m%dT%H%M%S')}-1-y").write_bytes(bytes(20))
    (layout.locks / f"{'d' * 64}.lock").touch()
    with (
        Scratch(cache_dirs, "alive") as folder,
        CompileLock(layout, "e" * 64, "toy", watched.store.rwlock).hold(0, lambda *_: None),
    ):
        (folder / "work").write_bytes(bytes(10))
        (cache_dirs / "dead-1-0123456789ab").mkdir()
        (cache_dirs / "dead-1-0123456789ab" / "big").write_bytes(bytes(5000))
        (cache_dirs / "dead-1-0123456789ab.lock").touch()
        done = watched.gc(Keep())
        assert {Path(file.path).name for file in done.files} == {
            "dead-1-0123456789ab", "a" * 64, "20200101T000000-1-x", f"{'d' * 64}.lock",
        }  # fmt: skip
        assert (folder / "work").exists()
    assert not (cache_dirs / "dead-1-0123456789ab").exists()
    assert not (cache_dirs / "dead-1-0123456789ab.lock").exists()
    assert (layout.partial / ("b" * 64)).exists()
    assert len(list(layout.quarantine.iterdir())) == 1
    assert kept(watched) == keys(made)
    watched.gc(Keep(max_size=0))
    assert list(layout.quarantine.iterdir()) == [], "under pressure what was set aside goes, too"


def test_a_compiler_cache_dir_that_a_child_made_again_goes_once_its_run_is_gone(watched):
    """A process that outlives the command makes the folder again when it compiles on, and the lock is gone by then."""
    cache_dirs = watched.store.layout.cache_dirs
    gone = subprocess.Popen(["true"])
    gone.wait()

    def named(prefix, pid):
        (cache_dirs / f"{prefix}-{pid}-0123456789ab" / "root").mkdir(parents=True)
        (cache_dirs / f"{prefix}-{pid}-0123456789ab" / "root" / "graph").write_bytes(bytes(5000))
        return cache_dirs / f"{prefix}-{pid}-0123456789ab"

    left = named("a" * 16, gone.pid)
    elsewhere = named("b" * 16, gone.pid)  # of a run whose number only its container knows
    stay = [elsewhere, named("c" * 16, os.getpid()), named("mine", gone.pid)]
    lock = hold(f"{elsewhere}.lock")
    for dry_run in (True, False):
        done = watched.gc(Keep(), dry_run=dry_run)
        assert [(Path(file.path).name, file.bytes) for file in done.files] == [(left.name, 5000)]
        assert left.exists() is dry_run
        assert all((folder / "root" / "graph").exists() for folder in stay)
    os.close(lock)


@pytest.mark.parametrize("way", ["damaged", "later"])
def test_blobs_of_a_record_that_cannot_be_read_stay(home, watched, way):
    """A damaged one may come back from a remote, and a later cachekit's is none of our business."""
    made = make_record(1)
    publish(watched.store, made)
    path = watched.store.layout.record(made[0].place)
    raw = path.read_bytes()
    overwrite(path, raw[:200] if way == "damaged" else raw.replace(b'"schema": 1', b'"schema": 2'))
    before = tree(home)
    assert watched.gc(Keep()).bytes == 0
    assert tree(home) == before
    if way == "damaged":
        overwrite(path, raw)
        assert served(watched.store, find(watched.store, made[0])) == expected(made)


def test_an_index_that_cannot_be_read_removes_nothing(home, watched):
    made = filled(watched, 2)
    record = made[0][0]
    path = watched.store.layout.record(record.place)
    path.unlink()
    path.mkdir()  # as root, no mode makes a file unreadable
    before = tree(home)
    (path / "x").touch()
    with pytest.raises(StoreError, match="cannot be read"):
        watched.gc(Keep(max_size=0))
    assert tree(home) == before


# Dry runs


@pytest.mark.feature("G4")
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_a_dry_run_names_exactly_what_then_goes(many_folders, seed):
    chosen = random.Random(seed)
    home = many_folders() / "home"
    watched = Watched(home)
    for number in range(chosen.randint(1, 8)):
        for _ in range(chosen.randint(1, 2)):
            parts = chosen.sample("abcdefgh", chosen.randint(1, 4))
            pair = make_record(number, parts, size=chosen.choice([0, 10, 5000]))
            publish(watched.store, pair)
        age(watched.store, pair[0], chosen.randint(0, 40))
        if chosen.random() < 0.2:
            pin(watched.store, [Named(pair[0].key)])
    if chosen.random() < 0.5:
        watched.store.layout.quarantine.mkdir()
        (watched.store.layout.quarantine / "20200101T000000-1-x").write_bytes(bytes(99))
    size = sum(managed(home).values())
    limits = Keep(
        chosen.choice([None, 0, size // 3, size // 2, size]), chosen.choice([None, 10 * DAY]), chosen.choice(["", "*"])
    )
    before, sizes = everything(home), managed(home)
    told = watched.gc(limits, dry_run=True)
    assert everything(home) == before, "a dry run removes nothing"
    done = watched.gc(limits)
    files = [file for one in told.as_dict()["records"] for file in one["files"]] + [*told.as_dict()["files"]]
    assert {home / file["path"] for file in files} == before - everything(home)
    assert {home / file["path"]: file["bytes"] for file in files if home / file["path"] in sizes} == {
        path: sizes[path] for path in before - everything(home) if path in sizes
    }
    told, done = told.as_dict(), done.as_dict()
    for name in ("records", "bytes", "before", "after", "pinned_bytes"):
        assert told[name] == done[name], name
    assert done["after"] == sum(managed(home).values())
    if limits.max_size is not None and not limits.compiler:
        assert done["after"] <= max(limits.max_size, done["after"] if pins(watched.store) else 0)
    assert watched.gc(limits, dry_run=True).bytes == 0, "nothing is left to do"
    assert verify(watched.session).problems == ()


def test_what_waits_to_be_pushed_goes_last(home, tmp_path):
    """No other place has it yet."""
    (tmp_path / "shared").mkdir()
    watched = Watched(home, shared=[(FolderStorage(tmp_path / "shared"), "rw")], compiler=StandIn())
    made = filled(watched, 4)
    (remote,) = watched.session.remotes.writable
    remote.keep_pending(made[3][0].key)
    watched.gc(Keep(max_size=sum(managed(home).values()) // 3))
    assert kept(watched) == {made[3][0].key}
    push(watched.store, watched.session.remotes, [made[3][0]], [remote])
    assert remote.pending() == set()
