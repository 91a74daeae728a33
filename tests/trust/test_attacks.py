"""Attacks by somebody who may write to a place: none runs, none is used, and each is told."""

import pytest
from msgspec import structs

from cachekit.errors import CachekitError
from cachekit.remotes import layout
from cachekit.trust import policy
from cachekit.trust.envelope import decode, encode
from cachekit.verbs.plan import miss_error
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.push import push_records
from cachekit.verbs.trust_records import check
from cachekit.verbs.warm import warm
from tests.support.standins import make_record, publish, recipe
from tests.trust.attack_cases import (  # noqa: F401 - some are fixtures
    Attacker,
    attacker,
    marker,
    signed,
    statement,
    trains,
    unused,
    victim,
)
from tests.trust.flow_cases import ALICE, BOB, EVE, alice, alices, place, planned, put, trust, user  # noqa: F401
from tests.trust.trust_cases import key, line

pytestmark = [pytest.mark.feature("T2"), pytest.mark.feature("T4")]
BROKEN = "it is signed in signer0's name, and that signature is not valid"
OTHER = "it is signed by signer0, but as a different record"
NOBODY = "signed by nobody you trust"
UNSIGNED = "not signed"
MUCH = "not judged, as the signatures beside it have more than"


def other_record(attacker, alice):
    """A record of another key, which alice signed."""
    return warm(alice.session, alice.prepare(recipe(16))).record


# Each attack puts something into the place, and gives what the victim is told: one of each way in which signatures do
# not count. What all is no statement, envelope or signature is in their own tests, and in those of the policy.


def keeps_the_signature(attacker, alice):
    attacker.publish()
    return OTHER


def strips_the_signature(attacker, alice):
    attacker.publish()
    attacker.sign(raw=None)
    put(attacker.place, layout.signatures_path(attacker.record.place), None)
    return UNSIGNED


def signs_with_an_own_key(attacker, alice):
    attacker.sign(signed(EVE, statement(attacker.publish())))
    return NOBODY


def claims_the_name_of_a_known_key(attacker, alice):
    attacker.sign(signed(EVE, statement(attacker.publish()), keyid=key(ALICE).fingerprint))
    return NOBODY


def puts_a_known_key_into_the_blob(attacker, alice):
    payload = statement(attacker.publish())
    from cachekit.trust import sshsig
    from cachekit.trust.envelope import pae
    from cachekit.trust.statement import PAYLOAD_TYPE
    from tests.trust.trust_cases import private

    made = sshsig.build(key(ALICE), private(EVE).sign(sshsig.signed(pae(PAYLOAD_TYPE, payload))))
    attacker.sign(signed(EVE, payload, blob_of=made))
    return BROKEN


def keeps_the_signature_of_another_payload(attacker, alice):
    (own,) = decode(attacker.signed)
    attacker.sign(structs.replace(own, payload=statement(attacker.publish())))
    return BROKEN


def breaks_all_of_several(attacker, alice):
    payload = statement(attacker.publish())
    (own,) = decode(attacker.signed)
    attacker.sign(signed(EVE, payload), own, structs.replace(own, payload=payload))
    return OTHER


def names_the_envelopes_twice(attacker, alice):
    attacker.sign(signed(EVE, statement(attacker.publish())))
    own = attacker.signed.strip()
    attacker.sign(raw=own[:-1] + b", " + own[1:])
    return "it is beside signatures that cannot be read (not signatures: a name appears twice)"


def writes_megabytes(attacker, alice):
    attacker.publish()
    attacker.sign(raw=b'"%s"' % (b"x" * (16 << 20)))
    return MUCH


ATTACKS = [
    keeps_the_signature,
    strips_the_signature,
    signs_with_an_own_key,
    claims_the_name_of_a_known_key,
    puts_a_known_key_into_the_blob,
    keeps_the_signature_of_another_payload,
    breaks_all_of_several,
    names_the_envelopes_twice,
    writes_megabytes,
]


def refused(victim, attacker, why):
    """Nothing of an attack is used, whatever the victim does; and each time the victim is told."""
    (told,) = planned(victim, anew=True).untrusted
    assert why in told
    for act in (
        lambda: warm(victim.session, victim.prepare(), require_warm=True),
        lambda: pull_recipe(victim.session, victim.prepare()),
    ):
        with pytest.raises(CachekitError) as raised:
            act()
        assert raised.value.exit_code == 5
        assert why in raised.value.cause
        # Where somebody signed who is known, trusting everybody is no way out.
        assert ("--trust-all" in raised.value.hint) == (why in {NOBODY, UNSIGNED})
    assert trains(victim).compiled > 0
    assert victim.told("remote.untrusted")
    unused(victim, attacker)


@pytest.mark.parametrize("number", range(3), ids=["library", "source", "pickle"])
def test_the_altered_file_would_run(alice, victim, place, marker, number):
    """Without what is tested here the attacks work: for everybody who trusts all who may write there."""
    Attacker(place, alice.record, marker, number).publish()
    bob = victim("bob", trust(everything=True))
    assert trains(bob).compiled == 0
    assert marker.exists()


@pytest.mark.feature("T6")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.__name__)
def test_an_attack_on_a_signed_record(alice, attacker, victim, attack):
    why = attack(attacker, alice)
    refused(victim("bob", trust(ALICE)), attacker, why)


