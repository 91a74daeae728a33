"""The other ways into a store and into a compiler: the nearest record, bundles, lock files, caches without records."""

import hashlib
import shutil
import tarfile

import pytest
from msgspec import structs

from cachekit.errors import CachekitError, UntrustedError
from cachekit.recipe.variant import Variant
from cachekit.remotes import document, layout
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.port import ABSENT, Commit, Write
from cachekit.store.lock_file import anonymous
from cachekit.store.record import File, Module
from cachekit.trust.envelope import encode
from cachekit.verbs.export import export_bundle
from cachekit.verbs.imports import import_into
from cachekit.verbs.lock import lock, pull_locked
from cachekit.verbs.pull import pull_recipe
from cachekit.verbs.pull_modules import pull_modules
from cachekit.verbs.push import push_records
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.compilers.neuron.neuron_trees import COMPILER
from tests.compilers.neuron.test_native_cache import add
from tests.remotes.peer_repo import entry
from tests.remotes.storage_processes import serve
from tests.support.places import real_dir
from tests.support.standins import StandIn, Watched, make_record, publish, recipe
from tests.trust.attack_cases import (  # noqa: F401 - some are fixtures
    Loader,
    as_own,
    attacker,
    holds_nowhere,
    marker,
    signed,
    statement,
    trains,
    unused,
    victim,
)
from tests.trust.flow_cases import (  # noqa: F401 - some are fixtures
    ALICE,
    BOB,
    EVE,
    alice,
    alices,
    bundle,
    close,
    place,
    planned,
    put,
    shared,
    taken,
    trust,
    user,
)
from tests.trust.trust_cases import key

pytestmark = [pytest.mark.feature("T2"), pytest.mark.feature("T3")]
NEAR = 16  # another batch size: the record of the toy recipe is the nearest


def exit_code(act):
    with pytest.raises(CachekitError) as raised:
        act()
    return raised.value.exit_code


@pytest.fixture
def private_place(tmp_path):
    """A folder that only this user can write to: his team's."""
    folder = tmp_path / "team"
    folder.mkdir()
    return folder


# The nearest record


@pytest.mark.feature("T6")
def test_a_miss_does_not_begin_with_a_strangers_record_and_gives_it_to_nobody(attacker, tmp_path, place, private_place):
    attacker.sign(signed(EVE, statement(attacker.publish())))
    places = [(FolderStorage(place), "r"), (FolderStorage(private_place), "rw")]
    bob = Watched(tmp_path / "bob", shared=places, trust=trust(ALICE), compiler=Loader())
    reuse_bytes = bob.session.config.reuse_bytes
    found = planned(bob, recipe(NEAR), reuse_bytes=reuse_bytes)
    assert (found.nearest, found.reuse, found.expected) == (None, None, None)
    made = trains(bob, recipe(NEAR)).record
    assert not bob.told("reuse.restored")
    unused(bob, attacker)
    assert shared(private_place, made).record == made
    assert holds_nowhere(private_place, attacker.code)


def test_without_the_question_a_miss_would_run_it(attacker, tmp_path, place, private_place):
    attacker.publish()
    places = [(FolderStorage(place), "r"), (FolderStorage(private_place), "rw")]
    bob = Watched(tmp_path / "bob", shared=places, trust=trust(everything=True, key=BOB), compiler=Loader())
    trains(bob, recipe(NEAR))
    assert bob.told("reuse.restored")
    assert attacker.marker.exists()
    (told,) = bob.told("push.refused")
    assert "which it reuses" in told["cause"]
    assert holds_nowhere(private_place, attacker.code)


def test_a_record_that_changed_since_it_was_remembered_is_judged_anew(attacker, alice, victim):
    """What is remembered of a record's ingredients, from when it was signed, says nothing of what lies there now."""
    bob = victim("bob", trust(ALICE))
    reuse_bytes = bob.session.config.reuse_bytes
    assert planned(bob, recipe(NEAR), reuse_bytes=reuse_bytes).reuse
    attacker.publish()
    bob = victim("bob", trust(ALICE))
    assert trains(bob, recipe(NEAR)).compiled == len(alice.record.modules)
    unused(bob, attacker)


def test_a_record_that_changes_between_the_search_and_the_fetch(attacker, victim):
    bob = victim("bob", trust(ALICE))
    reuse_bytes = bob.session.config.reuse_bytes
    near = planned(bob, recipe(NEAR), reuse_bytes=reuse_bytes).reuse
    attacker.publish()
    with pytest.raises(CachekitError):  # what was read and judged is fetched, and its bytes are others now
        bob.pull(near.found)
    unused(bob, attacker)


