"""A team shares a cache: what one member warmed the others find, on every kind of tier, whatever happens in between."""

import hashlib
import json
import os
import random
import time
from contextlib import contextmanager

import pytest
from msgspec import structs
from standins import StandIn, Watched, compiles, expected, find, make_record, publish, recipe, served
from tier_processes import KINDS, serve

from cachekit.actions.obtain import obtain
from cachekit.actions.plan import plan
from cachekit.actions.pull import pull
from cachekit.actions.pull_recipes import pull_recipe
from cachekit.actions.push import push
from cachekit.actions.push_records import chosen
from cachekit.actions.train import train
from cachekit.actions.warm import warm
from cachekit.errors import AuthError, BusyError, ConflictError, MissError, RemoteError
from cachekit.record import encode
from cachekit.store.scratch import hold
from cachekit.tiers import card, document, layout
from cachekit.tiers.folder import FolderTier
from cachekit.tiers.port import Change, Write


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


@pytest.fixture(params=KINDS)
def make(request, tmp_path):
    """Opens the same tier anew, as another machine would."""
    with serve(request.param, tmp_path / "server") as opened:
        yield opened


@pytest.fixture
def member(tmp_path, make):
    """A member of the team: a home of its own, and the shared cache."""

    def join(name, may="rw", **options):
        return Watched(tmp_path / name, shared=[(make(), may)], **options)

    return join


class Counted:
    """A tier that writes down what is asked of it."""

    def __init__(self, tier):
        self._tier = tier
        self.calls = []

    def __getattr__(self, name):
        value = getattr(self._tier, name)
        if not callable(value):
            return value

        def call(*arguments, **options):
            self.calls.append(name)
            return value(*arguments, **options)

        return call


class Broken(Counted):
    """A tier of which some calls fail."""

    def __init__(self, tier, *failing, error=RemoteError):
        super().__init__(tier)
        self.failing, self._error = set(failing), error

    def __getattr__(self, name):
        if name in self.failing or ("all" in self.failing and callable(getattr(self._tier, name))):

            def fail(*_, **__):
                self.calls.append(name)
                raise self._error("it is away", cause="the cable is cut")

            return fail
        return super().__getattr__(name)


class Long(Counted):
    """A tier on which one call takes as long as it takes until the holder of a key's lease shows that it lives."""

    def __init__(self, tier, call, key):
        super().__init__(tier)
        self._call, self._lease, self.signs = call, layout.lease_path(key), 0

    def __getattr__(self, name):
        value = super().__getattr__(name)
        if name != self._call or self.signs:
            return value

        def long(*arguments, **options):
            before = self._mark()
            end = time.monotonic() + 20
            while self._mark() == before and time.monotonic() < end:
                time.sleep(0.02)
            self.signs += self._mark() != before
            return value(*arguments, **options)

        return long

    def _mark(self):
        document = self._tier.read(self._lease, self._tier.revision(), 1 << 20)
        return document and document.token


class Busy(Long):
    """A tier that refuses the first record, and is slow to say what it has from then on."""

    def __init__(self, tier, key):
        super().__init__(tier, "", key)

    def commit(self, change, revision):
        if not self._call and any(write.path.startswith(layout.RECORDS) for write in change.writes):
            self._call = "stat"
            raise BusyError("it is busy")
        return self._tier.commit(change, revision)


# One warms, the others find


@pytest.mark.feature("R1")
def test_what_one_member_warmed_the_others_find(member, log):
    ann, bob = member("ann"), member("bob")
    made = warm(ann.session, ann.prepare())
    planned = plan(bob.prepare(), bob.store, bob.session.chain)
    assert planned.hit
    assert planned.tier == bob.session.chain.readable[0].name
    assert planned.fetch == made.record.size
    done = warm(bob.session, bob.prepare())
    assert (made.compiled, done.compiled) == (3, 0)
    assert len(compiles(log)) == 1
    assert done.record == made.record
    assert bob.restored("k", done.record) == ann.restored("k", made.record)
    # From now on it needs nobody.
    alone = Watched(bob.store.layout.home)
    assert plan(alone.prepare(), alone.store).record == made.record


