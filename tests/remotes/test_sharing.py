"""A team shares a cache: what one member warmed the others find, on every kind of remote, at little cost."""

import pytest
from msgspec import structs

from cachekit.cli.progress import WARNINGS
from cachekit.remotes.lease.backends import CROWD
from cachekit.remotes.lease.fleet import leases_on
from cachekit.remotes.port import ABSENT, Commit, Write
from cachekit.remotes.push import push
from cachekit.verbs.plan import plan
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.remotes.memory_remote import MemoryRemote
from tests.remotes.sharing_cases import ANY_KIND, log, make, member  # noqa: F401 - fixtures
from tests.remotes.storage_processes import serve
from tests.remotes.watched_storages import Counted
from tests.support.standins import StandIn, Watched, compiles, expected, find, make_record, publish, recipe, served

# One warms, the others find


@pytest.mark.feature("R1")
def test_what_one_member_warmed_the_others_find(member, log):
    ann, bob = member("ann"), member("bob")
    made = warm(ann.session, ann.prepare())
    planned = plan(bob.prepare(), bob.store, bob.session.remotes)
    assert planned.hit
    assert planned.remote == bob.session.remotes.readable[0].name
    assert planned.fetch == made.record.size
    done = warm(bob.session, bob.prepare())
    assert (made.compiled, done.compiled) == (3, 0)
    assert len(compiles(log)) == 1
    assert done.record == made.record
    assert bob.restored("k", done.record) == ann.restored("k", made.record)
    # From now on it needs nobody.
    alone = Watched(bob.store.layout.home)
    assert plan(alone.prepare(), alone.store).record == made.record


@pytest.mark.feature("C2")
@pytest.mark.parametrize("beside", ["folder", "side-by-side"])
@pytest.mark.parametrize("repo_first", [True, False])
def test_beside_a_folder_or_a_bucket_a_lease_costs_the_repo_no_commit(tmp_path, log, beside, repo_first):
    """Whatever their order, so that all who name the same remotes choose the same."""
    repo, other = Counted(MemoryRemote(scarce=True)), Counted(MemoryRemote(compares=beside == "folder"))
    repo._storage.name = "the repo"
    ann = Watched(tmp_path / "ann", shared=[(one, "rw") for one in ((repo, other) if repo_first else (other, repo))])
    assert leases_on(ann.session.remotes).storage is other
    assert warm(ann.session, ann.prepare()).compiled == 3
    assert repo.calls.count("commit") == 1, "the record"
    assert other.calls.count("commit") > 1
    alone = Watched(tmp_path / "bob", shared=[(other, "r"), (repo, "rw")])
    assert leases_on(alone.session.remotes).storage is repo, "nobody can take a lease where he may only read"


@pytest.mark.feature("C4")
def test_that_many_commits_make_signs_of_life_rare_is_told_with_what_helps(tmp_path, log):
    """To a remote in memory all commits are of the same moment."""
    repo = MemoryRemote(scarce=True)
    for number in range(CROWD):
        repo.commit(Commit(f"cachekit: {number}", writes=[Write(f"{number}.json", b"1", ABSENT)]), repo.revision())
    ann = Watched(tmp_path / "ann", shared=[(repo, "rw")], lease=0)
    warm(ann.session, ann.prepare())
    (told,) = ann.told("lease.crowded")
    assert (told["remote"], told["seconds"]) == ("memory", 1800)
    assert "leases in a bucket or folder beside the repo need no commits" in WARNINGS["lease.crowded"](told)


@ANY_KIND
def test_a_training_takes_what_a_member_warmed(member, log, tmp_path):
    ann, bob = member("ann"), member("bob")
    warm(ann.session, ann.prepare())
    done = train(bob.session, bob.prepare(), output_dir=tmp_path / "out", require_warm=True)
    assert done.compiled == 0
    assert done.status == "hit"
    assert len(compiles(log)) == 1


