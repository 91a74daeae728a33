"""A remote with wrong bytes in it: nothing of them is believed, and what is damaged is made good."""

import hashlib
import json
import random
from contextlib import contextmanager

import pytest
from msgspec import structs

from cachekit.errors import AuthError, IntegrityError, RemoteError
from cachekit.remotes import card, document, index, layout
from cachekit.remotes.fetch import pull
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.index import Known
from cachekit.remotes.port import Commit, Write
from cachekit.remotes.push import push
from cachekit.store.record import Module, encode
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.push import chosen
from cachekit.verbs.warm import warm
from tests.remotes.memory_remote import MemoryRemote
from tests.remotes.sharing_cases import ANY_KIND, log, make, member, shared  # noqa: F401 - fixtures
from tests.remotes.storage_processes import serve
from tests.remotes.watched_storages import Broken, Counted
from tests.support.standins import StandIn, Watched, compiles, expected, find, make_record, publish, served

# Nothing wrong is believed


def damage_of(kind, raw):
    rng = random.Random(kind)
    place = rng.randrange(len(raw))
    return {
        "flip": raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :],
        "short": raw[:-1],
        "long": raw + b"\0",
        "empty": b"",
    }[kind]


@contextmanager
def serving(storage, path, raw):
    """Make the remote serve other bytes for one path, as a broken disk or a stranger would."""

    class Lying(Counted):
        def chunks(self, asked, revision, start=0, end=None):
            if asked != path:
                yield from storage.chunks(asked, revision, start, end)
            else:
                yield from (raw[at : at + 1000] for at in range(start, len(raw), 1000))

        def otherwise(self, asked, revision, size):
            return self.chunks(asked, revision)

    yield Lying(storage)


@ANY_KIND
@pytest.mark.feature("S5")
@pytest.mark.parametrize("kind", ["flip", "short", "long", "empty"])
def test_wrong_bytes_never_enter_the_store(member, tmp_path, make, kind, log):
    ann = member("ann")
    made = make_record(size=9000)
    publish(ann.store, made)
    push(ann.store, ann.session.remotes, [made[0]])
    file, path = next(iter(document.Shared(made[0]).paths.values()))
    with serving(make(), path, damage_of(kind, made[1][file.sha256])) as lying:
        bob = Watched(tmp_path / "bob", shared=[(lying, "r")])
        found = bob.session.remotes.find(made[0].place)
        assert bob.session.fetch(found) is None
    assert find(bob.store, made[0]) is None
    assert bob.told("remote.damaged")
    assert [path for path in (tmp_path / "bob" / "v1" / "partial").glob("*") if path.stat().st_size] == [] or kind
    # The next one, from a sound cache, is not disturbed by what arrived.
    carl = Watched(tmp_path / "bob", shared=[(make(), "r")])
    record = carl.session.fetch(carl.session.remotes.find(made[0].place))
    assert served(carl.store, record) == expected(made)


@ANY_KIND
@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: b"",
        lambda raw: raw[:-20],
        lambda raw: b"[" * 100_000,
        lambda raw: b"null",
        lambda raw: raw.replace(b'"graphs"', b'"grophs"'),
        lambda raw: json.dumps({**json.loads(raw), "inline": {"a" * 64: "AAAA"}}).encode(),
        lambda raw: json.dumps({**json.loads(raw), "inline": []}).encode(),
        lambda raw: json.dumps({**json.loads(raw), "places": {"a" * 64: "../../etc/passwd"}}).encode(),
        lambda raw: json.dumps(
            {
                **json.loads(raw),
                "places": {json.loads(raw)["record"]["modules"][0]["files"][0]["sha256"]: "/etc/passwd"},
            }
        ).encode(),
        lambda raw: document.Shared(make_record(7)[0]).raw,
    ],
)
def test_a_record_that_is_none_is_a_miss_and_told(tmp_path, make, spoil):
    storage = make()
    made = make_record()
    path = layout.record_path(made[0].place)
    raw = spoil(document.Shared(made[0]).raw)
    storage.commit(Commit("a stranger's [1]", writes=[Write(path, raw, "")]), storage.revision())
    bob = Watched(tmp_path / "bob", shared=[(make(), "rw")])
    assert bob.session.remotes.find(made[0].place) is None
    assert bob.told("remote.damaged")
    # A push puts a good one in its place.
    publish(bob.store, made)
    (pushed,) = push(bob.store, bob.session.remotes, [made[0]])
    assert pushed.error is None, pushed.error.lines()
    carl = Watched(tmp_path / "carl", shared=[(make(), "r")])
    found = carl.session.remotes.find(made[0].place)
    assert found.shared.record == made[0]


