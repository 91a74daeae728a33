"""The record with the least difference, in the store and on remotes, for few questions."""

import json

import pytest
from msgspec import structs

from cachekit.key.canonical import Ingredients
from cachekit.key.nearest import INTERRUPTED
from cachekit.remotes import layout
from cachekit.remotes.document import Shared
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.hub import HubStorage
from cachekit.remotes.index import Known
from cachekit.remotes.nearest import Wanted, search
from cachekit.remotes.nearest_on import said_of
from cachekit.remotes.port import Commit, Entry, Write
from cachekit.remotes.push import push
from cachekit.remotes.survey import Budget
from cachekit.store.record import COMMAND, IMPORTED
from cachekit.verbs.why import with_nearest
from tests.remotes.storage_processes import KINDS, serve
from tests.remotes.watched_storages import Counted
from tests.support.hubserver.faults import Fault
from tests.support.processes import memory_folder
from tests.support.standins import PROVENANCE, Watched, make_record, publish


@pytest.fixture(params=KINDS)
def make(request, tmp_path):
    """Opens the same remote anew, as another machine would."""
    with serve(request.param, tmp_path / "server") as opened:
        yield opened


@pytest.fixture
def shared(tmp_path):
    (tmp_path / "shared").mkdir()
    return lambda: FolderStorage(tmp_path / "shared")


def made_from(prepared, **changes):
    """A record, and its files, of a recipe with some ingredients changed; None removes one."""
    hard = {name: value for name, value in {**prepared.ingredients.hard, **changes}.items() if value is not None}
    record, contents = make_record(1)
    return structs.replace(
        record,
        key=Ingredients(hard).key,
        hard=hard,
        directory=f"standin-{hard.get('toolchain.standin')}",
        model_type=hard["model.type"],
        provenance=PROVENANCE,
    ), contents


def others(prepared, number):
    """Records that are far away: another depth, length and precision, in every combination of sizes."""
    return [
        made_from(
            prepared,
            **{
                "model.config.num_hidden_layers": 20 + n,
                "training.max_seq_length": 512,
                "training.per_device_train_batch_size": 100 + n,
            },
        )
        for n in range(number)
    ]


def fill(storage, made):
    """Put records on a remote, without their files: one commit."""
    records = [record for record, _ in made]
    writes = [Write(layout.record_path(record.place), Shared(record).raw, "") for record in records]
    storage.commit(Commit("fill", writes=writes), storage.revision())


def fill_whole(home, storage, made):
    """Put records on a remote with their files, as a member of the team who has them."""
    member = Watched(home, shared=[(storage, "rw")])
    push(member.store, member.session.remotes, [publish(member.store, one) for one in made])


def wish(prepared, **more):
    return Wanted(prepared.place, prepared.ingredients.hard, **more)


def names(near):
    return [change.name for change in near.changes]


@pytest.mark.feature("W3")
def test_of_a_hundred_the_near_one_is_chosen():
    with memory_folder() as home:
        me = Watched(home)
        wanted = me.prepare()
        for made in others(wanted, 99):
            publish(me.store, made)
        near = publish(me.store, made_from(wanted, **{"training.max_seq_length": 64}))
        found = search(wish(wanted), me.store).nearest
    assert found.known.key == near.key
    assert found.record == near
    assert found.place == "local"
    assert names(found) == ["training.max_seq_length"]
    (change,) = found.changes
    assert (change.old, change.new) == (64, 128)


def test_a_record_of_another_compiler_is_not_the_nearest(tmp_path, make):
    """Two compilers share nothing: what else differs of it says nothing of what would help."""
    me = Watched(tmp_path / "me", shared=[(make(), "r")])
    wanted = me.prepare()
    alien, contents = made_from(wanted, **{"compiler.name": "other"})
    fill(make(), [(structs.replace(alien, compiler="other", directory="other-1"), contents)])
    assert search(wish(wanted), me.store, me.session.remotes).nearest is None
    publish(me.store, (structs.replace(alien, compiler="other", directory="other-1"), contents))
    assert search(wish(wanted), me.store).nearest is None
    near = publish(me.store, made_from(wanted, **{"model.config.num_hidden_layers": 20}))
    assert search(wish(wanted), me.store).nearest.known.key == near.key


def test_what_a_stopped_run_left_is_the_nearest_of_its_key_and_no_other_record_beside_the_whole_one(tmp_path, shared):
    ann = Watched(tmp_path / "ann", shared=[(shared(), "rw")])
    wanted = ann.prepare()
    whole, part, near = (
        made_from(wanted, **more) for more in ({}, {INTERRUPTED: True}, {"training.max_seq_length": 64})
    )
    push(ann.store, ann.session.remotes, [publish(ann.store, one) for one in (part, near)])
    bob = Watched(tmp_path / "bob", shared=[(shared(), "r")])
    for one in (ann, bob):
        assert search(wish(wanted), one.store, one.session.remotes).nearest.known.key == part[0].key
    push(ann.store, ann.session.remotes, [publish(ann.store, whole)])
    carl = Watched(tmp_path / "carl", shared=[(shared(), "r")])
    for one in (ann, carl):
        assert with_nearest(one.session, whole[0].key)[0].key == near[0].key
        assert with_nearest(one.session, part[0].key)[0].key == whole[0].key


