"""What is revoked is not used any more, where it lies and here, and neither is what was made with its help."""

import os

import pytest
from msgspec import structs

from cachekit.compilers.cachedir import note_origin
from cachekit.errors import UntrustedError, UsageError
from cachekit.remotes import layout
from cachekit.store.origin import Beside, Origin, ReusedOrigin
from cachekit.store.record import file_path
from cachekit.trust import envelope, sshsig
from cachekit.trust.envelope import Envelope, Signature, decode, encode
from cachekit.verbs.plan import miss_error
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.push import push_records
from cachekit.verbs.records import remove
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.support.standins import StandIn, recipe
from tests.trust.attack_cases import signed, statement
from tests.trust.flow_cases import (  # noqa: F401 - some are fixtures
    ALICE,
    BOB,
    EVE,
    alice,
    alices,
    bundle,
    close,
    place,
    planned,
    put,
    shared,
    signatures,
    taken,
    trust,
    user,
)
from tests.trust.trust_cases import key

pytestmark = pytest.mark.feature("T5")

LATER = "2100-01-01"


def ways(record):
    """What can be revoked of a record, and how the reason begins."""
    return {
        "record": ({"records": [record.digest]}, "revoked by its digest"),
        "key": ({"keys": [key(ALICE).fingerprint]}, f"signed with {key(ALICE).fingerprint}"),
        "before": ({"before": LATER}, "made before 2100-01-01"),
    }


@pytest.mark.parametrize("way", ["record", "key", "before"])
def test_on_a_remote_and_in_the_store(alice, user, place, way):
    bob = user("bob", trust(ALICE))
    pull_recipe(bob.session, bob.prepare())
    revoked, reason = ways(alice.record)[way]
    bob = user("bob", trust(ALICE, revoked=revoked), may="")
    found = planned(bob)
    assert not found.hit
    assert found.untrusted[0].startswith(f"local: a record of this key is there, but it is {reason}")
    assert (type(miss_error(found)), miss_error(found).exit_code) == (UntrustedError, 5)
    (told,) = bob.told("store.refused")
    assert told["key"] == alice.record.key
    assert not bob.told("store.damaged")
    assert len(list(bob.store.layout.quarantine.iterdir())) == 1
    assert bob.store.read(alice.record.place) is None
    there = planned(user("new", trust(ALICE, revoked=revoked)))
    assert not there.hit
    assert "revoked" in there.untrusted[0]


def test_what_reuses_it_goes_with_it(alice, user):
    bob = user("bob", trust(ALICE, key=BOB))
    made = warm(bob.session, bob.prepare(recipe(16))).record
    assert bob.store.origins.of(made).origin.reused
    wary = user("bob", trust(ALICE, key=BOB, revoked={"records": [alice.record.digest]}), may="")
    planned(wary)
    assert len(list(wary.store.layout.quarantine.iterdir())) == 2
    assert list(wary.store.records()) == []


@pytest.mark.parametrize("fetched", [True, False])
def test_a_strangers_signature_beside_it_does_not_keep_what_reuses_it(alice, user, place, fetched):
    """Who may write to a team's own folder adds one by a key made for that, before the first is revoked."""
    path = layout.signatures_path(alice.record.place)
    there = decode((place / path).read_bytes())
    put(place, path, encode([*there, signed(EVE, statement(shared(place, alice.record).record))]))
    close(place)
    bob = user("bob", trust(ALICE, key=BOB))
    made = warm(bob.session, bob.prepare(recipe(16))).record
    assert bob.store.origins.of(made).origin.reused
    close(place)
    if fetched:
        carol = user("carol", trust(BOB, said={str(place): "signed"}))
        pull_recipe(carol.session, carol.prepare(recipe(16)))
    said = trust(BOB, revoked={"keys": [key(ALICE).fingerprint]})
    found = planned(user("carol", said, may="" if fetched else "rw"), recipe(16))
    assert not found.hit
    assert "made by reuse of" in found.untrusted[0]


@pytest.mark.parametrize("way", ["record", "key", "before"])
def test_what_its_maker_grew_a_record_to_is_revoked_with_it(alice, user, place, way):
    """A digest names one state of a record, and a later one says from which states it grew."""
    more = user("alice", trust(key=ALICE), compiler=StandIn(extra=1))
    train(more.session, more.prepare(), output_dir=place.parent / "output")
    grown = more.lookup(more.prepare())
    assert grown.digest != alice.record.digest
    push_records(more.session, [grown], public=False, replaces=False, dry_run=False)
    assert planned(user("bob", trust(ALICE))).hit
    ended = ways(alice.record)[way][0]
    assert not planned(user("dan", trust(ALICE, revoked=ended))).hit
    own = planned(user("alice", trust(key=ALICE, revoked=ended), may=""))
    assert own.hit is (way == "key"), "what one made oneself is used whichever key signs now"


