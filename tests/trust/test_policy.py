"""Whose records are used: what is judged good, and every way in which a record or its signatures can be wrong."""

import subprocess
from collections import Counter
from datetime import datetime, timedelta, timezone

import pytest
from msgspec import structs

from cachekit.errors import UsageError
from cachekit.remotes.judging import advice
from cachekit.store.origin import Origin, ReusedOrigin
from cachekit.trust import policy as policy_module
from cachekit.trust import sshsig
from cachekit.trust.envelope import Envelope, Signature
from cachekit.trust.policy import NOBODY, UNSIGNED, Judgement, Policy
from cachekit.trust.statement import holding
from tests.store.record_cases import digest, record
from tests.trust.trust_cases import (  # noqa: F401 - fixtures
    NOW,
    TODAY,
    _forgets,
    envelope,
    key,
    key_file,
    line,
    needs_ssh_keygen,
    only,
    policy,
)

ALICE, BOB = key(0).fingerprint, key(1).fingerprint
REUSING = Origin(reused=(ReusedOrigin(digest("k"), digest("r"), "team", "signed", (BOB,)),))


def judged(said, envelopes, **options):
    return said.judge(record(), envelopes, now=NOW, **{"mode": "signed", **options})


def refused(said, envelopes, **options):
    found = judged(said, envelopes, **options)
    assert not found.trusted
    assert found.reason
    assert found.keys == ()
    return found.reason


# What is good


@pytest.mark.feature("T2")
def test_what_a_known_signer_signed_is_used_wherever_it_lies():
    expected = Judgement("signed", {ALICE: TODAY})
    assert judged(policy(), [envelope()]) == expected
    assert judged(policy(), [envelope()], mode="owner") == expected


@pytest.mark.feature("T2")
def test_what_nobody_signed_is_used_from_ones_own_place_only():
    said = policy()
    assert judged(said, [], mode="owner") == Judgement("owner")
    assert judged(said, [envelope(1)], mode="owner") == Judgement("owner")
    assert refused(said, []) == UNSIGNED
    assert refused(said, [envelope(1)]) == f"{NOBODY} ({key(1).fingerprint})"
    many = ", ".join(key(seed).fingerprint for seed in (1, 2))
    assert (
        refused(policy(signers={}), [envelope(1), envelope(2), envelope(1), envelope()])
        == f"{NOBODY} ({many} and 1 more)"
    )
    assert judged(said, [], mode="all") == Judgement("all")
    assert not Policy().judge(record(), [envelope()]).trusted


def test_one_good_signature_is_enough_whatever_lies_beside_it():
    broken = structs.replace(envelope(), payload=b"{}")
    empty = Envelope(b"", "", (Signature("", b""),))
    found = judged(policy(), [empty, envelope(1), broken, envelope()])
    assert (found.how, found.keys) == ("signed", (ALICE,))
    both = structs.replace(envelope(), signatures=(Signature(ALICE, b"x"), *envelope().signatures))
    assert judged(policy(), [both]).trusted


def test_the_newest_of_several_good_statements_is_told():
    older = envelope(created="2026-11-22T00:00:00Z")
    said = policy(signers={"alice": {"key": line(0)}, "bob": {"key": line(1)}})
    found = judged(said, [older, envelope(1, created="2026-11-22T12:00:00+02:00", origin=REUSING)])
    assert found.created == {ALICE: "2026-11-22T00:00:00.000+00:00", BOB: "2026-11-22T10:00:00.000+00:00"}
    assert found.keys == (ALICE, BOB)
    assert [one.key for one in found.reused] == [digest("k")]


def test_the_users_own_key_is_believed(tmp_path):
    own = policy(signers={}, key=str(key_file(tmp_path)))
    assert own.names(judged(own, [envelope()]).keys) == ("you",)
    named = policy(key=str(key_file(tmp_path)))
    assert named.names(judged(named, [envelope()]).keys) == ("alice",)
    assert refused(policy(signers={}, key=str(tmp_path / "none")), [envelope()]) == f"{NOBODY} ({ALICE})"


