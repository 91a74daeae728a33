"""A long record in parts: what grows by one sends and reads little, and nothing wrong of a part is believed."""

import base64
import hashlib
import json
import zlib
from functools import partial

import pytest
from msgspec import structs

from cachekit.remotes import document, layout, parts
from cachekit.remotes.bundle_in import read_bundle
from cachekit.remotes.bundle_out import write_bundle
from cachekit.remotes.document import Shared
from cachekit.remotes.hub import bucket as hub_bucket
from cachekit.remotes.judging import Trust
from cachekit.remotes.port import Commit, Write
from cachekit.remotes.push import push
from cachekit.store.record import DamagedRecordError, File, Module, decode, sealed, serialise
from tests.remotes.memory_remote import MemoryRemote
from tests.remotes.sharing_cases import make, member  # noqa: F401 - fixtures
from tests.remotes.storage_makers.bucket import bucket_hub, make_storage
from tests.remotes.storage_processes import serve, title
from tests.remotes.watched_storages import Counted
from tests.support.standins import Watched, expected, make_record, publish, served


def long_record(number, *, size=3000):
    """A record of so many modules of one file each, with its bytes."""
    made, contents = make_record(1, tuple(f"{one:04}" for one in range(number)), size=size)
    modules = tuple(Module(f"standin-1.0/MODULE_{file.path}", (file,)) for file in made.files)
    return structs.replace(made, modules=modules), contents


def test_one_more_module_sends_no_more_of_the_record_where_tiny_files_travel_with_it():
    record, _ = long_record(2)
    flags = [f"--flag={number}".encode() * 40 for number in range(600)]
    named = [(hashlib.sha256(raw).hexdigest(), raw) for raw in flags]
    modules = tuple(
        Module(f"standin-1.0/MODULE_{number}", (File("flags", len(raw), sha256),))
        for number, (sha256, raw) in enumerate(named)
    )
    before = document.Shared(structs.replace(record, modules=modules[:-1]), dict(named[:-1]))
    after = document.Shared(structs.replace(record, modules=modules), dict(named))
    assert set(before.parts) <= set(after.parts), "the parts stay as they are"
    assert len(after.document) < 2 * parts.WEIGHT
    assert len(after.parts) < 30
    read = document.read(after.document, after.parts.__getitem__)
    assert (read.record, read.inline, read.document) == (after.record, after.inline, after.document)


@pytest.fixture
def short_parts(monkeypatch):
    monkeypatch.setattr(parts, "MODULES", 2)


def pushed(watched, made, **options):
    record, contents = made
    publish(watched.store, (record, {file.sha256: contents[file.sha256] for file in record.files}))
    (done,) = push(watched.store, watched.session.remotes, [made[0]], **options)
    assert done.error is None
    return done


def put(storage, path, raw):
    """What anybody may do who can write there."""
    revision = storage.revision()
    found = storage.read(path, revision, 1 << 20)
    storage.commit(Commit(title(), writes=[Write(path, raw, found.token if found else "")]), revision)


# Little is asked and sent


def test_one_more_module_of_a_long_record_costs_few_requests_and_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MODULES", 64)
    made, contents = long_record(129, size=50)
    with serve("hub", tmp_path / "server") as make:
        ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
        pushed(ann, (structs.replace(made, modules=made.modules[:128]), contents))
        make.hub.log.clear()
        pushed(ann, (made, contents))
        requests = [entry for entry in make.hub.requests if entry.kind != "xet"]
        assert len(requests) <= 7  # one of them, whose token it is, once a day
        assert sum(entry.sent + entry.received for entry in requests) < 100_000
        make.hub.log.clear()
        bob = Watched(tmp_path / "bob", shared=[(make(), "r")])
        assert bob.session.remotes.find(made.place).shared.record == made
        assert len(make.hub.log.entries("GET */resolve/*")) == 3  # the document, and two parts


