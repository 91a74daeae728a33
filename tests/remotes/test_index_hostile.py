"""An index that somebody spoilt, or that lies, leads nowhere."""

import zlib
from contextlib import suppress

import msgspec
import pytest
from msgspec import structs

from cachekit.cli.hub import _listed
from cachekit.remotes import index, layout
from cachekit.remotes.columns import Column
from cachekit.remotes.index import Known, RemoteIndex
from cachekit.remotes.nearest import search, to_fetch
from cachekit.remotes.survey import Budget
from cachekit.verbs.hub import contents
from tests.remotes.index_cases import firsts, keys, memory, near_one, plant, there, wanted  # noqa: F401 - fixtures
from tests.remotes.test_nearest import fill, fill_whole, made_from, others, wish
from tests.support.standins import Watched


def rows_of(columns):
    return zlib.compress(msgspec.json.encode(columns))


def hostile(wanted):
    """Documents that are no index, or one that lies."""
    near = Known.of(near_one(wanted)[0])
    good = RemoteIndex().with_([near])
    columns = {name: [column.values, column.rows] for name, column in good.columns.items()}
    deep = b"[" * 100_000 + b"]" * 100_000

    def document(rows, **more):
        return msgspec.json.encode({"schema": 1, "change": "a" * 12, "unread": 0, "rows": rows, **more})

    def changed(name, values, rows=()):
        return document(rows_of({**columns, name: [values, list(rows)]}))

    return {
        "no JSON": b"\xff\x00",
        "empty": b"",
        "deep": deep,
        "deep rows": document(zlib.compress(b'{"key": ' + deep + b"}")),
        "values of no row": changed("recipe", ["a"] * 3, [0]),
        "a bomb": document(zlib.compress(b" " * (index.LARGEST_ROWS + 1))),
        "too many": document(rows_of({"key": [["0" * 16], [0] * (index.MOST + 1)]})),
        "cut off": document(rows_of(columns)[:-9]),
        "no key": changed("key", ["../../../../etc"]),
        "too few": changed("recipe", []),
        "out of range": changed("recipe", ["a"], [7]),
        "another key's ingredients": changed("hard.training.max_seq_length", [77]),
        "up": changed("directory", ["../../.."]),
        "control characters": changed("model_type", ["bert\x1b[2J"]),
        "numbers as text": changed("size", ["many"]),
        "a size below nothing": changed("size", [-5]),
        "deep ingredients": changed("hard.x", [msgspec.Raw(b"[" * 900 + b"]" * 900)]),
        "a later schema": document(b"", schema=99),
    }


KINDS_OF_SPOILT = [
    "no JSON", "empty", "deep", "deep rows", "values of no row", "a bomb", "too many", "cut off", "no key",
    "too few", "out of range",
    "another key's ingredients", "up", "control characters", "numbers as text", "a size below nothing",
    "deep ingredients", "a later schema",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS_OF_SPOILT)
def test_one_that_somebody_spoilt_leads_nowhere_and_the_next_push_replaces_it(tmp_path, wanted, memory, kind):
    fill(memory, made := others(wanted, 2))
    plant(memory, hostile(wanted)[kind])
    me = Watched(tmp_path / "me", shared=[(memory, "r")])
    found = search(wish(wanted), me.store, me.session.remotes)
    assert found.nearest.known.key in {record.key for record, _ in made}
    before = memory.read(layout.INDEX, "", 1 << 40).data
    fill_whole(tmp_path / "bob", memory, [near := near_one(wanted)])
    if kind == "a later schema":
        assert memory.read(layout.INDEX, "", 1 << 40).data == before, "that is left alone"
    else:
        assert keys(there(memory)) == firsts([*made, near])
        again = Watched(tmp_path / "you", shared=[(memory, "r")])
        assert search(wish(wanted), again.store, again.session.remotes).nearest.known.key == near[0].key


def test_a_look_at_columns_finds_the_rows_that_cannot_be(wanted):
    """A push looks so at all rows: reading 30,000 of them takes 4 s."""
    doubted = 0
    good = RemoteIndex().with_(Known.of(record) for record, _ in [near_one(wanted), *others(wanted, 2)])
    fewer = RemoteIndex({name: column for name, column in good.columns.items() if name != "recipe"})
    alien = RemoteIndex({**good.columns, "hard.x": Column([0.5, {"a": [1.0]}], [-1, 0, 1])})
    spoilt = hostile(wanted)
    for raw in [*map(index.encode, [good, fewer, alien]), *(spoilt[kind] for kind in KINDS_OF_SPOILT)]:
        with suppress(index.DamagedIndexError):
            if found := index.decode(raw):
                assert found.can_be == (len(list(found.rows())) == len(found))
                doubted += not found.can_be
    assert doubted >= 5
    assert good.can_be
    own = made_from(wanted, **{'a"é': 1.0, "zoo": [0.5, {"b": None, "a": 2.0}]})[0]
    assert good.with_([Known.of(own)]).can_be


