"""What is said of where records came from: by `store show` and by `store verify`."""

import pytest

from cachekit.cli.records import shown
from cachekit.errors import UntrustedError
from cachekit.verbs.entry import find
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.records import remove, show
from cachekit.verbs.verify import verify
from cachekit.verbs.warm import warm
from tests.support.standins import recipe
from tests.trust.flow_cases import ALICE, BOB, alice, alices, place, planned, trust, user  # noqa: F401
from tests.trust.trust_cases import key

pytestmark = pytest.mark.feature("T3")


def test_show_tells_the_chain(alice, user, place):
    said = trust(ALICE, key=BOB)
    bob = user("bob", said)
    made = warm(bob.session, bob.prepare(recipe(16))).record
    first, second = show(bob.store, made.key, said).origin
    assert (first.key, first.how, first.remote) == (made.key, "here", "")
    assert (second.key, second.how, second.remote, second.signers) == (
        alice.record.key,
        "signed",
        str(place),
        ("signer0",),
    )
    assert show(bob.store, made.key, trust()).origin[1].signers == (key(ALICE).fingerprint,)
    assert "signed by nobody" in show(bob.store, alice.record.key, trust()).untrusted


def test_show_tells_which_run_of_a_ci_made_a_record(user, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_REPOSITORY", "team/models")
    monkeypatch.setenv("GITHUB_WORKFLOW_REF", "team/models/.github/workflows/warm.yml@refs/heads/main")
    monkeypatch.setenv("GITHUB_SHA", "c0ffee" * 6)
    ci = user("ci", trust(key=ALICE))
    record = warm(ci.session, ci.prepare()).record
    said = trust(ALICE)
    bob = user("bob", said)
    pull_recipe(bob.session, bob.prepare())
    answer = show(bob.store, record.key, said)
    (vouched,) = answer.vouched
    assert (vouched.signers, vouched.builder.ci.repository) == (("signer0",), "https://github.com/team/models")
    told = " ".join(" ".join(shown(answer)).split())
    assert "signed by signer0 in github: repository https://github.com/team/models" in told
    assert f"workflows/warm.yml@refs/heads/main, commit {'c0ffee' * 6}, run https" in told
    assert show(bob.store, record.key, trust(BOB)).vouched == (), "what a stranger says of it is not repeated"


def test_show_tells_of_a_record_that_is_refused(alice, user, place):
    bob = user("bob", trust(ALICE))
    pull_recipe(bob.session, bob.prepare())
    wanted = alice.record.key
    answer = show(bob.store, wanted, trust(BOB))
    assert answer.refused == f"from {place}, no longer signed by anybody you trust ({key(ALICE).fingerprint})"
    assert "refused it is from" in " ".join(" ".join(shown(answer)).split())
    assert show(bob.store, wanted, trust(ALICE)).refused == ""
    gone = trust(ALICE, revoked={"keys": [key(ALICE).fingerprint]})
    assert not planned(user("bob", gone, may="")).hit
    answer = show(bob.store, wanted[:12], gone)
    assert answer.refused.endswith("; it is in quarantine")
    assert (answer.key, answer.whole) == (wanted, True)


def test_nothing_is_estimated_by_a_record_that_is_refused(alice, user):
    bob = user("bob", trust(ALICE))
    pull_recipe(bob.session, bob.prepare())
    assert planned(bob, recipe(16)).expected_seconds
    strict = user("bob", trust(BOB), may="")
    assert [planned(strict, one).expected for one in (None, recipe(16))] == [None, None]


def test_a_record_that_is_refused_is_no_record_that_is_damaged(alice, user):
    bob = user("bob", trust(ALICE))
    pull_recipe(bob.session, bob.prepare())
    strict = user("bob", trust(BOB), may="")
    with pytest.raises(UntrustedError, match="is not used") as error:
        find(strict.store, alice.record.key[:8])
    assert "no longer signed by anybody you trust" in error.value.cause
    assert [one.key for one in remove(strict.session, [alice.record.key[:8]])] == [alice.record.key]


def test_verify_answers_two_questions(alice, user):
    bob = user("bob", trust(ALICE, key=BOB))
    warm(bob.session, bob.prepare(recipe(16)))
    found = verify(bob.session)
    assert (found.good, found.error(), found.origins.here, found.origins.signed) == (True, None, 1, 1)
    wary = user("bob", trust(ALICE, revoked={"keys": [key(ALICE).fingerprint]}))
    found = verify(wary.session)
    assert (found.good, len(found.origins.revoked)) == (True, 2)
    error = found.error()
    assert (type(error), error.exit_code) == (UntrustedError, 5)
    found = verify(user("bob", trust(BOB)).session)  # alice is named no more
    assert (len(found.origins.refused), found.error().exit_code) == (2, 5)


def test_verify_names_what_is_not_given_to_others(alice, user):
    bob = user("bob", trust(everything=True))
    pull_recipe(bob.session, bob.prepare())
    found = verify(user("bob", trust()).session)
    assert (found.error(), found.origins.all, len(found.origins.kept)) == (None, 1, 1)
