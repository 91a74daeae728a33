"""What one signs and another trusts goes round; nothing else that lies where others can write is used."""

import hashlib
import os
from datetime import datetime, timedelta, timezone

import pytest
from msgspec import structs

from cachekit.errors import UntrustedError
from cachekit.remotes import document, layout
from cachekit.remotes.folder import FolderStorage
from cachekit.store.origin import Origin
from cachekit.trust import envelope
from cachekit.trust.statement import read_statement
from cachekit.verbs.plan import miss_error
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.push import push_records
from cachekit.verbs.warm import warm
from tests.remotes.watched_storages import Counted
from tests.support.standins import Watched, recipe
from tests.trust.attack_cases import signed, statement
from tests.trust.flow_cases import (  # noqa: F401 - some are fixtures
    ALICE,
    BOB,
    EVE,
    alice,
    alices,
    close,
    place,
    planned,
    put,
    shared,
    signatures,
    trust,
    user,
)
from tests.trust.trust_cases import key, needs_ssh_keygen

pytestmark = pytest.mark.feature("T1")


def test_what_one_signs_the_other_trusts_and_compiles_nothing(alice, user, place):
    bob = user("bob", trust(ALICE))
    done = warm(bob.session, bob.prepare())
    assert (done.compiled, done.record, done.plan.remote) == (0, alice.record, str(place))
    fingerprint = key(ALICE).fingerprint
    kept = bob.store.origins.of(alice.record)
    assert kept.origin == Origin(str(place), "signed", (fingerprint,))
    (signed,) = envelope.decode(signatures(place, alice.record).read_bytes())
    assert envelope.from_document({"envelopes": list(kept.envelopes)}) == (signed,)
    statement = read_statement(signed.payload)
    assert statement.predicate.record == alice.record.digest
    assert set(statement.subjects.values()) == {file.sha256 for file in alice.record.files}


def test_a_place_whose_name_is_no_text_is_taken_from(alice, user, place):
    there = place.rename(os.fsdecode(os.fsencode(place) + b"\xff"))
    bob = user("bob", trust(ALICE), where=there)
    assert warm(bob.session, bob.prepare()).compiled == 0
    assert bob.store.origins.of(alice.record).origin.remote == rf"{place}\xff"


def test_one_who_knows_nobody_compiles_and_is_told_why(alice, user, place):
    carol = user("carol", trust())
    found = planned(carol)
    sentence = (
        f"{place}: a record of this key is there, but it is signed by nobody you trust ({key(ALICE).fingerprint}); "
        f"every user of this machine can write to {place} (mode 777)"
    )
    assert (found.hit, found.untrusted) == (False, (sentence,))
    error = miss_error(found)
    assert (type(error), error.exit_code, error.cause) == (UntrustedError, 5, sentence)
    (told,) = carol.told("remote.untrusted")
    assert (told["key"], told["remote"]) == (alice.record.key, str(place))
    assert "a compiler cache is code" in told["hint"]
    with pytest.raises(UntrustedError):
        warm(carol.session, carol.prepare(), require_warm=True)
    with pytest.raises(UntrustedError) as raised:
        pull_recipe(carol.session, carol.prepare())
    assert raised.value.exit_code == 5
    assert warm(carol.session, carol.prepare()).compiled > 0
    assert not carol.told("pull.start")
    dan = user("dan", trust())
    warm(dan.session, dan.prepare())
    assert len(dan.told("remote.untrusted")) == 1
    assert dan.lookup(dan.prepare())


def altered(record):
    """The record with another library in it, and every digest right."""
    (module, *others) = record.modules
    (first, *rest) = module.files
    evil = structs.replace(first, sha256=hashlib.sha256(b"evil").hexdigest(), size=4)
    return structs.replace(record, modules=(structs.replace(module, files=(evil, *rest)), *others))


def test_the_own_record_takes_the_place_of_an_untrusted_one(alice, user, place):
    evil = altered(alice.record)
    put(place, layout.record_path(evil.place), document.Shared(evil).raw)
    bob = user("bob", trust(ALICE, key=BOB))
    made = warm(bob.session, bob.prepare()).record
    assert shared(place, made).record == made
    assert "it is signed by signer0, but as a different record" in bob.told("remote.damaged")[0]["reason"]
    carol = user("carol", trust(BOB))
    assert planned(carol).record == made