def test_ones_own_statement_is_told_before_a_later_one_of_somebody_else(tmp_path):
    """Why each record was taken stands in one's own; of another's, what it reuses is what that signer says."""
    own = policy(signers={"alice": {"key": line(0)}, "bob": {"key": line(1)}}, key=str(key_file(tmp_path)))
    mine, later = envelope(origin=REUSING, created="2026-11-22T00:00:00Z"), envelope(1, origin=REUSING)
    for envelopes, taken in (([mine, later], "signed"), ([later], "stated")):
        assert [one.taken for one in judged(own, envelopes).reused] == [taken]


@pytest.mark.feature("T2")
@pytest.mark.parametrize("mode", ["signed", "owner"])
@pytest.mark.parametrize(
    ("how", "asked"), [("signed", True), ("owner", False), ("all", False), ("stated", False), ("other", True)]
)
def test_what_this_user_took_for_a_signature_is_asked_again(tmp_path, mode, how, asked):
    """Also where the statement does not say why, as one by an older cachekit, or says what this one does not know."""
    (one,) = REUSING.reused
    made = envelope(origin=Origin(reused=(structs.replace(one, how=how),)))
    mine, named = {"key": str(key_file(tmp_path))}, {"bob": {"key": line(1)}}
    for said in (policy(signers={}, **mine), policy(signers={"you-1": {"key": line(0)}}), policy(**mine)):
        assert judged(said, [made], mode=mode).trusted is not asked
    assert judged(policy(signers=named, **mine), [made], mode=mode).how == "signed"
    assert judged(policy(signers=named | {"alice": {"key": line(0)}}), [made], mode=mode).how == "signed"
    assert judged(policy(), [made], mode=mode).how == "signed", "a teammate answers for what that one took"
    assert judged(policy(signers={}, **mine), [made], mode="all").how == "all"


@pytest.mark.feature("T2")
def test_what_this_user_took_for_a_signature_that_is_over_is_told(tmp_path):
    over = {"bob": {"key": line(1), "valid_before": "2026-11-01"}}
    told = refused(policy(signers=over, key=str(key_file(tmp_path))), [envelope(origin=REUSING)])
    why = f"made by reuse of {digest('k')[:12]}, signed by bob, whose key is not valid today"
    assert told == f"signed by you, and {why}"


@pytest.mark.feature("T2")
def test_another_signature_over_the_record_is_enough(tmp_path):
    own = policy(signers={"carol": {"key": line(2)}}, key=str(key_file(tmp_path)))
    assert judged(own, [envelope(origin=REUSING), envelope(2)], mode="owner").keys == (key(2).fingerprint,)


# Each way to be wrong


@pytest.mark.feature("T4")
def test_a_signature_that_does_not_count():
    for bad, why in [
        (lambda: envelope(1), NOBODY),
        (lambda: structs.replace(envelope(), payload=envelope().payload + b" "), "is not valid"),
        (lambda: structs.replace(envelope(), payload_type="application/json"), "not a statement"),
        (lambda: envelope(kind="application/json"), "not a statement"),
        (lambda: structs.replace(envelope(), signatures=(Signature(ALICE, b""),)), "cannot be used"),
        (lambda: structs.replace(envelope(), signatures=envelope(1).signatures), NOBODY),
        (lambda: structs.replace(envelope(), signatures=(Signature(ALICE, envelope(1).signatures[0].sig),)), NOBODY),
        (lambda: envelope(about=record(graphs=5)), "a different record"),
        (lambda: envelope(about=record(hard={"other": 1})), "a different record"),
        (lambda: envelope(payload=b"{}"), "cannot be used"),
        (lambda: envelope(payload=b"\xff"), "cannot be used"),
        (lambda: envelope(created="2026-11-25T00:00:00Z"), "not come yet"),
    ]:
        assert why in refused(policy(), [bad()])