def costly(rows, older="", **more):
    """A document of so many rows, beside older ones perhaps, with more columns."""
    columns = {
        "key": [[f"{number:016x}" for number in range(rows)], []],
        "directory": [["inductor-2"], [0] * rows],
        "model_type": [["bert"], [0] * rows],
        **more,
    }
    head = {"schema": 2 if older else 1, "change": "a" * 12, "unread": 0, "older": older}
    return msgspec.json.encode({**head, "rows": rows_of(columns)})


def ingredients(count, rows, values):
    return {f"hard.{number}": [values, [row % len(values) for row in range(rows)]] for number in range(count)}


def test_what_would_take_much_memory_and_time_is_no_index():
    """A small document may hold millions of values: 8 MB of them took 2.4 GB and 30 s."""
    for document in (
        costly(50_000),
        costly(5_000, "0" * 64),  # a push renews it at 300, and each row is compared with the older one
        costly(9, x=[[0] * 3_000_000, [0] * 9]),
        costly(9, x=[[[[]] * 100_000], [0] * 9]),
        costly(9, x=[[[{}] * 30_000], [0] * 9]),
        costly(9, x=[[["a"] * 600_000], [0] * 9]),
        costly(9, x=[[[0] * 300_000], [0] * 9]),
        costly(600, **{f"hard.{number}": [[*range(600)], []] for number in range(200)}),
    ):
        assert len(document) < index.LARGEST
        with pytest.raises(index.DamagedIndexError, match="too large"):
            index.decode(document)
    own = {"created": [[f"2026-11-23T00:00:{number}" for number in range(30_000)], []]}
    assert len(index.decode(costly(30_000, **own, **ingredients(50, 30_000, [*range(300)])))) == 30_000


def test_that_it_is_not_used_is_told_where_records_stay_unread(tmp_path, wanted, memory):
    fill(memory, others(wanted, 3))
    plant(memory, costly(9, x=[[0] * 3_000_000, [0] * 9]))
    me = Watched(tmp_path / "me", shared=[(memory, "r")])
    found = search(wish(wanted), me.store, me.session.remotes, budget=Budget(read=1))
    assert [one.problem for one in found.looked] == ["its index is not used: not an index: it is too large"]


def test_one_that_is_too_large_is_not_read(tmp_path, wanted, memory, monkeypatch):
    monkeypatch.setattr(index, "LARGEST", 1000)
    fill(memory, made := others(wanted, 2))
    plant(memory, b"x" * 5000)
    me = Watched(tmp_path / "me", shared=[(memory, "r")])
    assert search(wish(wanted), me.store, me.session.remotes).nearest.known.key in {one.key for one, _ in made}
    monkeypatch.undo()
    fill_whole(tmp_path / "bob", memory, others(wanted, 3)[2:])
    assert len(there(memory)) == 3


def test_a_record_of_which_it_lies_is_not_used(tmp_path, wanted, memory):
    """It says that a record is there, small, and made by somebody; what is used is read."""
    fill(memory, others(wanted, 1))
    liar = structs.replace(Known.of(near_one(wanted)[0]), size=1, by="you@home")
    plant(memory, index.encode(structs.replace(RemoteIndex().with_([liar]), change="a" * 12)))
    me = Watched(tmp_path / "me", shared=[(memory, "r")])
    reuse = search(wish(wanted, reuse_bytes=100), me.store, me.session.remotes).reuse
    assert reuse.known.by == "you@home"
    assert to_fetch(reuse, me.store, 100) is None


def test_who_signed_is_told_as_what_it_says(tmp_path, wanted, memory):
    """Names are the settings' own, for fingerprints: what else stands there is anybody's words."""
    fill(memory, others(wanted, 1))
    stranger = f"SHA256:{'a' * 43}"
    liar = structs.replace(Known.of(near_one(wanted)[0]), signers=("alice", stranger, "SHA256:short"))
    plant(memory, index.encode(structs.replace(RemoteIndex().with_([liar]), change="a" * 12)))
    (there,) = contents(Watched(tmp_path / "me", shared=[(memory, "r")]).session)
    (row,) = [one for one in there.records if one.key == liar.key]
    assert row.said_signers == (stranger,)
    assert f"says {stranger[:12]}" in "\n".join(_listed([there]))
