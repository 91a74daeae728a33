"""A fleet shares one cache: nobody's entries are lost, and one machine compiles for all; also when machines fail."""

import json
import os
import random
import re
import signal

import pytest

from cachekit.remotes import history, index, layout
from cachekit.remotes.card import COLUMNS
from tests.remotes.sharing_worker import (
    entry,
    pull_entries,
    push_at_once,
    push_entries,
    told_by,
    visible,
    warm_one,
)
from tests.remotes.storage_processes import KINDS, ending, serve, started
from tests.support.processes import until
from tests.support.standins import StandIn, Watched, compiles, module_files

ALL = [kind for kind in KINDS if kind != "seaweedfs"]
# On the other remotes each process is a fresh one, with a client to load: that takes its time.

pytestmark = pytest.mark.campaign
EACH = [pytest.param(kind, marks=[] if kind in {"hub", "s3"} else pytest.mark.slow) for kind in ALL]
SHARE = 50  # entries of a pusher


@pytest.fixture(params=EACH)
def make(request, tmp_path):
    with serve(request.param, tmp_path / "server") as opened:
        yield opened


def run(processes, seconds=900):
    """Let them all end."""
    with ending(processes):
        for process in processes:
            process.join(seconds)
        return [process.exitcode for process in processes]


# Nobody's entries are lost


def pushers(make, folder, count, together, share=SHARE):
    """So many machines push their entries at once; returns all that were pushed."""
    shares = [range(n * share, (n + 1) * share) for n in range(count)]
    codes = run([started(make, push_entries, folder / f"p{n}", shares[n], together) for n in range(count)])
    assert codes == [0] * count
    return [number for share in shares for number in share]


def all_there(make, folder, numbers):
    """A stranger's fresh home gets each entry whole; the card says how many there are."""
    assert visible(make) == {entry(number)[0].key for number in numbers}
    assert run([started(make, pull_entries, folder / "fresh", numbers)]) == [0]
    assert told_by(folder / "fresh") == {"absent": [], "wrong": [], "events": []}
    storage = make()
    return storage.read(layout.CARD, storage.revision(), 4 << 20).data.decode()


def said(card):
    """How many records a card says that there are, and how many rows it shows."""
    rows = [line for line in card.splitlines() if line.startswith("| toy |")]
    assert all(line.count("|") == len(COLUMNS) + 1 for line in rows)
    return int(re.search(r"^([\d,]+) records?\b", card, re.MULTILINE)[1].replace(",", "")), len(rows)


