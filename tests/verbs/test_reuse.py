"""On a miss a warm begins with the nearest record: it saves work, breaks nothing, and the new record stands alone."""

import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, structs

from cachekit.compilers import Watch
from cachekit.errors import CompileError, DataError, MissError
from cachekit.remotes.folder import FolderStorage
from cachekit.store.compile_lock import CompileLock
from cachekit.store.record import decode, encode
from cachekit.verbs.plan import plan
from cachekit.verbs.planned import warmed as answer
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.support.processes import memory_folder
from tests.support.standins import StandIn, Watched, module_files, overwrite, recipe, runs
from tests.verbs.verb_cases import home, log  # noqa: F401 - fixtures

# The stand-in's graphs depend on the training batch, the length and the precision, and on nothing else.
NEAR = {"per_device_eval_batch_size": 16}


class Telling(StandIn):
    """Tells which of the restored files its run used, as Inductor does."""

    def watch(self, run):
        needed = module_files(self.prepared, self)
        watch = Watch({"STANDIN_ROOT": str(run.cache_dir)})
        before = self.contents(run.cache_dir)
        watch.observed = lambda told: structs.replace(told, used=frozenset(needed) & before)
        return watch


def warmed(home, wanted, *, compiler=None, limit=None, **options):
    """Warm a recipe; gives the session and what was done."""
    watched = Watched(home, compiler=compiler)
    if limit is not None:
        watched.limit(limit)
    prepared = watched.prepare(wanted)
    watched.compiler.prepared = prepared
    return watched, warm(watched.session, prepared, **options)


def alone(home, record):
    """Leave only this record, and what it names, in the store."""
    wanted = {file.sha256 for file in record.files}
    for path in (home / "v1" / "blobs").glob("*/*"):
        if path.name not in wanted:
            path.unlink()
    for path in (home / "v1" / "records").rglob("*.json"):
        if path.stem != record.key:
            path.unlink()


def assert_whole(home, wanted, record, output, compiler=None):
    alone(home, record)
    after = Watched(home, compiler=compiler)
    done = train(after.session, after.prepare(wanted), output_dir=output, require_warm=True)
    assert (done.compiled, done.built, done.counters["found"]) == (0, 0, 3)


def test_a_near_record_saves_every_graph_that_it_shares(home, log, tmp_path):
    _, first = warmed(home, recipe())
    watched, second = warmed(home, recipe(**NEAR))
    assert not second.plan.hit, "a miss is a miss"
    assert (second.compiled, second.record.graphs) == (0, 3)
    assert [run["found"] for run in runs(log)] == [0, 3]
    (told,) = watched.told("reuse.end")
    assert (told["key"], told["graphs"], told["of"]) == (first.record.key, 3, 3)
    assert told["differs"] == ["training.per_device_eval_batch_size"]
    document = answer(second).as_dict()
    assert json.loads(json.dumps(document)) == document
    assert (document["status"], document["compiled"], document["reused"]["graphs"]) == ("compiled", 0, 3)
    assert_whole(home, recipe(**NEAR), second.record, tmp_path / "output")


@pytest.mark.parametrize("compiler", [StandIn, Telling])
def test_the_new_record_has_what_was_used_of_the_nearest_record_and_what_compiled(home, log, tmp_path, compiler):
    warmed(home, recipe(), compiler=compiler(graphs=2))
    _, second = warmed(home, recipe(**NEAR), compiler=compiler(graphs=3))
    assert (second.compiled, second.reused.graphs, second.reused.of) == (1, 2, 3)
    assert len(second.record.modules) == 3
    assert_whole(home, recipe(**NEAR), second.record, tmp_path / "output", compiler=StandIn())


def test_a_near_record_of_which_nothing_is_used_leaves_no_trace(home, log):
    warmed(home, recipe(8))
    watched, second = warmed(home, recipe(16))
    assert (len(watched.told("reuse.restored")), second.reused) == (1, None)
    assert (second.compiled, len(second.record.modules), second.record.reused) == (3, 3, UNSET)
    assert second.reused is None


