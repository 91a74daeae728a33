"""A compiler's own cache that is imported: no spelling of its folder and no way round lifts what is asked."""

import shutil

import pytest
from msgspec import structs

from cachekit.errors import UntrustedError
from cachekit.store.bundle import INDEX
from cachekit.store.origin import Beside
from cachekit.store.removal import Remover, Victim
from cachekit.verbs.export import export_cache
from cachekit.verbs.imports import import_into
from cachekit.verbs.pull_modules import pull_modules
from cachekit.verbs.push import push_records
from tests.compilers.neuron.neuron_trees import COMPILER
from tests.remotes.peer_repo import entry
from tests.trust.attack_cases import as_own
from tests.trust.flow_cases import ALICE, place, trust, user  # noqa: F401 - some are fixtures
from tests.trust.trust_cases import key

pytestmark = [pytest.mark.feature("T2"), pytest.mark.feature("T5")]
KEY = key(ALICE).fingerprint


@pytest.fixture
def near(tmp_path):
    """A cache in a folder of this user's own."""
    entry(tmp_path / "N", seed=1)
    return tmp_path / "N"


def asks(bob, **tables):
    """A user whose settings have these tables of remotes."""
    return structs.replace(bob.session, config=structs.replace(bob.session.config, **tables))


@pytest.mark.parametrize(
    "spelled", ["N", "N/../N", "link", "../{}/N", "/tmp/..{}/N", f"N/{COMPILER}", f"link/{COMPILER}"]
)
@pytest.mark.parametrize("whose", ["remotes", "file_remotes"])
def test_no_spelling_of_a_folder_lifts_what_is_asked_there(user, near, tmp_path, spelled, whose):
    """Nor does it matter that the list names no such remote."""
    (tmp_path / "link").symlink_to("N")
    folder = spelled.format(tmp_path if spelled.startswith("/") else tmp_path.name)
    bob = user("bob", trust(), may="")
    tables = {"nas": {"url": str(near), "trust": "signed"}}
    session = asks(bob, **{whose: tables if whose == "remotes" else (tables,)})
    for dry_run in (True, False):
        with pytest.raises(UntrustedError) as raised:
            import_into(session, tmp_path / folder, dry_run=dry_run)
        assert raised.value.cause == "the settings ask for signatures"
    assert not list(bob.store.records())


@pytest.mark.parametrize("url", ["N/beside", "M", "hf://team/N"])
def test_what_is_asked_elsewhere_is_not_asked_here(user, near, tmp_path, url):
    bob = user("bob", trust(), may="")
    where = url if "://" in url else str(tmp_path / url)
    session = asks(bob, remotes={"nas": {"url": where, "trust": "signed"}})
    assert import_into(session, near).added == 1


def test_a_table_that_trusts_everybody_is_heard(user, place):
    entry(place, seed=1)
    session = asks(user("bob", trust(), may=""), remotes={"nas": {"url": f"{place}/.", "trust": "all"}})
    assert import_into(session, place).added == 1


@pytest.mark.parametrize("spelled", [".", COMPILER])
def test_an_unpacked_bundle_is_no_cache_of_ones_own(user, near, spelled):
    index = near / INDEX
    index.parent.mkdir(parents=True)
    index.write_bytes(b"{}")
    bob = user("bob", trust(), may="")
    with pytest.raises(UntrustedError) as raised:
        import_into(bob.session, near / spelled)
    assert f"{near} is an unpacked bundle" in raised.value.cause
    assert not list(bob.store.records())
    assert import_into(asks(bob, remotes={"usb": {"url": str(near), "trust": "owner"}}), near / spelled).added == 1