def test_a_training_takes_what_a_member_warmed(member, log, tmp_path):
    ann, bob = member("ann"), member("bob")
    warm(ann.session, ann.prepare())
    done = train(bob.session, bob.prepare(), output_dir=tmp_path / "out", require_warm=True)
    assert done.compiled == 0
    assert done.warmed is None
    assert len(compiles(log)) == 1


def test_what_compiles_in_a_training_is_shared_too(member, tmp_path, log):
    ann = member("ann", compiler=StandIn(extra=1))
    warm(ann.session, ann.prepare())
    trained = train(ann.session, ann.prepare(), output_dir=tmp_path / "out")
    assert trained.compiled == 1
    bob = member("bob", compiler=StandIn(extra=1))
    again = train(bob.session, bob.prepare(), output_dir=tmp_path / "out2", require_warm=True)
    assert again.compiled == 0


@pytest.mark.feature("M1")
def test_who_may_only_read_writes_nothing(tmp_path, make, log):
    tier = Counted(make())
    bob = Watched(tmp_path / "bob", shared=[(tier, "r")])
    assert warm(bob.session, bob.prepare()).compiled == 3
    train(bob.session, bob.prepare(), output_dir=tmp_path / "out")
    assert not {"upload", "commit"} & set(tier.calls)
    ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    assert not plan(ann.prepare(), ann.store, ann.session.chain).hit


def test_who_may_only_write_takes_no_hits(tmp_path, make, log):
    for name in ("ann", "bob"):
        one = Watched(tmp_path / name, shared=[(make(), "w")])
        assert warm(one.session, one.prepare()).compiled == 3
    assert len(compiles(log)) == 2


@pytest.mark.feature("R1")
def test_a_hit_fills_the_nearer_caches(tmp_path, make, log):
    far = make()
    ann = Watched(tmp_path / "ann", shared=[(far, "rw")])
    warm(ann.session, ann.prepare())
    with serve("folder", tmp_path / "near") as near:
        bob = Watched(tmp_path / "bob", shared=[(near(), "rw"), (make(), "r")])
        assert warm(bob.session, bob.prepare()).compiled == 0
        carl = Watched(tmp_path / "carl", shared=[(near(), "r")])
        assert plan(carl.prepare(), carl.store, carl.session.chain).hit
    assert len(compiles(log)) == 1


def test_a_store_that_was_warm_before_there_was_a_shared_cache_is_offered(tmp_path, member, log):
    alone = Watched(tmp_path / "ann")
    warm(alone.session, alone.prepare())
    ann, bob = member("ann"), member("bob")
    assert warm(ann.session, ann.prepare()).compiled == 0
    assert warm(bob.session, bob.prepare()).compiled == 0
    assert len(compiles(log)) == 1


def test_recache_replaces_what_is_shared(member):
    ann, bob = member("ann", compiler=StandIn(salt="old")), member("bob", compiler=StandIn(salt="new"))
    old = warm(ann.session, ann.prepare()).record
    new = warm(bob.session, bob.prepare(), recache=True).record
    carl = member("carl")
    assert warm(carl.session, carl.prepare()).record == new != old
    assert carl.restored("k", new) == bob.restored("k", new)


# Little is asked and sent


@pytest.mark.feature("R2")
def test_a_push_of_nothing_new_is_one_question(tmp_path, make):
    ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    record = publish(ann.store, make_record())
    push(ann.session, [record], ann.session.chain.writable)
    tier = Counted(make())
    again = Watched(tmp_path / "ann", shared=[(tier, "rw")])
    (pushed,) = push(again.session, [record], again.session.chain.writable)
    if tier.calls != ["stat"]:  # where a tier knows no digests, it must read
        assert not {"upload", "commit"} & set(tier.calls)
        assert tier.calls[:4] == ["stat", "revision", "stat", "read"]
        assert again.session.chain.writable[0].tier.name.startswith(("hf://buckets", "/"))
    assert pushed.published.unchanged == 1
    assert pushed.published.files == ()


