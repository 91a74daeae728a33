"""Records in a store, and what its index says of them."""

import time

import pytest
from msgspec import structs

from cachekit.events import Journal
from cachekit.key.canonical import canonical_json
from cachekit.store import Store, index_rows
from cachekit.store.record import decode, encode
from tests.support.standins import make_record

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
