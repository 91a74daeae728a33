"""Any process may die at any moment: nothing partial is visible, and the next one goes on."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cachekit.events import read
from cachekit.store.compile_lock import CompileLock
from cachekit.verbs.plan import plan
from cachekit.verbs.warm import warm
from tests.store.crash.server import calls
from tests.store.crash_cases import NEW, OLD, OLDER, OTHER, assert_whole
from tests.store.crash_session import crashes  # noqa: F401 - a fixture
from tests.support.processes import alive, ended, until
from tests.support.standins import (
    RUN_WARM,
    StandIn,
    Watched,
    expected,
    find,
    garbage_of,
    make_record,
    module_files,
    overwrite,
    publish,
    recipe,
    runs,
    served,
    tree,
)

pytestmark = pytest.mark.campaign
SOME_OR_ALL = pytest.mark.parametrize(
    "every", [pytest.param(11, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)


def spend(crashes, base, tmp_path, work, *, every=1, **arguments):
    """Kill the work at each of its calls, and in the middle of each call that writes bytes, on a copy of `base` each.

    With `every`, at every so many-th of these moments.

    Yields:
        What was done, and the home in which the process died. The first one is a run to the end, undisturbed.
    """

    def fresh(name):
        home = tmp_path / name
        if base is not None:
            shutil.copytree(base, home)
        return home

    trace = tmp_path / "trace"
    whole = fresh("whole")
    answer = crashes(whole, work, trace=trace, **arguments)
    assert not answer["killed"]
    assert not answer["error"], answer["traceback"]
    yield "run to the end", whole
    writes = {
        number for number, name, *_ in calls(trace) if name in {"write", "pwrite64", "sendfile64", "copy_file_range"}
    }
    assert writes
    moments = [(at, False) for at in range(1, answer["calls"] + 1)] + [(at, True) for at in sorted(writes)]
    for at, torn in moments[::every]:
        home = fresh(f"{at}-{torn}")
        assert crashes(home, work, at=at, torn=torn, **arguments)["killed"]
        yield f"killed {'in' if torn else 'before'} call {at}", home
        shutil.rmtree(home, ignore_errors=True)


# Publish, killed at every call


@pytest.mark.feature("S2")
@pytest.mark.parametrize("before", [(), (OTHER, OLD)], ids=["first", "replace"])
@SOME_OR_ALL
def test_a_publish_killed_at_any_call_leaves_the_old_state_or_the_new(crashes, tmp_path, before, every):
    base = tmp_path / "base"
    for made in before:
        publish(Watched(base).store, made)
    states = set()
    count = 0
    for moment, home in spend(
        crashes, base if before else None, tmp_path, "publish", every=every, number=1, artifacts=["new", "shared"]
    ):
        count += 1
        assert_whole(home, *before, NEW)
        watched = Watched(home)
        found = find(watched.store, NEW[0])
        assert found in (NEW[0], OLD[0] if OLD in before else None), moment
        if OTHER in before:
            assert find(watched.store, OTHER[0]) == OTHER[0], moment
        states.add(found is None or found.modules)

        # The next publish works, and leaves what an undisturbed one leaves.
        publish(watched.store, NEW)
        assert find(watched.store, NEW[0]) == NEW[0]
        assert served(watched.store, NEW[0]) == expected(NEW)
        assert watched.damage() == []
        if count == 1:
            undisturbed = tree(home)
        assert tree(home) == undisturbed, moment
        assert garbage_of(home) == set(), moment
    assert count > 50 / every
    assert len(states) == 2, "kills before and after the commit were among them"


@pytest.mark.feature("S2", "S1")
@SOME_OR_ALL
def test_making_a_lost_index_anew_may_be_killed_at_any_call(crashes, tmp_path, every):
    """The index knows all records or is not believed: a part of it would hide that the rest is there."""
    made = [make_record(number, (f"a{number}", "shared")) for number in range(3)]
    for pair in made:
        publish(Watched(tmp_path / "base").store, pair)
    Watched(tmp_path / "base").store.layout.index.unlink()
    for moment, home in spend(crashes, tmp_path / "base", tmp_path, "records", every=every):
        store = Watched(home).store
        assert [find(store, record) for record, _ in made] == [record for record, _ in made], moment
        assert {row.key for row in store.rows()} == {record.key for record, _ in made}, moment
        assert_whole(home, *made)


@pytest.mark.feature("S2", "S5")
@SOME_OR_ALL
def test_setting_damage_aside_may_be_killed_at_any_call(crashes, tmp_path, every):
    base = tmp_path / "base"
    publish(Watched(base).store, OLD)
    publish(Watched(base).store, OTHER)
    blob = Watched(base).store.layout.blob(OLD[0].files[0].sha256)
    overwrite(blob, bytes(len(blob.read_bytes())))
    for moment, home in spend(
        crashes,
        base,
        tmp_path,
        "lookup_then_publish",
        every=every,
        number=1,
        artifacts=["old", "shared"],
        created=OLDER,
    ):
        watched = Watched(home)
        found = find(watched.store, OLD[0])
        assert found in (None, OLD[0]), moment
        if found:
            assert served(watched.store, found) == expected(OLD), moment
        assert find(watched.store, OTHER[0]) == OTHER[0], moment
        publish(watched.store, OLD)
        assert served(watched.store, find(watched.store, OLD[0])) == expected(OLD), moment
        assert_whole(home, OLD, OTHER)


# Warm, killed at every call


@pytest.mark.feature("S2")
@pytest.mark.parametrize(
    "recache, every",
    [
        pytest.param(False, 17, id="compile-some"),
        pytest.param(False, 1, id="compile-all", marks=pytest.mark.slow),
        pytest.param(True, 1, id="recache-all", marks=pytest.mark.slow),
    ],
)
def test_a_warm_killed_at_any_call_is_done_by_the_next(crashes, tmp_path, recache, every):
    """All its folders: compiler cache dir, lock, workspace, blobs, record."""
    wanted = recipe()
    base = None
    before = None
    if recache:
        base = tmp_path / "base"
        watched = Watched(base, compiler=StandIn(graphs=1, salt="before"))
        before = warm(watched.session, watched.prepare(wanted)).record
    swept = set()
    how = {"graphs": 1, "salt": "after" if recache else "", "recache": recache}
    for moment, home in spend(crashes, base, tmp_path, "warm", every=every, **how):
        watched = Watched(home, wait=0, compiler=StandIn(graphs=1, salt="after" if recache else ""))
        prepared = watched.prepare(wanted)
        found = watched.lookup(prepared)
        planned = plan(prepared, watched.store)
        assert planned.record == found
        assert found is None or found == before or watched.restored(prepared.key, found)
        assert watched.damage() == [], moment
        garbage = garbage_of(home)
        # With wait=0, a lock that stayed would end this.
        done = warm(watched.session, prepared, recache=recache)
        assert done.compiled == (0 if found and not recache else 1), moment
        assert watched.restored(prepared.key, watched.lookup(prepared)) == module_files(prepared, watched.compiler)
        assert not done.compiled or garbage_of(home) == set(), moment
        swept |= {name.partition("/")[0] for name in garbage} & {"tmp", "cache_dirs"}
    assert swept == {"tmp", "cache_dirs"}, "kills left folders of both kinds to sweep"


# Killed at random moments, whole processes


def processes_of(home):
    """Processes that were started for this store: cachekit itself, and its workers.

    Looks twice: in the middle of an exec a process has no command line.
    """
    return _processes_of(home) or (time.sleep(0.05) or _processes_of(home))


def _processes_of(home):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid() and alive(int(entry.name)):
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(home) in line:
                found.append(int(entry.name))
    return found


def campaign(tmp_path, moments, seed):
    """Warm in a process of its own, kill it at a random moment, look, warm again; in one store, again and again."""
    chosen = random.Random(seed)
    home, log = tmp_path / "home", tmp_path / "log"
    halted = 0
    for number in range(moments):
        # Half of the compiles would never end by themselves: a worker that outlived its parent would be found.
        endless = number % 2 == 0
        batch = number + 1 if endless else max(1, number - 1)
        command = [sys.executable, RUN_WARM, "warm", "--home", str(home), "--batch", str(batch)]
        worked = len(runs(log))
        with ended(
            subprocess.Popen(
                command if endless else [*command, "--recache"],
                env={**os.environ, "STANDIN_LOG": str(log), "STANDIN_DELAY": "100" if endless else "0.02"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        ) as child:
            assert child.stderr.readline() == b"start\n"
            if number % 3 == 0:  # not before the worker is at work
                until(lambda: len(runs(log)) > worked, "the worker's start")
            time.sleep(chosen.uniform(0, 0.3))
            halted += child.poll() is None
            child.send_signal(signal.SIGKILL)
            child.wait()
        until(lambda: not processes_of(home), "the worker's end")

        watched = Watched(home, wait=0)
        for listed in watched.store.records():
            assert find(watched.store, listed) == listed
        assert watched.damage() == []
        prepared = watched.prepare(recipe(batch))
        with CompileLock(watched.store.layout, prepared.key, "test", watched.store.rwlock).hold(0, lambda *_: None):
            pass
        found = watched.lookup(prepared)
        done = warm(watched.session, prepared, recache=True)
        assert done.compiled == 3
        assert watched.lookup(prepared) == done.record
        assert watched.restored(prepared.key, done.record) == module_files(prepared, watched.compiler)
        assert found is None or found.modules == done.record.modules
        assert garbage_of(home) == set()
        assert {path.suffix for path in (home / "v1" / "locks").iterdir()} == {".lock"}, "no note of a holder stays"
        for path in (home / "v1" / "journal").rglob("*.jsonl"):
            assert {event["verb"] for event in read(path)[:1]} <= {"warm"}
    assert halted >= moments / 2


@pytest.mark.feature("S2", "C3")
def test_a_warm_killed_at_random_moments(tmp_path):
    campaign(tmp_path, 4, seed=12)


@pytest.mark.slow
@pytest.mark.feature("S2", "C3")
def test_a_warm_killed_at_200_random_moments(tmp_path):
    campaign(tmp_path, 200, seed=200)


def test_a_worker_whose_parent_died_before_it_could_ask_to_die_with_it_does_not_start(crashes, tmp_path):
    """The kernel tells a child about a parent that dies after it asked, not about one that died before."""
    home, log = tmp_path / "home", tmp_path / "log"
    environment = {"STANDIN_LOG": str(log), "LD_PRELOAD": str(crashes.shim), "KILLAT_PARENT": "1"}
    with ended(
        subprocess.Popen(
            [sys.executable, RUN_WARM, "warm", "--home", str(home)],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    ) as child:
        assert child.wait() == -signal.SIGKILL
        until(lambda: not processes_of(home), "the worker's end")
    assert runs(log) == []