def test_only_what_is_missing_is_fetched(member, tmp_path):
    ann, bob = member("ann"), member("bob")
    for watched, made in ((ann, make_record(1, ("a", "b"), size=9000)), (bob, make_record(2, ("a", "c"), size=9000))):
        publish(watched.store, made)
    first = make_record(1, ("a", "b"), size=9000)
    push(ann.session, [first[0]], ann.session.chain.writable)
    found = bob.session.chain.find(first[0].directory, first[0].model_type, first[0].key)
    from cachekit.actions.pull import pull

    done = pull(bob.session, found)
    assert (done.files, done.size, done.present) == (1, 9000, 9000)
    assert served(bob.store, find(bob.store, first[0])) == expected(first)


def test_tiny_files_come_with_the_record(member):
    ann, bob = member("ann"), member("bob")
    made = make_record(size=100)
    publish(ann.store, made)
    push(ann.session, [made[0]], ann.session.chain.writable)
    tier = Counted(bob.session.chain.readable[0].tier)
    bob.session.chain.readable[0].tier = tier
    from cachekit.actions.pull import pull

    pull(bob.session, bob.session.chain.find(made[0].directory, made[0].model_type, made[0].key))
    assert "chunks" not in tier.calls
    assert served(bob.store, find(bob.store, made[0])) == expected(made)


@pytest.mark.feature("N1")
def test_what_is_not_there_is_remembered_for_a_while(tmp_path, make):
    for _ in range(3):
        tier = Counted(make())
        bob = Watched(tmp_path / "bob", shared=[(tier, "r")])
        for batch in range(1, 6):
            assert not plan(bob.prepare(recipe(batch)), bob.store, bob.session.chain).hit
        assert tier.calls.count("read") in {0, 5}
    assert tier.calls == []
    # Whoever asks for it gets a fresh answer.
    prepared = bob.prepare(recipe(1))
    place = prepared.fingerprint.directory, prepared.model_type, prepared.key
    assert bob.session.chain.find(*place, anew=True) is None
    assert "read" in tier.calls


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
def serving(tier, path, raw):
    """Make the tier serve other bytes for one path, as a broken disk or a stranger would."""

    class Lying(Counted):
        def chunks(self, asked, revision, start=0):
            if asked != path:
                yield from tier.chunks(asked, revision, start)
            else:
                yield from (raw[at : at + 1000] for at in range(start, len(raw), 1000))

    yield Lying(tier)


@pytest.mark.feature("S5")
@pytest.mark.parametrize("kind", ["flip", "short", "long", "empty"])
def test_wrong_bytes_never_enter_the_store(member, tmp_path, make, kind, log):
    ann = member("ann")
    made = make_record(size=9000)
    publish(ann.store, made)
    push(ann.session, [made[0]], ann.session.chain.writable)
    file, path = next(iter(document.Shared(made[0]).paths().values()))
    with serving(make(), path, damage_of(kind, made[1][file.sha256])) as lying:
        bob = Watched(tmp_path / "bob", shared=[(lying, "r")])
        found = bob.session.chain.find(made[0].directory, made[0].model_type, made[0].key)
        assert obtain(bob.session, found) is None
    assert find(bob.store, made[0]) is None
    assert bob.told("remote.damaged")
    assert [path for path in (tmp_path / "bob" / "v1" / "partial").glob("*") if path.stat().st_size] == [] or kind
    # The next one, from a sound cache, is not disturbed by what arrived.
    carl = Watched(tmp_path / "bob", shared=[(make(), "r")])
    record = obtain(carl.session, carl.session.chain.find(made[0].directory, made[0].model_type, made[0].key))
    assert served(carl.store, record) == expected(made)


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
        lambda raw: document.write(document.Shared(make_record(7)[0])),
    ],
)
def test_a_record_that_is_none_is_a_miss_and_told(tmp_path, make, spoil):
    tier = make()
    made = make_record()
    path = layout.path_of(made[0])
    raw = spoil(document.write(document.Shared(made[0])))
    tier.commit(Change("a stranger's [1]", writes=[Write(path, raw, "")]), tier.revision())
    bob = Watched(tmp_path / "bob", shared=[(make(), "rw")])
    assert bob.session.chain.find(made[0].directory, made[0].model_type, made[0].key) is None
    assert bob.told("remote.damaged")
    # A push puts a good one in its place.
    publish(bob.store, made)
    (pushed,) = push(bob.session, [made[0]], bob.session.chain.writable)
    assert pushed.error is None, pushed.error.lines()
    carl = Watched(tmp_path / "carl", shared=[(make(), "r")])
    found = carl.session.chain.find(made[0].directory, made[0].model_type, made[0].key)
    assert found.shared.record == made[0]


