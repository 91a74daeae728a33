"""Any process may die at any moment: nothing partial is visible, nothing is lost, and the next run works."""

import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from crash.server import Crashes, calls
from standins import (
    TESTS,
    StandIn,
    Watched,
    alive,
    ended,
    expected,
    find,
    leftovers_of,
    make_record,
    memory_folder,
    module_files,
    overwrite,
    publish,
    recipe,
    runs,
    served,
    tree,
    until,
)

from cachekit.actions.plan import plan
from cachekit.actions.warm import warm
from cachekit.journal import read
from cachekit.record import encode
from cachekit.store.flight import Flight

OLDER = "2026-01-01T00:00:00+00:00"


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    server = Crashes(tmp_path_factory.mktemp("crashes"))
    yield server
    server.close()


@pytest.fixture
def tmp_path():
    """In memory where that is to be had: thousands of stores come and go, and no test here cuts the power."""
    with memory_folder() as folder:
        yield folder


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
    writes = {number for number, name, *_ in calls(trace) if name in {"write", "sendfile64", "copy_file_range"}}
    assert writes
    moments = [(at, False) for at in range(1, answer["calls"] + 1)] + [(at, True) for at in sorted(writes)]
    for at, torn in moments[::every]:
        home = fresh(f"{at}-{torn}")
        assert crashes(home, work, at=at, torn=torn, **arguments)["killed"]
        yield f"killed {'in' if torn else 'before'} call {at}", home
        shutil.rmtree(home, ignore_errors=True)


def assert_whole(home, *made):
    """Every record that is listed is one of these and gives its bytes; nothing is reported as damaged."""
    watched = Watched(home)
    by_key = {}
    for pair in made:
        by_key.setdefault(pair[0].key, []).append(pair)
    for listed in watched.store.records():
        record, contents = next(pair for pair in by_key[listed.key] if pair[0] == listed)
        assert find(watched.store, listed) == record
        assert served(watched.store, record) == expected((record, contents))
    assert watched.damage() == []


# Publish, killed at every call


OLD = make_record(1, ("old", "shared"), created=OLDER)
NEW = make_record(1, ("new", "shared"))
OTHER = make_record(2, ("other", "shared"))


@pytest.mark.feature("S2")
@pytest.mark.parametrize("before", [(), (OTHER,), (OTHER, OLD)], ids=["first", "another key", "replace"])
def test_a_publish_killed_at_any_call_leaves_the_old_state_or_the_new(crashes, tmp_path, before):
    base = tmp_path / "base"
    for made in before:
        publish(Watched(base).store, made)
    states = set()
    count = 0
    for moment, home in spend(
        crashes, base if before else None, tmp_path, "publish", number=1, artifacts=["new", "shared"]
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
        assert leftovers_of(home) == set(), moment
    assert count > 50
    assert len(states) == 2, "kills before and after the commit were among them"


@pytest.mark.feature("S2", "S1")
def test_rebuilding_a_lost_index_may_be_killed_at_any_call(crashes, tmp_path):
    """The index is rebuilt whole or not at all: a part of it would hide that the rest is missing."""
    made = [make_record(number, (f"a{number}", "shared")) for number in range(3)]
    for pair in made:
        publish(Watched(tmp_path / "base").store, pair)
    shutil.rmtree(tmp_path / "base" / "v1" / "records")
    for moment, home in spend(crashes, tmp_path / "base", tmp_path, "records"):
        store = Watched(home).store
        assert [find(store, record) for record, _ in made] == [record for record, _ in made], moment
        assert_whole(home, *made)


@pytest.mark.feature("S2", "S5")
def test_setting_damage_aside_may_be_killed_at_any_call(crashes, tmp_path):
    base = tmp_path / "base"
    publish(Watched(base).store, OLD)
    publish(Watched(base).store, OTHER)
    blob = Watched(base).store.layout.blob(OLD[0].files[0].sha256)
    overwrite(blob, bytes(len(blob.read_bytes())))
    for moment, home in spend(
        crashes, base, tmp_path, "lookup_then_publish", number=1, artifacts=["old", "shared"], created=OLDER
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
        pytest.param(False, 3, id="compile-some"),
        pytest.param(False, 1, id="compile-all", marks=pytest.mark.slow),
        pytest.param(True, 1, id="recache-all", marks=pytest.mark.slow),
    ],
)
def test_a_warm_killed_at_any_call_is_done_by_the_next(crashes, tmp_path, recache, every):
    """All its folders: live root, lock, workspace, blobs, record."""
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
        leftovers = leftovers_of(home)
        # With wait=0, a lock that stayed would end this.
        done = warm(watched.session, prepared, recache=recache)
        assert done.compiled == (0 if found and not recache else 1), moment
        assert watched.restored(prepared.key, watched.lookup(prepared)) == module_files(prepared, watched.compiler)
        assert not done.compiled or leftovers_of(home) == set(), moment
        swept |= {name.partition("/")[0] for name in leftovers} & {"tmp", "live"}
    assert swept == {"tmp", "live"}, "kills left folders of both kinds to sweep"