@pytest.mark.feature("R3")
@pytest.mark.parametrize(("count", "share"), [(6, 8), pytest.param(16, SHARE, marks=pytest.mark.slow)])
def test_many_pushers_lose_nothing(make, tmp_path, count, share):
    numbers = pushers(make, tmp_path, count, share, share=share)
    storage, few = make(), count * share < 300  # of more, each push renews neither the index nor the card
    if storage.scarce:  # one commit of each, and a card that knows of all
        assert len(list(make.repo.history(make.repo.head))) <= 1 + count
        card = storage.read(layout.CARD, storage.revision(), 4 << 20).data.decode()
        assert said(card) == (count * share, min(count * share, 200)) or not few
    # Elsewhere the last word on the card, and on the index of a bucket, have those who push next: each reads 256.
    later = range(9000, 9000 + 1 + count * share // 256)
    assert run([started(make, push_entries, tmp_path / "later", later, 1)]) == [0]
    numbers += later
    assert said(all_there(make, tmp_path, numbers))[0] == len(numbers) or not few
    base, _ = index.read(storage, storage.revision())
    known = history.after(base, storage.latest()) or base
    assert {one.key for one in known.rows()} == {entry(number)[0].key for number in numbers}


@pytest.mark.parametrize(("processes", "each"), [(4, 5), (10, 20)])
def test_the_index_has_what_hundreds_push_at_once(tmp_path, processes, each):
    """A push of one record each, all at the same moment, on a Hub that takes one commit after the other."""
    numbers = range(processes * each)
    with serve("hub", tmp_path / "server") as make:
        shares = [list(numbers[n::processes]) for n in range(processes)]
        homes = [tmp_path / f"p{n}" for n in range(processes)]
        made = [started(make, push_at_once, home, share) for home, share in zip(homes, shares, strict=True)]
        assert run(made) == [0] * processes
        assert [told_by(home)["errors"] for home in homes] == [[]] * processes
        records = {entry(number)[0].key for number in numbers}
        assert visible(make) == records
        storage = make()
        base, _ = index.read(storage, storage.revision())
        found = history.after(base, storage.latest())
        assert found is not None, "the log reaches back to the base"
        assert {one.key for one in found.rows()} == records
        page = storage.read(layout.CARD, storage.revision(), 4 << 20).data.decode()
        assert said(page)[0] == len(records)


# Not the quota of commits: after that one a push waits ten minutes (`test_hub_trouble` has its answer).
FAULTS = {
    "busy": {},
    "window": {"kind": "429-window", "on": "* /api/*", "times": 20, "seconds": 1, "chance": 0.2},
    "lag": {"kind": "lag", "times": 30, "chance": 0.3, "commits": 2},
    "landed": {"kind": "504", "on": "POST */commit/*", "times": 6, "chance": 0.5, "landed": True},
    "lost": {"kind": "504", "on": "POST */commit/*", "times": 6, "chance": 0.5},
    "dropped": {"kind": "drop", "on": "POST */commit/*", "times": 6, "chance": 0.5, "landed": True},
}


def troubled(hub, fault):
    """Make a Hub behave as a busy one does."""
    hub.overlap_409, hub.commit_seconds = True, 0.05
    if FAULTS[fault]:
        hub.fault(**FAULTS[fault])


@pytest.mark.feature("R3")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_busy_hub_loses_nothing(tmp_path, fault):
    with serve("hub", tmp_path / "server") as make:
        troubled(make.hub, fault)
        numbers = pushers(make, tmp_path, 4, 2, share=4)
        make.hub.faults.clear()
        assert said(all_there(make, tmp_path, numbers)) == (16, 16)
        # Two records each time, so eight commits and no more, but where an answer was lost.
        assert len(list(make.repo.history(make.repo.head))) <= 1 + 8 + 6 * (fault in {"landed", "dropped"})


# One machine compiles for all


def fleet(make, folder, count, **how):
    """Start so many machines that want the same key; every other clock is off."""
    log, clock = folder / "log", how.pop("clock", 0.0)
    return log, [
        started(make, warm_one, folder / f"m{n}", log, {**how, "clock": clock * (n % 2)}) for n in range(count)
    ]


def same(folder, count, log, *, at_most, without=()):
    """Whoever lived has the right modules, and not too many compiled."""
    prepared = Watched(folder / "judge").prepare()
    right = set(module_files(prepared, StandIn(graphs=2)))
    answers = [told_by(folder / f"m{n}") for n in range(count) if n not in without]
    assert all(answer and answer["modules"].keys() == right for answer in answers), answers
    assert len({json.dumps(answer["modules"]) for answer in answers}) == 1
    assert 1 <= len(compiles(log)) <= at_most
    return answers


@pytest.mark.feature("C2")
@pytest.mark.parametrize("kind", EACH)
def test_eight_machines_compile_once(kind, tmp_path):
    with serve(kind, tmp_path / "server") as make:
        # Nobody fails, so nobody need wait for a lease to end, and no busy machine may end one.
        log, processes = fleet(make, tmp_path, 8, delay=0.3, lease=30.0)
        assert run(processes) == [0] * 8
    answers = same(tmp_path, 8, log, at_most=1)
    assert sorted(answer["compiled"] for answer in answers) == [0] * 7 + [2]


def holder_of(log, processes):
    """The number of the process that compiles."""
    pid = until(lambda: compiles(log), "a compile")[0]["pid"]
    return [process.pid for process in processes].index(pid)


def fail(kind, log, process):
    """Something happens to the machine that compiles."""
    if kind == "killed":
        process.kill()
    elif kind == "stopped":
        os.kill(process.pid, signal.SIGSTOP)
    elif kind == "cut":
        log.with_name(f"log.cut-{process.pid}").touch()


def trouble(make, folder, kind, count, delay=1.0):
    """One repeat: a fleet, of which the machine that compiles fails while it does."""
    # A sign of life that is a commit takes its time among those of all the others.
    lease = 6 * delay + 12 if make().scarce else 2.0
    clock = 3600.0 * (kind == "clock")
    log, processes = fleet(make, folder, count, delay=delay, clock=clock, lease=lease)
    with ending(processes):
        number = holder_of(log, processes)
        fail(kind, log, processes[number])
        others = [process for n, process in enumerate(processes) if n != number]
        for process in others:
            process.join(300)
        assert [process.exitcode for process in others] == [0] * (count - 1)
        if kind == "stopped":  # it wakes up, and what it still does harms nobody
            os.kill(processes[number].pid, signal.SIGCONT)
        processes[number].join(300)
        assert (processes[number].exitcode == 0) is (kind != "killed")
    gone = {number} if kind == "killed" else set()
    same(folder, count, log, at_most=1 if kind == "clock" else 2, without=gone)
    # Whoever comes later finds it.
    assert run([started(make, warm_one, folder / f"m{count}", log)]) == [0]
    assert told_by(folder / f"m{count}")["compiled"] == 0


TROUBLES = ["killed", "stopped", "cut", "clock"]


@pytest.mark.feature("C3")
@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("hub", "killed"),
        ("hub", "clock"),
        pytest.param("folder", "stopped", marks=pytest.mark.slow),
        pytest.param("bucket", "cut", marks=pytest.mark.slow),
    ],
)
def test_somebody_takes_over(tmp_path, kind, what):
    with serve(kind, tmp_path / "server") as make:
        trouble(make, tmp_path, what, 3)


@pytest.mark.slow
@pytest.mark.feature("C2", "C3")
@pytest.mark.parametrize("repeat", range(200))
def test_somebody_takes_over_two_hundred_times(tmp_path, repeat):
    with serve(ALL[repeat % len(ALL)], tmp_path / "server") as make:
        what = TROUBLES[repeat // len(ALL) % len(TROUBLES)]
        trouble(make, tmp_path, what, 8, delay=random.Random(repeat).uniform(1, 2))
