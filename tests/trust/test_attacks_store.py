"""Attacks by other users of the host: on the store, on the notes in it, on what a compiler is about to load."""

import json
import os
import subprocess

import msgspec
import pytest
from msgspec import structs

from cachekit import files
from cachekit.errors import UntrustedError
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.push import push
from cachekit.store.origin import MADE_HERE, Beside, Origin, ReusedOrigin
from cachekit.store.partial import receiving
from cachekit.store.record import encode
from cachekit.verbs.export import export_bundle
from cachekit.verbs.plan import miss_error
from cachekit.verbs.push import push_records
from cachekit.verbs.records import show
from cachekit.verbs.verify import verify
from cachekit.verbs.warm import warm
from cachekit.whose import standing
from tests.support.doctor_cases import fine, public, the_problem  # noqa: F401 - a fixture
from tests.support.standins import Watched, expected, make_record, overwrite, publish, served
from tests.support.users import ANOTHER, ONE, as_user
from tests.trust.attack_cases import RUN, Loader, marker, trains  # noqa: F401
from tests.trust.flow_cases import ALICE, alice, alices, place, planned, trust, user  # noqa: F401

pytestmark = pytest.mark.feature("T2")
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
DIGEST = "0" * 64


def give(home, user, mode=0o755):
    """Make a whole store somebody's."""
    for path in (home, *home.rglob("*")):
        if path.is_dir():
            path.chmod(mode)
        os.chown(path, user, user)


def in_store(home, said):
    return Watched(home, trust=said, compiler=Loader())


def in_open_store(home):
    """A user whose store everybody can write to."""
    mine = in_store(home, trust())
    mine.store.layout.records.mkdir(parents=True)
    mine.store.layout.records.chmod(0o777)
    return mine


# Stores that others can write to


@ROOT_ONLY
@pytest.mark.parametrize(
    ("mode", "why"), [(0o755, "belongs to another user"), (0o777, "belongs to"), (0o1777, "belongs to")]
)
def test_a_record_in_another_users_store_is_used_as_far_as_it_is_signed(public, mode, why):
    home = public / "store"
    alices = Watched(home, trust=trust(key=ALICE))
    record = warm(alices.session, alices.prepare()).record
    give(home, ONE, mode)
    bob = in_store(home, trust(ALICE))
    found = planned(bob)
    error = miss_error(found)
    assert (found.hit, type(error), error.exit_code) == (False, UntrustedError, 5)
    assert "there is no note of yours that says who made it" in error.cause
    assert why in error.cause
    assert bob.told("store.refused")
    assert trains(bob).compiled > 0
    assert planned(bob).hit, "what bob made there is bob's file"
    give(home, ONE, mode)
    everybody = in_store(home, trust(everything=True))
    assert planned(everybody).hit
    assert record.key == everybody.prepare().key


@ROOT_ONLY
@pytest.mark.parametrize("mode", [0o666, 0o664])
def test_a_record_that_others_may_have_rewritten_is_nobodys(tmp_path, mode):
    """In a folder that everybody can write to a file counts that only this user can have written."""
    home = tmp_path / "store"
    mine = in_store(home, trust())
    for folder in (mine.store.layout.records, mine.store.layout.blobs):
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    record = warm(mine.session, mine.prepare()).record
    again = in_store(home, trust())
    assert planned(again).hit
    path = mine.store.layout.record(record.place)
    os.chown(path, -1, ONE)  # a group, in which others may be
    path.chmod(mode)
    again = in_store(home, trust())
    (told,) = planned(again).untrusted
    assert "every user of this machine can write to" in told


@ROOT_ONLY
def test_a_record_is_asked_whose_it_is_that_was_read_and_not_what_has_its_name_by_then(tmp_path, monkeypatch):
    """Another user puts a file that this user wrote in the place of the own one as soon as that is open."""
    mine = in_open_store(tmp_path / "store")
    place = warm(mine.session, mine.prepare()).record.place
    path = mine.store.layout.record(place)
    assert in_store(tmp_path / "store", trust()).store.read(place)
    of_this_user = tmp_path / "own"
    of_this_user.write_bytes(path.read_bytes() + b"\n")
    os.chown(path, ONE, ONE)
    opened = files.opened

    def exchanged(name, **words):
        source = opened(name, **words)
        if name == path and of_this_user.exists():
            of_this_user.replace(name)
        return source

    monkeypatch.setattr(files, "opened", exchanged)
    assert in_store(tmp_path / "store", trust()).store.read(place) is None
    assert not of_this_user.exists()