# Bundles


@pytest.fixture
def eve(attacker, user, tmp_path):
    """Has the altered record in an own store, as if it had been made there, and signs it."""
    attacker.publish()
    eve = user("eve", trust(everything=True), may="r")
    pull_recipe(eve.session, eve.prepare())
    as_own(eve.store)
    return user("eve", trust(key=EVE), may="")


@pytest.mark.feature("T6")
def test_a_bundle_of_altered_artifacts_is_not_taken(eve, attacker, victim, tmp_path):
    path = bundle(eve, tmp_path / "x.tar")
    bob = victim("bob", trust(ALICE), may="")
    (one,) = taken(bob, path, dry_run=True).records
    assert one.untrusted == f"signed by nobody you trust ({key(EVE).fingerprint})"
    assert exit_code(lambda: taken(bob, path)) == 5
    assert not list(bob.store.records())
    unused(bob, attacker)


@pytest.mark.feature("T6")
def test_a_bundle_that_was_unpacked_is_judged_as_the_bundle_is(eve, attacker, victim, user, tmp_path):
    """The folder and the files belong to whoever unpacked them, and the code in them is somebody else's."""
    folder = tmp_path / "unpacked"
    folder.mkdir()
    with tarfile.open(bundle(eve, tmp_path / "x.tar")) as packed:
        packed.extractall(folder, filter="data")
    bob = victim("bob", trust(ALICE), where=folder, may="r")
    found = planned(bob)
    assert (found.hit, found.nearest) == (False, None)
    assert f"{folder} is an unpacked bundle" in found.untrusted[0]
    assert exit_code(lambda: pull_recipe(bob.session, bob.prepare())) == 5
    unused(bob, attacker)
    assert planned(user("carol", trust(EVE), where=folder, may="r")).hit
    assert planned(user("dan", trust(said={str(folder): "owner"}), where=folder, may="r")).hit
    for name, said, hit in (("jo", {"everything": True}, True), ("kim", {"only": "owner"}, False)):
        assert planned(user(name, trust(**said), where=folder, may="r")).hit == hit


def test_one_altered_record_keeps_a_whole_bundle_out(eve, attacker, victim, tmp_path):
    alice = Watched(tmp_path / "alice", trust=trust(key=ALICE))
    both = Watched(tmp_path / "both", trust=trust(everything=True))
    taken(both, bundle(eve, tmp_path / "x.tar"))
    good = warm(alice.session, alice.prepare(recipe(NEAR))).record
    export_bundle(alice.session, [good], tmp_path / "y.tar")
    taken(both, tmp_path / "y.tar")
    both = Watched(tmp_path / "both", trust=trust(said={"x.tar": "all"}))
    bob = victim("bob", trust(ALICE), may="")
    assert exit_code(lambda: taken(bob, bundle(both, tmp_path / "z.tar"))) == 5
    assert not list(bob.store.records())
    unused(bob, attacker)


# Lock files


@pytest.mark.feature("T6")
def test_a_lock_file_of_altered_artifacts_fetches_nothing(attacker, alice, victim):
    locked = lock(alice.session, alice.prepare(), Variant("toy"))
    evil = attacker.publish()
    bob = victim("bob", trust(ALICE))
    for one in (locked, structs.replace(locked, record=evil)):
        assert exit_code(lambda one=one: pull_locked(bob.session, one)) in {4, 5}
        unused(bob, attacker)
    assert bob.told("remote.untrusted")


def test_a_lock_file_binds_no_artifacts_of_another_key(alice, victim, place):
    """Both are signed; but nobody has said that the other key's artifacts are what this key gives."""
    other = warm(alice.session, alice.prepare(recipe(NEAR))).record
    mixed = structs.replace(other, key=alice.record.key, hard=alice.record.hard, soft=alice.record.soft)
    put(place, layout.record_path(alice.record.place), (place / layout.record_path(other.place)).read_bytes())
    bob = victim("bob", trust(ALICE))
    locked = lock(alice.session, alice.prepare(), Variant("toy"))
    assert exit_code(lambda: pull_locked(bob.session, structs.replace(locked, record=mixed)))
    assert bob.store.lookup(alice.record.place) is None