@pytest.mark.feature("R7")
def test_one_more_module_of_a_long_record_in_a_bucket_of_the_hub_costs_few_requests(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MODULES", 16)
    monkeypatch.setattr(hub_bucket, "FRESH", 60.0)  # a busy machine takes its time between a look and its use
    made, contents = long_record(82, size=5000)
    with bucket_hub(tmp_path / "server") as hub:

        def grown(name, number):
            one = Watched(tmp_path / name, shared=[(make_storage(hub), "rw")])
            one.session.remotes.find(made.place)  # as before each compile
            hub.log.clear()
            pushed(one, (structs.replace(made, modules=made.modules[:number]), contents))
            found = [entry for entry in hub.requests if entry.kind != "xet" and "/xet-write-token" not in entry.path]
            return [entry.path for entry in found]

        grown("ann", 80)
        for name, number in (("ann", 81), ("bob", 82)):
            assert len(requests := grown(name, number)) <= 6, requests
        carl = Watched(tmp_path / "carl", shared=[(make_storage(hub), "r")])
        assert carl.session.remotes.find(made.place).shared.record == made


@pytest.mark.usefixtures("short_parts")
def test_only_the_parts_that_changed_are_read_and_written(tmp_path):
    storage = Counted(MemoryRemote(scarce=True))
    ann = Watched(tmp_path / "ann", shared=[(storage, "rw")])
    made, contents = long_record(9)
    pushed(ann, (structs.replace(made, modules=made.modules[:7]), contents))
    sizes = []
    for number in (8, 9):
        storage.calls.clear()
        pushed(ann, (structs.replace(made, modules=made.modules[:number]), contents))
        assert storage.calls.count("read") == 1  # the document: the Hub's adapter has a copy of that
        sizes.append(len(list(storage.list(layout.BLOBS, ""))))
    assert sizes == [4, 4], "the last modules are in the document until they are a part"


# It is the same record


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("number", [2, 3, 7])
def test_a_long_record_is_what_it_is_in_one_document(tmp_path, member, number):
    made = long_record(number)
    ann, bob = member("ann"), member("bob")
    assert pushed(ann, made).records == (layout.record_path(made[0].place),)
    assert pushed(ann, made).unchanged == 1
    found = bob.session.remotes.find(made[0].place)
    assert found.shared.record == made[0]
    assert found.shared.record.digest == made[0].digest
    assert found.shared.inline == made[1]
    assert served(bob.store, bob.session.fetch(found)) == expected(made)


@pytest.mark.usefixtures("short_parts")
def test_who_knows_no_parts_finds_a_later_record():
    shared = Shared(long_record(3)[0])
    assert document.read(shared.document) is None
    assert decode(json.dumps(json.loads(shared.document)).encode()) is None


@pytest.mark.usefixtures("short_parts")
def test_what_two_members_add_is_kept_and_the_first_parts_stay(member):
    made, contents = long_record(7)
    with_ = {name: made.modules[:4] + made.modules[at : at + 2] for name, at in (("ann", 4), ("bob", 5))}
    for name, modules in with_.items():
        pushed(member(name), (structs.replace(made, modules=modules), contents))
    found = member("carl").session.remotes.find(made.place)
    assert found.shared.record.modules == made.modules


def another_zlib(monkeypatch):
    made = zlib.compress
    monkeypatch.setattr(zlib, "compress", lambda data, level: made(data, 1))


OTHERS = {
    "zlib": another_zlib,
    "longer parts": lambda monkeypatch: monkeypatch.setattr(parts, "MODULES", 3),
    "shorter parts": lambda monkeypatch: monkeypatch.setattr(parts, "MODULES", 1),
}


@pytest.mark.feature("R3")
@pytest.mark.parametrize("make", ["folder", "side-by-side", "scarce", "far"], indirect=True)
@pytest.mark.parametrize("other", OTHERS)
def test_members_who_divide_records_in_other_ways_keep_all_and_see_no_damage(tmp_path, make, monkeypatch, other):
    made, contents = long_record(9)
    names = iter("abcdefghijklmn")

    def push_of(*numbers):
        """The push of a member who pulls what is there, and adds these; what is there then."""
        member = Watched(tmp_path / next(names), shared=[(make(), "rw")])
        found = member.session.remotes.find(made.place)
        had = found.shared.record.modules if found else ()
        mine = structs.replace(made, modules=had + tuple(made.modules[number] for number in numbers))
        if numbers:
            pushed(member, (mine, contents))
        there = sorted(entry.path for entry in make().list(layout.BLOBS, ""))
        done = pushed(member, (mine, contents))
        assert (done.unchanged, done.records, member.told("remote.damaged")) == (1, (), []), "nothing is new"
        assert sorted(entry.path for entry in make().list(layout.BLOBS, "")) == there
        stranger = Watched(tmp_path / next(names), shared=[(make(), "r")])
        return stranger.session.remotes.find(made.place).shared.record.modules

    monkeypatch.setattr(parts, "MODULES", 2)
    assert push_of(*range(5)) == made.modules[:5]
    with monkeypatch.context() as patched:
        OTHERS[other](patched)
        assert push_of() == made.modules[:5]
        assert push_of(5, 6) == made.modules[:7]
    assert push_of() == made.modules[:7]
    assert push_of(7) == made.modules[:8]
    assert push_of(8) == made.modules


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("make", ["folder", "side-by-side", "scarce", "far"], indirect=True)
def test_on_a_remote_that_was_emptied_files_lie_at_their_own_paths_again(tmp_path, make):
    made, ann = long_record(5, size=5000), tmp_path / "ann"
    path = f"{made[0].modules[0].name}/{made[0].modules[0].files[0].path}"
    put(make(), path, b"another tool's")
    pushed(Watched(ann, shared=[(make(), "rw")]), made)
    for entry in list(make().list("", make().revision())):
        put(make(), entry.path, None)
    pushed(Watched(ann, shared=[(make(), "rw")]), made)
    storage = make()
    assert storage.stat([path], storage.revision())


@pytest.mark.usefixtures("short_parts")
def test_a_bundle_has_a_long_record_in_one_document(tmp_path):
    ann, bob = Watched(tmp_path / "ann"), Watched(tmp_path / "bob")
    made = long_record(5)
    publish(ann.store, made)
    with ann.store.using():
        write_bundle(ann.store, [made[0]], tmp_path / "bundle")
    with bob.store.using(), (tmp_path / "bundle").open("rb") as source:
        read_bundle(bob.store, source, "bundle", Trust(everything=True))
    assert served(bob.store, made[0]) == expected(made)


# What is wrong with a part


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("damage", [b"", b"AAAA", None])
def test_a_part_that_somebody_spoilt_is_a_miss_and_the_next_push_repairs_it(tmp_path, make, damage):
    ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    made = long_record(5)
    pushed(ann, made)
    name = next(iter(Shared(made[0], made[1]).parts))
    put(make(), layout.blob_path(name), damage)
    bob = Watched(tmp_path / "bob", shared=[(make(), "r")])
    assert bob.session.remotes.find(made[0].place) is None
    assert "one of its parts is" in bob.told("remote.damaged")[0]["reason"]
    pushed(Watched(tmp_path / "ann", shared=[(make(), "rw")]), made)
    carl = Watched(tmp_path / "carl", shared=[(make(), "r")])
    assert carl.session.remotes.find(made[0].place).shared.record == made[0]


@pytest.mark.feature("R3")
@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("make", ["folder", "side-by-side", "scarce", "far"], indirect=True)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("damage", [b"", None])
def test_who_finds_a_record_that_lacks_a_part_and_compiles_and_pushes_it_repairs_it(tmp_path, make, damage, number):
    pushed(Watched(tmp_path / "ann", shared=[(make(), "rw")]), made := long_record(5))
    put(make(), layout.blob_path([*Shared(*made).parts][number]), damage)
    bob = Watched(tmp_path / "bob", shared=[(make(), "rw")])
    assert bob.session.remotes.find(made[0].place) is None
    pushed(bob, made)
    assert bob.told("remote.damaged")
    carl = Watched(tmp_path / "carl", shared=[(make(), "r")])
    assert carl.session.remotes.find(made[0].place).shared.record == made[0]


@pytest.mark.usefixtures("short_parts")
def test_a_part_that_is_gone_is_put_there_again_by_who_has_a_copy_of_it_and_a_part_of_the_record(tmp_path, make):
    made = long_record(5)
    record = structs.replace(made[0], modules=made[0].modules[:1])
    pushed(Watched(tmp_path / "ann", shared=[(make(), "rw")]), made)
    for _ in range(2):  # the first one reads what is there
        pushed(Watched(tmp_path / "bob", shared=[(make(), "rw")]), (record, made[1]), recheck=True)
        put(make(), layout.blob_path(next(iter(Shared(made[0], made[1]).parts))), None)
    pushed(Watched(tmp_path / "bob", shared=[(make(), "rw")]), (record, made[1]), recheck=True)
    carl = Watched(tmp_path / "carl", shared=[(make(), "r")])
    assert carl.session.remotes.find(made[0].place).shared.record == made[0]


def packed(value):
    return base64.b64encode(zlib.compress(value)) + b"\n"


# Made where they are used: each process that runs tests collects this module, and one of them is large.
HOSTILE = {
    "no base64": lambda: b"\xff\xff",
    "no zlib": lambda: base64.b64encode(b"x" * 99),
    "cut off": lambda: base64.b64encode(zlib.compress(b'{"modules": [], "inline": {}}')[:-5]),
    "more after its end": lambda: base64.b64encode(zlib.compress(b'{"modules": [], "inline": {}}') + b"x" * 99),
    "a bomb": lambda: packed(b" " * (65 << 20)),
    "no JSON": lambda: packed(b"{"),
    "deep": lambda: packed(b"[" * 100_000),
    "a list": lambda: packed(b"[]"),
    "no modules": lambda: packed(b'{"modules": 1, "inline": {}}'),
    "more": lambda: packed(b'{"modules": [], "inline": {}, "more": [0]}'),
    "no files": lambda: packed(b'{"modules": [], "inline": []}'),
    "out of the folder": lambda: packed(b'{"modules": [{"name": "../x", "files": []}], "inline": {}}'),
    "fewer": lambda: packed(b'{"modules": [], "inline": {}}'),
}


@pytest.mark.parametrize("said", [b"[]", b"{", b'{"record": [], "sha256": []}', b'{"record": {"whole": {}}}'])
def test_a_document_that_says_nothing_of_a_record_is_of_none(said):
    assert not document.is_of(said, long_record(1)[0])


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_part_that_is_none_is_damage(kind):
    shared = Shared(long_record(5)[0])
    with pytest.raises(DamagedRecordError):
        document.read(shared.document, lambda _: HOSTILE[kind]())


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize(
    "change",
    [
        {"parts": []},
        {"parts": ["../../../../etc/passwd"]},
        {"parts": ["a" * 64] * 4097},
        {"parts": 7},
        {"whole": "0" * 64},
        {"record": []},
        {"more": 1},
    ],
)
def test_a_document_that_names_no_parts_is_damage(change):
    shared = Shared(long_record(5)[0])
    head = json.loads(shared.document)["record"] | change
    with pytest.raises(DamagedRecordError):
        document.read(serialise(sealed("record", head)), shared.parts.__getitem__)


@pytest.mark.usefixtures("short_parts")
def test_parts_are_not_all_fetched_before_the_first_is_found_wrong():
    """A document may name a thousand of many megabytes."""
    shared, asked, bomb = Shared(long_record(2 * 3 * parts.LANES)[0]), [], HOSTILE["a bomb"]()

    def fetch(name):
        asked.append(name)
        return bomb

    with pytest.raises(DamagedRecordError):
        document.read(shared.document, fetch)
    assert len(asked) == parts.LANES


def test_many_parts_have_no_more_values_than_one_document():
    """The smallest of them is a few kilobytes, and the same one may be named a thousand times."""
    shared, asked = Shared(long_record(parts.MODULES + 1)[0]), []
    head = json.loads(shared.document)["record"] | {"parts": ["a" * 64] * 4096}
    part = packed(b'{"modules": [' + b"{}," * 250_000 + b'{}], "inline": {}}')

    def fetch(name):
        asked.append(name)
        return part

    with pytest.raises(DamagedRecordError, match="too many for a record"):
        document.read(serialise(sealed("record", head)), fetch)
    assert len(asked) == parts.LANES


def test_another_part_under_a_name_is_not_believed():
    storage = MemoryRemote()
    name = hashlib.sha256(b"x").hexdigest()
    put(storage, layout.blob_path(name), b"y")
    for asked, words in ((name, "one of its parts is damaged"), ("0" * 64, "one of its parts is missing")):
        with pytest.raises(DamagedRecordError, match=words):
            partial(parts.fetching(storage, ""), asked)()
