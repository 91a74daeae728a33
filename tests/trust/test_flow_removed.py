"""A signer whom the settings name no longer: what came by that signature is a miss, and what this user made of it."""

import pytest

from cachekit.compilers import registry
from cachekit.errors import InterruptedRunError
from cachekit.remotes import fetch as fetching
from cachekit.remotes import repair as repairing
from cachekit.remotes.signing import Signing
from cachekit.store.verify import verify
from cachekit.trust.envelope import decode
from cachekit.trust.statement import holding
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.support.standins import StandIn, overwrite, recipe
from tests.trust.flow_cases import (  # noqa: F401 - some are fixtures
    ALICE,
    BOB,
    EVE,
    alice,
    alices,
    close,
    place,
    planned,
    signatures,
    trust,
    user,
)
from tests.trust.trust_cases import key
from tests.verbs.verb_cases import ends_within

pytestmark = pytest.mark.feature("T2")

WANTED = recipe(16)


@pytest.mark.parametrize("batch", [8, 16])
def test_what_reuses_a_record_needs_its_signer_as_long_as_the_record_does(alice, user, place, batch):
    """It grew from that record, or began with it as the nearest; the settings name the signer no more."""
    bob = user("bob", trust(ALICE, key=BOB), may="r", compiler=StandIn(extra=1))
    wanted = recipe(batch)
    train(bob.session, bob.prepare(wanted), output_dir=place.parent / "output")
    made = bob.lookup(bob.prepare(wanted))
    beside = bob.store.origins.of(made)
    assert (alice.record.digest, "signed") in {(one.record, one.how) for one in beside.origin.reused}
    for said, usable in ((trust(ALICE, key=BOB), True), (trust(key=BOB), False)):
        again = user("bob", said, may="")
        found = planned(again, wanted)
        assert found.hit is usable
        assert bool(said.unpublishable(made, beside)) is not usable
        assert Signing(said).concerns(beside) is usable
    (why,) = found.untrusted
    assert f"made by reuse of {alice.record.key[:12]} from {place}, no longer signed by anybody you trust" in why
    assert not list(again.store.layout.quarantine.glob("*")), "it stays where it is"
    assert planned(user("bob", trust(everything=True), may=""), wanted).hit


def test_what_a_signer_says_of_others_rests_on_that_signer(alice, user, place):
    bob = user("bob", trust(ALICE, key=BOB))
    warm(bob.session, bob.prepare(recipe(16)))
    said = trust(BOB, key=EVE)
    carol = user("carol", said, may="r", compiler=StandIn(extra=1))
    train(carol.session, carol.prepare(recipe(16)), output_dir=place.parent / "output")
    made = carol.lookup(carol.prepare(recipe(16)))
    beside = carol.store.origins.of(made)
    assert {(one.key, one.how) for one in beside.origin.reused} == {
        (made.key, "signed"), (alice.record.key, "stated")
    }  # fmt: skip
    assert planned(carol, recipe(16)).hit
    assert not said.unpublishable(made, beside)
    assert Signing(said).concerns(beside)
    assert planned(user("carol", trust(BOB, only="signed"), may=""), recipe(16)).hit


@pytest.fixture
def made(alice, user):
    """What bob made by reuse of alice's record, while he named her, and pushed."""
    bob = user("bob", trust(ALICE, key=BOB))
    made = warm(bob.session, bob.prepare(WANTED)).record
    assert bob.store.origins.of(made).origin.reused
    return made


@pytest.fixture(params=["anybody's", "own"])
def pushed(made, place, request):
    """The same, where everybody can write to the place, or only this user since."""
    if request.param == "own":
        close(place)
    return made


def reused_there(place, record):
    """The digests of what a record reuses, as the one statement says that is about it."""
    ((*_, said),) = holding(record, decode(signatures(place, record).read_bytes()))
    return [one.record for one in said.predicate.reused]