@ANY_KIND
def test_what_compiles_in_a_training_is_shared_too(member, tmp_path, log):
    ann = member("ann", compiler=StandIn(extra=1))
    warm(ann.session, ann.prepare())
    trained = train(ann.session, ann.prepare(), output_dir=tmp_path / "out")
    assert trained.compiled == 1
    bob = member("bob", compiler=StandIn(extra=1))
    again = train(bob.session, bob.prepare(), output_dir=tmp_path / "out2", require_warm=True)
    assert again.compiled == 0


@ANY_KIND
@pytest.mark.feature("M1")
def test_who_may_only_read_writes_nothing(tmp_path, make, log):
    storage = Counted(make())
    bob = Watched(tmp_path / "bob", shared=[(storage, "r")])
    assert warm(bob.session, bob.prepare()).compiled == 3
    train(bob.session, bob.prepare(), output_dir=tmp_path / "out")
    assert not {"upload", "commit"} & set(storage.calls)
    ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    assert not plan(ann.prepare(), ann.store, ann.session.remotes).hit


@ANY_KIND
def test_who_may_only_write_takes_no_hits(tmp_path, make, log):
    for name in ("ann", "bob"):
        one = Watched(tmp_path / name, shared=[(make(), "w")])
        assert warm(one.session, one.prepare()).compiled == 3
    assert len(compiles(log)) == 2


@ANY_KIND
@pytest.mark.feature("R1")
def test_a_hit_fills_the_nearer_caches(tmp_path, make, log):
    far = make()
    ann = Watched(tmp_path / "ann", shared=[(far, "rw")])
    warm(ann.session, ann.prepare())
    with serve("folder", tmp_path / "near") as near:
        bob = Watched(tmp_path / "bob", shared=[(near(), "rw"), (make(), "r")])
        assert warm(bob.session, bob.prepare()).compiled == 0
        carl = Watched(tmp_path / "carl", shared=[(near(), "r")])
        assert plan(carl.prepare(), carl.store, carl.session.remotes).hit
    assert len(compiles(log)) == 1


@ANY_KIND
def test_a_store_that_was_warm_before_there_was_a_shared_cache_is_offered(tmp_path, member, log):
    alone = Watched(tmp_path / "ann")
    warm(alone.session, alone.prepare())
    ann, bob = member("ann"), member("bob")
    assert warm(ann.session, ann.prepare()).compiled == 0
    assert warm(bob.session, bob.prepare()).compiled == 0
    assert len(compiles(log)) == 1


@ANY_KIND
def test_recache_replaces_what_is_shared(member):
    ann, bob = member("ann", compiler=StandIn(salt="old")), member("bob", compiler=StandIn(salt="new"))
    old = warm(ann.session, ann.prepare()).record
    new = warm(bob.session, bob.prepare(), recache=True).record
    carl = member("carl")
    assert warm(carl.session, carl.prepare()).record == new != old
    assert carl.restored("k", new) == bob.restored("k", new)


# Little is asked and sent


@pytest.mark.feature("R2")
def test_a_push_of_nothing_new_is_one_question(tmp_path, make):
    ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
    record = publish(ann.store, make_record())
    push(ann.store, ann.session.remotes, [record])
    storage = Counted(make())
    again = Watched(tmp_path / "ann", shared=[(storage, "rw")])
    (pushed,) = push(again.store, again.session.remotes, [record])
    if storage.calls != ["stat"]:  # where a remote knows no digests, it must read
        assert not {"upload", "commit"} & set(storage.calls)
        assert storage.calls[:3] == ["stat", "revision", "read"]
        assert again.session.remotes.writable[0].storage.name.startswith(("hf://buckets", "/"))
    assert pushed.unchanged == 1
    assert pushed.files == ()


@ANY_KIND
def test_only_what_is_missing_is_fetched(member, tmp_path):
    ann, bob = member("ann"), member("bob")
    for watched, made in ((ann, make_record(1, ("a", "b"), size=9000)), (bob, make_record(2, ("a", "c"), size=9000))):
        publish(watched.store, made)
    first = make_record(1, ("a", "b"), size=9000)
    push(ann.store, ann.session.remotes, [first[0]])
    found = bob.session.remotes.find(first[0].place)

    done = bob.pull(found)
    assert (done.files, done.size, done.present) == (1, 9000, 9000)
    assert served(bob.store, find(bob.store, first[0])) == expected(first)


