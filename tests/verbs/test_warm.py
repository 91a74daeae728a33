"""Warm, with a stand-in for the compiler: what it compiles, keeps and refuses."""

import json
from functools import partial

import pytest

from cachekit.cli.why import of_recipe
from cachekit.errors import CompileError, InterruptedRunError, MissError, TrainingError
from cachekit.key.nearest import INTERRUPTED
from cachekit.verbs.plan import plan
from cachekit.verbs.planned import warmed as answer
from cachekit.verbs.train import train
from cachekit.verbs.warm import warm
from cachekit.verbs.why import why
from tests.support.standins import (
    StandIn,
    Watched,
    compiles,
    garbage_of,
    module_files,
    recipe,
    runs,
    tree,
)
from tests.verbs.verb_cases import ends_within, home, log, output, warmed  # noqa: F401 - fixtures

pytestmark = pytest.mark.versions


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
    document = answer(done).as_dict()
    assert json.loads(json.dumps(document)) == document
    assert (document["status"], document["compiled"], document["graphs"]) == ("compiled", 3, 3)
    assert (document["compile_seconds"], document["saved_seconds"]) == (30.0, 0.0)
    again = Watched(home)
    document = answer(warm(again.session, again.prepare())).as_dict()
    assert (document["status"], document["compiled"], document["graphs"]) == ("hit", 0, 3)
    assert (document["compile_seconds"], document["saved_seconds"]) == (0.0, 30.0)


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


@pytest.mark.feature("C2")
def test_what_a_stopped_warm_had_compiled_is_where_the_next_one_begins(home, log):
    for _ in range(2):
        stopped = Watched(home)
        stopped.compiler.binaries = len
        ends_within(stopped, 1)
        with pytest.raises(InterruptedRunError):
            warm(stopped.session, stopped.prepare())
        assert garbage_of(home) == set()
    again = Watched(home)
    planned = plan(again.prepare(), again.store, reuse_bytes=10**9)
    assert (planned.status, planned.expected_seconds, planned.expected_graphs) == ("miss", None, None)
    assert planned.reuse.known.graphs == 2, "not its files"
    assert planned.reuse.known.hard == {**again.prepare().ingredients.hard, INTERRUPTED: True}
    said = "\n".join(of_recipe(why(again.session, again.prepare())))
    assert "a run that was stopped" in said
    assert f"{INTERRUPTED}:" not in said
    done = warm(again.session, again.prepare())
    assert (done.compiled, done.reused.graphs) == (1, 2)
    assert again.restored("check", done.record) == module_files(again.prepare(), again.compiler)
    other = again.prepare(recipe(16))
    assert plan(other, again.store).nearest.known.key == done.record.key, "a whole one is nearer"


def test_who_wants_all_anew_keeps_no_part_and_begins_with_none(home, log):
    stopped = Watched(home)
    ends_within(stopped, 1)
    with pytest.raises(InterruptedRunError):
        warm(stopped.session, stopped.prepare(), recache=True)
    assert tree(home) == set()
    ends_within(stopped, 1)
    with pytest.raises(InterruptedRunError):
        warm(stopped.session, stopped.prepare())
    again = Watched(home)
    assert warm(again.session, again.prepare(), recache=True).compiled == 3


@pytest.mark.parametrize("fail, error", [("compile", CompileError), ("nothing", CompileError), ("die", TrainingError)])
def test_a_compile_that_fails_leaves_nothing_and_is_tried_again(home, log, monkeypatch, fail, error):
    monkeypatch.setenv("STANDIN_FAIL", fail)
    watched = Watched(home, inline=False)
    with pytest.raises(error) as caught:
        warm(watched.session, watched.prepare())
    assert caught.value.exit_code == (6 if error is CompileError else 1)
    assert caught.value.hint
    assert tree(home) == set()
    assert garbage_of(home) == set()
    monkeypatch.delenv("STANDIN_FAIL")
    again = Watched(home, wait=0)
    assert warm(again.session, again.prepare()).compiled == 3
