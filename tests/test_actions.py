"""Plan, warm and train together, with a stand-in for the compiler: what is predicted is what happens."""

import json
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from standins import (
    RECIPE_YAML,
    TESTS,
    StandIn,
    Watched,
    compiles,
    leftovers_of,
    module_files,
    overwrite,
    recipe,
    runs,
    side_by_side,
    tree,
)

from cachekit.actions.plan import plan
from cachekit.actions.train import train
from cachekit.actions.warm import warm
from cachekit.errors import CompileError, MissError, StoreError, TrainingError
from cachekit.journal import Journal, read


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def output(tmp_path):
    return tmp_path / "output"


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


@pytest.fixture
def warmed(home, log):
    """A store in which the recipe is warm; gives the record."""
    watched = Watched(home)
    record = warm(watched.session, watched.prepare()).record
    log.unlink()
    return record


def blob(watched, record, number=0):
    return watched.store.layout.blob(record.files[number].sha256)


def spoil(path):
    overwrite(path, path.read_bytes()[::-1] + b"!")


# Warm


@pytest.mark.feature("F1")
def test_a_second_warm_compiles_nothing(home, log):
    first, second = Watched(home), Watched(home)
    one = warm(first.session, first.prepare())
    two = warm(second.session, second.prepare())
    assert (one.compiled, two.compiled) == (3, 0)
    assert (one.plan.hit, two.plan.hit) == (False, True)
    assert two.record == one.record
    assert len(runs(log)) == 1, "the second one did not even start a worker"
    assert second.told("worker.start") == []


def test_what_a_warm_returns(home):
    watched = Watched(home)
    prepared = watched.prepare()
    done = warm(watched.session, prepared)
    record = done.record
    assert watched.lookup(prepared) == record
    assert (record.key, record.compiler, record.directory) == (prepared.key, "standin", "standin-1.0")
    assert (record.model_type, record.recipe, record.graphs) == ("bert", "toy", 3)
    assert record.compile_seconds == 30.0
    assert record.hard == dict(prepared.ingredients.hard)
    assert len(record.modules) == 3
    document = done.as_dict()
    assert json.loads(json.dumps(document)) == document
    assert (document["status"], document["compiled"], document["graphs"]) == ("compiled", 3, 3)
    assert (document["compile_seconds"], document["saved_seconds"]) == (30.0, 0.0)
    again = Watched(home)
    document = warm(again.session, again.prepare()).as_dict()
    assert (document["status"], document["compiled"], document["graphs"]) == ("hit", 0, 3)
    assert (document["compile_seconds"], document["saved_seconds"]) == (0.0, 30.0)


def test_a_warm_leaves_nothing_but_the_entry(home, log):
    watched = Watched(home)
    warm(watched.session, watched.prepare())
    assert leftovers_of(home) == set()
    assert {path.suffix for path in (home / "v1" / "locks").iterdir()} == {".lock"}


def test_half_written_modules_are_not_harvested(home):
    class HalfDone(StandIn):
        def harvest(self, live_root, before, fingerprint, workspace, observed=None):
            half = live_root / "MODULE_half"
            half.mkdir()
            (half / "model.code").write_bytes(b"half")
            return super().harvest(live_root, before, fingerprint, workspace)

    watched = Watched(home, compiler=HalfDone())
    assert len(warm(watched.session, watched.prepare()).record.modules) == 3


@pytest.mark.feature("K1")
def test_another_compiler_version_misses_everything_and_the_same_hits_everything(home, log, monkeypatch):
    batches = range(1, 6)
    for version, hit in (("1.0", False), ("1.0", True), ("1.1", False), ("1.1", True), ("1.0", True)):
        monkeypatch.setenv("STANDIN_VERSION", version)
        for batch in batches:
            watched = Watched(home)
            prepared = watched.prepare(recipe(batch))
            assert plan(prepared, watched.store).hit is hit
            assert warm(watched.session, prepared).compiled == (0 if hit else 3)
    assert len(compiles(log)) == 2 * len(batches)
    assert {path.parts[-3] for path in (home / "v1" / "records").rglob("*.json")} == {"standin-1.0", "standin-1.1"}