def test_a_link_in_a_store_of_everybody_makes_no_record_of_what_this_user_fetched(tmp_path):
    """A clone of a stranger's repository belongs to whoever cloned it."""
    mine = in_open_store(tmp_path / "store")
    place = warm(mine.session, mine.prepare()).record.place
    folder = mine.store.layout.record(place).parent
    assert in_store(tmp_path / "store", trust()).store.read(place)
    folder.rename(tmp_path / "clone")
    folder.symlink_to(tmp_path / "clone")
    assert in_store(tmp_path / "store", trust()).store.read(place) is None


def test_another_file_of_this_user_that_is_renamed_there_is_no_record(tmp_path):
    """Whoever may write there can rename this user's files; a record without a note of this user's is not used."""
    home = tmp_path / "store"
    mine = in_open_store(home)
    record = warm(mine.session, mine.prepare()).record
    evil = structs.replace(record, provenance=structs.replace(record.provenance, user="mallory"))
    with receiving(mine.store.layout, "a" * 64) as part:  # bytes that a remote gave, of a fetch that was cut
        part.write(encode(evil))
    assert part.path.parent.stat().st_mode & 0o777 == 0o700, "nobody else takes it out of there"
    part.path.rename(mine.store.layout.record(record.place))
    again = in_store(home, trust())
    assert again.store.read(record.place) is None
    assert not planned(again).hit
    assert again.store.origins.of(evil) != MADE_HERE


def test_two_other_files_of_this_user_are_no_record_and_its_note(tmp_path):
    """Blobs of a record that was once taken from anybody are this user's files with bytes that a stranger chose."""
    home = tmp_path / "store"
    mine = in_open_store(home)
    record = warm(mine.session, mine.prepare()).record
    evil = structs.replace(record, provenance=structs.replace(record.provenance, user="mallory"))
    for raw, path in (
        (encode(evil), mine.store.layout.record(record.place)),
        (msgspec.json.encode({"of": {evil.digest: {}}}), mine.store.layout.origin(record.place)),
    ):
        (tmp_path / "blob").write_bytes(raw)
        (tmp_path / "blob").rename(path)

    def is_no_record(name):
        again = in_store(name, trust())
        assert again.store.read(record.place) is None
        assert not planned(again).hit
        assert again.store.origins.of(evil) != MADE_HERE

    is_no_record(home)
    # Who closes the store does not make it this user's, either, by whatever name it goes then.
    mine.store.layout.records.chmod(0o755)
    is_no_record(home)
    (tmp_path / "link").symlink_to(home)
    is_no_record(tmp_path / "link")
    (tmp_path / "beside").mkdir()
    is_no_record(tmp_path / "beside" / ".." / "store")
    home.rename(tmp_path / "moved")
    is_no_record(tmp_path / "moved")


def test_what_a_signer_says_was_reused_is_not_in_a_store_of_everybody(tmp_path):
    """A note of this user's is true of the record that it was written for, and repeats what its signer says beside."""
    home = tmp_path / "store"
    mine = in_open_store(home)
    made = warm(mine.session, mine.prepare()).record
    evil = structs.replace(made, provenance=structs.replace(made.provenance, user="mallory"))
    says = Beside(Origin("hf://alice/cache", "all", reused=(ReusedOrigin(made.key, evil.digest, how="stated"),)))
    harmless = structs.replace(made, provenance=structs.replace(made.provenance, user="alice"))
    mine.store.publish(harmless, {}, beside=says)
    again = in_store(home, trust(everything=True))
    assert again.store.origins.of(harmless) == says
    (tmp_path / "blob").write_bytes(encode(evil))
    (tmp_path / "blob").rename(mine.store.layout.record(made.place))
    again = in_store(home, trust())
    assert again.store.read(made.place) is None
    assert again.store.origins.of(evil).origin.how == ""


@ROOT_ONLY
@pytest.mark.parametrize("way", ["folder", "file", "link", "file above"])
def test_whoever_takes_the_place_of_unfinished_files_ends_no_fetch(public, way):
    """Nor is anything made where that leads; what is missing is that a fetch which is cut is resumed."""
    (shared := public / "shared").mkdir()
    ann = Watched(public / "ann", shared=[(FolderStorage(shared), "rw")])
    record = publish(ann.store, made := make_record(size=50_000))
    push(ann.store, ann.session.remotes, [record])
    bob = Watched(public / "bob", shared=[(FolderStorage(shared), "r")])
    layout, elsewhere = bob.store.layout, public / "elsewhere"
    elsewhere.mkdir()
    taken = layout.partial.parent if way == "file above" else layout.partial
    taken.parent.mkdir(parents=True)
    make = {"folder": taken.mkdir, "link": lambda: taken.symlink_to(elsewhere)}.get(way, taken.touch)
    make()
    os.chown(taken, ONE, ONE, follow_symlinks=False)
    assert bob.pull(bob.session.remotes.find(record.place)).files == 2
    assert served(bob.store, record) == expected(made)
    assert not list(elsewhere.iterdir())
    assert not [path for path in layout.tmp.iterdir() if path.is_dir()]
    found = the_problem("store", home=public / "bob")
    assert f"{taken} " in found["said"]
    subprocess.run(["bash", "-c", found["run"]], check=True)
    assert fine("store", home=public / "bob")