@pytest.mark.parametrize("machine", ["bob", "another"])
def test_what_one_made_by_reuse_is_a_miss_under_ones_own_signature_too(alice, user, pushed, machine):
    store = user("bob", trust()).store
    before = store.origins.of(pushed)
    found = planned(user(machine, trust(key=BOB)), WANTED)
    assert not found.hit
    why = f"signed by you, and made by reuse of {alice.record.key[:12]}, no longer signed by anybody you trust"
    assert f"{why} ({key(ALICE).fingerprint})" in found.untrusted[-1]
    assert store.origins.of(pushed) == before, "its copy in the store is not replaced by the remote's"
    assert planned(user(machine, trust(ALICE, key=BOB)), WANTED).hit, "distrust is not remembered"
    assert planned(user("carol", trust(BOB)), WANTED).hit, "a teammate of bob's leaves that to him"


def test_a_copy_that_one_fetched_from_there_is_a_miss_with_it(user, pushed):
    other = user("another", trust(ALICE, key=BOB))
    pull_recipe(other.session, other.prepare(WANTED))
    grown = warm(other.session, other.prepare(recipe(32))).record
    for said, usable in ((trust(ALICE, key=BOB), True), (trust(key=BOB), False)):
        again = user("another", said, may="")
        for wanted, record in ((WANTED, pushed), (recipe(32), grown)):
            assert planned(again, wanted).hit is usable
            assert bool(said.unpublishable(record, again.store.origins.of(record))) is not usable
        assert Signing(said).concerns(again.store.origins.of(grown)) is usable


def test_what_is_compiled_instead_is_signed_and_takes_its_place(alice, user, place, made):
    assert reused_there(place, made) == [alice.record.digest]
    bob = user("bob", trust(key=BOB))
    anew = warm(bob.session, bob.prepare(WANTED))
    assert anew.compiled == 3
    assert anew.record.digest != made.digest
    assert reused_there(place, anew.record) == []
    for machine in ("bob", "another"):
        assert planned(user(machine, trust(key=BOB)), WANTED).hit


def test_what_a_stopped_run_made_by_reuse_is_no_start(alice, user, place):
    bob = user("bob", trust(ALICE, key=BOB))
    ends_within(bob, 1)
    with pytest.raises(InterruptedRunError):
        warm(bob.session, bob.prepare(WANTED))
    for said, compiled in ((trust(ALICE, key=BOB), 2), (trust(key=BOB), 3)):
        other = user(f"another{compiled}", said, may="r")
        run = warm(other.session, other.prepare(WANTED))
        assert run.compiled == compiled
        assert bool(other.store.origins.of(run.record).origin.reused) is (compiled == 2)


@pytest.mark.parametrize("late", [False, True])
def test_what_is_removed_while_it_is_repaired_is_not_made_here_by_that(alice, user, tmp_path, monkeypatch, late):
    """The record goes between the look at it and the fetch, or while its bytes come."""
    bob = user("bob", trust(key=BOB, everything=True), may="r")
    bob.pull(bob.session.remotes.find(alice.record.place, anew=True))
    before = bob.store.origins.of(bob.store.lookup(alice.record.place)).origin
    assert before.how == "all"
    largest = max(alice.record.files, key=lambda file: file.size)
    overwrite(bob.store.layout.blob(largest.sha256), b"x" * largest.size)
    problems = verify(bob.store, tmp_path, "digest", lambda _: None).problems

    def remove():
        bob.store.layout.record(alice.record.place).unlink()
        bob.store.layout.origin(alice.record.place).unlink()

    fetch, pull = fetching.inline_files, repairing.pull
    monkeypatch.setattr(repairing, "pull", lambda *words: (late or remove(), pull(*words))[1])
    monkeypatch.setattr(fetching, "inline_files", lambda *words: (late and remove(), fetch(*words))[1])
    (done,) = repairing.repair(bob.store, bob.session.remotes, problems, lambda _: None, registry.judge)
    assert done.repaired
    assert bob.store.origins.of(alice.record).origin == before