@pytest.mark.feature("M2")
def test_recache_compiles_again_and_replaces(home, log):
    """The second compile gives other bytes, so that one can see which entry serves."""
    before, after = Watched(home), Watched(home, compiler=StandIn(salt="other"))
    first = warm(before.session, before.prepare())
    prepared = after.prepare()
    assert prepared.key == first.record.key
    second = warm(after.session, prepared, recache=True)
    assert (second.plan.hit, second.compiled) == (True, 3)
    assert len(compiles(log)) == 2
    fresh = Watched(home)
    found = fresh.lookup(prepared)
    assert found == second.record
    assert {module.name for module in found.modules}.isdisjoint(module.name for module in first.record.modules)
    assert fresh.restored(prepared.key, found) == module_files(prepared, after.compiler)


def test_a_recache_that_fails_keeps_the_old_entry(home, warmed, monkeypatch):
    monkeypatch.setenv("STANDIN_FAIL", "compile")
    watched = Watched(home)
    with pytest.raises(CompileError):
        warm(watched.session, watched.prepare(), recache=True)
    assert Watched(home).lookup(watched.prepare()) == warmed


@pytest.mark.feature("M3")
@pytest.mark.parametrize("action", ["warm", "train"])
def test_require_warm_fails_instead_of_compiling(home, output, log, action):
    watched = Watched(home)
    run = {"warm": warm, "train": partial(train, output_dir=output)}[action]
    with pytest.raises(MissError) as caught:
        run(watched.session, watched.prepare(), require_warm=True)
    assert caught.value.exit_code == 3
    assert "cachekit warm" in caught.value.hint
    assert runs(log) == [], "no worker was started"
    assert watched.told("worker.start") == []
    assert not home.exists(), "and nothing written"


@pytest.mark.feature("M3")
def test_require_warm_lets_a_hit_pass(home, output, log, warmed):
    watched = Watched(home)
    assert warm(watched.session, watched.prepare(), require_warm=True).compiled == 0
    assert train(watched.session, watched.prepare(), output_dir=output, require_warm=True).compiled == 0
    assert compiles(log) == []


@pytest.mark.feature("M3")
@pytest.mark.parametrize("verb", ["plan", "warm", "train"])
def test_require_warm_on_the_command_line_exits_3(home, log, tmp_path, verb):
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE_YAML)
    command = [sys.executable, TESTS / "run_warm.py", "cli", verb, path, "--require-warm", "--home", home]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 3
    assert "error[not-warm]: " in run.stderr
    assert "Traceback" not in run.stderr
    assert runs(log) == []


@pytest.mark.parametrize("fail, error", [("compile", CompileError), ("nothing", CompileError), ("die", TrainingError)])
def test_a_compile_that_fails_leaves_nothing_and_is_tried_again(home, log, monkeypatch, fail, error):
    monkeypatch.setenv("STANDIN_FAIL", fail)
    watched = Watched(home, inline=False)
    with pytest.raises(error) as caught:
        warm(watched.session, watched.prepare())
    assert caught.value.exit_code == (6 if error is CompileError else 1)
    assert caught.value.hint
    assert tree(home) == set()
    assert leftovers_of(home) == set()
    monkeypatch.delenv("STANDIN_FAIL")
    again = Watched(home, wait=0)
    assert warm(again.session, again.prepare()).compiled == 3


def test_a_store_that_cannot_be_written_is_found_out_before_compiling(tmp_path, log):
    (tmp_path / "file").write_bytes(b"")
    watched = Watched(tmp_path / "file" / "home", live=tmp_path / "live")
    with pytest.raises(StoreError) as caught:
        warm(watched.session, watched.prepare())
    assert caught.value.hint
    assert runs(log) == []


