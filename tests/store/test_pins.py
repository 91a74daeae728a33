"""`pin`, `unpin` and `rm`; and sizes and ages as people write them."""

import os

import pytest

from cachekit.errors import StoreError, UnknownNameError, UsageError
from cachekit.store.gc import Keep
from cachekit.store.verify import Count
from cachekit.text import parse_age, parse_size
from cachekit.verbs.entry import Named
from cachekit.verbs.records import pin, pins, remove, unpin
from cachekit.verbs.verify import verify
from cachekit.verbs.warm import warm
from tests.store.aged_store import DAY, everything, filled, kept, keys
from tests.store.store_cases import home, watched  # noqa: F401 - fixtures
from tests.support.standins import Watched, expected, find, recipe, served

# Pins


@pytest.mark.feature("G2")
def test_a_pinned_recipe_survives_gc_to_nothing(home):
    watched = Watched(home)
    prepared = [watched.prepare(recipe(batch)) for batch in (2, 4, 8)]
    for one in prepared:
        warm(watched.session, one)
    pin(watched.store, [Named(prepared[1].key, "toy")])
    done = watched.gc(Keep(max_size=0, max_age=0.0))
    assert [watched.lookup(one) is not None for one in prepared] == [False, True, False]
    assert watched.restored(prepared[1].key, watched.lookup(prepared[1]))
    assert done.pinned_bytes == watched.lookup(prepared[1]).size
    watched.gc(Keep(compiler="*"))
    assert watched.lookup(prepared[1]) is not None
    unpin(watched.store, [Named(prepared[1].key[:8])])
    watched.gc(Keep(max_size=0))
    assert watched.lookup(prepared[1]) is None


def test_pins_are_named_by_the_beginning_of_a_key(watched):
    made = filled(watched, 2)
    (one,) = pin(watched.store, [Named(made[0][0].key[:10])])
    assert (one.key, one.recipe) == (made[0][0].key, "toy")
    assert [again.changed for again in pin(watched.store, [Named(made[0][0].key[:10])])] == [False]
    for name in ("", "ffffffffff"):
        with pytest.raises(UnknownNameError):
            pin(watched.store, [Named(name)])
    with pytest.raises(UnknownNameError):
        unpin(watched.store, [Named(made[1][0].key[:10])])
    assert len(pins(watched.store)) == 1


@pytest.mark.feature("G2")
@pytest.mark.parametrize("text", [b"", b"[" * 100_000], ids=["torn", "deep"])
def test_a_torn_pin_pins_all_the_same(home, watched, text):
    made = filled(watched, 1)
    pin(watched.store, [Named(made[0][0].key)])
    (path,) = watched.store.layout.pins.iterdir()
    path.write_bytes(text)
    watched.gc(Keep(max_size=0))
    assert kept(watched) == keys(made)


def test_what_is_no_folder_in_the_place_of_the_pins_is_named(watched):
    made = filled(watched, 1)
    os.mkfifo(folder := watched.store.layout.pins)
    with pytest.raises(StoreError) as raised:
        pin(watched.store, [Named(made[0][0].key)])
    assert raised.value.hint.startswith(f"{folder} must be a folder")


# rm


@pytest.mark.feature("G4")
def test_rm_removes_one_record_with_what_only_it_names(home, watched):
    made = filled(watched, 3, shared=("same",))
    before = everything(home)
    (told,) = remove(watched.session, [made[1][0].key[:10]], dry_run=True)
    assert everything(home) == before
    (done,) = remove(watched.session, [made[1][0].key[:10]])
    assert told.files == done.files
    assert {home / file.path for file in done.files} == before - everything(home)
    assert (told.shared_bytes, done.shared_bytes) == (3000, 3000)
    assert kept(watched) == keys([made[0], made[2]])
    for pair in (made[0], made[2]):
        assert served(watched.store, find(watched.store, pair[0])) == expected(pair)
    assert verify(watched.session).orphans == Count()


def test_rm_refuses_what_is_pinned_or_in_use(home, watched):
    made = filled(watched, 2)
    pin(watched.store, [Named(made[0][0].key)])
    with pytest.raises(UsageError, match="pinned"):
        remove(watched.session, [made[1][0].key, made[0][0].key])
    assert kept(watched) == keys(made), "all or nothing"
    other = Watched(home)
    with other.store.using():
        find(other.store, made[1][0])
        with pytest.raises(UsageError, match="in use"):
            remove(watched.session, [made[1][0].key])
        remove(watched.session, [made[1][0].key], force=True)
        assert served(other.store, made[1][0]) == expected(made[1]), "it keeps what it needs"
    assert watched.gc(Keep()).bytes >= 3000
    (done,) = remove(watched.session, [made[0][0].key], force=True)
    assert done.unpinned
    assert pins(watched.store) == []
    assert kept(watched) == set()
    with pytest.raises(UnknownNameError):
        remove(watched.session, [made[0][0].key])


# Sizes and ages


def test_sizes():
    for text, count in [
        ("0", 0),
        ("50GB", 50 * 10**9),
        ("1.5 kB", 1500),
        ("2MiB", 2 << 20),
        ("3G", 3 * 10**9),
        ("1 tb", 10**12),
        (7, 7),
    ]:
        assert parse_size(text) == count


def test_ages():
    for text, seconds in [
        ("30d", 30 * DAY),
        ("12h", DAY / 2),
        ("90min", 5400),
        ("2 weeks", 14 * DAY),
        ("7", 7 * DAY),
        ("45s", 45),
    ]:
        assert parse_age(text) == seconds


def test_what_is_no_amount():
    for text in ["", "GB", "-1", "5XB", "1e9", "nan", "five", True, None]:
        with pytest.raises(ValueError):
            parse_size(text)
        with pytest.raises(ValueError):
            parse_age(text)


@pytest.mark.parametrize("text", ["0.4", 0.4, "1.7", "0.5 B", "0.0001kB"])
def test_a_fraction_of_a_byte_is_no_size(text):
    """Rounded, `gc_max_size = 0.4` would remove everything that is not pinned."""
    with pytest.raises(ValueError, match="a fraction of a byte"):
        parse_size(text)