def test_a_blob_that_was_swapped_is_not_given_to_the_compiler(tmp_path, marker):
    home = tmp_path / "store"
    mine = in_store(home, trust())
    record = warm(mine.session, mine.prepare()).record
    again = in_store(home, trust())
    assert planned(again).hit
    blob = again.store.layout.blob(record.files[0].sha256)
    overwrite(blob, RUN + os.fsencode(marker), anew=True)
    made = warm(again.session, again.prepare())
    again.restored(made.record.key, made.record)
    assert not marker.exists()
    assert again.damage()


# Notes that say where a record came from


def hostile(envelopes, **origin):
    return lambda digest: {"of": {digest: {"origin": {"how": "here", **origin}, "envelopes": envelopes}}}


NOTES = [
    hostile([{"x": 1}]),
    hostile([{"payload": "", "payloadType": "", "signatures": []}]),
    hostile([{"payload": "AAAA", "payloadType": "t", "signatures": [{"sig": "AAAA"}]}] * 40),
    hostile([], reused=[{"key": DIGEST, "record": DIGEST, "how": "signed", "signers": ["\x1b[2J"]}]),
    hostile([], how="owner", remote="\x1b[2J\nall good"),
    hostile([], how="signed", remote="x", signers=["SHA256:" + "A" * 43]),
    hostile([], how="trusted"),
    lambda _: "junk",
    lambda _: {"of": {"../../x": {}}},
]


@pytest.mark.feature("T3")
@pytest.mark.parametrize("note", NOTES)
def test_a_planted_note_stops_nothing_and_signs_nothing(alice, user, place, tmp_path, note):
    path = alice.store.layout.origin(alice.record.place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(note(alice.record.digest)))
    other = tmp_path / "other"
    other.mkdir()
    again = user("alice", trust(key=ALICE), where=other)
    told = planned(again)
    refused = ("no longer signed by anybody you trust", "--trust-all uses it)")
    assert told.hit or any(words in told.untrusted[0] for words in refused)
    assert told.hit or told.untrusted[0].isprintable()
    (pushed,) = push_records(again.session, [alice.record], public=False, replaces=False, dry_run=False)
    assert pushed.error is None or isinstance(pushed.error, UntrustedError)
    assert len(pushed.records) + len(pushed.refused) == told.hit
    try:
        export_bundle(again.session, [alice.record], tmp_path / "x.tar")
    except UntrustedError:
        assert pushed.refused or not told.hit
    verify(again.session)
    if told.hit:
        show(again.store, alice.record.key, trust(key=ALICE))


# Folders out of which a compiler loads


@ROOT_ONLY
def test_what_another_user_swaps_is_not_loaded(public, marker):
    """The folder that was restored is exchanged by another user, where that is possible at all."""
    parent = public / "shared"
    parent.mkdir()
    parent.chmod(0o777)
    bob = Watched(public / "store", cache_dirs=parent / "dirs", trust=trust(), compiler=Loader())
    prepared = bob.prepare()
    made = warm(bob.session, prepared).record
    with bob.session.cache_dir(prepared, made) as cache_dir:
        tree = cache_dir.tree
        assert standing(tree).whose == "own"

        def swaps():
            try:
                tree.rename(tree.with_name("away"))
            except OSError as error:
                return type(error).__name__
            return "swapped"

        assert as_user(ONE, swaps) == "PermissionError"
    assert standing(parent).whose == "others"


@ROOT_ONLY
def test_a_folder_that_another_user_made_first_is_not_loaded_from(public, monkeypatch):
    """Where the store cannot be used, compiler cache dirs lie under the temporary folder: anybody can make it first."""
    from cachekit.store.layout import temporary_folder, temporary_home

    monkeypatch.setenv("TMPDIR", str(public))
    monkeypatch.setattr("tempfile.tempdir", None)
    public.chmod(0o1777)
    planted = temporary_home()
    assert planted.parent == public
    for make in (
        lambda: planted.mkdir(mode=0o777),
        lambda: planted.symlink_to(public),
        lambda: planted.write_bytes(b""),
    ):
        assert as_user(ANOTHER, lambda make=make: make() or "made")
        with pytest.raises(OSError, match=r"another user|director|link"):
            temporary_folder("cache_dirs")
        planted.rmdir() if planted.is_dir() and not planted.is_symlink() else planted.unlink()