def test_a_run_is_told_in_its_journal(home, log, output):
    journal = Journal(home / "v1" / "journal", "train")
    watched = Watched(home, journal=journal)
    train(watched.session, watched.prepare(), output_dir=output)
    journal.close()
    events = read(journal.path)
    names = [event["event"] for event in events]
    for name in ("run", "plan", "compile.start", "worker.start", "worker.end", "warm.end", "restore", "train.end"):
        assert name in names
    assert {event["run"] for event in events} == {journal.run}
    assert next(event for event in events if event["event"] == "plan")["status"] == "miss"


# Plan


def test_a_plan_leaves_no_trace(home, log):
    watched = Watched(home)
    found = plan(watched.prepare(), watched.store)
    assert (found.hit, found.neighbour, found.expected_seconds) == (False, None, None)
    assert not home.exists()
    assert runs(log) == []


@pytest.mark.feature("P1")
def test_a_plan_names_the_modules_that_a_train_finds(home, log, output):
    watched = Watched(home)
    cold = plan(watched.prepare(), watched.store).as_dict()
    assert (cold["status"], cold["modules"], cold["graphs"]) == ("miss", [], None)
    record = warm(watched.session, watched.prepare()).record
    hot = plan(watched.prepare(), watched.store).as_dict()
    assert (hot["status"], hot["key"], hot["graphs"]) == ("hit", cold["key"], 3)
    assert [module["name"] for module in hot["modules"]] == [module.name for module in record.modules]
    assert (hot["compile_seconds"], hot["saved_seconds"]) == (0.0, 30.0)
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert (done.compiled, done.result.counters["found"]) == (0, hot["graphs"])


def test_a_plan_names_the_nearest_neighbour_and_only_the_difference(home):
    watched = Watched(home)
    for batch, length in ((4, 64), (8, 128), (8, 512)):
        warm(watched.session, watched.prepare(recipe(batch, max_seq_length=length)))
    other = Watched(home, compiler=StandIn("2.0"))
    warm(other.session, other.prepare(recipe(16)))
    wanted = watched.prepare(recipe(8, max_seq_length=256))
    found = plan(wanted, watched.store)
    assert not found.hit
    assert [(change.name, change.new) for change in found.changes] == [("training.max_seq_length", 256)]
    assert found.changes[0].old in (128, 512)
    assert found.neighbour.hard["training.per_device_train_batch_size"] == 8
    assert found.expected_seconds == 30.0, "a neighbour this near tells how long it will take"
    document = found.as_dict()
    assert document["nearest"]["key"] == found.neighbour.key
    assert document["nearest"]["changes"] == [
        {"name": "training.max_seq_length", "old": found.changes[0].old, "new": 256}
    ]
    with pytest.raises(MissError, match="not warm") as caught:
        warm(watched.session, wanted, require_warm=True)
    assert "training.max_seq_length" in caught.value.cause


def test_a_neighbour_of_another_version_tells_the_time_less_surely(home, warmed):
    other = Watched(home, compiler=StandIn("2.0"))
    found = plan(other.prepare(), other.store)
    assert [change.name for change in found.changes] == ["toolchain.standin"]
    assert found.neighbour == warmed
    assert found.expected_seconds == 30.0
    same = plan(Watched(home).prepare(recipe(9)), other.store).estimate
    assert found.estimate.low < same.low < 30.0 < same.high < found.estimate.high


def test_a_damaged_neighbour_does_not_disturb_a_plan(home, warmed):
    watched = Watched(home)
    spoil(watched.store.layout.record(warmed.directory, warmed.model_type, warmed.key))
    found = plan(watched.prepare(recipe(16)), watched.store)
    assert (found.hit, found.neighbour) == (False, None)


# Train