@ANY_KIND
def test_a_record_without_end_keeps_nobody_from_its_key(tmp_path, make, monkeypatch):
    for module in ("draft", "remote"):
        monkeypatch.setattr(f"cachekit.remotes.{module}.LARGEST", 20_000)
    storage, made = make(), make_record()
    storage.commit(
        Commit("a [1]", writes=[Write(layout.record_path(made[0].place), b" " * 20_001, "")]), storage.revision()
    )
    bob = Watched(tmp_path / "bob", shared=[(make(), "rw")])
    publish(bob.store, made)
    (pushed,) = push(bob.store, bob.session.remotes, [made[0]])
    assert pushed.error is None, pushed.error.lines()
    (told,) = bob.told("remote.damaged")
    assert told["key"] == made[0].key
    carl = Watched(tmp_path / "carl", shared=[(make(), "r")])
    assert carl.session.remotes.find(made[0].place).shared.record == made[0]


@pytest.mark.parametrize(
    "row", ["| x | y |", "| \ud800 |", "| " + " | ".join(["x"] * 10) + " |", "| " + "x" * 10_000 + " |"]
)
def test_a_card_that_others_spoilt_stops_no_push(tmp_path, shared, row):
    ann = Watched(tmp_path / "ann", shared=[(FolderStorage(shared), "rw")])
    one, two = publish(ann.store, make_record(1)), publish(ann.store, make_record(2))
    lines = card.update(b"", [Known.of(one)], 1).decode().splitlines()
    page = "\n".join(row if one.key[:16] in line else line for line in lines).encode(errors="surrogatepass")
    storage = FolderStorage(shared)
    storage.commit(Commit("a stranger's [1]", writes=[Write(layout.CARD, page, "")]), "")
    (pushed,) = push(ann.store, ann.session.remotes, [two])
    assert pushed.error is None
    said = (shared / "README.md").read_text()
    assert two.key[:16] in said
    assert row not in said


def test_an_index_that_cannot_be_read_stops_no_push(tmp_path):
    """The records do not need it; the next push adds what it lacks."""

    class Unread(Counted):
        def read(self, path, revision, limit):
            if path == layout.INDEX:
                raise RemoteError("it is away", cause="a proxy keeps that file back")
            return self._storage.read(path, revision, limit)

    there = MemoryRemote(scarce=True)
    records = []
    for number, storage in enumerate([there, Unread(there), there]):
        one = Watched(tmp_path / str(number), shared=[(storage, "rw")])
        records.append(publish(one.store, make_record(number)))
        (pushed,) = push(one.store, one.session.remotes, records[-1:])
        assert pushed.error is None
    known, _ = index.read(there, there.revision())
    assert {one.key for one in known.rows()} == {record.key for record in records}


def test_whatever_a_push_stumbles_over_fails_no_run(tmp_path, shared):
    def stumble(*_, **__):
        raise KeyError("a token, maybe")

    ann = Watched(tmp_path / "ann", shared=[(Broken(FolderStorage(shared), "commit", error=stumble), "rw")])
    record = publish(ann.store, make_record())
    (pushed,) = push(ann.store, ann.session.remotes, [record])
    assert "KeyError" in pushed.error.cause
    assert "token" not in str(pushed.error.lines())
    assert chosen(ann.session, [], pending=True) == [record]


@pytest.mark.parametrize("spoilt", [False, True], ids=["refused", "changed after its check"])
def test_files_from_inside_a_record_are_the_pulls_own(tmp_path, shared, spoilt):
    """In a file that processes share, another pull could change what this one has checked."""
    made = make_record(size=600)
    ann = Watched(tmp_path / "ann", shared=[(FolderStorage(shared), "rw")])
    push(ann.store, ann.session.remotes, [publish(ann.store, made)])
    bob = Watched(tmp_path / "bob", shared=[(FolderStorage(shared), "r")])
    found = bob.session.remotes.find(made[0].place)
    assert found.shared.inline
    kept = [bob.store.layout.partial, bob.store.layout.tmp]
    shown = []

    def judge(module, path):
        shown.extend(kept[0].glob("*"))
        if spoilt:
            path(module.files[0]).write_bytes(b"x" * 600)
        return "" if spoilt else "no good"

    with pytest.raises(IntegrityError):
        pull(bob.store, found, judge)
    assert shown == []
    assert find(bob.store, made[0]) is None
    assert [path for folder in kept for path in folder.glob("*")] == []