# What is durable, by the order of the calls


class Disk:
    """What the calls of a trace have made durable, by the rules that every POSIX file system keeps.

    A file's bytes are durable after an fsync of it that follows its last write; a name after an fsync of its folder
    that follows the call that made it. Everything else may be lost, or not.
    """

    def __init__(self, existing=()):
        self.now = dict.fromkeys(map(str, existing), "folder")  # path -> what it names
        self.kept = dict(self.now)  # the same, as far as it is durable
        self.clean = set()  # files whose bytes are durable
        self.made = 0

    def call(self, name, path, second, detail):
        if name == "open" and detail == "new":
            self.made += 1
            self.now[path] = f"file {self.made}"
        elif name in {"write", "pwrite64", "writev", "sendfile64", "copy_file_range", "ftruncate64"} or (
            name == "open" and detail == "truncated"
        ):
            self.clean.discard(self.now[path])
        elif name == "mkdir":
            self.now[path] = "folder"
        elif name in {"fsync", "fdatasync"}:
            if self.now.get(path) == "folder":
                for child in {*self.now, *self.kept}:
                    if os.path.dirname(child) == path:
                        self._keep(child)
            else:
                self.clean.add(self.now[path])
        elif name == "rename":
            for old in [old for old in self.now if old == path or old.startswith(f"{path}/")]:
                moved = second + old.removeprefix(path)
                self.now[moved] = self.now.pop(old)
                if old != path and old in self.kept:
                    self.kept[moved] = self.kept.pop(old)  # the inside of a folder moves with it
        elif name in {"unlink", "rmdir"}:
            self.now.pop(path, None)
        else:
            assert name in {"fchmod", "chmod", "open"}, f"unknown call {name}"

    def _keep(self, path):
        if path in self.now:
            self.kept[path] = self.now[path]
        else:
            self.kept.pop(path, None)

    def chain(self, path):
        """The path and its parents that this trace knows."""
        return [str(step) for step in (Path(path), *Path(path).parents) if str(step) in self.now]

    def lost(self, path):
        """What of a file may be lost: names on the way to it, or its bytes.

        While a whole file is replaced by another whole one, either may be found.
        """
        names = [step for step in self.chain(path) if step not in self.kept]
        files = {self.now[path], self.kept.get(path, self.now[path])}
        return names if files <= self.clean else [*names, f"the bytes of {path}"]


def layout_paths(home, made):
    """The paths of a record, and of the blobs that must be there before it."""
    record, _ = made
    layout = Watched(home).store.layout
    blobs = [layout.blob(file.sha256) for file in record.files]
    blobs.append(layout.blob(hashlib.sha256(encode(record)).hexdigest()))
    return str(layout.record(record.directory, record.model_type, record.key)), [str(path) for path in blobs]


def traced(crashes, home, trace, made, **how):
    """Publish in another process; returns its calls under the folder in which the store lies."""
    artifacts = [file.path[len("model-") : -len(".code")] for file in made[0].files]
    how |= {"number": made[0].hard["number"], "artifacts": artifacts, "created": made[0].provenance.created}
    answer = crashes(home, "publish", trace=trace, under=home.parent, **how)
    assert answer["killed"] or not answer["error"]
    return calls(trace)