@pytest.mark.feature("F1")
def test_train_after_warm_compiles_nothing(home, output, log, warmed):
    watched = Watched(home, inline=False)
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert (done.compiled, done.built, done.warmed) == (0, 0, None)
    assert done.result.counters == {"found": 3, "compiled": 0}
    assert done.result.surprises == ()
    assert done.record == warmed
    assert compiles(log) == []
    assert (output / "model.bin").read_bytes() == b"weights"
    assert watched.told("train.compiled") == []
    assert done.as_dict()["status"] == "hit"
    assert done.saved_seconds == 30.0
    assert json.loads(json.dumps(done.as_dict())) == done.as_dict()


@pytest.mark.feature("F1")
def test_train_compiles_nothing_wherever_the_live_root_and_the_store_lie(home, output, log, tmp_path, warmed):
    shutil.rmtree(home / "v1" / "live")
    elsewhere = shutil.copytree(home, tmp_path / "another home")
    for watched in (
        Watched(home, live=tmp_path / "fast disk"),
        Watched(elsewhere, live=tmp_path / "fast disk"),
        Watched(elsewhere),
    ):
        done = train(watched.session, watched.prepare(), output_dir=output, require_warm=True)
        assert (done.compiled, done.result.counters["found"]) == (0, 3)
    assert compiles(log) == []


def test_train_on_a_cold_key_warms_first(home, output, log):
    watched = Watched(home)
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert [(run["mode"], run["found"], run["compiled"]) for run in runs(log)] == [("trial", 0, 3), ("train", 3, 0)]
    assert (done.plan.hit, done.warmed.compiled, done.compiled) == (False, 3, 0)
    assert Watched(home).lookup(watched.prepare()) == done.record
    assert done.as_dict()["status"] == "warmed"
    assert done.as_dict()["compile_seconds"] == 30.0
    assert leftovers_of(home) == set()


@pytest.mark.feature("M2")
def test_train_with_recache_compiles_first(home, output, log, warmed):
    watched = Watched(home)
    done = train(watched.session, watched.prepare(), output_dir=output, recache=True)
    assert [(run["mode"], run["compiled"]) for run in runs(log)] == [("trial", 3), ("train", 0)]
    assert done.warmed.compiled == 3
    assert done.as_dict()["status"] == "warmed"


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
    assert done.plan.hit, "it was a hit when it was planned"
    assert done.warmed.compiled == 3
    assert done.as_dict()["status"] == "warmed"
    assert watched.damage() == [str(path)], "told once"
    after = Watched(home)
    found = after.lookup(after.prepare())
    assert found == done.record
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
    assert leftovers_of(home) == {name for name in leftovers_of(home) if name.startswith("quarantine")}


def test_what_compiles_in_training_all_the_same_is_added_to_the_record(home, output, log, warmed):
    watched = Watched(home, compiler=StandIn(extra=2))
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert (done.compiled, done.built) == (2, 2)
    assert done.result.surprises == ("train",)
    (told,) = watched.told("train.compiled")
    assert (told["graphs"], told["when"]) == (2, ("train",))
    assert done.record.modules[:3] == warmed.modules
    assert len(done.record.modules) == 5
    assert done.record.graphs == 5
    assert Watched(home).lookup(watched.prepare()) == done.record

    again = Watched(home, compiler=StandIn(extra=2))
    second = train(again.session, again.prepare(), output_dir=output, require_warm=True)
    assert (second.compiled, second.built, second.result.counters["found"]) == (0, 0, 5)
    assert second.record == done.record
    assert len(compiles(log)) == 1


def test_two_trainings_that_both_compile_more_harm_nothing(home, output, warmed):
    for extra in (1, 2):
        watched = Watched(home, compiler=StandIn(extra=extra))
        train(watched.session, watched.prepare(), output_dir=output)
    fresh = Watched(home)
    record = fresh.lookup(fresh.prepare())
    assert len(record.modules) == len({module.name for module in record.modules}) == 5
    assert fresh.restored(record.key, record) == module_files(fresh.prepare(), StandIn(extra=2), mode="train")


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
    assert (done.compiled, done.record.graphs) == (1, 5)
    fresh = Watched(home)
    assert fresh.lookup(fresh.prepare()) == done.record
    assert fresh.restored(done.record.key, done.record) == module_files(fresh.prepare(), StandIn(extra=2), mode="train")