def test_a_record_without_end_keeps_nobody_from_its_key(tmp_path, make, monkeypatch):
    for module in ("draft", "remote"):
        monkeypatch.setattr(f"cachekit.tiers.{module}.RECORD_LIMIT", 20_000)
    tier, made = make(), make_record()
    tier.commit(Change("a [1]", writes=[Write(layout.path_of(made[0]), b" " * 20_001, "")]), tier.revision())
    bob = Watched(tmp_path / "bob", shared=[(make(), "rw")])
    publish(bob.store, made)
    (pushed,) = push(bob.session, [made[0]], bob.session.chain.writable)
    assert pushed.error is None, pushed.error.lines()
    (told,) = bob.told("remote.damaged")
    assert told["key"] == made[0].key
    carl = Watched(tmp_path / "carl", shared=[(make(), "r")])
    assert carl.session.chain.find(made[0].directory, made[0].model_type, made[0].key).shared.record == made[0]


@pytest.mark.parametrize(
    "change", [{"recipe": "\ud800"}, {"graphs": 10**400}, {"bytes": float("inf")}, {"seconds": -1}, {"user": 3}]
)
def test_a_card_that_others_spoilt_stops_no_push(tmp_path, shared, change):
    ann = Watched(tmp_path / "ann", shared=[(FolderTier(shared), "rw")])
    one, two = publish(ann.store, make_record(1)), publish(ann.store, make_record(2))
    page = card.update(b"", [one], 1).decode()
    row = card.ROWS.search(page)[1]
    page = page.replace(row, json.dumps({**json.loads(row), **change}))
    tier = FolderTier(shared)
    tier.commit(Change("a stranger's [1]", writes=[Write(layout.CARD, page.encode(), "")]), "")
    (pushed,) = push(ann.session, [two], ann.session.chain.writable)
    assert pushed.error is None
    said = (shared / "README.md").read_text()
    assert two.key in said
    assert one.key not in said


def test_whatever_a_push_stumbles_over_fails_no_run(tmp_path, shared):
    def stumble(*_, **__):
        raise KeyError("a token, maybe")

    ann = Watched(tmp_path / "ann", shared=[(Broken(FolderTier(shared), "commit", error=stumble), "rw")])
    record = publish(ann.store, make_record())
    (pushed,) = push(ann.session, [record], ann.session.chain.writable)
    assert "KeyError" in pushed.error.cause
    assert "token" not in str(pushed.error.lines())
    assert chosen(ann.session, [], pending=True) == [record]


def test_a_card_keeps_its_rows_when_somebody_edited_it_on_windows():
    one, two = make_record(1)[0], make_record(2)[0]
    page = card.update(b"", [one], 1).replace(b"\n", b"\r\n")
    assert card.total(page) == 1
    assert one.key in card.update(page, [two], 2).decode()


def test_a_later_cachekits_record_is_a_miss_and_left_alone(tmp_path, make):
    made = make_record()
    body = json.loads(encode(made[0]))["record"] | {"schema": 2}
    from cachekit.key import canonical_json

    raw = json.dumps({"record": body, "sha256": hashlib.sha256(canonical_json(body)).hexdigest()}).encode()
    tier, path = make(), layout.path_of(made[0])
    tier.commit(Change("later [1]", writes=[Write(path, raw, "")]), tier.revision())
    bob = Watched(tmp_path / "bob", shared=[(make(), "rw")])
    assert bob.session.chain.find(made[0].directory, made[0].model_type, made[0].key) is None
    assert not bob.told("remote.damaged")
    publish(bob.store, made)
    push(bob.session, [made[0]], bob.session.chain.writable)
    assert make().read(path, make().revision(), 1 << 20).data == raw