# What is known of modules


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Where all that `signed` makes is kept for the tests after the first one."""
    return tmp_path_factory.mktemp("made") / "first"


@pytest.fixture
def signed(user, near, tmp_path, made):
    """Bob, who took a module that Alice signed, and exported it."""
    if made.exists():
        shutil.copytree(made, tmp_path, dirs_exist_ok=True)
        return user("bob", trust(ALICE), may="r")
    alice = user("alice", trust(key=ALICE))
    import_into(alice.session, near)
    (record,) = alice.store.records()
    as_own(alice.store)
    push_records(alice.session, [record], public=False, replaces=False, dry_run=False)
    bob = user("bob", trust(ALICE), may="r")
    bob.pull(bob.session.remotes.readable[0].find(record.place, anew=True))
    export_cache(bob.store, tmp_path / "root")
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    shutil.copytree(tmp_path, made)
    return bob


def remove(bob):
    for row in bob.store.refresh().rows():
        Remover(bob.store).records([Victim(row, row.published + 1e9, "named")])


@pytest.fixture(params=["in the store", "removed from it"])
def known(request, signed):
    """What Bob's store still knows of it."""
    if request.param == "removed from it":
        remove(signed)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("folder", ["root", f"root/{COMPILER}", "copy"])
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (trust(ALICE, revoked={"keys": [KEY]}), f"signed with {KEY}, which is revoked"),
        (trust(ALICE, revoked={"before": "2100-01-01"}), "made before 2100-01-01"),
        (trust(ALICE, revoked={"keys": [KEY]}, everything=True), "is revoked"),
        (trust(), "no longer signed by anybody you trust"),
    ],
)
def test_what_is_revoked_does_not_come_back(user, tmp_path, folder, said, reason):
    bob = user("bob", said, may="")
    for dry_run in (True, False):
        with pytest.raises(UntrustedError) as raised:
            import_into(bob.session, tmp_path / folder, dry_run=dry_run)
        assert reason in raised.value.cause
    assert not list(bob.store.records())


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("way", ["import", "pull"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_one_module_that_is_revoked_does_not_keep_the_others_out(user, tmp_path, way, dry_run):
    """Who may write there could else take a whole cache away from everybody."""
    (gone,) = (path.name for path in (tmp_path / "root" / COMPILER).iterdir())
    entry(tmp_path / "root", seed=2)
    (kept,) = (path.name for path in (tmp_path / "root" / COMPILER).iterdir() if path.name != gone)
    bob = user("bob", trust(ALICE, revoked={"keys": [KEY]}), may="r", where=tmp_path / "root")
    if way == "import":
        found = import_into(bob.session, tmp_path / "root", dry_run=dry_run)
        added, left = [name for group in found.records for name in group.added], found.left
    else:
        (swept,) = pull_modules(bob.session, [], COMPILER, dry_run=dry_run)
        added, left = [*swept.modules], swept.left
    assert f"{COMPILER}/{kept}" in added
    if way == "import" or not dry_run:  # a folder gives no digests before it is read
        assert added == [f"{COMPILER}/{kept}"]
        (refused,) = left
        assert "that record is" in refused.reason
    if not dry_run:
        modules = [module.name for record in bob.store.records() for module in record.modules]
        assert modules == [f"{COMPILER}/{kept}"]
        with pytest.raises(UntrustedError, match=f"it holds {COMPILER}/{gone}".replace("+", r"\+")):
            pull_modules(bob.session, [f"{COMPILER}/{gone}"], "")


def test_what_lies_in_quarantine_does_not_come_back(signed, user, tmp_path):
    """Though nobody noted where its modules stay."""
    shutil.rmtree(signed.store.layout.staying)
    for notes in (tmp_path / "copy").glob(".notes-of-cachekit-*"):
        shutil.rmtree(notes)
    bob = user("bob", trust(ALICE, revoked={"keys": [KEY]}), may="")
    with pytest.raises(UntrustedError, match="is not used"):
        import_into(bob.session, tmp_path / "copy")
    assert len(list(bob.store.layout.quarantine.iterdir())) == 1


def test_nor_does_it_by_way_of_a_remote(signed, user, tmp_path):
    bob = user("bob", trust(ALICE, revoked={"keys": [KEY]}), may="r", where=tmp_path / "root")
    (path,) = (tmp_path / "root" / COMPILER).iterdir()
    with pytest.raises(UntrustedError, match="is not used"):
        pull_modules(bob.session, [f"{COMPILER}/{path.name}"], "")
    assert not list(bob.store.records())


def test_what_was_signed_stays_so(signed, user, tmp_path):
    remove(signed)
    import_into(signed.session, tmp_path / "root")
    (record,) = signed.store.records()
    origin = signed.store.origins.of(record).origin
    assert (origin.how, origin.signers) == ("signed", (KEY,))
    assert not signed.session.remotes.trust.unpublishable(record, Beside(origin))
    assert user("bob", trust(), may="").store.lookup(record.place) is None


@pytest.mark.parametrize("folder", ["root", "copy"])
def test_what_anybody_made_does_not_become_ones_own(user, place, tmp_path, folder):
    entry(place, seed=1)
    bob = user("bob", trust(everything=True), may="")
    import_into(bob.session, place)
    export_cache(bob.store, tmp_path / "root")
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    remove(bob)
    bob = user("bob", trust(), may="")
    import_into(bob.session, tmp_path / folder)
    (record,) = bob.store.records()
    origin = bob.store.origins.of(record).origin
    assert [(one.remote, one.how) for one in origin.reused] == [(str(place), "all")]
    assert "where nobody checked who made it" in bob.session.remotes.trust.unpublishable(record, Beside(origin))


def test_what_one_made_stays_ones_own(user, near, tmp_path):
    bob = user("bob", trust(), may="")
    import_into(bob.session, near)
    export_cache(bob.store, tmp_path / "root")
    remove(bob)
    import_into(bob.session, tmp_path / "root")
    (record,) = bob.store.records()
    assert not bob.session.remotes.trust.unpublishable(record, bob.store.origins.of(record))