def test_a_recache_meanwhile_is_not_undone(home, output, warmed):
    first, second = Watched(home, compiler=StandIn(extra=1)), Watched(home, compiler=StandIn(salt="other"))
    during_training(first, lambda: warm(second.session, second.prepare(), recache=True))
    done = train(first.session, first.prepare(), output_dir=output)
    again = {f"standin-1.0/{Path(name).parts[0]}" for name in module_files(second.prepare(), second.compiler)}
    names = {module.name for module in done.record.modules}
    assert len(names) == 4
    assert names > again, "what was compiled anew is there still, with what this training added"
    fresh = Watched(home)
    assert fresh.lookup(fresh.prepare()) == done.record


def test_graphs_that_the_record_counts_already_are_not_counted_twice(home, output, warmed):
    watched = Watched(home)
    watched.store.publish(structs.replace(warmed, modules=warmed.modules[:1]), {})
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert (done.compiled, len(done.record.modules), done.record.graphs) == (2, 3, 3)


def add_module(home, record, number):
    """Add a module to a record, as others do at the same time."""
    store = Watched(home).store
    module = structs.replace(record.modules[0], name=f"standin-1.0/MODULE_{number}")
    with store.changing(record.key):
        now = store.lookup(record.key, record.directory, record.model_type)
        store.publish(structs.replace(now, modules=(*now.modules, module)), {})
    return True


def test_changes_of_one_record_by_many_processes_are_all_kept(home, warmed):
    assert all(side_by_side(8, lambda number: add_module(home, warmed, number)))
    fresh = Watched(home)
    assert len(fresh.lookup(fresh.prepare()).modules) == 3 + 8


def test_a_store_that_cannot_be_written_after_a_training_does_not_fail_it(home, output, log, tmp_path, warmed):
    shutil.rmtree(home / "v1" / "tmp")
    (home / "v1" / "tmp").write_bytes(b"no folder")
    watched = Watched(home, live=tmp_path / "live", compiler=StandIn(extra=1))
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert (done.compiled, done.result.steps) == (1, 1)
    assert (output / "model.bin").exists()
    assert "cannot be written" in watched.told("train.not-kept")[0]["reason"]
    assert Watched(home).lookup(watched.prepare()) == warmed == done.record, "what is not kept is not in the record"


def test_a_read_only_store_serves_a_training(home, output, log, tmp_path, warmed):
    """No folder of the store can be written to; the live root lies elsewhere."""
    for name in ("tmp", "live", "logs", "locks", "verified", "journal"):
        shutil.rmtree(home / "v1" / name, ignore_errors=True)
        (home / "v1" / name).write_bytes(b"no folder")
    watched = Watched(home, live=tmp_path / "live", inline=False)
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert (done.compiled, done.result.counters["found"]) == (0, 3)
    assert done.record == warmed


def test_a_training_that_fails_keeps_the_record(home, output, warmed, monkeypatch):
    monkeypatch.setenv("STANDIN_FAIL", "die")
    watched = Watched(home, compiler=StandIn(extra=1), inline=False)
    with pytest.raises(TrainingError, match="SIGKILL"):
        train(watched.session, watched.prepare(), output_dir=output)
    assert Watched(home).lookup(watched.prepare()) == warmed
    assert leftovers_of(home) == set()


