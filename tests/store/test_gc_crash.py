"""A removal may die at any call: what is left is a store, with records that are whole; the next removal ends it."""

import os
import shutil
from pathlib import Path

import pytest

from cachekit.store.gc import Keep
from cachekit.verbs.entry import Named
from cachekit.verbs.records import pin
from cachekit.verbs.verify import verify
from tests.store.aged_store import age
from tests.store.crash.server import calls
from tests.store.crash_session import crashes  # noqa: F401 - a fixture
from tests.support.standins import Watched, expected, find, make_record, publish, served, tree

pytestmark = pytest.mark.campaign
MADE = [make_record(number, (f"own {number}", f"also {number}", "same"), size=400) for number in range(5)]
OLD = make_record(0, ("before", "same"), size=400)


@pytest.fixture
def base(tmp_path):
    """Five records, the younger the smaller their number, one pinned, and one that was replaced."""
    watched = Watched(tmp_path / "base")
    for days, pair in enumerate((OLD, *MADE)):
        publish(watched.store, pair)
        age(watched.store, pair[0], days)
    age(watched.store, MADE[0][0], 0)
    pin(watched.store, [Named(MADE[4][0].key)])
    layout = watched.store.layout
    (layout.cache_dirs / "dead-1-0123456789ab").mkdir(parents=True)
    (layout.cache_dirs / "dead-1-0123456789ab" / "work").touch()
    (layout.cache_dirs / "dead-1-0123456789ab.lock").touch()
    return tmp_path / "base"


def killed(crashes, base, tmp_path, work, every=1, **arguments):
    """Yields each home in which the work died, and at which call; the first one is a run to the end."""
    whole = shutil.copytree(base, tmp_path / "whole")
    answer = crashes(whole, work, **arguments)
    assert not answer["error"], answer["traceback"]
    yield 0, whole
    assert answer["calls"] > 10
    for at in range(1, answer["calls"] + 1, every):
        home = shutil.copytree(base, tmp_path / f"{at}")
        answer = crashes(home, work, at=at, **arguments)
        # Where a copy took seconds, its times are believed, and fewer calls are needed.
        assert answer["killed"] or at > answer["calls"]
        yield at, home
        shutil.rmtree(home, ignore_errors=True)


def assert_whole(home, moment):
    """What is listed gives its bytes, now and after the index was lost; nothing is damaged; the pinned one is there."""
    for lost in (False, True):
        if lost:
            home = shutil.copytree(home, home.with_name(f"{home.name}-lost"))
            (home / "v1" / "index.sqlite").unlink(missing_ok=True)
        watched = Watched(home)
        listed = {record.key for record in watched.store.records()}
        for pair in MADE:
            record = find(watched.store, pair[0])
            assert (record is not None) == (pair[0].key in listed)
            if record is not None and record != OLD[0]:
                assert served(watched.store, record) == expected(pair), moment
        assert MADE[4][0].key in listed, moment
        assert watched.damage() == [], moment
        assert verify(watched.session).problems == (), moment
        if lost:
            shutil.rmtree(home)


CASES = {
    "gc": ("gc", {"max_size": 0}, Keep(max_size=0)),
    "age": ("gc", {"max_age": 1.5 * 86_400}, Keep(max_age=1.5 * 86_400)),
    "rm": ("rm", {"keys": [MADE[0][0].key, MADE[2][0].key]}, Keep()),
}


@pytest.mark.feature("G3", "S2")
@pytest.mark.parametrize(
    "case, every",
    [
        pytest.param("gc", 29, id="gc-some"),
        pytest.param("rm", 29, id="rm-some"),
        *(pytest.param(case, 1, id=f"{case}-all", marks=pytest.mark.slow) for case in CASES),
    ],
)
def test_a_removal_killed_at_any_call_leaves_whole_records(crashes, base, tmp_path, case, every):
    work, arguments, limits = CASES[case]
    counts = set()
    for moment, home in killed(crashes, base, tmp_path, work, every, **arguments):
        if moment == 0:
            undisturbed = tree(home)
            if work == "rm":
                Watched(home).gc(limits)
                undisturbed = tree(home)
        assert_whole(home, moment)
        watched = Watched(home)
        counts.add(len(list(watched.store.records())))
        if work == "rm":
            remaining = [key for key in arguments["keys"] if key in {r.key for r in watched.store.records()}]
            if remaining:
                crashes(home, "rm", keys=remaining)
        Watched(home).gc(limits)
        assert tree(home) == undisturbed, moment
        assert not (home / "v1" / "cache_dirs" / "dead-1-0123456789ab").exists()
    assert len(counts) > 1, "before and after the first record went"


@pytest.mark.feature("G2")
@pytest.mark.parametrize("every", [pytest.param(9, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_a_pin_killed_at_any_call_is_there_or_not(crashes, base, tmp_path, every):
    key = MADE[1][0].key
    states = set()
    for moment, home in killed(crashes, base, tmp_path, "pin", every, key=key):
        names = {path.name for path in (home / "v1" / "pins").iterdir()}
        assert names - {f"{key}.json"} == {f"{MADE[4][0].key}.json"}, moment
        states.add(len(names))
        pin(Watched(home).store, [Named(key)])
        Watched(home).gc(Keep(max_size=0))
        assert {record.key for record in Watched(home).store.records()} == {key, MADE[4][0].key}
    assert states == {1, 2}


@pytest.mark.feature("S3", "G3")
def test_a_record_is_durably_gone_before_any_of_its_blobs_is(crashes, base, tmp_path):
    """A power cut keeps what was not synced, or not: it must bring no record back without its blobs."""
    named = {file.sha256: pair[0] for pair in MADE for file in pair[0].files}
    store = Watched(base).store
    assert not crashes(base, "gc", max_size=0, trace=tmp_path / "trace")["error"]
    unlinked, durable, checked = set(), set(), 0
    for _, name, path, *_ in calls(tmp_path / "trace"):
        if name == "unlink" and path.endswith(".json") and "/records/" in path:
            unlinked.add(path)
        elif name == "fsync":
            durable |= {gone for gone in unlinked if os.path.dirname(gone) == path}
        elif name == "unlink" and "/blobs/" in path and Path(path).name in named:
            record = named[Path(path).name]
            assert str(store.layout.record(record.place)) in durable
            checked += 1
    assert checked == 2 * 4, "two own files of each, and those of the pinned one stay"