@ANY_KIND
def test_tiny_files_come_with_the_record(member):
    ann, bob = member("ann"), member("bob")
    made = make_record(size=100)
    publish(ann.store, made)
    push(ann.store, ann.session.remotes, [made[0]])
    storage = Counted(bob.session.remotes.readable[0].storage)
    bob.session.remotes.readable[0].storage = storage

    done = bob.pull(bob.session.remotes.find(made[0].place))
    assert "chunks" not in storage.calls
    said = [(told["files"], told["bytes"]) for state in ("start", "end") for told in bob.told(f"pull.{state}")]
    assert said == [(done.files, done.size)] * 2 == [(2, 200)] * 2
    assert served(bob.store, find(bob.store, made[0])) == expected(made)


@ANY_KIND
@pytest.mark.feature("N1")
def test_what_is_not_there_is_remembered_for_a_while(tmp_path, make):
    for _ in range(3):
        storage = Counted(make())
        bob = Watched(tmp_path / "bob", shared=[(storage, "r")])
        for batch in range(1, 6):
            assert not plan(bob.prepare(recipe(batch)), bob.store, bob.session.remotes).hit
        assert storage.calls.count("read") in {0, 5}
    assert storage.calls == []
    # Whoever asks for it gets a fresh answer.
    prepared = bob.prepare(recipe(1))
    place = prepared.place
    assert bob.session.remotes.find(place, anew=True) is None
    assert "read" in storage.calls


# Files that somebody removed


def remove(storage, module):
    """Remove the first file of a module, as anybody may; returns its path."""
    path = f"{module.name}/{module.files[0].path}"
    gone = Write(path, None, storage.read(path, storage.revision(), 1 << 20).token)
    storage.commit(Commit("cachekit: x [aaaaaaaaaaaa]", writes=[gone]), storage.revision())
    return path


@ANY_KIND
@pytest.mark.feature("S5")
@pytest.mark.parametrize("recheck", [False, True])
def test_a_lost_file_of_a_record_that_has_more_than_ones_own_is_sent_again(member, make, recheck):
    """What is there without it, and merged with one's own, is what was there."""
    record, files = make_record(size=9000)
    (module,) = record.modules
    other, more = make_record(artifacts=("c",), size=9000)
    theirs = structs.replace(record, modules=(structs.replace(other.modules[0], name="standin-1.0/MODULE_0"),))
    ann, bob = member("ann"), member("bob")
    for one, made in ((ann, (theirs, more)), (bob, (record, files))):
        push(one.store, one.session.remotes, [publish(one.store, made)])
    path = remove(make(), module)
    (done,) = push(bob.store, bob.session.remotes, [record], recheck=recheck)
    assert [file.path for file in done.files] == [path]
    carl = member("carl", "r")
    fetched = carl.session.fetch(carl.session.remotes.find(record.place))
    assert {one.name for one in fetched.modules} == {module.name, theirs.modules[0].name}


@pytest.mark.feature("S5")
def test_a_record_to_which_somebody_adds_keeps_no_module_of_another_whose_file_is_gone(tmp_path):
    """Also where the other has some of the same modules, at whose files the push looks first."""
    memory, made = MemoryRemote(scarce=True), {}
    for number in (1, 2, 3):
        record, files = make_record(artifacts=(f"{number}",), size=9000)
        made[number] = structs.replace(record.modules[0], name=f"standin-1.0/MODULE_{number}"), files

    def pushes(name, *numbers):
        one = Watched(tmp_path / name, shared=[(memory, "rw")])
        modules = tuple(made[number][0] for number in numbers)
        files = {digest: raw for number in numbers for digest, raw in made[number][1].items()}
        push(one.store, one.session.remotes, [publish(one.store, (structs.replace(record, modules=modules), files))])

    pushes("ann", 1, 2)
    remove(memory, made[2][0])
    pushes("bob", 1, 3)
    carl = Watched(tmp_path / "carl", shared=[(memory, "r")])
    fetched = carl.session.fetch(carl.session.remotes.find(record.place))
    assert [one.name for one in fetched.modules] == [made[1][0].name, made[3][0].name]
