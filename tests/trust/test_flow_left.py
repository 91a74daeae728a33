"""A record that somebody signed keeps its place, as long as somebody may use it: what a push of another one does."""

import pytest
from msgspec import structs

from cachekit.cli.sharing import pushed
from cachekit.errors import UntrustedError
from cachekit.remotes import document, layout
from cachekit.remotes.document import Shared
from cachekit.store.record import Module
from cachekit.trust import envelope
from cachekit.trust.statement import read_statement
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.push import Pushes, chosen, push_records
from cachekit.verbs.records import show
from cachekit.verbs.verify import verify
from cachekit.verbs.warm import warm
from tests.support.standins import StandIn, recipe
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
    shared,
    signatures,
    trust,
    user,
)
from tests.trust.trust_cases import key, line

pytestmark = pytest.mark.feature("T1")


def large(place, record):
    """Where the files of a record lie whose bytes are not in its document."""
    there = shared(place, record)
    return [place / path for sha256, (_, path) in there.paths.items() if sha256 not in there.inline]


def push(watched, records=None, *, dry_run=False):
    """What comes of a push to the only remote."""
    records = list(watched.store.records()) if records is None else records
    (done,) = push_records(watched.session, records, public=False, replaces=False, dry_run=dry_run)
    return done


@pytest.mark.parametrize("own", [None, BOB])
def test_what_somebody_signed_stays_for_those_who_believe_that(alice, user, place, own):
    """Who names nobody yet takes nothing from the others, whether that user's key signs or not."""
    carol = user("carol", trust(key=own))
    assert warm(carol.session, carol.prepare()).compiled > 0
    assert shared(place, alice.record).record == alice.record
    (told,) = carol.told("push.refused")
    assert f"signed by nobody you trust ({key(ALICE).fingerprint}); every" in told["cause"]
    assert not carol.told("remote.damaged")
    assert planned(user("dan", trust(ALICE))).hit


def test_who_trusts_the_signer_and_does_not_sign_replaces_nothing(alice, user, place):
    erin = user("erin", trust(ALICE))
    assert warm(erin.session, erin.prepare(), recache=True).compiled > 0
    assert shared(place, alice.record).record == alice.record
    (told,) = erin.told("push.refused")
    assert told["cause"].startswith("the record there is signed, but yours would not be")


@pytest.mark.parametrize("own", [None, BOB])
def test_who_revokes_a_key_takes_its_place(alice, user, place, own):
    """With the signatures over the record: each would cost those who believe that key a check in vain."""
    erin = user("erin", trust(revoked={"keys": [key(ALICE).fingerprint]}, key=own))
    made = warm(erin.session, erin.prepare()).record
    assert shared(place, made).record == made
    path = signatures(place, made)
    lying = envelope.decode(path.read_bytes()) if path.exists() else ()
    assert [read_statement(one.payload).predicate.record for one in lying] == ([] if own is None else [made.digest])


@pytest.mark.parametrize("own", [None, BOB])
def test_a_signed_record_that_nobody_can_fetch_makes_room(alice, user, place, own):
    large(place, alice.record)[0].unlink()
    carol = user("carol", trust(key=own), compiler=StandIn(salt="another compile"))
    made = warm(carol.session, carol.prepare()).record
    assert shared(place, made).record == made
    (told,) = carol.told("remote.damaged")
    assert told["reason"].endswith("1 of its files are gone, or overwritten by others; this push replaced it")
    assert not carol.told("push.refused")


@pytest.mark.parametrize("harm", ["gone", "overwritten"])
def test_a_signed_record_gets_back_what_the_push_has_of_it(alice, user, place, harm):
    """The same bytes, of a compile of carol's own: those who believe alice can use hers again."""
    path = large(place, alice.record)[0]
    path.unlink()
    if harm == "overwritten":
        path.write_bytes(b"another tool's")
    before = signatures(place, alice.record).read_bytes()
    carol = user("carol", trust(key=BOB))
    made = warm(carol.session, carol.prepare()).record
    assert (shared(place, made).record, signatures(place, made).read_bytes()) == (alice.record, before)
    assert carol.told("push.refused")[0]["cause"].endswith("and the files that were missing from it are there again")
    dan = user("dan", trust(ALICE))
    assert warm(dan.session, dan.prepare()).compiled == 0


@pytest.mark.feature("T4")
def test_a_true_signature_behind_false_ones_keeps_its_place(alice, user, place):
    good = signed(EVE, statement(alice.record))
    false = [structs.replace(good, payload=b" " * n + good.payload) for n in range(1, 13)]
    (true,) = envelope.decode(signatures(place, alice.record).read_bytes())
    put(place, layout.signatures_path(alice.record.place), envelope.encode([*false, true]))
    carol = user("carol", trust(), compiler=StandIn(salt="another compile"))
    made = warm(carol.session, carol.prepare()).record
    assert shared(place, made).record == alice.record