def test_a_compile_that_reused_another_is_no_measure_of_a_cold_one(home, log, tmp_path):
    warmed(home, recipe(), compiler=StandIn(graphs=2))
    _, second = warmed(home, recipe(**NEAR))
    record = second.record
    assert (record.compile_seconds, record.cold_seconds) == (10.0, 30.0)
    # 10 s of the graph that it compiled, and 20 s that the two carry which it found.
    assert (record.reused.graphs, record.reused.cold_seconds) == (2, 30.0)
    assert decode(encode(record)) == record
    alone(home, record)
    (row,) = Watched(home).store.listed()
    assert (row.compile_seconds, row.cold_seconds) == (10.0, 30.0)
    watched = Watched(home)
    prepared = watched.prepare(recipe(**NEAR))
    done = train(watched.session, prepared, output_dir=tmp_path / "output")
    assert done.saved_seconds == plan(prepared, watched.store).expected_seconds == 30.0, "without a cache"
    guess = plan(watched.prepare(recipe(per_device_eval_batch_size=32)), watched.store)
    assert guess.nearest.record == record
    assert guess.expected_seconds == 30.0, "not the 10 s that were left to do"
    _, third = warmed(home, recipe(per_device_eval_batch_size=32))
    assert third.record.cold_seconds == 30.0, "and so on, from record to record"


# Under --require-warm the nearest record may have all graphs of a new key


@pytest.mark.feature("M3", "K2")
@pytest.mark.parametrize("verb", [warm, train])
def test_a_recipe_whose_graphs_are_all_there_passes_though_its_key_is_new(home, log, tmp_path, verb):
    warmed(home, recipe())
    watched = Watched(home)
    options = {"output_dir": tmp_path / "first"} if verb is train else {}
    done = verb(watched.session, watched.prepare(recipe(**NEAR)), require_warm=True, **options)
    assert done.compiled == 0
    assert [run["compiled"] for run in runs(log)[1:]] == [0] * (1 + (verb is train))
    record = watched.lookup(watched.prepare(recipe(**NEAR)))
    assert_whole(home, recipe(**NEAR), record, tmp_path / "output")


@pytest.mark.feature("M3")
@pytest.mark.parametrize("verb", [warm, train])
@pytest.mark.parametrize("near", [recipe(16), recipe()], ids=["none of them", "one too few"])
def test_a_recipe_of_which_a_graph_is_missing_is_refused_and_nothing_is_kept(home, log, tmp_path, verb, near):
    warmed(home, near, compiler=StandIn(graphs=2))
    watched = Watched(home)
    prepared = watched.prepare(recipe(**NEAR))
    options = {"output_dir": tmp_path / "new" / "out"} if verb is train else {}
    with pytest.raises(MissError) as caught:
        verb(watched.session, prepared, require_warm=True, **options)
    assert "is not warm" in caught.value.message
    assert "a graph began to compile in: train" in caught.value.cause
    assert watched.lookup(prepared) is None
    assert not (tmp_path / "new").exists()
    assert len(list(watched.store.records())) == 1


def test_a_strict_warm_waits_for_nobody(home, log):
    warmed(home, recipe())
    watched = Watched(home)
    prepared = watched.prepare(recipe(**NEAR))
    lock = CompileLock(watched.store.layout, prepared.key, "toy", watched.store.rwlock)
    with lock.hold(0, lambda *_: None), pytest.raises(MissError) as caught:
        warm(watched.session, prepared, require_warm=True)
    assert "compil" in caught.value.cause
    assert len(runs(log)) == 1


@pytest.mark.parametrize("limit, reuses", [(0, False), (1000, False), (1_000_000, True)])
def test_the_budget(home, log, limit, reuses):
    warmed(home, recipe())
    watched, second = warmed(home, recipe(**NEAR), limit=limit)
    assert (second.reused is not None) is reuses
    assert second.compiled == (0 if reuses else 3)
    assert bool(watched.told("reuse.restored")) is reuses


@pytest.mark.feature("M2")
def test_recache_reuses_nothing(home, log):
    warmed(home, recipe())
    _, second = warmed(home, recipe(**NEAR), recache=True)
    assert (second.compiled, second.reused) == (3, None)