def test_two_builds_of_one_module_both_stay_whole(member):
    """A compiler that is not deterministic: others fetched the first build's bytes by its digests."""
    ann, bob = member("ann", compiler=StandIn(salt="one")), member("bob", compiler=StandIn(salt="two"))
    # Other recipes, so other records, but modules of the same names.
    one = make_record(1, ("a",), size=9000)
    two = (make_record(2, ("a",), size=9000)[0], {})
    other = bytes(9000)
    file = type(two[0].files[0])(two[0].files[0].path, 9000, hashlib.sha256(other).hexdigest())
    module = structs.replace(two[0].modules[0], files=(file,))
    two = (structs.replace(two[0], modules=(module,)), {file.sha256: other})
    assert one[0].modules[0].name == two[0].modules[0].name
    for watched, made in ((ann, one), (bob, two)):
        publish(watched.store, made)
        (pushed,) = push(watched.session, [made[0]], watched.session.chain.writable)
        assert pushed.error is None
    carl = member("carl", "r")
    for made in (one, two):
        record = obtain(carl.session, carl.session.chain.find(made[0].directory, made[0].model_type, made[0].key))
        assert served(carl.store, record) == expected(made)


@pytest.mark.feature("R1")
@pytest.mark.parametrize("damage", ["other", "shorter", "gone"])
def test_a_push_mends_what_somebody_damaged(tmp_path, make, damage):
    tier, ann = make(), Watched(tmp_path / "ann", shared=[(make(), "rw")])
    made = make_record(size=9000)
    publish(ann.store, made)
    push(ann.session, [made[0]], ann.session.chain.writable)
    file, path = next(iter(document.Shared(made[0]).paths().values()))
    revision = tier.revision()
    there = tier.read(path, revision, 1 << 20)
    # Any tool that is not cachekit writes wherever it likes.
    raw = {"other": bytes(9000), "shorter": b"x", "gone": None}[damage]
    tier.commit(Change("a stranger's [1]", writes=[Write(path, raw, there.token)]), revision)
    (pushed,) = push(ann.session, [made[0]], ann.session.chain.writable, recheck=True)
    assert file.sha256 in {one.sha256 for one in pushed.published.files}
    assert "gone, or overwritten" in ann.told("remote.damaged")[0]["reason"]
    bob = Watched(tmp_path / "bob", shared=[(make(), "r")])
    found = bob.session.chain.find(made[0].directory, made[0].model_type, made[0].key)
    assert served(bob.store, obtain(bob.session, found)) == expected(made)
    if raw is not None:
        assert make().read(path, make().revision(), 1 << 20).data == raw  # nothing is overwritten


@pytest.mark.parametrize("damage", [bytes(9000), None])
def test_where_one_request_tells_of_damage_each_push_mends_it(tmp_path, damage):
    with serve("hub", tmp_path / "server") as make:
        tier, ann = make(), Watched(tmp_path / "ann", shared=[(make(), "rw")])
        made = make_record(size=9000)
        publish(ann.store, made)
        push(ann.session, [made[0]], ann.session.chain.writable)
        _, path = next(iter(document.Shared(made[0]).paths().values()))
        there = tier.read(path, revision := tier.revision(), 1 << 20)
        tier.commit(Change("a stranger's [1]", writes=[Write(path, damage, there.token)]), revision)
        (pushed,) = push(ann.session, [made[0]], ann.session.chain.writable)
        assert len(pushed.published.files) == 1
        bob = Watched(tmp_path / "bob", shared=[(make(), "r")])
        found = bob.session.chain.find(made[0].directory, made[0].model_type, made[0].key)
        assert served(bob.store, obtain(bob.session, found)) == expected(made)


