"""Several plans at once: what each recipe finds and compiles, what it all comes to, what an upgrade makes cold."""

from __future__ import annotations

import pytest
from msgspec import structs

from cachekit.compilers.prepare import again
from cachekit.errors import MissError, RecipeError
from cachekit.recipe.price import Price
from cachekit.recipe.schema import Model
from cachekit.remotes.push import push
from cachekit.store.layout import Place
from cachekit.verbs.forecast import forecast
from cachekit.verbs.plan import plan
from cachekit.verbs.planned import planned
from cachekit.verbs.warm import warm
from tests.remotes.storage_processes import KINDS, serve
from tests.remotes.watched_storages import Counted
from tests.support.standins import StandIn, Watched, make_record, publish, recipe

PRICE = Price(1.2, "USD", "trn1.2xlarge", "a test")


def request(watched, batch, *, name="", **training):
    wanted = recipe(batch, name=name or f"toy-{batch}", **training)
    return wanted.name, lambda: watched.prepare(wanted)


def failing(name, error):
    def fail():
        raise error

    return name, fail


def ask(watched, requests, *, before=()):
    def older(prepared):
        return [again(prepared, StandIn(version)) for version in before]

    found = forecast(requests, watched.store, watched.session.remotes, before=older, price=lambda _: PRICE)
    return found, {row.name: row for row in found.plans}


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))


@pytest.mark.feature("P1")
def test_each_row_is_what_a_plan_of_its_own_says(tmp_path, log):
    with serve("folder", tmp_path / "server") as make:
        ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
        warm(ann.session, ann.prepare(recipe(1)))
        bob = Watched(tmp_path / "bob", shared=[(make(), "r")]).limit(0)  # what helps a warm is fetched, and here then
        warm(bob.session, bob.prepare(recipe(2)))
        found, rows = ask(bob, [request(bob, batch) for batch in (1, 2, 3)])
        named = [recipe(batch, name=f"toy-{batch}") for batch in (1, 2, 3)]
        alone = [plan(bob.prepare(one), bob.store, bob.session.remotes) for one in named]
    # A record that another row found tells of the time as well.
    for row, one in zip(found.plans, alone, strict=True):
        told = planned(one, PRICE).as_dict() | {"expected": "", "schema": "cachekit/plan-row/1"}
        assert {name: value for name, value in row.as_dict().items() if name in told} | {"expected": ""} == told
    assert {name: row.status for name, row in rows.items()} == {"toy-1": "hit", "toy-2": "hit", "toy-3": "miss"}
    assert [row.remote for row in found.plans] == [bob.session.remotes.readable[0].name, "local", ""]
    totals = found.totals
    assert (totals.recipes, totals.hit, totals.miss, totals.failed) == (3, 2, 1, 0)
    assert totals.fetch_bytes == rows["toy-1"].fetch_bytes > 0
    assert totals.expected_seconds == rows["toy-3"].expected_seconds == 30.0
    assert totals.dollars == pytest.approx(30.0 * 1.2 / 3600)
    only = rows["toy-3"]
    assert totals.seconds_range == pytest.approx((only.expected.low, only.expected.high), abs=0.001)
    assert totals.dollars_range == pytest.approx(only.dollars_range, abs=1e-6)


def test_a_recipe_that_cannot_be_planned_stops_no_other(tmp_path, log):
    watched = Watched(tmp_path / "home")
    warm(watched.session, watched.prepare(recipe(8)))
    broken = RecipeError("it is no recipe", cause="a letter is missing", hint="write it")
    found, _ = ask(watched, [failing("broken", broken), request(watched, 8), failing("also", broken)])
    assert [row.status for row in found.plans] == ["failed", "hit", "failed"]
    document = found.as_dict()["plans"][0]
    assert (document["name"], document["error"]["message"]) == ("broken", "it is no recipe")
    failure = found.unplanned()
    assert (failure.exit_code, failure.code) == (2, "bad-recipe")
    assert "2 of 3 could not be planned: broken, also" in failure.message
    assert failure.cause == "broken: it is no recipe: a letter is missing"


@pytest.mark.feature("P1")
def test_what_two_recipes_share_counts_once(tmp_path, log):
    """As when they are warmed one after the other: the first compiles, the second finds it."""
    watched = Watched(tmp_path / "home")
    warm(watched.session, watched.prepare(recipe(4)))
    requests = [request(watched, 8, name=name) for name in ("one", "two")]
    found, rows = ask(watched, requests)
    assert [(row.status, row.same_as) for row in found.plans] == [("miss", None), ("miss", "one")]
    assert found.totals.expected_seconds == rows["one"].expected_seconds == 30.0
    assert [warm(watched.session, prepare()).compiled for _, prepare in requests] == [3, 0]