@pytest.mark.parametrize("named", ["ref", "commit", "short", "signed"])
def test_a_lock_file_brings_nothing_unsigned_of_a_pull_request(tmp_path, named):
    """Whoever may read a repo may propose a commit. What the branch itself had earlier is used."""
    with serve("hub", tmp_path / "server") as make:
        repo = make.repo

        def member(name, **options):
            return Watched(tmp_path / name, shared=[(make(), "rw")], **{"trust": trust(), **options})

        ann, eve = member("ann"), member("eve", trust=trust(key=EVE), compiler=StandIn(salt="evil"))
        warm(ann.session, ann.prepare())
        good, locked = repo.head, lock(ann.session, ann.prepare(), Variant("toy"))
        evil = warm(eve.session, eve.prepare(), recache=True).record
        push_records(eve.session, [evil], public=False, replaces=True, dry_run=False)
        merged = structs.replace(locked, record=anonymous(evil), digest=evil.digest, revision=repo.head)
        proposed = repo.head
        repo.branches = {**repo.branches, "refs/pr/1": proposed, "main": good}
        state = {"ref": "refs/pr/1", "short": proposed[:12]}.get(named, proposed)
        bob = member("bob", trust=trust(*[EVE] * (named == "signed")))
        forged = structs.replace(merged, revision=state)
        if named == "signed":
            assert pull_locked(bob.session, forged).state == "fetched"
            return
        assert exit_code(lambda: pull_locked(bob.session, forged)) == 5
        assert bob.store.lookup(evil.place) is None
        make().commit(Commit("later [1]", writes=[Write("later", b"", ABSENT)]), good)
        assert pull_locked(bob.session, locked).state == "fetched"


@pytest.mark.parametrize(("grown", "way"), [(False, "before"), (True, "record"), (True, "before"), (True, "key")])
def test_a_lock_file_hides_no_record_from_revocation(alice, user, place, grown, way):
    """It says when its record was made, and by whom; nobody signed that."""
    locked = lock(alice.session, alice.prepare(), Variant("toy"))
    whole = alice.record
    if grown:
        more = user("alice", trust(key=ALICE), compiler=StandIn(extra=1))
        train(more.session, more.prepare(), output_dir=place.parent / "output")
        whole = more.lookup(more.prepare())
        assert len(whole.modules) > len(alice.record.modules)
        push_records(more.session, [whole], public=False, replaces=False, dry_run=False)
    said = structs.replace(locked.record.provenance, created="2999-01-01T00:00:00+00:00", user="root")
    lies = structs.replace(locked.record, provenance=said, compile_seconds=99_999.0, recipe="evil")
    close(place)
    for name, known in (("bob", trust(ALICE)), ("carol", trust())):
        carol = user(name, known)
        pull_locked(carol.session, structs.replace(locked, record=lies, digest="f" * 64))
        taken = carol.store.lookup(whole.place)
        assert taken.modules == alice.record.modules
        assert taken == structs.replace(whole, modules=taken.modules)
        revoked = {
            "record": {"records": [whole.digest]},
            "before": {"before": "2900-01-01"},
            "key": {"keys": [key(ALICE).fingerprint]},
        }[way]
        after = user(name, trust(ALICE, revoked=revoked), may="")
        assert planned(after).hit is False
        assert "revoked" in planned(after).untrusted[0]


@pytest.mark.feature("T5")
@pytest.mark.parametrize("there", [True, False])
def test_a_lock_file_brings_back_nothing_that_is_revoked_by_the_digest_that_it_names(alice, user, place, there):
    """Whoever finds a bad record revokes it, and removes it from the remote; the files stay there."""
    locked, path = lock(alice.session, alice.prepare(), Variant("toy")), place / layout.record_path(alice.record.place)
    close(place)
    if not there:
        path.unlink()
        shutil.rmtree(path.with_name(f".cachekit-doc-{path.name}"), ignore_errors=True)
    revoked = {"records": [locked.digest]}
    bob = user("bob", trust(revoked=revoked))
    assert exit_code(lambda: pull_locked(bob.session, locked)) == 5
    assert bob.store.lookup(alice.record.place) is None
    carol = user("carol", trust())
    assert pull_locked(carol.session, locked).state == "fetched"
    assert planned(carol).hit
    after = user("carol", trust(revoked=revoked), may="")
    assert planned(after).hit is False
    assert "revoked" in planned(after).untrusted[0]


# Caches without records


@pytest.mark.feature("T4", "T6")
def test_modules_without_a_record_are_not_taken_from_where_others_can_write(user, place, tmp_path):
    name = entry(place, seed=1)
    bob = user("bob", trust(ALICE), may="r")
    assert exit_code(lambda: pull_modules(bob.session, [name], "")) == 5
    assert exit_code(lambda: pull_modules(bob.session, [], COMPILER)) == 5
    assert not list(bob.store.records())
    place.chmod(0o755)
    mine = user("mine", trust(ALICE), may="r")
    assert [one.state for one in pull_modules(mine.session, [name], "")] == ["fetched"]
    strict = user("strict", trust(ALICE, only="signed"), may="r")
    assert exit_code(lambda: pull_modules(strict.session, [name], "")) == 5