def test_what_is_new_beside_a_record_is_no_damage_of_that(member):
    ann, (one, contents), (two, _) = member("ann"), make_record(1), make_record(2)
    two = structs.replace(two, modules=(structs.replace(two.modules[0], name="standin-1.0/MODULE_2"),))
    for record in (one, two):  # of the same bytes, in another place
        publish(ann.store, (record, contents))
        (pushed,) = push(ann.session, list(ann.store.records()), ann.session.chain.writable)
        assert pushed.published.records == (layout.path_of(record),)
    assert not ann.told("remote.damaged")


def test_what_a_pull_found_damaged_the_compile_after_it_replaces(tmp_path, make, log):
    ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    made = warm(ann.session, ann.prepare()).record
    tier = make()
    file, path = max(document.Shared(made).paths().values(), key=lambda found: found[0].size)
    there = tier.read(path, revision := tier.revision(), 1 << 20)
    tier.commit(Change("a stranger's [1]", writes=[Write(path, bytes(file.size), there.token)]), revision)
    for name, compiled in (("bob", 3), ("carl", 0)):
        one = Watched(tmp_path / name, shared=[(make(), "rw")])
        assert warm(one.session, one.prepare()).compiled == compiled


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


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.mark.feature("S5")
@pytest.mark.parametrize("kind", ["flip", "short", "gone"])
@pytest.mark.parametrize("salt", ["", "another"])
def test_who_finds_a_damaged_record_puts_a_good_one_in_its_place(tmp_path, shared, kind, salt):
    def member(name, salt):
        return Watched(tmp_path / name, shared=[(FolderTier(shared), "rw")], compiler=StandIn(salt=salt))

    ann, bob, carl = member("ann", ""), member("bob", salt), member("carl", salt)
    warm(ann.session, ann.prepare())
    harm(shared, kind)
    made = warm(bob.session, bob.prepare())
    assert made.compiled == 3
    assert len(bob.told("remote.damaged")) == 1  # it was not fetched twice
    done = warm(carl.session, carl.prepare())
    assert (done.compiled, done.record) == (0, made.record)


def test_a_push_that_looks_again_sends_what_is_gone(tmp_path, shared):
    ann = Watched(tmp_path / "ann", shared=[(FolderTier(shared), "rw")])
    record = warm(ann.session, ann.prepare()).record
    harm(shared, "gone")
    (pushed,) = push(ann.session, [record], ann.session.chain.writable, recheck=True)
    assert len(pushed.published.files) == 3
    bob = Watched(tmp_path / "bob", shared=[(FolderTier(shared), "r")])
    assert warm(bob.session, bob.prepare()).compiled == 0


def test_damage_in_a_place_named_by_its_digest_is_told(tmp_path, shared):
    ann = Watched(tmp_path / "ann", shared=[(FolderTier(shared), "rw")])
    record = warm(ann.session, ann.prepare()).record
    harm(shared, "flip")
    for _ in range(2):
        (pushed,) = push(ann.session, [record], ann.session.chain.writable, recheck=True)
        assert pushed.error is None
    for path in (shared / "cachekit/v1/blobs").rglob("*"):
        if path.is_file():
            path.chmod(0o644)
            path.write_bytes(bytes(path.stat().st_size))
    (pushed,) = push(ann.session, [record], ann.session.chain.writable, recheck=True)
    assert "cachekit/v1/blobs/" in pushed.error.cause


@pytest.mark.parametrize("failing", ["damaged", "away"])
def test_what_one_cache_cannot_give_the_next_one_does(tmp_path, shared, failing, log):
    far = tmp_path / "far"
    far.mkdir()
    for folder in (shared, far):
        ann = Watched(tmp_path / "ann", shared=[(FolderTier(folder), "rw")])
        made = warm(ann.session, ann.prepare())
    near = FolderTier(shared) if failing == "damaged" else Broken(FolderTier(shared), "chunks", error=AuthError)
    if failing == "damaged":
        harm(shared, "flip")
    bob = Watched(tmp_path / "bob", shared=[(near, "rw"), (FolderTier(far), "r")])
    assert pull_recipe(bob.session, bob.prepare()).tier == str(far)
    assert bob.lookup(bob.prepare()) == made.record
    assert len(compiles(log)) == 1
    if failing == "damaged":  # and the nearer one has it whole now
        carl = Watched(tmp_path / "carl", shared=[(FolderTier(shared), "r")])
        assert warm(carl.session, carl.prepare()).compiled == 0