def test_a_later_cachekits_record_is_a_miss_and_left_alone(tmp_path, make):
    made = make_record()
    body = json.loads(encode(made[0]))["record"] | {"schema": 2}
    from cachekit.key.canonical import canonical_json

    raw = json.dumps({"record": body, "sha256": hashlib.sha256(canonical_json(body)).hexdigest()}).encode()
    storage, path = make(), layout.record_path(made[0].place)
    storage.commit(Commit("later [1]", writes=[Write(path, raw, "")]), storage.revision())
    bob = Watched(tmp_path / "bob", shared=[(make(), "rw")])
    assert bob.session.remotes.find(made[0].place) is None
    assert not bob.told("remote.damaged")
    publish(bob.store, made)
    (pushed,) = push(bob.store, bob.session.remotes, [made[0]])
    assert "a later cachekit" in pushed.error.cause
    assert "install a later cachekit" in pushed.error.hint
    assert bob.session.remotes.writable[0].pending() == {made[0].key}
    assert make().read(path, make().revision(), 1 << 20).data == raw


@pytest.mark.feature("R1")
def test_another_build_of_a_module_leaves_the_file_of_the_one_that_is_there_where_it_is(member):
    """Whose place is taken is what is offered, not what lies there."""
    ann, bob, eve = (member(name) for name in ("ann", "bob", "eve"))
    theirs, mine, more = make_record(1, "a", size=4000), make_record(1, "a", size=5000), make_record(1, "b")
    grown = structs.replace(mine[0], modules=(*mine[0].modules, Module("standin-1.0/MODULE_2", more[0].files)))
    for who, made in ((bob, theirs), (ann, (grown, mine[1] | more[1]))):
        publish(who.store, made)
        (pushed,) = push(who.store, who.session.remotes, [made[0]])
        assert pushed.error is None
    record = eve.pull(eve.session.remotes.find(grown.place)).record
    assert {file.sha256 for file in record.files} >= {*theirs[1], *more[1]}
    assert not list(eve.store.lacking(record.files))


@pytest.mark.feature("R1")
@pytest.mark.parametrize("damage", ["other", "shorter", "gone"])
def test_a_push_repairs_what_somebody_damaged(tmp_path, make, damage):
    storage, ann = make(), Watched(tmp_path / "ann", shared=[(make(), "rw")])
    made = make_record(size=9000)
    publish(ann.store, made)
    push(ann.store, ann.session.remotes, [made[0]])
    file, path = next(iter(document.Shared(made[0]).paths.values()))
    revision = storage.revision()
    there = storage.read(path, revision, 1 << 20)
    # Any tool that is not cachekit writes wherever it likes.
    raw = {"other": bytes(9000), "shorter": b"x", "gone": None}[damage]
    storage.commit(Commit("a stranger's [1]", writes=[Write(path, raw, there.token)]), revision)
    (pushed,) = push(ann.store, ann.session.remotes, [made[0]], recheck=True)
    assert any(one.path == path or one.path.endswith(file.sha256) for one in pushed.files)
    assert "gone, or overwritten" in ann.told("remote.damaged")[0]["reason"]
    bob = Watched(tmp_path / "bob", shared=[(make(), "r")])
    found = bob.session.remotes.find(made[0].place)
    assert served(bob.store, bob.session.fetch(found)) == expected(made)
    if raw is not None:
        assert make().read(path, make().revision(), 1 << 20).data == raw  # nothing is overwritten


