"""Train, with a stand-in for the compiler: what it finds, and what it adds to the record."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from msgspec import structs

from cachekit.cli.train import human
from cachekit.compilers import Node
from cachekit.errors import MissError, TrainingError, UsageError, WaitedTooLongError
from cachekit.verbs.plan import plan
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from tests.remotes.memory_remote import MemoryRemote
from tests.support.processes import free_port, side_by_side
from tests.support.standins import StandIn, Watched, compiles, garbage_of, module_files, runs
from tests.training.made_checkpoints import make
from tests.verbs.verb_cases import blob, home, log, output, spoil, warmed  # noqa: F401 - fixtures


def kept(home):
    """The record that the store has now."""
    fresh = Watched(home)
    return fresh.lookup(fresh.prepare())


def on_two(prepared):
    """The same for two machines that train together."""
    parallel = structs.replace(prepared.recipe.parallel, nodes=2)
    return structs.replace(prepared, recipe=structs.replace(prepared.recipe, parallel=parallel))


@pytest.mark.feature("F1")
def test_train_after_warm_compiles_nothing(home, output, log, warmed):
    watched = Watched(home, inline=False)
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert (done.compiled, done.built, done.status) == (0, 0, "hit")
    assert done.counters == {"found": 3, "compiled": 0}
    assert done.surprises == ()
    assert kept(home) == warmed
    assert compiles(log) == []
    assert (output / "model.bin").read_bytes() == b"weights"
    assert watched.told("train.compiled") == []
    assert done.saved_seconds == 30.0
    assert json.loads(json.dumps(done.as_dict())) == done.as_dict()
    assert human(done)[0].startswith("toy: trained 1 step  key")


@pytest.mark.feature("T2")
def test_nobody_else_can_write_to_the_output_folder_that_a_training_makes_whatever_the_umask_is(home, tmp_path, warmed):
    before = os.umask(0)
    try:
        for _ in range(2):
            watched = Watched(home)
            done = train(watched.session, watched.prepare(), output_dir=tmp_path / "runs" / "toy")
            assert done.status == "hit"
    finally:
        os.umask(before)
    for folder in (tmp_path / "runs", tmp_path / "runs" / "toy"):
        assert not folder.stat().st_mode & stat.S_IWOTH


@pytest.mark.feature("F2")
@pytest.mark.parametrize("node", [Node(), Node(2, "10.0.0.1")])
def test_a_machine_that_does_not_know_its_place_among_several_compiles_nothing(home, output, log, node):
    watched = Watched(home, compiler=StandIn(node=node))
    with pytest.raises(UsageError, match="has not been told which of them it is"):
        train(watched.session, on_two(watched.prepare()), output_dir=output)
    assert runs(log) == []


@pytest.mark.feature("F2")
def test_one_of_several_machines_that_share_no_cache_says_that_each_compiles_for_itself(home, tmp_path):
    watched = Watched(home)
    warm(watched.session, on_two(watched.prepare()))
    assert [event["nodes"] for event in watched.told("nodes.unshared")] == [2]
    shared = Watched(tmp_path / "another home", shared=[(MemoryRemote(), "rw")])
    warm(shared.session, on_two(shared.prepare()))
    assert shared.told("nodes.unshared") == []


@pytest.mark.feature("F2")
def test_one_of_several_machines_waits_for_the_others_as_long_as_it_was_told(home, output, monkeypatch):
    monkeypatch.setattr("cachekit.training.run.SOONEST", 0.0)
    alone = StandIn(node=Node(1, "127.0.0.1", free_port()))
    watched = Watched(home, compiler=alone, wait=0.5)
    with pytest.raises(WaitedTooLongError, match=r"node 0 did not answer at 127\.0\.0\.1:\d+ within 0\.5 s"):
        train(watched.session, on_two(watched.prepare()), output_dir=output)


@pytest.mark.usefixtures("warmed")
def test_a_finished_run_that_is_resumed_takes_no_step_and_saves_nothing(home, output):
    watched = Watched(home)
    last = make(output / "checkpoint-1")
    done = train(watched.session, watched.prepare(), output_dir=output, resume="auto")
    assert (done.resumed_from, done.steps, done.steps_taken, done.saved_seconds) == (str(last), 1, 0, 0.0)
    assert human(done)[0].startswith(f"toy: nothing left to train: {last.name} has 1 step  key")


@pytest.mark.feature("F1")
def test_train_compiles_nothing_wherever_the_cache_dir_and_the_store_lie(home, output, log, tmp_path, warmed):
    shutil.rmtree(home / "v1" / "cache_dirs")
    elsewhere = shutil.copytree(home, tmp_path / "another home")
    for watched in (
        Watched(home, cache_dirs=tmp_path / "fast disk"),
        Watched(elsewhere, cache_dirs=tmp_path / "fast disk"),
        Watched(elsewhere),
    ):
        done = train(watched.session, watched.prepare(), output_dir=output, require_warm=True)
        assert (done.compiled, done.counters["found"]) == (0, 3)
    assert compiles(log) == []


def damage_after_plan(watched, record):
    """Damage a blob at the moment between the plan and the restore."""
    path = blob(watched, record)
    told = []

    def listener(event):
        if event["event"] == "plan" and not told:
            told.append(event)
            spoil(path)

    watched.session.journal.listen(listener)
    return path


@pytest.mark.feature("S5")
def test_a_blob_damaged_between_plan_and_restore_is_compiled_anew(home, output, log, warmed):
    watched = Watched(home)
    path = damage_after_plan(watched, warmed)
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert [(run["mode"], run["found"], run["compiled"]) for run in runs(log)] == [("trial", 0, 3), ("train", 3, 0)]
    assert done.compiled == 0
    assert done.status == "warmed"
    assert watched.damage() == [str(path)], "told once"
    after = Watched(home)
    found = after.lookup(after.prepare())
    assert after.restored(found.key, found) == module_files(after.prepare(), after.compiler)
    assert after.damage() == []


@pytest.mark.feature("S5", "M3")
def test_a_blob_damaged_between_plan_and_restore_is_a_miss_under_require_warm(home, output, log, warmed):
    watched = Watched(home)
    path = damage_after_plan(watched, warmed)
    with pytest.raises(MissError) as caught:
        train(watched.session, watched.prepare(), output_dir=output, require_warm=True)
    assert caught.value.exit_code == 3
    assert runs(log) == [], "no worker was started"
    assert not output.exists()
    assert set(watched.damage()) == {str(path)}
    assert garbage_of(home) == {name for name in garbage_of(home) if name.startswith("quarantine")}


def test_what_compiles_in_training_all_the_same_is_added_to_the_record(home, output, log, warmed):
    watched = Watched(home, compiler=StandIn(extra=2))
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert (done.compiled, done.built) == (2, 2)
    assert done.surprises == ("train",)
    (told,) = watched.told("train.compiled")
    assert (told["graphs"], told["when"]) == (2, ["train"])
    record = kept(home)
    assert record.modules[:3] == warmed.modules
    assert (len(record.modules), record.graphs) == (5, 5)

    again = Watched(home, compiler=StandIn(extra=2))
    second = train(again.session, again.prepare(), output_dir=output, require_warm=True)
    assert (second.compiled, second.built, second.counters["found"]) == (0, 0, 5)
    assert kept(home) == record
    assert len(compiles(log)) == 1


def during_training(watched, action):
    """Have something happen while the training's worker runs."""
    told = []

    def listener(event):
        if event["event"] == "worker.start" and event["mode"] == "train" and not told:
            told.append(event)
            action()

    watched.session.journal.listen(listener)