@pytest.mark.parametrize("what", ["lost", "flipped", "record"])
def test_a_miss_over_damage_says_so(home, output, warmed, what):
    """Once it was "no record that is near"."""
    watched = Watched(home)
    if what == "lost":
        blob(watched, warmed).unlink()
        expected = "its record cannot be restored: model.code is missing"
    elif what == "flipped":
        spoil(blob(watched, warmed))
        expected = "its record cannot be restored: model.code is damaged: 20,001 bytes instead of 20,000"
    else:
        spoil(watched.store.layout.record(warmed.directory, warmed.model_type, warmed.key))
        expected = "its record is damaged: "
    planned = plan(watched.prepare(), watched.store)
    assert planned.as_dict()["flaw"].startswith(expected)
    if what == "lost":
        assert watched.told("store.damaged")[0]["quarantine"] == "", "what is missing is not set aside"
        assert list((home / "v1").glob("quarantine/*" + warmed.files[0].sha256)) == []


@pytest.mark.feature("M3")
def test_a_strict_training_says_that_the_record_is_damaged(home, output, warmed):
    watched = Watched(home)
    blob(watched, warmed).unlink()
    with pytest.raises(MissError, match="cannot be used") as caught:
        train(watched.session, watched.prepare(), output_dir=output, require_warm=True)
    assert caught.value.cause == "its record cannot be restored: model.code is missing"


def test_a_damaged_record_is_compiled_anew(home, output, log, warmed):
    watched = Watched(home)
    path = watched.store.layout.record(warmed.directory, warmed.model_type, warmed.key)
    spoil(path)
    done = train(watched.session, watched.prepare(), output_dir=output)
    assert done.warmed.compiled == 3
    assert watched.damage() == [str(path)]
    assert Watched(home).lookup(watched.prepare()) == done.record


# What plan says is what happens


ACTIONS = st.sampled_from(
    ["warm", "train", "recache", "train more", "lose a blob", "flip a blob", "lose the record", "lose the index"]
)


@pytest.mark.feature("P1")
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(ACTIONS, st.sampled_from([4, 8, 16]), st.integers(0, 99)), min_size=1, max_size=8))
def test_warm_and_train_do_what_plan_says(steps):
    """Whatever happened to the store before: a hit compiles nothing, a miss compiles everything, once."""
    with tempfile.TemporaryDirectory() as folder:
        for action, batch, chosen in steps:
            _step(Path(folder), action, batch, chosen)


def _step(folder, action, batch, chosen):
    home = folder / "home"
    watched = Watched(home, wait=0, compiler=StandIn(extra=1 if action == "train more" else 0))
    prepared = watched.prepare(recipe(batch))
    record = Watched(home).lookup(prepared)
    if action.startswith(("lose", "flip")):
        if record is None:
            return
        file = blob(watched, record, chosen % len(record.files))
        if action == "lose a blob":
            file.unlink()
        elif action == "flip a blob":
            overwrite(file, bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
        elif action == "lose the record":
            watched.store.layout.record(record.directory, record.model_type, record.key).unlink()
        else:
            shutil.rmtree(watched.store.layout.records)
            assert plan(prepared, Watched(home).store).record == record, "an index is rebuilt"
            return
        assert not plan(prepared, Watched(home).store).hit
        return
    planned = plan(prepared, Watched(home).store)
    assert planned.hit == (record is not None)
    if action == "warm":
        done = warm(watched.session, prepared)
        assert done.compiled == (0 if planned.hit else 3)
        trials = 0 if planned.hit else 1
    elif action == "recache":
        done = warm(watched.session, prepared, recache=True)
        assert done.compiled == 3
        trials = 1
    else:
        done = train(watched.session, prepared, output_dir=folder / "output")
        assert (done.warmed is None) == planned.hit
        more = 1 if action == "train more" and len((planned.record or done.warmed.record).modules) < 4 else 0
        assert done.compiled == more
        trials = 0 if planned.hit else 1
    modes = [told["mode"] for told in watched.told("worker.start")]
    assert modes.count("trial") == trials
    assert modes.count("train") == action.startswith("train")
    assert plan(prepared, Watched(home).store).record == done.record
    assert watched.damage() == []
