"""What is durable when the power is cut, and a disk that fails: no published record is lost or damaged."""

import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from cachekit.store.record import encode
from cachekit.verbs.warm import warm
from tests.store.crash.server import calls
from tests.store.crash_cases import NEW, OLD, OTHER, assert_whole
from tests.store.crash_session import crashes  # noqa: F401 - a fixture
from tests.support.standins import StandIn, Watched, find, module_files, recipe

# What is durable, by the order of the calls

pytestmark = pytest.mark.campaign


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
    return str(layout.record(record.place)), [str(path) for path in blobs]


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
@pytest.mark.parametrize("every", [pytest.param(19, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_blobs_are_durable_before_the_record_also_after_a_killed_publish(crashes, tmp_path, every):
    """A folder that an earlier process made, and did not live to make durable, is no more durable for being there."""
    count = crashes(tmp_path / "count", "publish")["calls"]
    for at in range(1, count + 1, every):
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
@pytest.mark.parametrize("every", [pytest.param(11, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_power_cuts_lose_no_published_record_and_damage_none(crashes, tmp_path, every):
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
        known = made[1]
        for position, (_, name, path, second, detail) in enumerate(rows):
            disk.call(name, path, second, detail)
            if name == "rename" and second == record:
                bodies[disk.now[second]] = raw
            elif name == "rename" and Path(second).name in known and "/blobs/" in second:
                bodies[disk.now[second]] = known[Path(second).name]
            if position == len(rows) - 1:
                published = [pair for pair in published if pair[0].key != made[0].key] + [made]
            if position % every and position < len(rows) - 1:
                continue
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
    assert replays >= 500 / every
    assert losses > 100 / every, "there was something to lose"


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
        pytest.param(errno.ENOSPC, True, 23, id="full-some"),
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
