"""Attacks by another user on a store that was open to everybody for a while: it is closed now, and their files stay."""

import os

import pytest

from cachekit.errors import IntegrityError, UntrustedError
from cachekit.events import Journal
from cachekit.remotes import layout
from cachekit.store import Store, access
from cachekit.store.origin import UNKNOWN, Beside, Origin
from cachekit.trust.envelope import Envelope, Signature, encode
from cachekit.trust.statement import PAYLOAD_TYPE
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.push import push_records
from cachekit.verbs.records import told_of_strangers
from cachekit.verbs.trust_records import sign
from cachekit.verbs.verify import verify
from cachekit.verbs.warm import warm
from tests.support.doctor_cases import public  # noqa: F401 - a fixture
from tests.support.standins import Watched, make_record, overwrite, publish
from tests.support.users import ANOTHER, ONE, as_user, known
from tests.trust.attack_cases import Loader
from tests.trust.flow_cases import ALICE, BOB, EVE, alice, alices, place, planned, put, trust, user  # noqa: F401
from tests.trust.trust_cases import key

pytestmark = pytest.mark.feature("T2")
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
TEAM = 65532
TAKEN = Beside(Origin("x.tar", "all"))  # by --trust-all


def in_store(home, said=None):
    return Watched(home, trust=said or trust(key=ALICE), compiler=Loader())


def made(home):
    """What this user made in an own store, and its file."""
    mine = in_store(home)
    record = warm(mine.session, mine.prepare()).record
    return record, mine.store.layout.record(record.place)


@pytest.mark.parametrize("home", ["volume", "volume/store"])
def test_a_store_on_a_volume_that_was_closed_is_also_the_next_containers(tmp_path, monkeypatch, home):
    """Kubernetes makes an `emptyDir` with mode 0777, and the next container has another HOME."""
    (volume := tmp_path / "volume").mkdir()
    volume.chmod(0o777)

    def container(name):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / name))
        mine = in_store(tmp_path / home)
        hit = planned(mine).hit
        warm(mine.session, mine.prepare())
        return hit

    assert [container("first"), container("first"), container("second")] == [False, True, False]
    volume.chmod(0o755)
    assert container("third")


def test_another_folder_of_this_user_in_the_place_of_the_store_is_none_that_this_user_made(tmp_path, monkeypatch):
    """A clone, or an unpacked archive, beside the store, where others can rename both."""
    (volume := tmp_path / "volume").mkdir()
    made(volume / "clone")  # by a stranger, and cloned by this user
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    made(volume / "store")
    volume.chmod(0o777)
    (volume / "store").rename(volume / "old")
    (volume / "clone").rename(volume / "store")
    mine = in_store(volume / "store")
    assert not planned(mine).hit


def pushed(watched, record):
    (one,) = push_records(watched.session, [record], public=False, replaces=False, dry_run=False)
    return one


def test_a_key_that_signed_nothing_is_no_signer_although_somebody_says_so(alice, user, place):
    false = Envelope(b"x", PAYLOAD_TYPE, (Signature(key(EVE).fingerprint, b"y"),))
    put(place, layout.signatures_path(alice.record.place), encode([false]))
    bob = user("bob", trust(key=BOB, everything=True), may="r")
    pull_recipe(bob.session, bob.prepare())
    knows = user("bob", trust(key=BOB, said={bob.session.remotes.readable[0].name: "all"}))
    (done,) = sign(knows.session, [alice.record.key])
    assert done.signers == (key(BOB).fingerprint,)


# Whose the record's file is


@ROOT_ONLY
@pytest.mark.parametrize("gives", [lambda path: os.chown(path, ONE, ONE), lambda path: path.chmod(0o666)])
def test_a_strangers_record_in_an_own_store_is_not_made_here(tmp_path, gives):
    record, path = made(tmp_path / "store")
    gives(path)
    assert access.standing(in_store(tmp_path / "store").store.layout).whose == "own", "its folders are"
    again = in_store(tmp_path / "store")
    (told,) = planned(again).untrusted
    assert ("belongs to another user" in told) or ("can write to" in told)
    assert list(again.store.records()) == []
    assert again.store.origins.of(record) == UNKNOWN
    assert planned(in_store(tmp_path / "store", trust(everything=True))).hit


@ROOT_ONLY
def test_a_strangers_record_is_used_as_far_as_it_is_signed(alice, user, tmp_path):
    sign(alice.session, [alice.record.key])
    os.chown(alice.store.layout.record(alice.record.place), ONE, ONE)
    where = tmp_path / "nothing"
    where.mkdir()
    assert not planned(user("alice", trust(), where=where)).hit
    assert planned(user("alice", trust(ALICE), where=where)).hit


@ROOT_ONLY
@pytest.mark.parametrize(("member", "hit"), [(ANOTHER, True), (ONE + 7, False)])
def test_a_groups_store_holds_records_of_its_members(public, monkeypatch, member, hit):
    """What somebody wrote there who is no member, be it before the others were kept out, is not the group's."""
    home = public / "store"
    record, path = made(home)
    for folder in (home, *(one for one in home.rglob("*") if one.is_dir())):
        os.chown(folder, ONE, TEAM)
        folder.chmod(0o2775)
    known(monkeypatch, {ONE: [TEAM], ANOTHER: [TEAM]})
    os.chown(path, member, member)

    def looks():
        watched = Watched(home, trust=trust())
        assert watched.store.owners.standing.whose == "group"
        return "hit" if watched.store.read(record.place) else "miss"

    assert as_user(ONE, looks, groups=[TEAM]) == ("hit" if hit else "miss")


