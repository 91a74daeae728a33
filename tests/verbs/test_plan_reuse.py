"""`plan` names the record that a warm of the recipe begins with, and no other."""

import pytest

from cachekit.remotes.folder import FolderStorage
from cachekit.verbs.plan import plan
from cachekit.verbs.planned import planned as answer
from cachekit.verbs.warm import warm
from tests.support.standins import StandIn, Watched, recipe

pytest_plugins = ["tests.support.cli_session"]


def planned(watched, wanted):
    reuse_bytes = watched.session.config.reuse_bytes
    return plan(watched.prepare(wanted), watched.store, watched.session.remotes, reuse_bytes=reuse_bytes)


def begun_with(watched, wanted):
    """What a warm of it told to begin with."""
    warm(watched.session, watched.prepare(wanted))
    return [told["nearest"] for told in watched.told("reuse.restored")]


@pytest.mark.parametrize("change", [{"max_seq_length": 256}, {"per_device_eval_batch_size": 16}, {"optim": "sgd"}])
def test_what_is_named_is_what_a_warm_begins_with(tmp_path, change):
    warm(Watched(tmp_path).session, Watched(tmp_path).prepare(recipe(8)))
    watched = Watched(tmp_path)
    reuse = answer(planned(watched, recipe(8, **change))).as_dict()["reuse"]
    assert begun_with(watched, recipe(8, **change)) == [reuse["key"]]
    assert (reuse["remote"], reuse["graphs"], reuse["fetch_bytes"]) == ("local", 3, 0)
    assert reuse["differs"] == [f"training.{name}" for name in change]


def test_none_is_named_where_none_may_be_reused(tmp_path):
    watched = Watched(tmp_path)
    empty = planned(watched, recipe(8))
    assert empty.reuse is None, "an empty store"
    assert answer(empty).miss().cause == "there is no record to compare with"
    warm(watched.session, watched.prepare(recipe(8)))
    other = Watched(tmp_path, compiler=StandIn("2.0"))
    assert planned(other, recipe(8)).nearest is not None
    assert planned(other, recipe(8)).reuse is None, "another compiler's"
    assert begun_with(other, recipe(8)) == []
    small = Watched(tmp_path).limit(1)
    assert planned(small, recipe(16)).reuse is None, "it is too large"
    assert planned(Watched(tmp_path).limit(0), recipe(16)).reuse is None, "it is switched off"


def test_one_farther_is_named_where_the_nearest_is_too_large(tmp_path):
    large = Watched(tmp_path, compiler=StandIn(graphs=9))
    warm(large.session, large.prepare(recipe(8)))
    watched = Watched(tmp_path)
    far = watched.prepare(recipe(64, max_seq_length=256))
    size = warm(watched.limit(0).session, far).record.size
    watched = Watched(tmp_path).limit(size)
    wanted = recipe(8, per_device_eval_batch_size=16)
    found = planned(watched, wanted)
    assert found.nearest.known.size > size
    assert found.reuse.known.key == far.key
    assert begun_with(watched, wanted) == [far.key]


def test_on_a_shared_cache_it_says_what_is_to_be_fetched(tmp_path):
    (tmp_path / "shared").mkdir()
    first = Watched(tmp_path / "ann", shared=[(FolderStorage(tmp_path / "shared"), "rw")])
    record = warm(first.session, first.prepare(recipe(8))).record
    second = Watched(tmp_path / "ben", shared=[(FolderStorage(tmp_path / "shared"), "rw")])
    reuse = planned(second, recipe(16)).reuse
    assert (reuse.known.key, reuse.fetch) == (record.key, record.size)
    assert reuse.place == second.session.remotes.readable[0].name