def test_the_nearest_record_comes_in_by_the_same_door(alice, user):
    near = recipe(16)
    reuse_bytes = alice.session.config.reuse_bytes
    bob, carol = user("bob", trust(ALICE)), user("carol", trust())
    found = planned(bob, near, reuse_bytes=reuse_bytes)
    assert (found.nearest.known.key, found.reuse.known.key) == (alice.record.key, alice.record.key)
    # What bob's store remembers of the place says nothing to those who do not trust it.
    found = planned(user("bob", trust()), near, reuse_bytes=reuse_bytes)
    assert (found.nearest, found.reuse) == (None, None)
    found = planned(carol, near, reuse_bytes=reuse_bytes)
    assert (found.nearest, found.reuse, found.expected) == (None, None, None)
    warm(bob.session, bob.prepare(near))
    assert bob.told("reuse.restored")
    warm(carol.session, carol.prepare(near))
    assert not carol.told("reuse.restored")


def test_nothing_is_told_of_a_place_that_was_opened_to_others_a_moment_ago(alice, user, place):
    wanted = {"reuse_bytes": alice.session.config.reuse_bytes}
    close(place)
    found = planned(user("bob", trust()), recipe(16), **wanted)
    assert (found.nearest.known.key, found.expected is None) == (alice.record.key, False)
    place.chmod(0o777)
    found = planned(user("bob", trust()), recipe(24), **wanted)
    assert (found.nearest, found.reuse, found.expected) == (None, None, None)


def test_what_was_reused_is_in_the_statement(alice, user, place):
    bob = user("bob", trust(ALICE, key=BOB))
    made = warm(bob.session, bob.prepare(recipe(16))).record
    (signed,) = envelope.decode(signatures(place, made).read_bytes())
    (reused,) = read_statement(signed.payload).predicate.reused
    assert (reused.key, reused.record, reused.signers) == (
        alice.record.key,
        alice.record.digest,
        (key(ALICE).fingerprint,),
    )


def test_an_older_signed_record_that_was_put_back_is_refused(alice, user, place, tmp_path):
    path, beside = layout.record_path(alice.record.place), layout.signatures_path(alice.record.place)
    old = {one: (place / one).read_bytes() for one in (path, beside)}
    bob = user("bob", trust(ALICE))
    again = warm(alice.session, alice.prepare(), recache=True).record
    assert planned(bob).record == again
    for one, raw in old.items():
        put(place, one, raw)
    (why,) = planned(bob, anew=True).untrusted
    assert "it was put back" in why
    (tmp_path / "link").symlink_to(place)
    (why,) = planned(user("bob", trust(ALICE), where=tmp_path / "link"), anew=True).untrusted
    assert "it was put back" in why, "whatever the folder is called"
    assert planned(user("new", trust(ALICE))).hit, "who never saw the newer one cannot know"


@pytest.mark.parametrize("later", [1, 23 * 3600], ids=["a second", "23 hours"])
@pytest.mark.parametrize("left", [(), (BOB,)], ids=["nobody asks for it", "its signer is believed"])
def test_a_record_whose_other_signature_went_was_not_put_back(alice, user, place, later, left):
    """Bob signs it, too, later or at a time to come, and that is gone again: the record and the first are the same."""
    path = layout.signatures_path(alice.record.place)
    there = envelope.decode((place / path).read_bytes())
    at = (datetime.now(timezone.utc) + timedelta(seconds=later)).isoformat(timespec="milliseconds")
    put(place, path, envelope.encode([*there, signed(BOB, statement(shared(place, alice.record).record, at))]))
    assert planned(user("carol", trust(ALICE, BOB))).hit
    put(place, path, envelope.encode(there))
    assert planned(user("carol", trust(ALICE, *left)), anew=True).hit


@pytest.mark.parametrize("end", ["removed", "its key revoked", "the record revoked", "believed"])
def test_what_a_signer_put_in_its_place_counts_while_that_signer_is_believed(alice, user, place, end):
    paths = layout.record_path(alice.record.place), layout.signatures_path(alice.record.place)
    old = {one: (place / one).read_bytes() for one in paths}
    bob = user("bob", trust(ALICE, key=BOB))
    newer = warm(bob.session, bob.prepare(), recache=True).record
    assert planned(user("carol", trust(ALICE, BOB))).record == newer
    for one, raw in old.items():
        put(place, one, raw)
    revoked = {"its key revoked": {"keys": [key(BOB).fingerprint]}, "the record revoked": {"records": [newer.digest]}}
    said = trust(ALICE, *(() if end == "removed" else (BOB,)), revoked=revoked.get(end, {}))
    assert planned(user("carol", said), anew=True).hit == (end != "believed")