@pytest.mark.parametrize("words", [NOBODY, UNSIGNED, "revoked"])
def test_what_helps_is_not_told_by_words_that_a_stranger_wrote(words):
    found = judged(policy(), [structs.replace(envelope(), payload_type=words)])
    assert (words in found.reason, found.helps) == (True, "anew")
    assert words not in advice(found.helps)


def test_the_reason_says_what_a_known_signers_signature_lacks():
    assert "a different record" in refused(policy(), [envelope(1), envelope(about=record(graphs=5)), envelope(1)])


@needs_ssh_keygen
def test_a_signature_for_another_purpose_does_not_count(tmp_path):
    """One that git made, say, or another version of this format."""
    good = envelope()
    command = ["ssh-keygen", "-Y", "sign", "-f", key_file(tmp_path), "-n", "file"]
    made = subprocess.run(command, input=good.message, capture_output=True, check=True).stdout.decode()
    other = structs.replace(good, signatures=(Signature(ALICE, sshsig.dearmor(made)),))
    assert "made for 'file'" in refused(policy(), [other])


def test_where_nothing_can_check_signatures_none_counts(monkeypatch):
    only("neither", monkeypatch)
    why = refused(policy(), [envelope()])
    assert "cannot be checked on this machine: there is no ssh-keygen" in why
    assert 'pip install "cachekit-neuron[sign]"' in why


# Times


@pytest.mark.parametrize(
    "table, created, why",
    [
        ({"valid_before": "2026-11-23"}, "2026-11-22T00:00:00Z", "not valid today"),
        ({"valid_after": "2026-11-24"}, TODAY, "not valid today"),
        ({"valid_after": "2026-11-20"}, "2026-11-19T23:59:59Z", "when that key was not valid"),
        ({"valid_before": "2026-11-23T12:00:00"}, "2026-11-23T13:00:00Z", "when that key was not valid"),
    ],
)
def test_a_key_counts_while_it_is_valid_now_and_then(table, created, why):
    """ssh-keygen compares with now only: a signature does not say when it was made."""
    said = policy(signers={"alice": {"key": line(0), **table}})
    assert why in refused(said, [envelope(created=created)])
    within = policy(signers={"alice": {"key": line(0), "valid_after": "2026-11-23", "valid_before": "2026-11-24"}})
    assert judged(within, [envelope()]).trusted


@pytest.mark.parametrize("order", [1, -1])
def test_one_line_withdraws_a_key_that_stands_there_twice(order):
    """For ssh-keygen one good line is enough."""
    lines = [("old", {"key": line(0), "valid_before": "2026-11-01"}), ("new", {"key": f"{line(0)} again"})]
    assert "not valid today" in refused(policy(signers=dict(lines[::order])), [envelope()])


def test_a_line_that_cannot_be_read_refuses_the_whole_table():
    """ssh-keygen passes over it in silence."""
    with pytest.raises(UsageError, match=r"\[trust.signers.bob\]") as caught:
        policy(signers={"alice": {"key": line(0)}, "bob": {"key": "ssh-ed25519 AAAA"}})
    assert "cachekit trust add bob" in caught.value.hint


# What is revoked


@pytest.mark.feature("T5")
@pytest.mark.parametrize("options", [{"mode": "signed"}, {"mode": "owner"}])
def test_a_revoked_key_signs_nothing(options):
    said = policy(revoked={"keys": [ALICE]})
    assert f"{ALICE}, which is revoked" in refused(said, [envelope()], **options)
    assert judged(said, [envelope()], **options).helps == "nothing"
    # Also where nobody named it, and the user's own.
    assert "is revoked" in refused(policy(signers={}, revoked={"keys": [ALICE]}), [envelope()], **options)
    both = policy(signers={"alice": {"key": line(0)}, "bob": {"key": line(1)}}, revoked={"keys": [ALICE]})
    assert judged(both, [envelope(), envelope(1)], **options).keys == (BOB,)


@pytest.mark.feature("T5")
@pytest.mark.parametrize("mode", ["all", "owner", "signed"])
def test_a_revoked_record_is_refused_whoever_signed_it(mode):
    said = policy(revoked={"records": [record().digest]})
    assert refused(said, [envelope()], mode=mode) == "revoked by its digest"