@pytest.mark.feature("T6")
def test_a_compilers_own_cache_that_others_can_write_to_is_not_imported(user, place):
    entry(place, seed=1)
    bob = user("bob", trust(ALICE), may="")
    with pytest.raises(UntrustedError, match="is not used") as raised:
        import_into(bob.session, place)
    assert "every user of this machine can write to" in raised.value.cause
    assert not list(bob.store.records())
    with pytest.raises(UntrustedError, match="is not used"):
        import_into(bob.session, place, dry_run=True)
    place.chmod(0o755)
    assert import_into(bob.session, place, dry_run=True).added == 1
    import_into(bob.session, place)
    assert list(bob.store.records())


@pytest.mark.feature("T4")
@pytest.mark.parametrize("file", ["model.neff", "compile_flags.json"])
def test_a_file_of_a_module_that_others_can_rewrite_is_neither_imported_nor_pulled(user, private_place, file):
    """No record says what is in it. What lies in a private folder can have come from one that was open before."""
    names = [entry(private_place, seed=seed) for seed in (1, 2, 3)]
    (private_place / names[1] / file).chmod(0o666)
    bob = user("bob", trust(ALICE), may="r", where=private_place)
    with pytest.raises(UntrustedError, match="is not used") as raised:
        import_into(bob.session, private_place)
    assert f"every user of this machine can write to {private_place / names[1] / file}" in raised.value.cause
    assert exit_code(lambda: pull_modules(bob.session, [names[1]], "")) == 5
    assert exit_code(lambda: pull_modules(bob.session, [], COMPILER)) == 5
    assert not list(bob.store.records())
    carol = user("carol", trust(everything=True), may="r", where=private_place)
    import_into(carol.session, private_place)
    (record,) = carol.store.records()
    assert carol.store.origins.of(record).origin.how == "all", "whoever asks nobody who made it does not pass it on"
    (private_place / names[1] / file).chmod(0o644)
    import_into(bob.session, private_place)
    (record,) = bob.store.records()
    assert bob.store.origins.of(record).origin.how == "owner"


@pytest.mark.feature("T4")
def test_a_graph_of_torchneurons_that_others_can_rewrite_is_not_imported(user, tmp_path):
    root = tmp_path / "graphs"
    add(root, "one")
    (root / add(root, "other")).chmod(0o666)
    bob = user("bob", trust(ALICE), may="")
    for dry_run in (True, False):
        with pytest.raises(UntrustedError):
            import_into(bob.session, root, dry_run=dry_run)
    assert not list(bob.store.records())


# A NEFF


@pytest.mark.feature("T4")
def test_an_altered_neff(user, place):
    """A real one, of which one byte was changed, in a record with right digests."""
    real = min(real_dir("neff").glob("*.neff"), key=lambda path: path.stat().st_size).read_bytes()
    alice = user("alice", trust(key=ALICE))
    record, _ = make_record(1)
    neff = File("model.neff", len(real), hashlib.sha256(real).hexdigest())
    record = structs.replace(record, modules=(Module(f"{COMPILER}/MODULE_1", (neff,)),))
    publish(alice.store, (record, {neff.sha256: real}))
    push_records(alice.session, [record], public=False, replaces=False, dry_run=False)
    bob = user("bob", trust(ALICE), may="r")
    remote = bob.session.remotes.readable[0]
    assert remote.find(record.place, anew=True)
    evil = real[:-1] + bytes([real[-1] ^ 1])
    path = place / COMPILER / "MODULE_1" / "model.neff"
    path.unlink()
    path.write_bytes(evil)
    with pytest.raises(CachekitError):
        bob.pull(remote.find(record.place, anew=True))
    file = structs.replace(neff, sha256=hashlib.sha256(evil).hexdigest())
    record = structs.replace(record, modules=(Module(f"{COMPILER}/MODULE_1", (file,)),))
    put(place, layout.record_path(record.place), document.Shared(record).raw)
    with pytest.raises(UntrustedError):
        remote.find(record.place, anew=True)
    put(place, layout.signatures_path(record.place), encode([signed(EVE, statement(record))]))
    with pytest.raises(UntrustedError):
        remote.find(record.place, anew=True)
    assert holds_nowhere(bob.store.layout.home, evil)
