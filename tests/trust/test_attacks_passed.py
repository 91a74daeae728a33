"""Attacks by way of a member who takes from a place of everybody, and pushes to the team's."""

import json

import pytest
from msgspec import structs

from cachekit.errors import UntrustedError
from cachekit.remotes import layout
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.push import push
from cachekit.store.origin import Beside, Origin, ReusedOrigin
from cachekit.trust import sshsig
from cachekit.trust.envelope import Envelope, Signature, decode, encode, largest
from cachekit.trust.statement import PAYLOAD_TYPE
from cachekit.verbs.export import export_bundle
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.trust_records import sign
from tests.store.record_cases import digest
from tests.support.standins import Watched, make_record, publish
from tests.trust.attack_cases import signed, statement
from tests.trust.flow_cases import (  # noqa: F401 - some are fixtures
    ALICE,
    BOB,
    EVE,
    alice,
    alices,
    place,
    planned,
    put,
    signatures,
    trust,
    user,
)
from tests.trust.trust_cases import key

pytestmark = [pytest.mark.feature("T2"), pytest.mark.feature("T4")]


@pytest.fixture
def team(tmp_path):
    """A folder whose records need a signature, to which only members push."""
    (folder := tmp_path / "team").mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def member(tmp_path, place, team):
    """Makes a user who reads the place of everybody, and writes the team's."""

    def make(name, said):
        return Watched(tmp_path / name, shared=[(FolderStorage(place), "r"), (FolderStorage(team), "rw")], trust=said)

    return make


def pushed(watched, *records):
    """What comes of a push to the team's folder."""
    (done,) = push(watched.store, watched.session.remotes, records)
    return done


def false(seed):
    """A signature in somebody's name that holds over nothing."""
    return Signature("", sshsig.build(key(seed), bytes(64)))


def test_false_signatures_beside_what_a_member_took_are_not_passed_on(alice, place, team, member, user):
    record = alice.record
    (good,) = decode(signatures(place, record).read_bytes())
    more = structs.replace(good, signatures=(false(BOB), *good.signatures, false(BOB)))
    bad = [Envelope(b"{%d}" % number, PAYLOAD_TYPE, (false(ALICE), false(BOB)) * 2) for number in range(2)]
    another = signed(ALICE, statement(structs.replace(record, compile_seconds=77.0)))
    put(place, layout.signatures_path(record.place), encode([more, *bad, another]))
    bob = member("bob", trust(ALICE, key=BOB))
    pull_recipe(bob.session, bob.prepare())
    own = publish(bob.store, make_record())
    assert pushed(bob, record, own).error is None
    assert decode(signatures(team, record).read_bytes()) == (good,)
    carol = user("carol", trust(ALICE, BOB), where=team)
    assert [carol.session.remotes.find(one.place).shared.record for one in (record, own)] == [record, own]


def test_false_signatures_beside_a_true_one_use_up_nothing(alice, place, user):
    other = publish(alice.store, make_record())
    (done,) = push(alice.store, alice.session.remotes, [other])
    assert done.error is None
    path = layout.signatures_path(alice.record.place)
    (good,) = decode((place / path).read_bytes())
    bad = [Envelope(b"{%d}" % number, PAYLOAD_TYPE, (false(ALICE), false(BOB)) * 2) for number in range(2)]
    put(place, path, encode([good, *bad]))
    bob = user("bob", trust(ALICE, BOB))
    for record in (alice.record, other, alice.record):
        assert bob.session.remotes.find(record.place).shared.record == record


REUSED = 9_500  # of 150 bytes and more each


def test_what_reuses_more_than_a_signature_may_say_is_not_signed_and_that_is_told(alice, place, team, member, tmp_path):
    """A stranger's statement of 1.9 MB is under the limit; one's own would repeat what it says at greater length."""
    record = alice.record
    said = json.loads(statement(record))
    said["predicate"]["reused"] = [{"key": f"{n:064x}", "record": f"{n:064x}"} for n in range(REUSED)]
    eve = signed(EVE, json.dumps(said, separators=(",", ":")).encode())
    assert len(encode([eve])) < largest(record)
    put(place, layout.signatures_path(record.place), encode([eve]))
    bob = member("bob", trust(key=BOB, said={str(place): "all"}))
    pull_recipe(bob.session, bob.prepare())
    with pytest.raises(UntrustedError, match="is not signed") as raised:
        sign(bob.session, [record.key])
    assert "more than a signature may say" in raised.value.cause
    done = pushed(bob, record)
    assert (done.records, done.signatures) == ((), ())
    assert "more than a signature may say" in done.error.cause
    with pytest.raises(UntrustedError, match="is not put into a bundle"):
        export_bundle(bob.session, [record], tmp_path / "x.tar")


def test_what_grew_beyond_what_a_signature_may_say_keeps_no_other_record_from_the_team(team, member, user):
    bob = member("bob", trust(key=BOB))
    grown = publish(bob.store, make_record(1))
    reused = tuple(ReusedOrigin(digest(str(n)), digest(f"r{n}"), created="2026-01-01T00:00:00Z") for n in range(REUSED))
    bob.store.publish(grown, {}, beside=Beside(Origin(reused=reused)))
    other = publish(bob.store, make_record(2))
    done = pushed(bob, grown, other)
    assert [one.key for one in done.refused] == [grown.key]
    assert done.records == (layout.record_path(other.place),)
    (told,) = bob.told("push.refused")
    assert f"it reuses {REUSED:,} records" in told["cause"]
    for path in team.rglob("signatures/**/*.json"):
        assert path.stat().st_size <= largest(other)
    carol = user("carol", trust(BOB), where=team)
    assert carol.session.remotes.find(grown.place) is None
    assert carol.session.remotes.find(other.place).shared.record == other