@pytest.mark.parametrize("damage", [bytes(9000), None])
def test_where_one_request_tells_of_damage_each_push_repairs_it(tmp_path, damage):
    with serve("hub", tmp_path / "server") as make:
        storage, ann = make(), Watched(tmp_path / "ann", shared=[(make(), "rw")])
        made = make_record(size=9000)
        publish(ann.store, made)
        push(ann.store, ann.session.remotes, [made[0]])
        _, path = next(iter(document.Shared(made[0]).paths.values()))
        there = storage.read(path, revision := storage.revision(), 1 << 20)
        storage.commit(Commit("a stranger's [1]", writes=[Write(path, damage, there.token)]), revision)
        (pushed,) = push(ann.store, ann.session.remotes, [made[0]])
        assert len(pushed.files) == 1
        bob = Watched(tmp_path / "bob", shared=[(make(), "r")])
        found = bob.session.remotes.find(made[0].place)
        assert served(bob.store, bob.session.fetch(found)) == expected(made)


def test_what_is_new_beside_a_record_is_no_damage_of_that(member):
    ann, (one, contents), (two, _) = member("ann"), make_record(1), make_record(2)
    two = structs.replace(two, modules=(structs.replace(two.modules[0], name="standin-1.0/MODULE_2"),))
    for record in (one, two):  # of the same bytes, in another place
        publish(ann.store, (record, contents))
        (pushed,) = push(ann.store, ann.session.remotes, list(ann.store.records()))
        assert pushed.records == (layout.record_path(record.place),)
    assert not ann.told("remote.damaged")


# What is damaged is made good


def harm(shared, kind):
    """Harm a file of every module that lies in a folder."""
    for path in shared.rglob("model.code"):
        raw = path.read_bytes()
        path.chmod(0o644)
        if kind == "gone":
            path.unlink()
        else:
            path.write_bytes(raw[:-1] if kind == "short" else bytes([raw[0] ^ 1]) + raw[1:])


@pytest.mark.feature("S5")
@pytest.mark.parametrize(("kind", "salt"), [("flip", "another"), ("short", ""), ("gone", "another")])
def test_who_finds_a_damaged_record_puts_a_good_one_in_its_place(tmp_path, shared, kind, salt):
    def member(name, salt):
        return Watched(tmp_path / name, shared=[(FolderStorage(shared), "rw")], compiler=StandIn(salt=salt))

    ann, bob, carl = member("ann", ""), member("bob", salt), member("carl", salt)
    warm(ann.session, ann.prepare())
    harm(shared, kind)
    made = warm(bob.session, bob.prepare())
    assert made.compiled == 3
    assert len(bob.told("remote.damaged")) == 1  # it was not fetched twice
    done = warm(carl.session, carl.prepare())
    assert (done.compiled, done.record) == (0, made.record)


def test_damage_in_a_place_named_by_its_digest_is_told(tmp_path, shared):
    ann = Watched(tmp_path / "ann", shared=[(FolderStorage(shared), "rw")])
    record = warm(ann.session, ann.prepare()).record
    harm(shared, "flip")
    for _ in range(2):
        (pushed,) = push(ann.store, ann.session.remotes, [record], recheck=True)
        assert pushed.error is None
    for path in (shared / "cachekit/v1/blobs").rglob("*"):
        if path.is_file():
            path.chmod(0o644)
            path.write_bytes(bytes(path.stat().st_size))
    (pushed,) = push(ann.store, ann.session.remotes, [record], recheck=True)
    assert "cachekit/v1/blobs/" in pushed.error.cause


@pytest.mark.parametrize("failing", ["damaged", "away"])
def test_what_one_cache_cannot_give_the_next_one_does(tmp_path, shared, failing, log):
    far = tmp_path / "far"
    far.mkdir()
    for folder in (shared, far):
        ann = Watched(tmp_path / "ann", shared=[(FolderStorage(folder), "rw")])
        made = warm(ann.session, ann.prepare())
    near = FolderStorage(shared) if failing == "damaged" else Broken(FolderStorage(shared), "chunks", error=AuthError)
    if failing == "damaged":
        harm(shared, "flip")
    bob = Watched(tmp_path / "bob", shared=[(near, "rw"), (FolderStorage(far), "r")])
    assert pull_recipe(bob.session, bob.prepare()).remote == str(far)
    assert bob.lookup(bob.prepare()) == made.record
    assert len(compiles(log)) == 1
    if failing == "damaged":  # and the nearer one has it whole now
        carl = Watched(tmp_path / "carl", shared=[(FolderStorage(shared), "r")])
        assert warm(carl.session, carl.prepare()).compiled == 0