@pytest.mark.feature("W4")
def test_the_near_one_of_a_hundred_is_found_on_a_shared_cache_by_an_empty_store(tmp_path, make):
    me = Watched(tmp_path / "me", shared=[(storage := Counted(make()), "r")])
    wanted = me.prepare()
    near = made_from(wanted, **{"training.max_seq_length": 64})
    fill(make(), [*others(wanted, 20), near])
    found = search(wish(wanted), me.store, me.session.remotes)
    assert found.nearest.known.key == near[0].key
    assert found.nearest.place == storage.name
    assert names(found.nearest) == ["training.max_seq_length"]
    assert [(one.remote, one.records, one.compared, one.problem) for one in found.looked] == [
        (storage.name, 21, 21, "")
    ]
    assert storage.calls.count("list") == 1
    assert storage.calls.count("read") == 22  # an index, too, which is not there
    assert "stat" not in storage.calls


def test_who_asks_again_reads_nothing(tmp_path, make):
    wanted = Watched(tmp_path / "any").prepare()
    fill(make(), others(wanted, 3))
    first = Watched(tmp_path / "me", shared=[(make(), "r")])
    once = search(wish(wanted), first.store, first.session.remotes)
    assert [(one.compared, one.problem) for one in once.looked] == [(3, "")]
    again = Watched(tmp_path / "me", shared=[(storage := Counted(make()), "r")])
    twice = search(wish(wanted), again.store, again.session.remotes)
    assert twice.nearest.known == once.nearest.known
    # But who may write there now: what is remembered is told only while nobody else may.
    assert sorted(storage.calls) == sorted(["revision", "known_stranger" if storage.private else "stranger"])


@pytest.fixture
def hub(tmp_path):
    """Opens a private repo of the organisation `team` anew."""
    with serve("hub", tmp_path / "server") as opened:
        yield opened


def near_there(hub, wanted):
    """Put a record near to a recipe into the repo."""
    fill(hub(), [made_from(wanted, **{"training.max_seq_length": 64})])
    hub.hub.log.clear()


def asked_whose(hub):
    """How often the Hub was asked whose the token is."""
    return sum("whoami" in entry.path for entry in hub.hub.requests)


@pytest.mark.feature("T2")
def test_nothing_of_a_private_repo_is_told_that_anybody_on_the_way_may_have_written(tmp_path, hub):
    clear = HubStorage(hub.repo.name, endpoint=hub.hub.endpoint.replace("127.0.0.1", "0.0.0.0"), token=hub.hub.token)
    me = Watched(tmp_path / "me", shared=[(clear, "r")])
    wanted = me.prepare()
    near_there(hub, wanted)
    found = search(wish(wanted, reuse_bytes=1 << 30), me.store, me.session.remotes)
    assert (found.nearest, found.reuse) == (None, None)
    assert "it is read over http://" in found.looked[0].untrusted
    assert asked_whose(hub) == 0


@pytest.mark.feature("T2")
def test_the_index_of_somebody_elses_private_repo_tells_of_no_record_that_is_there(tmp_path, hub):
    """Also where nobody asked before whose the token is: what is told as there is what may be used."""
    wanted = Watched(tmp_path / "me").prepare()
    record, files = made_from(wanted)
    fill_whole(tmp_path / "ann", hub(), [(record, files)])

    def told(home):
        remote = Watched(tmp_path / home, shared=[(hub(), "r")]).session.remotes.readable[0]
        return said_of(remote, [wanted.place])

    assert told("team") == ({record.key: Known.of(record)}, [])
    says = Fault("rewrite", on="GET /api/whoami-v2", times=None, body=json.dumps({"name": "bob", "orgs": []}))
    hub.hub.faults.add(says)
    assert told("bob") == ({}, [wanted.place])


@pytest.mark.feature("T2")
def test_nothing_of_a_private_repo_is_told_that_is_known_to_be_somebody_elses(tmp_path, hub):
    me = Watched(tmp_path / "me", shared=[(hub(), "r")])
    wanted = me.prepare()
    near_there(hub, wanted)
    says = Fault("rewrite", on="GET /api/whoami-v2", times=None, body=json.dumps({"name": "ann", "orgs": []}))
    hub.hub.faults.add(says)
    assert me.session.remotes.readable[0].demands()  # as of a hit: from then on there is a note of the token's names
    again = Watched(tmp_path / "me", shared=[(hub(), "r")])
    found = search(wish(wanted, reuse_bytes=1 << 30), again.store, again.session.remotes)
    assert (found.nearest, found.reuse) == (None, None)
    assert "it belongs to team" in found.looked[0].untrusted
    hub.hub.faults.clear()
    later = Watched(tmp_path / "me", shared=[(hub(), "r")])
    found = search(wish(wanted, reuse_bytes=1 << 30), later.store, later.session.remotes)
    assert found.reuse.distance > 0, "distrust is not remembered"