# Outages


@pytest.mark.feature("R4")
@pytest.mark.parametrize("failing", ["revision", "read", "chunks", "upload", "commit", "stat", "all"])
def test_a_cache_that_is_away_stops_nothing(tmp_path, make, failing, log):
    ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    warm(ann.session, ann.prepare())
    tier = Broken(make(), failing)
    bob = Watched(tmp_path / "bob", shared=[(tier, "rw")])
    done = train(bob.session, bob.prepare(recipe(4)), output_dir=tmp_path / "out")
    assert done.result.steps
    assert plan(bob.prepare(recipe(4)), bob.store).hit
    hit = warm(bob.session, bob.prepare())
    assert hit.record.key == bob.prepare().key
    told = [event for event in bob.events if event["event"] in {"remote.failed", "push.failed"}]
    assert told
    assert "the cable is cut" in json.dumps(told)


@pytest.mark.feature("R4")
def test_a_cache_that_failed_is_left_alone_by_the_next_runs_too(tmp_path, make):
    tier = Broken(make(), "all")
    for _ in range(3):
        bob = Watched(tmp_path / "bob", shared=[(tier, "rw")])
        assert not plan(bob.prepare(), bob.store, bob.session.chain).hit
        assert len(bob.told("remote.failed")) == 1
    assert len(tier.calls) == 1


def test_a_push_that_is_always_too_late_leaves_the_cache_in_use(tmp_path, shared):
    ann = Watched(tmp_path / "ann", shared=[(Broken(FolderTier(shared), "commit", error=ConflictError), "rw")], push=0)
    record = publish(ann.store, make_record())
    (pushed,) = push(ann.session, [record], ann.session.chain.writable)
    assert "could not take the push" in pushed.error.message
    assert ann.session.chain.writable[0].usable()


def test_what_could_not_be_pushed_is_kept_and_offered_again(tmp_path, make, log):
    tier = Broken(make(), "commit")
    ann = Watched(tmp_path / "ann", shared=[(tier, "rw")], push=0)
    record = warm(ann.session, ann.prepare()).record
    remote = ann.session.chain.writable[0]
    assert remote.pending() == {record.key: (record.directory, record.model_type)}
    tier.failing.clear()
    later = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    later.session.chain.writable[0].retry()
    push(later.session, [record], later.session.chain.writable)
    assert later.session.chain.writable[0].pending() == {}
    bob = Watched(tmp_path / "bob", shared=[(make(), "r")])
    assert plan(bob.prepare(), bob.store, bob.session.chain).hit