@pytest.mark.feature("S3")
def test_blobs_are_durable_before_the_record_is_visible(crashes, tmp_path):
    """At each call of several publishes: a record's name is there only when all its blobs are durable, names too."""
    home = tmp_path / "disk" / "home"
    home.parent.mkdir()
    disk = Disk([home.parent])
    for number, made in enumerate((OTHER, OLD, NEW)):
        rows = traced(crashes, home, tmp_path / f"trace-{number}", made)
        record, blobs = layout_paths(home, made)
        renamed = False
        for _, name, path, second, detail in rows:
            disk.call(name, path, second, detail)
            renamed = renamed or (name, second) == ("rename", record)
            if renamed:
                shared = set(disk.chain(record))  # lost only together with the record
                assert [step for blob in blobs for step in disk.lost(blob) if step not in shared] == []
        assert renamed
        assert disk.lost(record) == []
        assert disk.kept[record] == disk.now[record], "when publish returns, the record stays"


@pytest.mark.feature("S3")
def test_blobs_are_durable_before_the_record_also_after_a_killed_publish(crashes, tmp_path):
    """A folder that an earlier process made, and did not live to make durable, is no more durable for being there."""
    count = crashes(tmp_path / "count", "publish")["calls"]
    for at in range(1, count + 1):
        home, trace = tmp_path / f"disk-{at}" / "home", tmp_path / f"trace-{at}"
        home.parent.mkdir()
        disk = Disk([home.parent])
        traced(crashes, home, trace, NEW, at=at)
        rows = traced(crashes, home, trace, NEW)
        record, blobs = layout_paths(home, NEW)
        renames = 0
        for _, name, path, second, detail in rows:
            disk.call(name, path, second, detail)
            renames += (name, second) == ("rename", record)
            if renames:
                shared = set(disk.chain(record))
                lost = [step for blob in blobs for step in disk.lost(blob) if step not in shared]
                assert lost == [], f"killed at call {at}, published again"
        assert renames


@pytest.mark.feature("S3")
def test_power_cuts_lose_no_published_record_and_damage_none(crashes, tmp_path):
    """Replay what a disk may hold after a cut at each call: all that is durable, and any part of the rest."""
    chosen = random.Random(20260102)
    home = tmp_path / "disk" / "home"
    home.parent.mkdir()
    disk = Disk([home.parent])
    # What each file of the store holds, by name; a record's document changes with the publish.
    bodies = {}
    published = []
    replays = losses = 0
    for number, made in enumerate((OTHER, OLD, NEW)):
        rows = traced(crashes, home, tmp_path / f"trace-{number}", made)
        record, _ = layout_paths(home, made)
        raw = encode(made[0])
        known = {**made[1], hashlib.sha256(raw).hexdigest(): raw}
        for position, (_, name, path, second, detail) in enumerate(rows):
            disk.call(name, path, second, detail)
            if name == "rename" and second == record:
                bodies[disk.now[second]] = raw
            elif name == "rename" and Path(second).name in known and "/blobs/" in second:
                bodies[disk.now[second]] = known[Path(second).name]
            if position == len(rows) - 1:
                published = [pair for pair in published if pair[0].key != made[0].key] + [made]
            for unlucky in (True, False, False):
                folder = tmp_path / "replay"
                losses += _write_replay(disk, bodies, home, folder, chosen, unlucky=unlucky)
                replays += 1
                assert_whole(folder, OTHER, OLD, NEW)
                store = Watched(folder).store
                for pair in published:
                    if pair[0].key != made[0].key or position == len(rows) - 1:
                        assert find(store, pair[0]) == pair[0]
                shutil.rmtree(folder)
    assert replays >= 500
    assert losses > 100, "there was something to lose"