@pytest.mark.feature("R7")
@pytest.mark.parametrize("known", [False, True])
def test_whose_a_private_repo_is_costs_a_search_no_request(tmp_path, hub, known):
    me = Watched(tmp_path / "me", shared=[(hub(), "r")])
    wanted = me.prepare()
    near_there(hub, wanted)
    if known:
        (remote,) = me.session.remotes.readable
        assert remote.demands() == ""
        hub.hub.log.clear()
    again = Watched(tmp_path / "me", shared=[(hub(), "r")])
    assert search(wish(wanted), again.store, again.session.remotes).nearest.place == hub().name
    assert asked_whose(hub) == 0


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({"toolchain.standin": "0.9"}, ["toolchain.standin"]),
        ({"model.type": "roberta"}, ["model.type"]),
    ],
    ids=["another compiler's", "another model type's"],
)
def test_a_record_in_another_folder_is_found_where_nothing_is_nearer(tmp_path, shared, changes, differing):
    me = Watched(tmp_path / "me", shared=[(storage := Counted(shared()), "r")])
    wanted = me.prepare()
    fill(shared(), [made_from(wanted, **changes)])
    assert names(search(wish(wanted), me.store, me.session.remotes).nearest) == differing
    assert storage.calls.count("list") == 2


def test_a_far_one_of_the_same_kind_does_not_hide_a_nearer_one_in_another_folder(tmp_path, shared):
    me = Watched(tmp_path / "me", shared=[(shared(), "r")])
    wanted = me.prepare()
    fields = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
    far = made_from(wanted, **{f"model.config.{name}": 7 for name in fields})
    fill(shared(), [far, made_from(wanted, **{"toolchain.standin": "0.9"})])
    assert names(search(wish(wanted), me.store, me.session.remotes).nearest) == ["toolchain.standin"]


def test_commands_and_imported_modules_are_not_near_a_recipe(tmp_path, shared):
    me = Watched(tmp_path / "me", shared=[(shared(), "r")])
    wanted = me.prepare()
    for kind in (COMMAND, IMPORTED):
        made = made_from(wanted, **{"model.type": kind})
        fill(shared(), [made])
        publish(me.store, made)
    assert search(wish(wanted), me.store, me.session.remotes).nearest is None


def test_a_search_reads_no_more_than_it_may_and_says_so(tmp_path, shared):
    me = Watched(tmp_path / "me", shared=[(storage := Counted(shared()), "r")])
    wanted = me.prepare()
    fill(shared(), others(wanted, 9))
    found = search(wish(wanted), me.store, me.session.remotes, budget=Budget(read=4))
    (looked,) = found.looked
    assert (looked.records, looked.compared, storage.calls.count("read")) == (9, 4, 1 + 4)
    assert looked.problem == "it has more records than are read for one search"
    # What was read is remembered: the next search goes on with the others.
    found = search(wish(wanted), me.store, me.session.remotes, budget=Budget(read=5))
    assert [(one.compared, one.problem) for one in found.looked] == [(9, "")]
    assert search(wish(wanted), me.store, me.session.remotes, budget=Budget(largest=10)).looked[0].compared == 9


def test_damaged_records_and_strange_files_are_passed_over(tmp_path, shared):
    me = Watched(tmp_path / "me", shared=[(storage := shared(), "r")])
    wanted = me.prepare()
    near, far = made_from(wanted, **{"training.max_seq_length": 64}), others(wanted, 1)[0]
    fill(shared(), [near, far])
    path = layout.record_path(near[0].place)
    folder = path.rpartition("/")[0]
    token = storage.read(path, "", 1 << 20).token
    strange = [Write(f"{folder}/notes.txt", b"x", ""), Write(f"{folder}/{'a' * 64}.json", b"{}", "")]
    strange.append(Write(f"{layout.RECORDS}/loose.json", b"{}", ""))
    storage.commit(Commit("spoil", writes=[Write(path, b'{"record": {}}', token), *strange]), "")
    assert search(wish(wanted), me.store, me.session.remotes).nearest.known.key == far[0].key


@pytest.mark.parametrize(
    "name", [f"standin-1.0/bert/{'a' * 300}", f"{'a' * 300}/bert/{'a' * 64}"], ids=["file", "folder"]
)
def test_a_name_that_no_file_here_can_have_is_passed_over(tmp_path, shared, name):
    class Odd(Counted):
        def list(self, folder, revision):
            yield Entry(f"{layout.RECORDS}/{name}.json", 10)
            yield from self._storage.list(folder, revision)

    me = Watched(tmp_path / "me", shared=[(Odd(shared()), "r")])
    wanted = me.prepare()
    mine = publish(me.store, others(wanted, 1)[0])  # so that its folder is there to look into
    assert f"{mine.directory}/{mine.model_type}" == "standin-1.0/bert"
    near = made_from(wanted, **{"training.max_seq_length": 64})
    fill(shared(), [near])
    assert search(wish(wanted), me.store, me.session.remotes).nearest.known.key == near[0].key
