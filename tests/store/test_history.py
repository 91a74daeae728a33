"""The figures of runs outlive their journals: each run counts once, whoever removes them, and whoever is killed."""

import os
import random
import shutil
import signal
import sys
import time
from contextlib import suppress
from subprocess import Popen

import pytest

from cachekit.errors import UnknownNameError
from cachekit.events import Journal
from cachekit.store import Store
from cachekit.store import history as module
from cachekit.store.history import history, retire
from cachekit.store.layout import Layout
from cachekit.verbs.stats import stats
from cachekit.verbs.trace import trace
from cachekit.verbs.why_run import why_run
from tests.support.processes import side_by_side
from tests.verbs.report_store import NOW, Written, train, warm

DAYS = 30


@pytest.fixture
def layout(tmp_path):
    """A store with runs of three months; the files are as old as the runs."""
    for number in range(40):
        start = NOW - number * 2.3 * 86_400
        (warm if number % 3 else train)(tmp_path, ["bert", "vit"][number % 2], start)
    broken = Written(tmp_path, "warm", NOW - 50 * 86_400, pid=5)
    broken.tell(3, "plan", recipe="bert", key="k", status="miss", remote="")
    broken.end()
    with broken.path.open("a") as stream:
        stream.write('{"event": "warm.e')
    return aged(Layout(tmp_path))


def aged(layout):
    for path in layout.journal.rglob("*.jsonl"):
        begun = time.mktime(time.strptime(path.stem[:15] + "UTC", "%Y%m%dT%H%M%S%Z")) - time.timezone
        os.utime(path, (begun, begun))
    return layout


def said(layout):
    """What `stats` answers, but for the rounding of sums that are made in another order."""
    document = stats(layout).as_dict()
    parts = {"total": document["total"]} | {
        f"{kind} {part['name']}": part["figures"]
        for kind in ("recipes", "remotes", "periods")
        for part in document[kind]
    }
    return {
        name: {figure: round(value, 1) if isinstance(value, float) else value for figure, value in found.items()}
        for name, found in parts.items()
    }


def journals(layout):
    return {path.stem for path in layout.journal.rglob("*.jsonl")}


@pytest.mark.feature("D1")
def test_no_figure_is_lost_when_journals_are_removed(layout):
    before, there = said(layout), journals(layout)
    removed = retire(layout, DAYS, NOW)
    assert 20 < removed == len(there) - len(journals(layout))
    assert said(layout) == before
    assert retire(layout, DAYS, NOW) == 0
    assert retire(layout, 0, NOW + 86_400) == len(there) - removed
    assert (journals(layout), said(layout)) == (set(), before)
    gone = min(there)
    assert stats(layout, run=gone).total.runs == 1
    with pytest.raises(UnknownNameError, match="was removed"):
        trace(layout, gone)


def test_figures_are_durable_when_their_journals_go(layout, monkeypatch):
    """The file, and each folder that names it: the first figures of a store make the last of those."""
    synced, fsync = set(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: synced.add(os.fstat(handle).st_ino) or fsync(handle))
    assert retire(layout, DAYS, NOW) > 20
    month = min(layout.stats.iterdir())
    assert {path.stat().st_ino for path in (month, month.parent, layout.state, layout.root)} <= synced


def test_a_pipe_in_a_journals_place_is_told_and_not_waited_for(layout):
    expected = said(layout)
    last = max(layout.journal.rglob("*.jsonl"), key=lambda path: path.name)
    pipe = last.with_name("99999999T000000Z-00000000.jsonl")
    os.mkfifo(pipe)
    assert said(layout) == expected
    assert any("99999999T" in problem and "regular" in problem for problem in stats(layout).problems)
    assert trace(layout, "last")["traceEvents"]
    with pytest.raises(UnknownNameError):  # these runs are none of those that `why` explains
        why_run(Store(layout.root, Journal(None, "test")))


def test_a_store_that_cannot_be_written_is_counted_all_the_same(layout, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_append", full)
        found = said(layout)
        assert retire(layout, DAYS, NOW) == 0, "nothing is removed whose figures could not be kept"
    assert said(layout) == found


@pytest.mark.parametrize("error", [KeyboardInterrupt, PermissionError])
def test_kept_and_not_removed_a_run_counts_once(layout, monkeypatch, error):
    """Whoever removes journals is killed after the first month's figures, or may not remove a file."""
    expected, there = said(layout), journals(layout)
    unlink = os.unlink

    def fails(path, **options):
        if str(path).endswith(".jsonl"):
            raise error
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fails)
        with suppress(KeyboardInterrupt):
            assert retire(layout, DAYS, NOW) == 0
    assert (journals(layout), said(layout)) == (there, expected)
    assert retire(layout, DAYS - 10, NOW) > 20
    assert said(layout) == expected


def test_who_counts_while_several_remove_journals_counts_every_run_once(layout):
    expected, there = said(layout), journals(layout)

    def work(number):
        if number < 3:
            return sum(retire(layout, days, NOW) for days in range(100, DAYS - 1, -2))
        return [document for _ in range(20) if (document := said(layout)) != expected]

    *removed, one, other = side_by_side(5, work)
    assert (one, other) == ([], [])
    assert sum(removed) == len(there) - len(journals(layout))


def test_kills_at_any_moment_lose_nothing(layout):
    """Processes that remove journals, a few days more each time, are killed at random moments."""
    expected, rnd = said(layout), random.Random(1)
    shutil.rmtree(layout.stats)
    script = (
        "import pathlib, sys\nfrom cachekit.store.history import retire\nfrom cachekit.store.layout import Layout\n"
        "print('go', flush=True)\n"
        "for days in range(100, -1, -2): retire(Layout(pathlib.Path(sys.argv[1])), days, float(sys.argv[2]))\n"
    )
    for _ in range(6):
        process = Popen([sys.executable, "-c", script, str(layout.home), str(NOW)], stdout=-1)
        process.stdout.readline()
        time.sleep(rnd.uniform(0, 0.06))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert said(layout) == expected
    assert history(layout).problems == ()


def test_half_a_line_is_no_damage_while_its_journal_is_there(layout):
    """Whoever was killed while he wrote left it; the next line begins on a new one."""
    expected = said(layout)
    for path in layout.stats.iterdir():
        path.write_bytes(path.read_bytes().rstrip(b"\n")[:-40])
    assert (said(layout), stats(layout).problems) == (expected, [])
    assert retire(layout, DAYS, NOW) > 20
    assert (said(layout), stats(layout).problems) == (expected, [])


def test_a_damaged_line_of_a_removed_journal_is_told_by_name(layout):
    retire(layout, DAYS, NOW)
    month = min(layout.stats.iterdir())
    lines = month.read_bytes().splitlines()
    month.write_bytes(b"\n".join([line.replace(b"bert", b'be"t').replace(b"vit", b'v"t') for line in lines]))
    assert stats(layout).problems
    assert all(str(month) in one and "of run 2" in one and "are damaged" in one for one in stats(layout).problems)