def _write_replay(disk, bodies, home, folder, chosen, *, unlucky):
    """Write what survives; returns how many names or contents were lost."""
    folder.mkdir()
    lost = 0
    view = {}
    for path in {*disk.now, *disk.kept}:
        sides = [disk.kept.get(path), disk.now.get(path)]
        view[path] = sides[0] if unlucky else chosen.choice(sides)
        lost += view[path] != sides[1]
    for path in sorted(view):
        inside = os.path.relpath(path, home)
        if view[path] is None or inside.startswith("..") or inside == ".":
            continue
        chain = [str(step) for step in Path(path).parents if str(step) in view]
        if any(view[step] is None for step in chain):
            continue
        target = folder / inside
        if view[path] == "folder":
            target.mkdir()
            continue
        body = bodies.get(view[path])
        if body is None:
            continue  # unfinished files and notes, which nothing believes
        if view[path] not in disk.clean:
            lost += 1
            body = chosen.choice([b"", bytes(len(body)), body[: len(body) // 2]])
        target.write_bytes(body)
    return lost


# A disk that fails


@pytest.mark.parametrize(
    "code, inline, every",
    [
        pytest.param(errno.ENOSPC, True, 3, id="full-some"),
        pytest.param(errno.ENOSPC, True, 1, id="full-all", marks=pytest.mark.slow),
        pytest.param(errno.ENOSPC, False, 1, id="full-all-process", marks=pytest.mark.slow),
        pytest.param(errno.EROFS, True, 1, id="read-only-all", marks=pytest.mark.slow),
        pytest.param(errno.EIO, True, 1, id="broken-all", marks=pytest.mark.slow),
    ],
)
def test_a_warm_on_a_failing_disk_says_so_and_loses_nothing(crashes, tmp_path, code, inline, every):
    """From each call on: the answer is an error of ours or success, and the store is as good as before."""
    base = tmp_path / "base"
    watched = Watched(base, compiler=StandIn(graphs=1))
    kept = warm(watched.session, watched.prepare(recipe(4))).record
    how = {"inline": inline, "graphs": 1}
    count = crashes(shutil.copytree(base, tmp_path / "count"), "warm", **how)["calls"]
    answers = {}
    unforeseen = {}
    for at in range(1, count + 1, every):
        home = shutil.copytree(base, tmp_path / f"home-{at}")
        answer = crashes(home, "warm", at=at, errno=code, **how)
        answers.setdefault(answer["error"], at)
        if answer["error"] not in {"", "StoreError", "TrainingError"}:
            unforeseen.setdefault(answer["traceback"].strip().splitlines()[-1].replace(str(home), ""), []).append(at)
        elif answer["error"] == "StoreError":
            assert answer["hint"]
        again = Watched(home, wait=0, compiler=StandIn(graphs=1))
        assert find(again.store, kept) == kept
        prepared = again.prepare(recipe())
        found = again.lookup(prepared)
        assert found or answer["error"], "a warm that ends well has published"
        assert again.damage() == []
        assert warm(again.session, prepared).compiled == (0 if found else 1)
        assert again.restored(prepared.key, again.lookup(prepared)) == module_files(prepared, again.compiler)
        shutil.rmtree(home)
    assert unforeseen == {}
    assert "StoreError" in answers


def test_a_disk_that_fills_up_as_the_worker_starts_is_said_to_be_full(crashes, tmp_path):
    """Its job and its log are files too."""
    how = {"graphs": 1, "inline": False}
    assert not crashes(tmp_path / "whole", "warm", trace=tmp_path / "trace", **how)["error"]
    rows = [(number, name, path) for number, name, path, *_ in calls(tmp_path / "trace")]
    moments = [
        number for number, name, path in rows if name in {"open", "write"} and path.endswith(("/job.json", ".log"))
    ]
    assert len(moments) >= 3
    for at in moments:
        answer = crashes(tmp_path / f"{at}", "warm", at=at, errno=errno.ENOSPC, **how)
        assert answer["error"] in {"StoreError", "TrainingError"}, answer["traceback"]
        assert answer["hint"]


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
        command = [sys.executable, str(TESTS / "run_warm.py"), "warm", "--home", str(home), "--batch", str(batch)]
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
        with Flight(watched.store.layout.locks, prepared.key, "test").lead(0, lambda *_: None):
            pass
        found = watched.lookup(prepared)
        done = warm(watched.session, prepared, recache=True)
        assert done.compiled == 3
        assert watched.lookup(prepared) == done.record
        assert watched.restored(prepared.key, done.record) == module_files(prepared, watched.compiler)
        assert found is None or found.modules == done.record.modules
        assert leftovers_of(home) == set()
        assert {path.suffix for path in (home / "v1" / "locks").iterdir()} == {".lock"}, "no note of a holder stays"
        for path in (home / "v1" / "journal").rglob("*.jsonl"):
            assert {event["verb"] for event in read(path)[:1]} <= {"warm"}
    assert halted >= moments / 2


@pytest.mark.feature("S2", "C3")
def test_a_warm_killed_at_random_moments(tmp_path):
    campaign(tmp_path, 12, seed=12)


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
            [sys.executable, str(TESTS / "run_warm.py"), "warm", "--home", str(home)],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    ) as child:
        assert child.wait() == -signal.SIGKILL
        until(lambda: not processes_of(home), "the worker's end")
    assert runs(log) == []