@pytest.mark.feature("T2")
def test_what_the_settings_say_of_a_remote(alice, user, place, tmp_path):
    assert planned(user("all", trust(said={str(place): "all"}))).hit
    assert planned(user("everything", trust(everything=True))).hit
    assert not planned(user("narrowed", trust(said={str(place): "all"}, only="owner"))).hit
    assert not planned(user("narrowed", trust(everything=True, only="signed"))).hit
    close(place)
    assert planned(user("mine", trust())).hit
    assert not planned(user("strict", trust(said={str(place): "signed"}))).hit
    assert not planned(user("narrow", trust(only="signed"))).hit
    assert planned(user("knows", trust(ALICE, only="signed"))).hit


def test_what_came_by_trust_all_is_not_given_to_others(alice, user, place, tmp_path):
    bob = user("bob", trust(everything=True))
    record = pull_recipe(bob.session, bob.prepare())
    other = tmp_path / "other"
    other.mkdir()
    bob = user("bob", trust(key=BOB), where=other)
    found = list(bob.store.records())
    (done,) = push_records(bob.session, found, public=False, replaces=False, dry_run=False)
    assert (done.records, done.error.exit_code) == ((), 5)
    assert done.refused[0].reason == f"it came from {place}, where nobody checked who made it"
    assert [told["cause"] for told in bob.told("push.refused")] == [done.refused[0].reason]
    assert list(other.iterdir()) == []
    made = warm(bob.session, bob.prepare(recipe(16))).record
    assert bob.told("reuse.restored"), "the own store is used"
    (done,) = push_records(bob.session, [made], public=False, replaces=False, dry_run=False)
    assert "which it reuses" in done.refused[0].reason
    assert record.state == "fetched"


def test_a_record_of_the_team_goes_on_with_its_signatures(alice, user, place, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    other.chmod(0o777)
    bob = user("bob", trust(ALICE))
    pull_recipe(bob.session, bob.prepare())
    bob = user("bob", trust(ALICE), where=other)
    (done,) = push_records(bob.session, list(bob.store.records()), public=False, replaces=False, dry_run=True)
    assert done.signatures == (layout.signatures_path(alice.record.place),)
    push_records(bob.session, list(bob.store.records()), public=False, replaces=False, dry_run=False)
    carol = user("carol", trust(ALICE), where=other)
    assert planned(carol).record == alice.record


def test_signing_later_adds_the_signature_alone(user, place):
    unsigned = user("alice", trust())
    record = warm(unsigned.session, unsigned.prepare()).record
    assert not signatures(place, record).exists()
    alice = user("alice", trust(key=ALICE))
    (done,) = push_records(alice.session, [record], public=False, replaces=False, dry_run=True)
    assert (done.records, done.signatures) == ((), (layout.signatures_path(record.place),))
    assert not signatures(place, record).exists()
    push_records(alice.session, [record], public=False, replaces=False, dry_run=False)
    assert planned(user("bob", trust(ALICE))).hit


@needs_ssh_keygen
def test_a_key_that_cannot_sign_costs_the_push_and_nothing_else(user, place, tmp_path):
    said = trust()
    table = structs.replace(said.table, key=str(tmp_path / "nowhere"))
    alice = user("alice", structs.replace(said, table=table))
    assert warm(alice.session, alice.prepare()).compiled > 0
    (told,) = alice.told("push.failed")
    assert "signing key" in told["reason"]


def test_a_signature_costs_one_more_request_where_it_is_asked_for_and_none_elsewhere(alice, user, place, tmp_path):
    def calls(name, said):
        storage = Counted(FolderStorage(place))
        watched = Watched(tmp_path / name, shared=[(storage, "r")], trust=said)
        assert planned(watched).hit
        return storage.calls

    signed = calls("bob", trust(ALICE))
    assert signed == ["revision", "read", "stranger", "read", "place"], "the last of which asks nobody"
    close(place)
    unsigned = ["revision", "read", "stranger", "check"]  # whose its files are; only a folder has to look
    assert calls("carol", trust()) == calls("dan", trust(ALICE)) == unsigned


def test_a_trusted_remote_behind_an_untrusted_one_serves_the_hit(alice, user, place, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    cat = user("cat", trust(), where=own)
    warm(cat.session, cat.prepare())
    me = Watched(tmp_path / "me", shared=[(FolderStorage(place), "r"), (FolderStorage(own), "r")], trust=trust())
    found = planned(me)
    assert (found.remote, found.untrusted) == (str(own), ())