# It never breaks a run


def test_a_damaged_near_record_is_told_and_everything_compiles(home, log, tmp_path):
    _, first = warmed(home, recipe())
    blob = Watched(home).store.layout.blob(first.record.files[0].sha256)
    overwrite(blob, b"x" * blob.stat().st_size)
    watched, second = warmed(home, recipe(**NEAR))
    assert (second.compiled, second.reused) == (3, None)
    assert watched.damage() == [str(blob)]
    assert_whole(home, recipe(**NEAR), second.record, tmp_path / "output")


class Choking(StandIn):
    """A compiler that fails on what it finds."""

    error = CompileError("the compiler does not bear what lies there")

    def watch(self, run):
        watch = super().watch(run)
        if self.contents(run.cache_dir):
            watch.begin = self.choke
        return watch

    def choke(self, tell):
        raise self.error


def test_a_trial_that_fails_on_a_near_record_is_made_without_it(home, log, tmp_path):
    warmed(home, recipe())
    watched, second = warmed(home, recipe(**NEAR), compiler=Choking())
    (told,) = watched.told("reuse.failed")
    assert "does not bear" in told["reason"]
    assert (second.compiled, second.reused, second.record.reused) == (3, None, UNSET)
    assert_whole(home, recipe(**NEAR), second.record, tmp_path / "output")


def test_an_error_that_is_the_recipes_own_is_not_tried_twice(home, log):
    warmed(home, recipe())
    bad = Choking()
    bad.error = DataError("the rows cannot be read")
    with pytest.raises(DataError):
        warmed(home, recipe(**NEAR), compiler=bad)
    assert len(runs(log)) == 1


EDITS = st.fixed_dictionaries(
    {},
    optional={
        "max_seq_length": st.sampled_from([64, 128]),
        "per_device_eval_batch_size": st.integers(1, 4),
        "gradient_accumulation_steps": st.integers(1, 3),
    },
)


@pytest.mark.campaign
@settings(max_examples=8)
@given(st.lists(EDITS, min_size=2, max_size=5), st.booleans())
def test_whatever_was_warm_before_every_record_stands_alone(edits, telling):
    """Chains of reuse: each record, left alone in a store, serves its training whole."""
    kind = Telling if telling else StandIn
    with memory_folder() as folder:
        home = folder / "home"
        records = {}
        for edit in edits:
            _, done = warmed(home, recipe(**edit), compiler=kind())
            records[done.record.key] = (edit, done.record)
        for edit, record in records.values():
            copy = folder / "copy"
            shutil.copytree(home, copy)
            assert_whole(copy, recipe(**edit), record, folder / "output")
            if telling:
                assert len(record.modules) == 3
            shutil.rmtree(copy)


# From a remote


def member(tmp_path, name, **options):
    (tmp_path / "team").mkdir(exist_ok=True)
    return Watched(tmp_path / name, shared=[(FolderStorage(tmp_path / "team"), "rw")], **options)


@pytest.mark.feature("W4")
def test_a_near_record_on_a_shared_cache_reuses_as_well(tmp_path, log):
    ann, bob = member(tmp_path, "ann"), member(tmp_path, "bob")
    first = warm(ann.session, ann.prepare(recipe()))
    second = warm(bob.session, bob.prepare(recipe(**NEAR)))
    assert (second.compiled, second.reused.graphs) == (0, 3)
    assert second.reused.remote == bob.session.remotes.readable[0].name
    assert second.record.reused.key == first.record.key
    assert_whole(tmp_path / "bob", recipe(**NEAR), second.record, tmp_path / "output")


def test_a_shared_record_whose_bytes_are_gone_is_told_and_everything_compiles(tmp_path, log, monkeypatch):
    monkeypatch.setattr("cachekit.remotes.layout.TINY", 0)
    ann, bob = member(tmp_path, "ann"), member(tmp_path, "bob")
    record = warm(ann.session, ann.prepare(recipe())).record
    (tmp_path / "team" / record.modules[0].name / "model.code").unlink()
    assert warm(bob.session, bob.prepare(recipe(**NEAR))).compiled == 3
