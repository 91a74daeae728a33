"""One key, one host: one compiles and the others wait, take over, or give up in time."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest

from cachekit.errors import WaitedTooLongError
from cachekit.store.compile_lock import CompileLock
from cachekit.verbs.warm import warm
from tests.support.processes import alive, ended, side_by_side, until
from tests.support.standins import RECIPE_YAML, RUN_WARM, Watched, compiles, garbage_of, recipe, runs
from tests.verbs.verb_cases import home, log  # noqa: F401 - fixtures

LONG = "100"  # seconds a graph: a compile that does not end by itself while a test runs


@contextmanager
def process(*arguments, **environment):
    """cachekit with the stand-in compiler, in a process of its own."""
    with ended(
        subprocess.Popen(
            [sys.executable, RUN_WARM, *map(str, arguments)],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    ) as child:
        yield child


@contextmanager
def holder(home, log, **environment):
    """A process that holds the key of the recipe while its worker compiles; gives it and the worker's run."""
    before = len(runs(log))
    with process("warm", "--home", home, STANDIN_DELAY=LONG, **environment) as child:
        run = until(lambda: runs(log)[before:], "the worker's start")[0]
        yield child, run


# One compile


@pytest.mark.campaign
@pytest.mark.feature("C1")
def test_64_processes_compile_one_key_once(home, log, monkeypatch):
    monkeypatch.setenv("STANDIN_DELAY", "0.2")

    def work(number):
        watched = Watched(home, inline=False)
        done = warm(watched.session, watched.prepare())
        return [done.compiled, done.record.key, watched.damage()]

    answers = side_by_side(64, work)
    assert len(compiles(log)) == 1
    assert len(runs(log)) == 1
    key = Watched(home).prepare().key
    assert sorted(answers, key=lambda answer: answer and answer[0]) == [[0, key, []]] * 63 + [[3, key, []]]
    assert garbage_of(home) == set()


@pytest.mark.slow
@pytest.mark.feature("C1")
def test_each_of_100_crowds_compiles_once(home, log):
    def work(number):
        watched = Watched(home, inline=False)
        return warm(watched.session, watched.prepare(recipe(crowd))).compiled

    for crowd in range(1, 101):
        assert sorted(side_by_side(8, work)) == [0] * 7 + [3]
        assert len(compiles(log)) == crowd


@pytest.mark.feature("C3")
def test_different_keys_do_not_wait_for_each_other_and_one_names_its_holder(home, log):
    with holder(home, log) as (child, _):
        watched = Watched(home, wait=0)
        assert warm(watched.session, watched.prepare(recipe(16))).compiled == 3
        with pytest.raises(WaitedTooLongError) as caught:
            warm(watched.session, watched.prepare())
        assert re.match(rf"process {child.pid} of \w+@{socket.gethostname()}", caught.value.cause)
        assert alive(child.pid), "whoever gives up leaves the holder alone"


def test_runs_side_by_side_do_not_harvest_each_others_modules(home, log):
    def work(number):
        watched = Watched(home, inline=False)
        prepared = watched.prepare(recipe(1 + number))
        record = warm(watched.session, prepared).record
        return [sorted(module.name for module in record.modules)]

    answers = [names for (names,) in side_by_side(3, work)]
    assert {len(names) for names in answers} == {3}
    assert len({name for names in answers for name in names}) == 9


def test_logs_of_runs_side_by_side_lie_in_the_store(home):
    def work(number):
        session = Watched(home).session
        return all(home in session.log.parents for _ in range(300))

    assert side_by_side(4, work) == [True] * 4


# Waiting


def test_a_waiter_finds_what_the_holder_made(home, log, monkeypatch):
    with process("warm", "--home", home, STANDIN_DELAY="0.4") as child:
        until(lambda: runs(log), "the worker's start")
        watched = Watched(home)
        done = warm(watched.session, watched.prepare())
        assert (done.compiled, done.plan.hit) == (0, False)
        assert done.waited_seconds > 0
        assert child.wait() == 0
    assert len(runs(log)) == 1


# Takeover