@pytest.mark.feature("T5")
@pytest.mark.parametrize("mode", ["all", "owner", "signed"])
def test_what_was_made_before_a_date_can_be_revoked(mode):
    """Also if it is signed today: a new signature makes nothing younger."""
    assert "made before 2026-02-01" in refused(policy(revoked={"before": "2026-02-01"}), [envelope()], mode=mode)
    assert judged(policy(revoked={"before": "2026-01-01"}), [envelope()]).trusted


def test_what_was_signed_before_a_date_can_be_revoked():
    said, one = policy(revoked={"before": "2026-11-01"}), record()
    one = structs.replace(one, provenance=structs.replace(one.provenance, created="2026-11-20T00:00:00Z"))
    early = envelope(about=one, created="2026-10-31T00:00:00Z")
    assert "signed before 2026-11-01" in said.judge(one, [early], now=NOW, mode="signed").reason
    assert said.judge(one, [early, envelope(about=one)], now=NOW, mode="signed").trusted
    unknown = structs.replace(one, provenance=structs.replace(one.provenance, created="?"))
    assert said.revoked(unknown), "a time that cannot be read is before any date"


@pytest.mark.feature("T5")
@pytest.mark.parametrize("gone", [{"records": [digest("r")]}, {"keys": [BOB]}])
def test_what_reuses_something_revoked_is_refused(gone):
    said = policy(revoked=gone)
    assert "by reuse of" in refused(said, [envelope(origin=REUSING)])
    assert "by reuse of" in said.revoked(record(), REUSING)
    assert judged(policy(revoked={"records": [digest("x")]}), [envelope(origin=REUSING)]).trusted


@pytest.mark.feature("T5")
def test_a_reuse_whose_time_nobody_said_is_not_revoked_by_a_date():
    said = policy(revoked={"before": "2026-01-01"})
    (old,) = REUSING.reused
    for created, gone in (("", False), ("2025-12-31T00:00:00Z", True), ("2026-01-01T00:00:00Z", False)):
        origin = Origin(reused=(structs.replace(old, created=created),))
        assert bool(said.revoked(record(), origin)) is gone
        assert judged(said, [envelope(origin=origin)]).trusted is not gone


@pytest.mark.feature("T5")
def test_where_every_writer_is_trusted_a_revoked_key_is_not():
    said = policy(revoked={"keys": [BOB]})
    assert BOB in refused(said, [envelope(1)], mode="all")
    for envelopes in ([], [envelope(1), envelope()]):
        assert judged(said, envelopes, mode="all").how == "all"


@pytest.mark.feature("T5")
@pytest.mark.parametrize("how", ["owner", "signed"])
def test_a_strangers_signature_does_not_keep_what_a_revoked_key_signed(how):
    said = policy(revoked={"keys": [BOB]})
    stranger = key(2).fingerprint
    for signers, gone in (((BOB, stranger), True), ((BOB, ALICE), False), ((stranger,), False), ((), False)):
        assert bool(said.revoked(record(), Origin("team", how, signers))) == gone
        reused = ReusedOrigin(digest("k"), digest("r"), "team", how, signers)
        assert bool(said.revoked(record(), Origin("team", how, (ALICE,), (reused,)))) == gone
        stated = envelope(origin=Origin("team", how, (ALICE,), (reused,)))
        assert judged(said, [stated]).trusted != gone


@pytest.mark.feature("T5")
def test_a_signer_whose_key_has_expired_does_not_keep_what_a_revoked_key_signed():
    """As on the remote, where that signature does not count today."""
    signers = {"alice": {"key": line(0), "valid_before": "2026-11-01"}, "bob": {"key": line(1)}}
    said = policy(signers=signers, revoked={"keys": [BOB]})
    reused = ReusedOrigin(digest("k"), digest("r"), "team", "signed", (BOB, ALICE))
    assert BOB in said.revoked(record(), Origin("team", "signed", (BOB, ALICE)))
    assert "by reuse of" in said.revoked(record(), Origin("team", "signed", (), (reused,)))
    assert not said.revoked(record(), Origin("team", "signed", (ALICE,))), "an end of validity revokes nothing"