@pytest.mark.feature("T6")
@pytest.mark.parametrize("number", range(3), ids=["library", "source", "pickle"])
def test_bytes_that_were_swapped_after_the_check_of_the_signature(alice, victim, place, marker, number):
    attacker = Attacker(place, alice.record, marker, number)
    bob = victim("bob", trust(ALICE))
    found = planned(bob)
    assert found.hit
    attacker.swap_bytes()
    inside = attacker.file.size <= layout.TINY  # tiny files lie in the record too, which is not swapped
    assert (trains(bob).compiled > 0) is not inside
    assert bool(bob.told("remote.damaged")) is not inside
    unused(bob, attacker)


STOLEN = [
    ({"revoked": {"keys": [key(ALICE).fingerprint]}}, "which is revoked"),
    ({"revoked": {"before": "2126-11-24"}}, "and everything made before then is revoked"),
    ({"signers": {"signer0": {"key": line(ALICE), "valid_before": "2026-11-22"}}}, "whose key is not valid today"),
    ({"signers": {"signer0": {"key": line(ALICE), "valid_after": "2026-11-22"}}}, "when that key was not valid"),
]


@pytest.mark.feature("T5")
@pytest.mark.parametrize(("table", "why"), STOLEN)
def test_a_key_that_was_withdrawn_signs_nothing_more(alice, attacker, victim, table, why):
    evil = attacker.publish()
    attacker.sign(signed(ALICE, statement(evil, "2026-11-21T00:00:00.000+00:00")))
    assert planned(alice).hit
    bob = victim("bob", trust(**table))
    refused(bob, attacker, why)


@pytest.mark.feature("T5")
def test_a_record_that_was_revoked_by_its_digest_is_refused_from_everybody(attacker, victim):
    evil = attacker.publish()
    attacker.sign(signed(ALICE, statement(evil)))
    gone = {"revoked": {"records": [evil.digest]}}
    for said in (trust(ALICE, **gone), trust(everything=True, **gone)):
        attacker.publish()
        refused(victim(f"bob{said.everything}", said), attacker, "revoked by its digest")


def test_the_documents_of_two_keys_that_were_swapped_sign_neither(alice, attacker, victim, place):
    other = other_record(attacker, alice)
    mine, theirs = layout.signatures_path(alice.record.place), layout.signatures_path(other.place)
    raw = (place / mine).read_bytes(), (place / theirs).read_bytes()
    put(place, mine, raw[1])
    put(place, theirs, raw[0])
    bob = victim("bob", trust(ALICE))
    for wanted in (None, recipe(16)):
        (told,) = planned(bob, wanted).untrusted
        assert OTHER in told


def test_a_signed_record_in_the_place_of_another_key_is_none(alice, attacker, victim, place):
    other = other_record(attacker, alice)
    put(place, layout.record_path(alice.record.place), (place / layout.record_path(other.place)).read_bytes())
    put(place, layout.signatures_path(alice.record.place), (place / layout.signatures_path(other.place)).read_bytes())
    bob = victim("bob", trust(ALICE))
    assert not planned(bob).hit
    (told,) = bob.told("remote.damaged")
    assert told["reason"] == "it is the record of another key"


def test_words_of_a_stranger_do_not_move_the_cursor(attacker, victim):
    attacker.sign(signed(EVE, statement(attacker.publish(recipe="\x1b[2Jall good\nerror[none]: used" * 1000))))
    bob = victim("bob", trust(BOB))
    error = miss_error(planned(bob))
    (told,) = bob.told("remote.untrusted")
    assert error.exit_code == 5
    for words in (error.message, error.cause, *map(str, told.values())):
        assert words.isprintable()
        assert len(words) < 1000


def test_after_eight_checks_in_vain_no_signature_of_a_place_is_looked_at(alice, user, place, monkeypatch):
    """False ones can be put beside each record that a search comes by, and each costs a process."""
    made = [publish(alice.store, make_record(seed)) for seed in range(4)]
    (done,) = push_records(alice.session, made, public=False, replaces=False, dry_run=False)
    assert (done.error, len(done.signatures)) == (None, 4)
    for record in made:
        path = layout.signatures_path(record.place)
        (good,) = decode((place / path).read_bytes())
        put(place, path, encode([structs.replace(good, signatures=good.signatures * 3)]))
    asked = []
    monkeypatch.setattr(policy, "holds", lambda *_: bool(asked.append(1)))
    for _ in range(2):  # each command begins anew
        asked.clear()
        bob = user("bob", trust(ALICE), may="r")
        for record in made:
            assert bob.session.remotes.find(record.place, anew=True) is None
        assert len(asked) == 8
        assert "that signature is not valid" in bob.session.remotes.untrusted(made[0].key)[0]
        assert "and so no more are checked" in bob.session.remotes.untrusted(made[3].key)[0]


def test_false_signatures_beside_some_records_keep_trust_check_from_judging_none(alice, user, place, monkeypatch):
    made = [publish(alice.store, make_record(seed)) for seed in range(5)]
    push_records(alice.session, made, public=False, replaces=False, dry_run=False)
    false = sorted(made, key=lambda record: layout.record_path(record.place))[:4]
    for record in false:
        path = layout.signatures_path(record.place)
        (good,) = decode((place / path).read_bytes())
        put(place, path, encode([structs.replace(good, payload=good.payload + b" ", signatures=good.signatures * 3)]))
    told = {one.key: one for one in check(user("bob", trust(ALICE), may="r").session, "").records}
    assert {one.key for one in made if told[one.key].used} == {one.key for one in made} - {one.key for one in false}
    assert all("that signature is not valid" in told[record.key].reason for record in false)
    monkeypatch.setattr("cachekit.verbs.trust_records.SPOILT", 0)
    told = {one.key: one for one in check(user("bob", trust(ALICE), may="r").session, "").records}
    assert any("and so no more are checked" in told[record.key].reason for record in false)