def test_a_stranger_names_no_path_where_a_push_gives_files_back(alice, user, place):
    """Also not for a tiny file, which lies in the record."""
    there = shared(place, alice.record)
    tiny = next(file for module in alice.record.modules for file in module.files if file.sha256 in there.inline)
    modules = (*alice.record.modules, Module("made/by/eve", (structs.replace(tiny, path="x"),)))
    record = structs.replace(alice.record, modules=modules)
    put(place, layout.record_path(record.place), Shared(record, there.inline).document)
    put(place, layout.signatures_path(record.place), envelope.encode([signed(EVE, statement(record))]))
    large(place, alice.record)[0].unlink()
    carol = user("carol", trust())
    warm(carol.session, carol.prepare())
    assert carol.told("push.refused")[0]["cause"].endswith("and the files that were missing from it are there again")
    assert large(place, alice.record)[0].exists()
    assert not list(place.rglob("eve"))


@pytest.mark.feature("T4")
def test_false_signatures_cost_a_push_a_few_checks(alice, user, place, monkeypatch):
    good = signed(EVE, statement(alice.record))
    false = [structs.replace(good, payload=b" " * n + good.payload, signatures=4 * good.signatures) for n in range(16)]
    put(place, layout.signatures_path(alice.record.place), envelope.encode(false))
    checked = []
    monkeypatch.setattr("cachekit.trust.statement.holds", lambda *_: bool(checked.append(1)))
    carol = user("carol", trust(), compiler=StandIn(salt="another compile"))
    made = warm(carol.session, carol.prepare()).record
    assert (shared(place, made).record, len(checked)) == (made, 16), "eight of what lay there, eight over what does now"


@pytest.mark.feature("T4")
def test_a_strangers_record_gets_no_file_where_the_stranger_wants_it(alice, user, place):
    """Whoever may write records cannot have others make a file, such as an empty one, at another path."""
    mark = next(file for module in alice.record.modules for file in module.files if file.path == "model.done")
    more = Module("made/by/eve", (structs.replace(mark, path="x"),))
    evil = structs.replace(alice.record, modules=(*alice.record.modules, more))
    put(place, layout.record_path(evil.place), document.Shared(evil).raw)
    beside = layout.signatures_path(evil.place)
    put(place, beside, envelope.encode([signed(EVE, statement(evil))]))
    carol = user("carol", trust())
    warm(carol.session, carol.prepare())
    assert not (place / "made").exists()


def test_a_push_of_nothing_but_what_is_left_says_so(alice, user, place):
    carol = user("carol", trust(said={str(place): "signed"}))
    made = warm(carol.session, carol.prepare()).record
    for options in ({"dry_run": True}, {}):
        done = push(carol, **options)
        (refused,) = done.refused
        assert (type(done.error), done.error.exit_code, done.records, done.unchanged) == (UntrustedError, 5, (), 0)
        assert refused.reason == done.error.cause
        assert refused.reason.endswith(f"it stays for those who trust {key(ALICE).fingerprint}")
        assert "even if that was a key of your own" in done.error.hint
        assert f"{place}: not pushed" in " ".join(" ".join(pushed(Pushes(False, (done,)))).split())
    warm(carol.session, carol.prepare(recipe(16)))
    done = push(carol)
    assert (done.error, len(done.refused), done.unchanged) == (None, 1, 1), "what could be pushed was"
    assert chosen(carol.session, (), pending=True) == [made], "until the place is free"
    free = user("carol", trust(revoked={"keys": [key(ALICE).fingerprint]}))
    assert push(free, chosen(free.session, (), pending=True)).error is None
    assert (shared(place, made).record, chosen(free.session, (), pending=True)) == (made, [])


def test_a_new_key_of_ones_own_takes_the_place_of_the_former(alice, user, place):
    """Which the settings name, here with an end."""
    former = {"you-old": {"key": line(ALICE), "valid_before": "2026-11-01"}}
    anew = user("anew", trust(signers=former, key=BOB))
    made = warm(anew.session, anew.prepare()).record
    assert (shared(place, made).record, anew.told("push.refused")) == (made, [])
    assert planned(user("carol", trust(BOB))).record == made


def test_a_signature_of_a_date_that_is_revoked_keeps_no_place(alice, user, place):
    """The record says that it was made later."""
    put(place, layout.signatures_path(alice.record.place), envelope.encode([signed(ALICE, statement(alice.record))]))
    carol = user("carol", trust(revoked={"before": "2026-11-24"}))
    made = warm(carol.session, carol.prepare()).record
    assert shared(place, made).record == made


@pytest.mark.feature("T3")
@pytest.mark.parametrize("dates", [{"valid_before": "2026-01-01"}, {"valid_after": "2999-01-01"}])
def test_a_key_whose_time_is_not_now_is_named_so_everywhere(alice, user, place, dates):
    why = "signed by ann, whose key is not valid today"
    bob = user("bob", trust(ALICE))
    warm(bob.session, bob.prepare(recipe(16)))
    pull_recipe(bob.session, bob.prepare())
    late = trust(signers={"al": {"key": line(ALICE)}, "ann": {"key": line(ALICE), **dates}})
    carol = user("carol", late)
    assert why in planned(carol).untrusted[0]
    warm(carol.session, carol.prepare())
    assert why in push(carol).error.cause
    bob = user("bob", late)
    assert why in planned(bob).untrusted[0]
    assert {one.reason.endswith(why) for one in verify(bob.session).origins.refused} == {True}
    answer = show(user("bob", trust(ALICE)).store, alice.record.key, late)
    assert (answer.refused, answer.untrusted) == (f"from {place}, {why}", f"it came from {place}, {why}")