def test_a_push_that_was_stopped_is_offered_again(tmp_path, shared):
    """By Ctrl-C here; a kill leaves the same note."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    tier = Broken(FolderTier(shared), "commit", error=stop)
    ann = Watched(tmp_path / "ann", shared=[(tier, "rw")])
    record = publish(ann.store, make_record())
    with pytest.raises(KeyboardInterrupt):
        push(ann.session, [record], ann.session.chain.writable)
    assert chosen(ann.session, [], pending=True) == [record]
    other = publish(ann.store, make_record(2))
    assert chosen(ann.session, [other.key], pending=True) == []
    tier.failing.clear()
    push(ann.session, [record], ann.session.chain.writable)
    assert chosen(ann.session, [], pending=True) == []


@pytest.mark.feature("C2")
@pytest.mark.parametrize("trouble", [lambda tier, key: Long(tier, "upload", key), Busy], ids=["large files", "busy"])
def test_who_pushes_for_long_still_holds_the_lease(tmp_path, shared, trouble):
    """Others would take it for dead, and compile what is on its way."""
    prepared = Watched(tmp_path / "ann").prepare()
    tier = trouble(FolderTier(shared), prepared.key)
    ann = Watched(tmp_path / "ann", shared=[(tier, "rw")], lease=1)
    assert warm(ann.session, prepared).compiled
    assert tier.signs
    assert not ann.told("push.failed")
    assert tier.read(layout.lease_path(prepared.key), tier.revision(), 1 << 20) is None


def test_a_record_named_twice_is_pushed_once(tmp_path, shared):
    ann = Watched(tmp_path / "ann", shared=[(FolderTier(shared), "rw")], push=3)
    record = publish(ann.store, make_record())
    (pushed,) = push(
        ann.session, chosen(ann.session, [record.key, record.key[:8]], pending=False), ann.session.chain.writable
    )
    assert pushed.error is None
    assert len(pushed.published.records) == 1


def test_a_pull_goes_on_where_a_killed_one_stopped(member, make, tmp_path):
    ann = member("ann")
    made = make_record(artifacts=("a",), size=5_000_000)
    publish(ann.store, made)
    push(ann.session, [made[0]], ann.session.chain.writable)

    class Cut(Counted):
        def chunks(self, path, revision, start=0):
            for number, data in enumerate(self._tier.chunks(path, revision, start)):
                yield data[:1000]
                if number == 0:
                    raise KeyboardInterrupt

    bob = Watched(tmp_path / "bob", shared=[(Cut(make()), "r")])
    place = made[0].directory, made[0].model_type, made[0].key
    with pytest.raises(KeyboardInterrupt):
        pull(bob.session, bob.session.chain.find(*place))
    tier = make()
    again = Watched(tmp_path / "bob", shared=[(tier, "r")])
    starts = []
    whole = tier.chunks
    tier.chunks = lambda path, revision, start=0: starts.append(start) or whole(path, revision, start)
    pull(again.session, again.session.chain.find(*place))
    assert starts == [1000]
    assert served(again.store, find(again.store, made[0])) == expected(made)


def test_two_that_pull_one_record_at_once_both_have_it(tmp_path, shared):
    ann = Watched(tmp_path / "ann", shared=[(FolderTier(shared), "rw")])
    made = make_record(artifacts=("a", "b"), size=50_000)
    first, second = made[0].files
    publish(ann.store, made)
    push(ann.session, [made[0]], ann.session.chain.writable)
    place = made[0].directory, made[0].model_type, made[0].key

    class Overtaken(Counted):
        def chunks(self, path, revision, start=0):
            if second.sha256 in path or path.endswith(second.path):
                arrived = bob.store.layout.partial / first.sha256
                end = time.monotonic() + 20
                while (handle := hold(arrived, os.O_RDWR | os.O_CREAT)) is None or arrived.stat().st_size < first.size:
                    assert time.monotonic() < end
                    if handle is not None:
                        os.close(handle)
                    time.sleep(0.01)
                os.close(handle)
                pull(other.session, other.session.chain.find(*place))
            yield from self._tier.chunks(path, revision, start)

    other = Watched(tmp_path / "bob", shared=[(FolderTier(shared), "r")])
    bob = Watched(tmp_path / "bob", shared=[(Overtaken(FolderTier(shared)), "r")])
    assert pull(bob.session, bob.session.chain.find(*place)).files == 2
    for one in (bob, other):
        assert served(one.store, find(one.store, made[0])) == expected(made)
    assert not list(bob.store.layout.partial.iterdir())


def test_require_warm_fails_where_the_cache_has_it_not(member):
    bob = member("bob")
    with pytest.raises(MissError):
        warm(bob.session, bob.prepare(), require_warm=True)


def test_a_record_carries_no_more_than_its_share_of_tiny_files(tmp_path, monkeypatch):
    from cachekit.actions.pull import pull

    monkeypatch.setattr("cachekit.actions.push.INLINE", 7000)
    with serve("folder", tmp_path / "server") as opened:
        ann = Watched(tmp_path / "ann", shared=[(opened(), "rw")])
        made = make_record(1, [f"a{number}" for number in range(10)], size=3000)
        record = publish(ann.store, made)
        (done,) = push(ann.session, [record], ann.session.chain.writable)
        assert done.error is None
        bob = Watched(tmp_path / "bob", shared=[(opened(), "r")])
        found = bob.session.chain.find(record.directory, record.model_type, record.key)
        assert len(found.shared.inline) == 2
        pull(bob.session, found)
        assert served(bob.store, record) == expected(made)