@pytest.mark.feature("T4")
def test_false_signatures_in_a_known_name_are_checked_a_few_times(monkeypatch):
    asked = []
    for module in ("policy", "statement"):
        monkeypatch.setattr(f"cachekit.trust.{module}.holds", lambda *_: bool(asked.append(1)))
    one = Signature(ALICE, envelope().signatures[0].sig)
    many = [structs.replace(envelope(), payload=b"%d" % turn, signatures=(one,) * 4) for turn in range(16)]
    assert "more than 8 times" in refused(policy(), many) or "is not valid" in refused(policy(), many)
    assert len(asked) <= 16
    asked.clear()
    assert not [*holding(record(), many, key(0))]
    assert len(asked) == 8
    assert not [*holding(record(), many)], "a true one may stand behind them, which is to be known"
    assert len(asked) == 8 + 64


@pytest.mark.feature("T4")
@pytest.mark.parametrize("true", [False, True])
def test_signatures_in_vain_are_counted_for_all_records_of_a_place(monkeypatch, true):
    """False ones, or another record's beside a record that has no other: anybody can copy them."""
    asked = []
    check = policy_module.holds
    monkeypatch.setattr(policy_module, "holds", lambda *words: (asked.append(1), true and check(*words))[1])
    said, vain, good = policy(), Counter(), envelope()
    other = structs.replace(record(), compile_seconds=77.0)
    for _ in range(4):
        found = said.judge(other, [good] * 3, now=NOW, vain=vain)
        assert not found.trusted
    assert len(asked) == (9 if true else 8)
    assert "8 other signatures there are false, or about other records" in found.reason
    assert not judged(said, [good], vain=vain).trusted
    monkeypatch.setattr(policy_module, "holds", check)
    honest = Counter()
    assert judged(said, [good, *[envelope(about=other)] * 7], vain=honest).trusted
    assert honest.total() == 0, "what lay there before is beside a signature that counts"


@pytest.mark.feature("T5")
def test_a_record_of_the_store_is_judged_by_the_keys_under_which_it_came():
    said = policy(revoked={"keys": [ALICE]})
    assert "is revoked" in said.revoked(record(), Origin("team", "signed", (ALICE,)))
    assert said.revoked(record()) == said.revoked(record(), Origin("team", "owner")) == ""
    assert said.names((ALICE, BOB)) == ("alice", BOB)


@needs_ssh_keygen
def test_an_empty_list_of_revoked_keys_is_not_shown_to_ssh_keygen(tmp_path):
    """It would let a key pass that an emptied file no longer names: here what is revoked decides before it is asked."""
    (tmp_path / "known").write_text(f"me {line(0)}\n")
    (tmp_path / "text").write_text(sshsig.armor(envelope().signatures[0].sig))
    (tmp_path / "revoked").write_text("")
    command = ["ssh-keygen", "-Y", "verify", "-f", tmp_path / "known", "-I", "me", "-n", sshsig.NAMESPACE]
    taken = [*command, "-s", tmp_path / "text", "-r", tmp_path / "revoked"]
    assert subprocess.run(taken, input=envelope().message, capture_output=True, check=False).returncode == 0
    assert "is revoked" in refused(policy(revoked={"keys": [ALICE]}), [envelope()])


def test_nothing_is_remembered_of_what_is_refused():
    """A key that is added is believed at once, and one that is revoked no longer."""
    assert not judged(policy(signers={}), [envelope()]).trusted
    assert judged(policy(), [envelope()]).trusted
    assert not judged(policy(revoked={"keys": [ALICE]}), [envelope()]).trusted
    later = datetime.now(timezone.utc) + timedelta(days=400)
    assert policy().judge(record(), [envelope()], mode="signed", now=later).trusted