@pytest.mark.parametrize("way", ["own", "everything"])
def test_a_key_is_revoked_under_which_nobody_asked_for_a_signature(alice, user, place, way):
    """Who signed what came into the store is kept, though the settings name nobody."""
    if way == "own":
        close(place)
    bob = user("bob", trust(everything=way == "everything"))
    pull_recipe(bob.session, bob.prepare())
    made = warm(bob.session, bob.prepare(recipe(16))).record
    assert planned(user("bob", trust(), may="")).hit
    gone = trust(revoked={"keys": [key(ALICE).fingerprint]})
    wary = user("bob", gone, may="")
    (why,) = planned(wary, recipe(16)).untrusted
    assert f"by reuse of {alice.record.key[:12]}" in why
    assert wary.store.read(alice.record.place) is wary.store.read(made.place) is None
    told = {one["key"]: one["reason"] for one in wary.told("store.refused")}
    assert told[alice.record.key] == f"signed with {key(ALICE).fingerprint}, which is revoked"


def test_a_revoked_record_is_not_given_on(alice, user, tmp_path):
    bob = user("bob", trust(ALICE))
    pull_recipe(bob.session, bob.prepare())
    other = tmp_path / "other"
    other.mkdir()
    wary = user("bob", trust(ALICE, revoked={"records": [alice.record.digest]}), where=other)
    assert push_records(wary.session, [alice.record], public=False, replaces=False, dry_run=False)[0].records == ()


def test_a_revoked_key_does_not_sign_and_the_run_goes_on(user, place):
    said = trust(key=ALICE, revoked={"keys": [key(ALICE).fingerprint]})
    alice = user("alice", said)
    record = warm(alice.session, alice.prepare()).record
    (failed,) = alice.told("push.failed")
    assert failed["reason"] == f"the signing key {key(ALICE).fingerprint} is revoked"
    assert not signatures(place, record).exists()
    with pytest.raises(UsageError, match="is revoked"):
        bundle(alice, place / "x.tar")


@pytest.mark.feature("T2")
def test_trust_signed_does_not_take_from_the_store_what_came_unsigned(alice, user, place):
    bob = user("bob", trust(everything=True))
    pull_recipe(bob.session, bob.prepare())
    said = {
        "signed": " and not signed, which --trust signed asks for",
        "owner": ", not a place of yours, and not signed: --trust owner asks for one of the two",
    }
    for only, why in said.items():
        strict = user("bob", trust(only=only), may="")
        assert planned(strict).untrusted == (f"local: a record of this key is there, but it is from {place}{why}",)
    assert planned(user("bob", trust(), may="")).hit, "it stays where it is, and somebody said so of it"


def restored(user, record, own):
    """Puts a record's modules where a compiler looks that names its own folder so; where they lie."""
    there = {own / file_path(module, file): file for module in record.modules for file in module.files}
    for path, file in there.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(user.store.layout.blob(file.sha256).read_bytes())
    return there


def test_a_compilers_own_folder_loses_it_and_keeps_the_rest(alice, user, tmp_path):
    bob = user("bob", trust(ALICE))
    pull_recipe(bob.session, bob.prepare())
    own = tmp_path / "own"
    restored(bob, alice.record, own)
    mine = own / "mine" / "model.neff"
    mine.parent.mkdir()
    mine.write_bytes(b"compiled here")
    assert bob.store.refusal.withdraw(own) == {}
    bob = user("bob", trust(ALICE, revoked=ways(alice.record)["key"][0]))
    planned(bob)
    assert bob.store.refusal.withdraw(own) == {module.name: "it is revoked" for module in alice.record.modules}
    assert [path for path in own.rglob("*") if path.is_file()] == [mine]


@pytest.mark.feature("T2")
@pytest.mark.parametrize("said", [trust(key=BOB), trust(only="signed")])
def test_a_compilers_own_folder_loses_what_is_not_to_be_used_any_more(alice, user, tmp_path, said):
    """The settings name its signer no more; or it came unsigned, and the command asks for signatures."""
    bob = user("bob", trust(everything=True) if said.only else trust(ALICE, key=BOB))
    pull_recipe(bob.session, bob.prepare())
    own = tmp_path / "own"
    note_origin(bob.store, own, alice.record, bob.store.origins.of(alice.record))
    there = restored(bob, alice.record, own)
    assert bob.store.refusal.withdraw(own) == {}
    gone = user("bob", said, may="").store.refusal.withdraw(own)
    assert gone.keys() == {module.name for module in alice.record.modules}
    assert not any(path.exists() for path in there)


def test_what_reuses_a_record_that_came_unsigned_stays_here_once_its_remote_asks_for_signatures(alice):
    record = alice.record
    for signers, withheld in (((), True), ((key(BOB).fingerprint,), False)):
        reused = ReusedOrigin("a" * 64, "b" * 64, "team", "owner", signers)
        asked = trust(BOB, said={"team": "signed"})
        assert bool(asked.unpublishable(record, Beside(Origin(reused=(reused,))))) is withheld


class Meanwhile(StandIn):
    """A compiler that others do something beside, after it began and before what it compiled is kept."""

    def harvest(self, *of):
        self.others()
        return super().harvest(*of)