@ROOT_ONLY
def test_verify_and_ls_tell_of_what_is_not_used(tmp_path):
    """Integrity and trust are two answers, and a stranger's record is not made here."""
    record, path = made(tmp_path / "store")
    others = publish(in_store(tmp_path / "store").store, make_record(2), beside=TAKEN)
    in_store(tmp_path / "store").store.layout.origin(others.place).unlink()
    again = in_store(tmp_path / "store")
    found = verify(again.session)
    assert (found.error(), found.origins.here, found.origins.unknown, len(found.origins.kept)) == (None, 1, 1, 1)
    os.chown(path, ONE, ONE)
    again = in_store(tmp_path / "store")
    found = verify(again.session)
    assert (found.good, found.origins.here, len(found.origins.refused)) == (True, 0, 1)
    assert isinstance(found.error(), UntrustedError)
    assert "belongs to another user" in found.error().cause
    unasked = Store(tmp_path / "store", Journal(None, "test"))
    assert unasked.doubtful() == {record.place}, "the look of verify saw whose it is now"
    rows = {row.key: row.refused for row in told_of_strangers(unasked, unasked.listed(), {record.place}, trust())}
    assert rows[others.key] == ""
    assert "there is no note of yours that says who made it" in rows[record.key]


@ROOT_ONLY
@pytest.mark.parametrize("how", ["owner", "mode", "link"])
def test_a_record_that_somebody_else_left_in_the_store_is_doubtful(tmp_path, how):
    record, path = made(tmp_path / "store")
    mine = publish(in_store(tmp_path / "store").store, make_record(2))
    path.rename(tmp_path / "theirs")
    if how == "link":
        path.symlink_to(tmp_path / "theirs")
    else:
        path.write_bytes((tmp_path / "theirs").read_bytes())
        os.chown(path, *((ONE, ONE) if how == "owner" else (0, 0)))
        path.chmod(0o666 if how == "mode" else 0o644)
    unasked = Store(tmp_path / "store", Journal(None, "test"))
    assert {row.key for row in unasked.listed()} == {record.key, mine.key}
    assert unasked.doubtful() == {record.place}


# Whose the blobs are


@ROOT_ONLY
@pytest.mark.parametrize("which", ["blob", "folder"])
def test_a_strangers_blob_is_read_through_a_copy(tmp_path, which):
    """They may write to it, or swap it, between the check and the load."""
    home = tmp_path / "store"
    record, _ = made(home)
    store = in_store(home).store
    blob = store.layout.blob(record.files[0].sha256)
    with store.reading(record.files[0]) as found:
        assert found.path == blob
    os.chown(blob if which == "blob" else blob.parent, ONE, ONE)
    with store.reading(record.files[0]) as found:
        assert found.path != blob
        assert found.path.read_bytes() == blob.read_bytes()
    overwrite(blob, b"other")
    with pytest.raises(IntegrityError), store.reading(record.files[0]):
        pytest.fail("it was given to a compiler")


# Notes of origins


def test_who_removes_the_note_makes_nothing_this_users(user, tmp_path):
    """Taken by --trust-all; another user could remove the note while the store was open."""
    mine = user("bob", trust(key=ALICE))
    record = publish(mine.store, make_record(), beside=TAKEN)
    mine.store.layout.origin(record.place).unlink()
    assert mine.store.read(record.place) is None, "somebody may have removed it whom it named"
    assert "of unknown origin" in mine.store.refusal.of(record.key).reason
    said = user("bob", trust(key=ALICE, everything=True))
    assert said.store.read(record.place) == record
    assert mine.store.origins.of(record) == UNKNOWN
    assert [one.reason for one in pushed(said, record).refused] == ["it is not known where it came from"]
    publish(said.store, make_record())
    assert said.store.origins.of(record) == UNKNOWN, "nor does who publishes it again"


@ROOT_ONLY
def test_a_note_that_another_user_wrote_says_nothing(user):
    mine = user("bob", trust(key=ALICE))
    record = publish(mine.store, make_record(), beside=TAKEN)
    note = mine.store.layout.origin(record.place)
    note.chmod(0o644)
    note.write_text(note.read_text().replace('"all"', '"here"').replace("x.tar", ""))
    os.chown(note, ONE, ONE)
    assert user("bob", trust(key=ALICE)).store.origins.of(record) == UNKNOWN


@ROOT_ONLY
@pytest.mark.parametrize("name", ["trust", "staying", "quarantine"])
def test_whoever_can_remove_what_was_noted_can_change_the_store(tmp_path, name):
    record, _ = made(tmp_path / "store")
    layout = in_store(tmp_path / "store").store.layout
    folder = layout.root / name
    folder.mkdir(exist_ok=True)
    os.chown(folder, ONE, ONE)
    assert access.standing(layout).whose == "others"
    again = in_store(tmp_path / "store")
    assert again.store.read(record.place) is None, "any file of this user's may have been put there"
    assert again.store.refusal.of(record.key).helps == "anew", "as is done below"
    warm(again.session, again.prepare())
    assert in_store(tmp_path / "store").store.read(record.place), "what is made from now on has a note"