@pytest.mark.feature("C3")
def test_a_waiter_takes_over_from_a_holder_that_was_killed(home, log):
    with holder(home, log) as (child, run), ExitStack() as stack:
        waiters = [stack.enter_context(process("warm", "--home", home)) for _ in range(2)]
        for waiter in waiters:
            assert waiter.stderr.readline() == "start\n"
        child.send_signal(signal.SIGKILL)
        answers = [json.loads(waiter.communicate()[0]) for waiter in waiters]
        assert sorted(answer["compiled"] for answer in answers) == [0, 3]
        assert not alive(run["pid"])
    assert len(compiles(log)) == 2, "the killed one and one more"
    assert garbage_of(home) == set()


@pytest.mark.feature("C3")
def test_a_holder_whose_worker_dies_fails_and_the_next_one_compiles(home, log):
    with holder(home, log) as (child, run), process("warm", "--home", home) as waiter:
        assert waiter.stderr.readline() == "start\n"
        os.kill(run["pid"], signal.SIGKILL)
        answer, _ = child.communicate()
        assert child.returncode == 1
        assert "SIGKILL" in json.loads(answer)["error"]["message"]
        assert json.loads(waiter.communicate()[0])["compiled"] == 3
        assert waiter.returncode == 0


def test_a_stale_or_torn_note_of_a_holder_locks_nothing(home, log):
    watched = Watched(home, wait=0)
    prepared = watched.prepare()
    locks = watched.store.layout.locks
    locks.mkdir(parents=True)
    for note in ('{"pid": 1, "host": "h", "user": "u", "since": 0, "recipe": "r"}', '{"pid": 1', "", "[]"):
        (locks / f"{prepared.key}.json").write_text(note)
        (locks / f"{prepared.key}.lock").write_text("")
        assert warm(watched.session, prepared, recache=True).compiled == 3


def test_a_lock_that_is_held_by_nobody_known_is_reported_as_that(home):
    store = Watched(home).store
    locks = store.layout.locks

    def holding():
        return CompileLock(store.layout, "k", "toy", store.rwlock).hold(0, lambda *_: None)

    with holding():
        (locks / "k.json").write_text("torn")
        with pytest.raises(WaitedTooLongError) as caught, holding():
            pass
    assert "an unknown process" in caught.value.cause


@pytest.mark.slow
@pytest.mark.feature("C3")
def test_takeover_200_times(home, log):
    for number in range(1, 201):
        with holder(home, log) as (child, run), process("warm", "--home", home, "--recache") as waiter:
            assert waiter.stderr.readline() == "start\n"
            child.send_signal(signal.SIGKILL)
            assert json.loads(waiter.communicate()[0])["compiled"] == 3
            assert not alive(run["pid"])
        assert len(compiles(log)) == 2 * number
        for path in (home / "v1" / "records").rglob("*.json"):
            path.unlink()


# Ctrl-C


def test_ctrl_c_while_waiting(home, log, tmp_path):
    (tmp_path / "toy.yaml").write_text(RECIPE_YAML)
    with holder(home, log) as (child, run), process("cli", "warm", tmp_path / "toy.yaml", "--home", home) as waiter:
        told = [waiter.stderr.readline()]
        until(lambda: f"process {child.pid}" in told[-1] or told.append(waiter.stderr.readline()), "the note")
        waiter.send_signal(signal.SIGINT)
        waiter.communicate()
        assert waiter.returncode == 130
        assert alive(run["pid"]), "the other one's worker is none of its business"


def test_ctrl_c_in_training_keeps_the_record(home, log, tmp_path):
    first = Watched(home)
    record = warm(first.session, first.prepare()).record
    (tmp_path / "toy.yaml").write_text(RECIPE_YAML)
    with process(
        *("cli", "train", tmp_path / "toy.yaml", "--home", home, "--output-dir", tmp_path / "out"),
        STANDIN_DELAY=LONG,
        STANDIN_EXTRA="1",
    ) as child:
        run = until(lambda: runs(log)[1:], "the worker's start")[0]
        assert (run["mode"], run["found"]) == ("train", 3)
        child.send_signal(signal.SIGINT)
        child.communicate()
    assert child.returncode == 130
    until(lambda: not alive(run["pid"]), "the worker's end")
    assert Watched(home).lookup(first.prepare()) == record
    assert garbage_of(home) == set()