def test_what_is_revoked_while_a_run_uses_it_does_not_come_back_in_what_the_run_keeps(alice, user, place):
    revoked = trust(everything=True, revoked={"records": [alice.record.digest]})
    bob = user("bob", trust(key=BOB, everything=True), compiler=Meanwhile(extra=1))
    bob.compiler.others = lambda: planned(user("bob", revoked, may=""))
    train(bob.session, bob.prepare(), output_dir=place.parent / "output")
    assert list(bob.store.records()) == []
    (told,) = bob.told("train.not-kept")
    assert "is not in the store any more" in told["reason"]


@pytest.mark.parametrize("batch", [8, 16])
def test_a_run_says_what_it_was_given_whatever_became_of_that_meanwhile(alice, user, place, batch):
    """Another run compiled the key anew, or the nearest record was removed."""
    bob = user("bob", trust(key=BOB, everything=True), compiler=Meanwhile(extra=1))

    def others():
        beside = user("bob", trust(key=BOB), may="", compiler=StandIn(salt="another"))
        if batch == 16:
            remove(beside.session, [alice.record.key], force=True)
        else:
            warm(beside.session, beside.prepare(), recache=True)

    bob.compiler.others = others
    if batch == 16:
        warm(bob.session, bob.prepare(recipe(16)))
    else:
        train(bob.session, bob.prepare(), output_dir=place.parent / "output")
    made = bob.lookup(bob.prepare(recipe(batch)))
    origin = bob.store.origins.of(made).origin
    assert (alice.record.digest, "all") in {(one.record, one.how) for one in origin.reused}
    assert "nobody checked who made it" in trust(key=BOB).unpublishable(made, Beside(origin))


@pytest.mark.feature("T2")
def test_each_state_of_a_key_that_is_reused_has_to_be_one_that_may_be_given_on(alice):
    record = alice.record
    theirs = ReusedOrigin(record.key, "b" * 64, "/mnt/shared", "all")
    grown = ReusedOrigin(record.key, "c" * 64)
    for reused in ((theirs, grown), (grown, theirs)):
        assert "nobody checked who made it" in trust().unpublishable(record, Beside(Origin(reused=reused)))


@pytest.mark.parametrize("where", ["store", "remote"])
def test_false_signatures_before_the_true_one_do_not_hide_it(alice, user, place, where):
    """Who takes a record unasked is to know all keys whose signatures hold, so that each can be revoked."""
    (good,) = decode(signatures(place, alice.record).read_bytes())
    false = structs.replace(good, signatures=tuple(false_one() for _ in range(4)))
    more = structs.replace(good, signatures=tuple(false_one() for _ in range(4)))
    put(place, layout.signatures_path(alice.record.place), encode([false, more, good]))
    close(place)
    bob = user("bob", trust(), may="r")
    pull_recipe(bob.session, bob.prepare())
    assert bob.store.origins.of(alice.record).origin.signers == (key(ALICE).fingerprint,)
    gone = trust(revoked={"keys": [key(ALICE).fingerprint]})
    again = user("bob", gone, may="") if where == "store" else user("carol", gone, may="r")
    assert not planned(again).hit
    assert "which is revoked" in planned(again).untrusted[0]


def false_one():
    return Signature("x", sshsig.build(key(ALICE), os.urandom(64)))


@pytest.mark.parametrize("everything", [False, True])
def test_a_record_with_more_bytes_of_signatures_than_are_read_is_not_taken(alice, user, place, tmp_path, everything):
    """It would be one that nobody can revoke by a key; a push by a signer mends it."""
    path = layout.signatures_path(alice.record.place)
    (good,) = decode(signatures(place, alice.record).read_bytes())
    junk = Envelope(bytes(3 << 20), "x", (Signature("x", b"x"),))
    put(place, path, encode([good, junk]))
    close(place)
    bob = user("bob", trust(everything=everything), may="r")
    with pytest.raises(UntrustedError) as told:
        pull_recipe(bob.session, bob.prepare())
    assert "the signatures beside it have more than" in told.value.cause
    assert not list(bob.store.records())
    (done,) = push_records(alice.session, [alice.record], public=False, replaces=False, dry_run=False)
    assert (done.error, len(done.signatures)) == (None, 1)
    assert decode(signatures(place, alice.record).read_bytes())[0].payload
    bob = user("bob", trust(everything=everything), may="r")
    pull_recipe(bob.session, bob.prepare())
    assert bob.store.origins.of(alice.record).origin.signers == (key(ALICE).fingerprint,)


@pytest.mark.parametrize("everything", [False, True])
def test_nor_is_such_a_record_of_a_bundle(alice, user, tmp_path, monkeypatch, everything):
    path = bundle(alice, tmp_path / "x.tar")
    monkeypatch.setattr(envelope, "_BYTES", 10)
    monkeypatch.setattr(envelope, "_BYTES_PER_FILE", 0)
    bob = user("bob", trust(ALICE, everything=everything))
    with pytest.raises(UntrustedError) as told:
        taken(bob, path)
    assert "the signatures beside it have more than 10 bytes" in told.value.cause
    assert not list(bob.store.records())