def test_what_another_training_adds_meanwhile_stays(home, output, tmp_path, warmed):
    first, second = Watched(home, compiler=StandIn(extra=1)), Watched(home, compiler=StandIn(extra=2))
    during_training(first, lambda: train(second.session, second.prepare(), output_dir=tmp_path / "other"))
    done = train(first.session, first.prepare(), output_dir=output)
    record = kept(home)
    assert (done.compiled, record.graphs) == (1, 5)
    fresh = Watched(home)
    assert fresh.restored(record.key, record) == module_files(fresh.prepare(), StandIn(extra=2), mode="train")


def test_a_recache_meanwhile_is_not_undone(home, output, warmed):
    first, second = Watched(home, compiler=StandIn(extra=1)), Watched(home, compiler=StandIn(salt="other"))
    during_training(first, lambda: warm(second.session, second.prepare(), recache=True))
    train(first.session, first.prepare(), output_dir=output)
    again = {f"standin-1.0/{Path(name).parts[0]}" for name in module_files(second.prepare(), second.compiler)}
    names = {module.name for module in kept(home).modules}
    assert len(names) == 4
    assert names > again, "what was compiled anew is there still, with what this training added"


def add_module(home, record, number):
    """Add a module to a record, as others do at the same time."""
    store = Watched(home).store
    module = structs.replace(record.modules[0], name=f"standin-1.0/MODULE_{number}")
    with store.changing(record.key):
        now = store.lookup(record.place)
        store.publish(structs.replace(now, modules=(*now.modules, module)), {})
    return True


def test_changes_of_one_record_by_many_processes_are_all_kept(home, warmed):
    assert all(side_by_side(8, lambda number: add_module(home, warmed, number)))
    fresh = Watched(home)
    assert len(fresh.lookup(fresh.prepare()).modules) == 3 + 8


def test_a_store_that_cannot_be_written_after_a_training_does_not_fail_it(home, output, log, tmp_path, warmed):
    shutil.rmtree(home / "v1" / "tmp")
    (home / "v1" / "tmp").write_bytes(b"no folder")
    watched = Watched(home, cache_dirs=tmp_path / "cache_dirs", compiler=StandIn(extra=1))
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert (done.compiled, done.steps) == (1, 1)
    assert (output / "model.bin").exists()
    assert "cannot be written" in watched.told("train.not-kept")[0]["reason"]
    assert kept(home) == warmed, "what is not kept is not in the record"


def test_a_training_that_fails_keeps_the_record(home, output, warmed, monkeypatch):
    monkeypatch.setenv("STANDIN_FAIL", "die")
    watched = Watched(home, compiler=StandIn(extra=1), inline=False)
    with pytest.raises(TrainingError, match="SIGKILL"):
        train(watched.session, watched.prepare(), output_dir=output)
    assert Watched(home).lookup(watched.prepare()) == warmed
    assert garbage_of(home) == set()


@pytest.mark.parametrize("what", ["lost", "flipped", "record"])
def test_a_miss_over_damage_says_so(home, output, warmed, what):
    """A cause that is known is told, and not that no nearest record was found."""
    watched = Watched(home)
    if what == "lost":
        blob(watched, warmed).unlink()
        expected = "its record cannot be restored: model.code is missing"
    elif what == "flipped":
        spoil(blob(watched, warmed))
        expected = "its record cannot be restored: model.code is damaged: 20,001 bytes instead of 20,000"
    else:
        spoil(watched.store.layout.record(warmed.place))
        expected = "its record is damaged: "
    planned = plan(watched.prepare(), watched.store)
    assert planned.flaw.startswith(expected)
    if what == "lost":
        assert watched.told("store.damaged")[0]["quarantine"] == "", "what is missing is not set aside"
        assert list((home / "v1").glob("quarantine/*" + warmed.files[0].sha256)) == []