# Remotes


@pytest.mark.feature("R2")
@pytest.mark.parametrize("kind", KINDS)
def test_a_shared_cache_is_asked_once_for_all(tmp_path, kind):
    with serve(kind, tmp_path / "server") as make:
        ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
        records = [publish(ann.store, make_record(number)) for number in range(3)]
        push(ann.store, ann.session.remotes, records)
        storage = Counted(make())
        bob = Watched(tmp_path / "bob", shared=[(storage, "r")])
        places = [Place("standin-1.0", "bert", f"{number:064x}") for number in range(300)]
        places[100:100] = [record.place for record in records]
        found = bob.session.remotes.find_all(places)
        assert {key: one.shared.record for key, one in found.items()} == {record.key: record for record in records}
        assert (storage.calls.count("stat"), storage.calls.count("read")) == (1, 3)
        again_ = bob.session.remotes.find_all(places[:50])
        assert again_ == {}
        assert storage.calls.count("stat") == 1, "what was not there is remembered for a moment"
        assert bob.session.remotes.find_all(places[:50], anew=True) == {}
        assert storage.calls.count("stat") == 2


# An upgrade


@pytest.mark.feature("F8")
def test_what_goes_cold_is_what_misses_after_the_upgrade(tmp_path, log):
    home = tmp_path / "home"
    old, new = Watched(home, compiler=StandIn("1.0")), Watched(home, compiler=StandIn("2.0"))
    for batch in (1, 2, 3, 4):
        warm(old.session, old.prepare(recipe(batch)))
    for batch in (3, 5):  # somebody tried the new one already
        warm(new.session, new.prepare(recipe(batch)))
    batches = (1, 2, 3, 4, 5, 6)
    found, rows = ask(new, [request(new, batch) for batch in batches])
    cold = {name for name, row in rows.items() if row.goes_cold}
    missed = set()
    for batch in batches:
        after, before = (Watched(home, compiler=StandIn(version)) for version in ("2.0", "1.0"))
        try:
            warm(after.session, after.prepare(recipe(batch)), require_warm=True)
        except MissError:
            if plan(before.prepare(recipe(batch)), before.store).hit:
                missed.add(f"toy-{batch}")
    assert cold == missed == {"toy-1", "toy-2", "toy-4"}
    assert rows["toy-6"].status == "miss", "it is cold with either"
    totals = found.totals
    assert (totals.goes_cold, totals.miss) == (3, 4)
    assert totals.goes_cold_expected_seconds == pytest.approx(90.0)
    assert totals.goes_cold_dollars == pytest.approx(90.0 * 1.2 / 3600, rel=1e-4)
    assert rows["toy-1"].before.directory == "standin-1.0"


@pytest.mark.feature("P3", "F8")
def test_the_old_compile_of_a_recipe_is_heard_among_many_of_others(tmp_path):
    """Although each of those differs from it in less than a whole toolchain."""
    old, new = (Watched(tmp_path / "home", compiler=StandIn(version)) for version in ("1.0", "2.0"))
    record, contents = make_record()
    asked = old.prepare(recipe(4))
    for number in range(140):
        watched, seconds = (new, 10.0) if number else (old, 300.0)
        deep = Model(id=recipe().model.id, config={"num_hidden_layers": 24 + number})
        one = watched.prepare(structs.replace(recipe(4), model=deep) if number else recipe(4))
        place = {"key": one.key, "directory": one.fingerprint.directory, "model_type": one.model_type}
        said = structs.replace(record, **place, hard=dict(one.ingredients.hard), compile_seconds=seconds)
        publish(new.store, (said, contents))
    expected = plan(new.prepare(recipe(4)), new.store).expected
    assert expected.method == "measured"
    assert expected.key == asked.key


@pytest.mark.feature("F8")
def test_what_is_warm_until_now_may_be_on_a_shared_cache_only(tmp_path, log):
    with serve("folder", tmp_path / "server") as make:
        ann = Watched(tmp_path / "ann", shared=[(make(), "rw")])
        warm(ann.session, ann.prepare(recipe(1)))
        storage = Counted(make())
        bob = Watched(tmp_path / "bob", compiler=StandIn("2.0"), shared=[(storage, "r")])
        found, rows = ask(bob, [request(bob, batch) for batch in (1, 2)], before=("1.0",))
    assert [row.goes_cold for row in found.plans] == [True, False]
    assert storage.calls.count("stat") == 1, "both toolchains in one question"
    assert rows["toy-1"].expected_seconds == pytest.approx(30.0), "the old compile tells of the new one"
