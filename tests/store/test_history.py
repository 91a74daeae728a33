"""Sums of runs outlive their journals: each run counts once, whoever removes them and whenever that is killed."""

import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

import pytest

from cachekit.errors import UnknownNameError
from cachekit.events import Journal
from cachekit.store import Store
from cachekit.store import history as module
from cachekit.store.history import folder, history, retire
from cachekit.store.layout import Layout
from cachekit.verbs.stats import stats
from cachekit.verbs.trace import trace
from cachekit.verbs.why_run import why_run
from tests.support.standins import side_by_side
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
    with pytest.raises(UnknownNameError, match="was removed"):
        stats(layout, run=gone)


def test_what_was_counted_is_not_read_again_until_it_changes(layout, monkeypatch):
    expected = said(layout)
    counted = []
    count = module.count
    monkeypatch.setattr(module, "count", lambda raw: counted.append(1) or count(raw))
    assert (said(layout), counted) == (expected, [])
    grown = next(iter(sorted(layout.journal.rglob("*.jsonl"))))
    with grown.open("a") as stream:
        stream.write(json.dumps({"event": "cache.bypass", "reason": "recache"}) + "\n")
    assert stats(layout).total.bypasses == {"recache": 1}
    assert len(counted) == 1


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


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"schema": 99, "runs": {}}', b'{"schema": 1, "runs": {"x": [1]}}', b"\xff"]
)
def test_a_memory_that_is_damaged_or_gone_is_made_again(layout, raw):
    expected = said(layout)
    memory = folder(layout) / "runs.json"
    good = memory.read_bytes()
    memory.write_bytes(raw)
    assert said(layout) == expected
    assert memory.read_bytes() == good
    memory.unlink()
    assert said(layout) == expected


def test_a_store_that_cannot_be_written_is_counted_all_the_same(layout, monkeypatch):
    expected = said(layout)
    (folder(layout) / "runs.json").unlink()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_write", full)
    assert said(layout) == expected
    assert retire(layout, DAYS, NOW) == 0, "nothing is removed whose sums could not be kept"
    assert said(layout) == expected


@pytest.mark.parametrize("error", [KeyboardInterrupt, PermissionError])
def test_kept_and_not_removed_a_run_counts_once(layout, monkeypatch, error):
    """Whoever removes journals is killed after the first month's sums, or may not remove a file."""
    expected, there = said(layout), journals(layout)
    unlink = Path.unlink

    def fails(path, **options):
        if path.suffix == ".jsonl":
            raise error
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fails)
        with suppress(KeyboardInterrupt):
            assert retire(layout, DAYS, NOW) == 0
    assert journals(layout) == there
    assert history(layout).removed
    assert said(layout) == expected
    # Ten days more, of a month whose sums have the others already.
    assert retire(layout, DAYS - 10, NOW) > 20
    assert said(layout) == expected


def test_several_at_once_lose_nothing_and_count_nothing_twice(layout):
    expected, there = said(layout), journals(layout)
    removed = side_by_side(6, lambda number: retire(layout, DAYS, NOW))
    assert sum(removed) + retire(layout, DAYS, NOW) == len(there) - len(journals(layout))
    assert said(layout) == expected


def test_kills_at_any_moment_lose_nothing(layout):
    """Processes that remove journals, a few days more each time, are killed at random moments."""
    expected, rnd = said(layout), random.Random(1)
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


def test_sums_that_are_damaged_are_told_and_set_aside(layout):
    retire(layout, DAYS, NOW)
    month = min(folder(layout).glob("2*.json"))
    month.write_bytes(b"{")
    assert [problem.partition(":")[0] for problem in stats(layout).problems] == [str(month)]
    run = Written(layout.home, "warm", time.mktime(time.strptime(month.stem + "15", "%Y%m%d")))
    run.end(1)
    aged(layout)
    assert retire(layout, DAYS, NOW) == 1
    (problem,) = stats(layout).problems
    assert "set aside" in problem
    assert [path.read_bytes() for path in folder(layout).glob("*.damaged-*")] == [b"{"]


def test_sums_of_a_later_version_are_left_alone(layout):
    retire(layout, DAYS, NOW)
    month = min(folder(layout).glob("2*.json"))
    later = json.dumps({**json.loads(month.read_text()), "schema": 2, "more": 1})
    month.write_text(later)
    run = Written(layout.home, "warm", time.mktime(time.strptime(month.stem + "15", "%Y%m%d")))
    run.end(1)
    aged(layout)
    assert retire(layout, DAYS, NOW) == 0
    assert (month.read_text(), run.path.exists()) == (later, True)
    assert "newer" in stats(layout).problems[0]


def test_other_old_files_of_the_journal_are_removed(tmp_path):
    layout = Layout(tmp_path)
    for name in ("202601/notes.txt", "202601/not-a-run.jsonl", "stray"):
        path = layout.journal / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        os.utime(path, (NOW - 40 * 86_400,) * 2)
    assert retire(layout, DAYS, NOW) == 3
    assert retire(Layout(tmp_path / "none"), DAYS, NOW) == 0
    assert not (tmp_path / "none").exists()


def test_who_counts_while_journals_are_removed_counts_every_run_once(layout):
    expected = said(layout)

    def work(number):
        if number == 0:
            for days in range(100, -1, -2):
                retire(layout, days, NOW)
            return []
        return [document for _ in range(40) if (document := said(layout)) != expected]

    assert side_by_side(3, work) == [[], [], []]
