"""Small files of a record in packs: few requests for a pull, and nothing that is wrong with a pack is believed."""

import hashlib
import struct

import pytest
from msgspec import structs

from cachekit.remotes import fetch_files, layout, packs
from cachekit.remotes.document import Shared
from cachekit.remotes.layout import TINY
from cachekit.remotes.port import Upload
from tests.remotes.memory_remote import MemoryRemote
from tests.remotes.storage_processes import serve
from tests.remotes.test_parts import long_record, pushed, put
from tests.remotes.watched_storages import Counted
from tests.support.standins import Watched, expected, publish, served

SMALL = TINY + 1


@pytest.fixture
def remote():
    """A remote far away, in memory."""
    remote = MemoryRemote(scarce=True)
    remote.lines = 8
    return remote


def packs_of(storage, record):
    return [entry.path for entry in storage.list(layout.packs(record.key), "")]


def member(tmp_path, name, storage, may="rw"):
    return Watched(tmp_path / name, shared=[(storage, may)])


def pulled(tmp_path, storage, made, name="bob"):
    """What a pull asked of the remote."""
    bob = member(tmp_path, name, counted := Counted(storage), "r")
    bob.pull(bob.session.remotes.find(made[0].place))
    assert served(bob.store, made[0]) == expected(made)
    return counted.calls


def test_many_small_files_cost_a_pull_few_requests(tmp_path):
    made = long_record(40, size=SMALL)
    with serve("hub", tmp_path / "server") as make:
        done = pushed(member(tmp_path, "ann", make()), made)
        assert len(done.files) == 41
        own = {path for _, path in Shared(made[0]).paths.values()}
        assert own <= {entry.path for entry in make().list("", "")}, "where the compiler's own tools look"
        make.hub.log.clear()
        pulled(tmp_path, make(), made)
        assert len(make.hub.requests) <= 8


@pytest.mark.feature("R5")
def test_files_are_fetched_in_the_order_of_the_record(tmp_path, remote, monkeypatch):
    monkeypatch.setattr(fetch_files, "LANES", 1)
    record, contents = long_record(5, size=SMALL)
    record = structs.replace(record, modules=record.modules[::-1])
    pushed(member(tmp_path, "ann", remote), (record, contents))
    asked, chunks = [], remote.chunks
    monkeypatch.setattr(remote, "chunks", lambda path, *rest: (asked.append(path), chunks(path, *rest))[1])
    pulled(tmp_path, remote, (record, contents))
    assert asked == [path for _, path in Shared(record).paths.values()]


def test_a_few_files_are_fetched_alone(tmp_path, remote):
    record, contents = made = long_record(packs.FEW + 1, size=SMALL)
    ann, bob = member(tmp_path, "ann", remote), member(tmp_path, "bob", remote)
    most = structs.replace(record, modules=record.modules[2:])
    publish(bob.store, (most, {file.sha256: contents[file.sha256] for file in most.files}))
    pushed(ann, made)
    calls = pulled(tmp_path, remote, made)
    assert ("list" in calls, calls.count("chunks")) == (False, 2)


def test_a_push_of_a_few_makes_no_pack(tmp_path, remote):
    made = long_record(packs.FEW - 1, size=SMALL)
    pushed(member(tmp_path, "ann", remote), made)
    assert packs_of(remote, made[0]) == []


def test_a_record_that_grew_by_one_module_at_a_time_is_pulled_in_packs(tmp_path, remote):
    record, contents = made = long_record(2 * packs.FEW + 1, size=SMALL)
    for number in range(3, len(record.modules) + 1):
        grown = structs.replace(record, modules=record.modules[:number])
        pushed(member(tmp_path, "ann", remote), (grown, contents))
    group = -(-packs.GROUP // SMALL)
    assert len(packs_of(remote, record)) == len(record.modules) // group
    assert pulled(tmp_path, remote, made).count("chunks") == sum(divmod(len(record.modules), group))


@pytest.mark.feature("R5")
@pytest.mark.parametrize("size", [SMALL, 7000, 28_000, 60_000])
def test_a_push_of_one_module_sends_little_beside_it_also_where_it_makes_a_pack(tmp_path, remote, size):
    record, contents = made = long_record(20, size=size)
    for number in range(1, 21):
        grown = structs.replace(record, modules=record.modules[:number])
        done = pushed(member(tmp_path, "ann", remote), (grown, contents))
        assert sum(file.bytes for file in done.files) <= 2 * size + packs.GROUP + 1000
    group = min(packs.FEW, -(-packs.GROUP // size))
    assert pulled(tmp_path, remote, made).count("chunks") <= 20 // group + group


@pytest.mark.parametrize("spoilt", [None, b"", b"\0" * 200, b"\xff" * 200_000])
def test_without_a_good_pack_each_file_is_fetched(tmp_path, remote, spoilt):
    made = long_record(packs.FEW, size=SMALL)
    ann = member(tmp_path, "ann", remote)
    pushed(ann, made)
    (path,) = packs_of(remote, made[0])
    put(remote, path, spoilt)
    assert pulled(tmp_path, remote, made).count("chunks") >= packs.FEW
    for one in {path for _, path in Shared(made[0]).paths.values()}:
        put(remote, one, None)
    assert pushed(ann, made, recheck=True).tries <= 2, "the place of the pack is taken"
    assert pulled(tmp_path, remote, made, "carl")


def file_of(raw, digest=None):
    return Upload("x", len(raw), digest or hashlib.sha256(raw).hexdigest(), raw)


def test_only_what_fits_its_digest_is_taken_out():
    good, other = file_of(b"good"), file_of(b"bad!", "ab" * 32)
    (pack,) = packs.packed("k", [good, other] * 8)
    wanted = {good.sha256: 4, other.sha256: 4}
    assert dict(packs._members(pack.source, wanted)) == {good.sha256: b"good"}
    assert dict(packs._members(pack.source, {good.sha256: 5})) == {}
    for raw in (b"", b"\0", pack.source[:100], struct.pack(">I", 2**32 - 1) + b"x" * 99, pack.source[:-70]):
        assert set(packs._members(raw, wanted)) <= {(good.sha256, b"good")}
