"""Bundles and lock files come in by the same door as remotes."""

import pytest
from msgspec import structs

from cachekit.errors import UntrustedError
from cachekit.recipe.variant import Variant
from cachekit.remotes import layout
from cachekit.store.origin import Beside, Origin, ReusedOrigin
from cachekit.trust import envelope
from cachekit.trust.statement import read_statement
from cachekit.verbs.lock import lock, pull_locked
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.push import push_records
from cachekit.verbs.trust_records import check, sign
from cachekit.verbs.verify import verify
from cachekit.verbs.warm import warm
from tests.store.record_cases import digest
from tests.support.standins import make_record, publish
from tests.trust.flow_cases import (  # noqa: F401 - some are fixtures
    ALICE,
    BOB,
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

pytestmark = pytest.mark.feature("T2")


def test_a_signed_bundle_is_taken_by_those_who_know_its_signer(alice, user, tmp_path):
    path = bundle(alice, tmp_path / "x.tar")
    bob = user("bob", trust(ALICE), may="")
    assert [one.state for one in taken(bob, path).records] == ["added"]
    beside = bob.store.origins.of(alice.record)
    assert beside.origin == Origin("x.tar", "signed", (key(ALICE).fingerprint,))
    assert len(beside.envelopes) == 1
    carol = user("carol", trust(BOB), may="")
    (one,) = taken(carol, path, dry_run=True).records
    assert one.untrusted == f"signed by nobody you trust ({key(ALICE).fingerprint})"
    with pytest.raises(UntrustedError, match=r"x\.tar is not used") as raised:
        taken(carol, path)
    assert (raised.value.exit_code, "cachekit trust add" in raised.value.hint) == (5, True)
    assert list(carol.store.records()) == []


def test_what_came_by_trust_all_is_not_put_into_a_bundle(alice, user, tmp_path):
    bob = user("bob", trust(everything=True), may="")
    taken(bob, bundle(alice, tmp_path / "x.tar"))
    bob = user("bob", trust(key=BOB), may="")
    with pytest.raises(UntrustedError, match="is not put into a bundle"):
        bundle(bob, tmp_path / "y.tar")
    assert not (tmp_path / "y.tar").exists()


def test_what_came_by_trust_all_is_a_signed_one_once_its_signer_is_known(alice, user, tmp_path):
    path = bundle(alice, tmp_path / "x.tar")
    taken(user("bob", trust(everything=True), may=""), path)
    knows = user("bob", trust(ALICE), may="")
    assert verify(knows.session).origins.kept == ()
    bundle(knows, tmp_path / "y.tar")
    narrowed = user("bob", trust(ALICE, only="signed"), may="")
    assert narrowed.store.read(alice.record.place) == alice.record
    nobody = user("bob", trust(BOB), may="")
    assert len(verify(nobody.session).origins.kept) == 1
    revoked = user("bob", trust(ALICE, revoked={"keys": [key(ALICE).fingerprint]}), may="")
    assert revoked.store.read(alice.record.place) is None


def test_what_was_signed_after_it_was_taken_is_signed_by_taking_it_again(alice, user, tmp_path):
    unsigned = user("alice", trust(), may="")
    path = bundle(unsigned, tmp_path / "x.tar")
    taken(user("bob", trust(everything=True), may=""), path)
    sign(user("alice", trust(key=ALICE), may="").session, [alice.record.key])
    bob = user("bob", trust(ALICE), may="")
    assert len(verify(bob.session).origins.kept) == 1
    (again,) = taken(bob, bundle(user("alice", trust(key=ALICE), may=""), tmp_path / "y.tar")).records
    assert again.state == "present"
    assert verify(bob.session).origins.kept == ()


def test_a_bundle_goes_on_with_the_signatures_that_it_came_with(alice, user, tmp_path):
    bob = user("bob", trust(ALICE, key=BOB), may="")
    taken(bob, bundle(alice, tmp_path / "x.tar"))
    carol = user("carol", trust(ALICE), may="")
    assert taken(carol, bundle(bob, tmp_path / "y.tar")).records
    with pytest.raises(UntrustedError):
        taken(user("dan", trust(BOB), may=""), tmp_path / "y.tar")


def test_where_a_bundle_lay_is_noted_whole(alice, user, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bob = user("bob", trust(ALICE), may="")
    taken(bob, bundle(alice, tmp_path / "x\udcff.tar"))  # which is no UTF-8
    assert bob.store.origins.of(alice.record).origin.remote == rf"{tmp_path}/x\xff.tar"


def test_what_a_bundle_was_merged_with_says_so(alice, user, tmp_path):
    path = bundle(alice, tmp_path / "x.tar")
    bob = user("bob", trust(ALICE), may="")
    made = warm(bob.session, bob.prepare()).record
    (one,) = taken(bob, path).records
    reused = {other.record for other in bob.store.origins.of(bob.lookup(bob.prepare())).origin.reused}
    assert (one.state == "merged") == bool(reused)
    assert bob.store.origins.of(made).origin.how == "here"


def test_a_lock_file_opens_no_other_door(alice, user, place):
    locked = lock(alice.session, alice.prepare(), Variant("toy"))
    bob, carol = user("bob", trust(ALICE)), user("carol", trust())
    assert pull_locked(bob.session, locked).state == "fetched"
    for act in (
        lambda: pull_locked(carol.session, locked),
        lambda: lock(carol.session, carol.prepare(), Variant("toy")),
    ):
        with pytest.raises(UntrustedError) as raised:
            act()
        assert raised.value.exit_code == 5
    assert carol.lookup(carol.prepare()) is None
    put(place, layout.record_path(alice.record.place), None)
    dan = user("dan", trust(ALICE))
    with pytest.raises(UntrustedError):  # the files lie there still, and no record that somebody signed
        pull_locked(dan.session, locked)


@pytest.mark.parametrize("damage", [b"", b"{}", b"[" * 100_000, b'{"envelopes": [1]}', b"\xff"])
def test_a_damaged_document_of_signatures_is_none(alice, user, place, damage):
    put(place, layout.signatures_path(alice.record.place), damage)
    bob = user("bob", trust(ALICE))
    (why,) = planned(bob).untrusted
    assert "beside signatures that cannot be read (" in why
    again = user("alice", trust(key=ALICE))
    push_records(again.session, [alice.record], public=False, replaces=False, dry_run=False, recheck=True)
    assert pull_recipe(bob.session, bob.prepare()).state == "fetched"


def two_of_one_key():
    """A record, and one of the same key that has another module as well."""
    record, contents = make_record(1, ("a",))
    other, more = make_record(1, ("b",))
    module = structs.replace(other.modules[0], name="standin-1.0/MODULE_2")
    return (record, contents), (structs.replace(record, modules=(*record.modules, module)), contents | more)


def pushed(watched, record):
    (done,) = push_records(watched.session, [record], public=False, replaces=False, dry_run=False)
    return done


def test_without_a_key_a_signed_record_of_others_stays(user, place):
    """Who adds to it and cannot sign would take it from all who ask for a signature."""
    first, second = two_of_one_key()
    alice = user("alice", trust(key=ALICE))
    record = publish(alice.store, first)
    pushed(alice, record)
    bob = user("bob", trust(ALICE))
    assert pushed(bob, publish(bob.store, second)).records == ()
    assert shared(place, record).record == record
    carol = user("bob", trust(ALICE, key=BOB))
    assert pushed(carol, second[0]).records == (layout.record_path(record.place),)
    assert shared(place, record).record == second[0]


def test_who_adds_to_anothers_record_names_it_in_the_statement(user, place):
    first, (whole, contents) = two_of_one_key()
    alice = user("alice", trust(key=ALICE))
    record = publish(alice.store, first)
    pushed(alice, record)
    bob = user("bob", trust(ALICE, key=BOB))
    half = structs.replace(whole, modules=whole.modules[1:])
    held = {file.sha256 for file in half.files}
    pushed(bob, publish(bob.store, (half, {one: raw for one, raw in contents.items() if one in held})))
    merged = shared(place, record).record
    assert merged.modules == whole.modules
    signed = envelope.decode(signatures(place, record).read_bytes())
    statement = read_statement(signed[0].payload).predicate
    assert statement.record == merged.digest
    reused = [(half.digest, ()), (record.digest, (key(ALICE).fingerprint,))]
    assert [(one.record, one.signers) for one in statement.reused] == reused
    assert len(signed) == 2, "the older signature stays for those who have read the older record"


@pytest.mark.feature("T2")
@pytest.mark.parametrize("way", ["owner", "said all", "--trust-all", "nearest"])
def test_nobody_signs_modules_of_others_that_nobody_signed(user, place, way):
    """Whoever names this user as a signer would run them."""
    first, (whole, contents) = two_of_one_key()
    eve = user("eve", trust(everything=True))
    record = publish(eve.store, first)
    pushed(eve, record)
    if way in {"owner", "nearest"}:
        close(place)
    asked = {"said": {str(place): "all"}} if way == "said all" else {"everything": way == "--trust-all"}
    alice = user("alice", trust(key=ALICE, **asked))
    half = structs.replace(whole, modules=whole.modules[1:])
    held = {file.sha256 for file in half.files}
    made = half, {one: raw for one, raw in contents.items() if one in held}
    if way == "nearest":
        beside = Beside(Origin(reused=(ReusedOrigin(digest("near"), digest("its"), str(place), "owner"),)))
        put(place, layout.record_path(record.place), None)
        pushed(alice, publish(alice.store, made, beside=beside))
    else:
        pushed(alice, publish(alice.store, made))
    there = shared(place, record).record
    assert len(there.modules) == (2 if way in {"owner", "said all"} else 1)
    assert signatures(place, record).exists() == (way == "--trust-all")
    carol = user("carol", trust(ALICE, said={str(place): "signed"}))
    assert [one.used for one in check(carol.session, "").records] == [way == "--trust-all"]
