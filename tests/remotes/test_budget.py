"""Calls that may never come back: what is waited for, and what is not."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cachekit import calls
from cachekit.calls import CallProgress, Calls
from cachekit.errors import BusyError, ConflictError, RemoteError, UncertainError
from cachekit.remotes.budget import Retry, each
from cachekit.remotes.publish import publish
from cachekit.remotes.push import offer
from cachekit.verbs.warm import warm
from tests.remotes.jumping_clock import Passing
from tests.remotes.memory_remote import MemoryRemote
from tests.support.standins import Watched

NEVER = threading.Event()
CALLS = Calls("s3://team")


def test_a_call_in_time_returns_and_raises_its_own():
    assert CALLS.run(lambda: 7, 5, "count") == 7
    with pytest.raises(ZeroDivisionError):
        CALLS.run(lambda: 1 // 0, 5, "count")
    with pytest.raises(KeyboardInterrupt):
        CALLS.run(lambda: (_ for _ in ()).throw(KeyboardInterrupt), 5, "count")


@pytest.mark.feature("R4")
def test_a_panic_of_a_client_is_an_error_like_others():
    """Rust's: pyo3 makes a BaseException of it, which would end the whole run."""

    class PanicException(BaseException):
        pass

    def panic():
        raise PanicException

    for call in (
        lambda: CALLS.run(panic, 5, "a test"),
        lambda: list(CALLS.stream(lambda: iter(panic, None), 5, "a test")),
        lambda: each([lambda: CALLS.run(panic, 5)] * 2, 2),
    ):
        with pytest.raises(RemoteError, match="its client library failed"):
            call()


def test_a_call_that_hangs_is_left_behind():
    with pytest.raises(RemoteError, match="s3://team: look: no answer") as caught:
        CALLS.run(NEVER.wait, 0.05, "look")
    assert caught.value.cause == "nothing, or less than 4 kB a second, came for 0.05 s"


def test_progress_moves_the_deadline():
    progress = CallProgress()

    def work() -> str:
        for _ in range(8):
            NEVER.wait(0.2)
            progress()
        return "done"

    assert CALLS.run(work, 1.0, "send", progress) == "done"  # 1.6 s in all


def test_a_stream_yields_until_its_end_its_error_or_silence():
    assert list(CALLS.stream(lambda: iter("abc"), 5, "read")) == ["a", "b", "c"]
    assert list(CALLS.stream(lambda: range(1000), 5, "read")) == list(range(1000))

    def broken():
        yield 1
        raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        list(CALLS.stream(broken, 5, "read"))

    def silent():
        yield 1
        NEVER.wait()

    got = []
    with pytest.raises(RemoteError, match="no answer"):
        got.extend(CALLS.stream(silent, 0.05, "read"))


def test_whoever_stops_reading_stops_the_reader():
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield b"x"
        finally:
            closed.set()

    stream = CALLS.stream(endless, 5, "read")
    assert next(stream) == b"x"
    stream.close()
    assert closed.wait(30)


def test_parallel_keeps_the_order_and_raises_the_first_error():
    assert each([lambda n=n: n * n for n in range(50)], 4) == [n * n for n in range(50)]
    assert each([], 4) == []
    begun = []

    def one(number):
        begun.append(number)
        if number == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        each([lambda n=n: one(n) for n in range(200)], 1)
    assert begun == [0, 1, 2, 3]


@pytest.mark.feature("R4")
def test_a_process_ends_whatever_is_still_under_way():
    code = """
import threading, sys
from cachekit.errors import RemoteError
from cachekit.calls import Calls
from cachekit.remotes.budget import each
calls = Calls("s3://team")
hang = threading.Event().wait
late = lambda: calls.run(hang, 0.05, "look")
for call in (late, lambda: list(calls.stream(lambda: iter(hang, None), 0.05, "read")), lambda: each([hang, late], 2)):
    try:
        call()
    except RemoteError:
        print("late")
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["late"] * 3


@pytest.mark.feature("R4")
def test_only_so_many_calls_may_hang():
    """A thread in the kernel never ends by itself."""
    calls, release = Calls("/mnt/efs", hanging=3), threading.Event()
    for _ in range(3):
        with pytest.raises(UncertainError):
            calls.run(release.wait, 0.02, late=UncertainError)
    with pytest.raises(RemoteError, match="no answer") as caught:
        calls.run(lambda: 7, 5, late=UncertainError)
    assert not isinstance(caught.value, UncertainError)  # it never began
    release.set()
    assert calls_again(calls) == 7


def calls_again(calls):
    while True:
        try:
            return calls.run(lambda: 7, 5)
        except RemoteError:
            NEVER.wait(0.01)


def test_a_call_has_what_its_caller_has_in_its_context():
    variable = contextvars.ContextVar("whose")
    variable.set("mine")
    assert CALLS.run(variable.get, 5) == "mine"


class TestRetry:
    """Pauses grow, a remote that says how long to wait is never asked sooner, and the time has an end."""

    RETRY = Retry(seconds=100.0, first=1.0, factor=2.0, most=8.0)

    def test_pauses_grow_up_to_the_longest(self):
        for attempt, middle in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (9, 8.0), (10_000, 8.0)]:
            assert 0.5 * middle <= self.RETRY.pause(RemoteError("x"), attempt, 0.0) <= 1.5 * middle

    def test_what_a_remote_asks_for_is_kept(self):
        assert 30.0 <= self.RETRY.pause(BusyError("x", wait=30.0), 1, 0.0) <= 39.0

    def test_the_time_has_an_end(self):
        assert self.RETRY.pause(RemoteError("x"), 1, 99.6) is None
        assert self.RETRY.pause(BusyError("x", wait=120.0), 1, 0.0) is None


def test_after_an_error_what_runs_beside_it_has_ended():
    begun, ended = threading.Event(), []

    def fails():
        begun.wait()
        raise ValueError("no")

    def goes_on():
        begun.set()
        threading.Event().wait(0.1)  # it is at work when the other one fails
        ended.append(True)

    with pytest.raises(ValueError, match="no"):
        each([fails, goes_on], 2)
    assert ended


# A push


class Sent(MemoryRemote):
    """A remote to which files go slowly, and whose first commits are answered otherwise.

    Attributes:
        may_take: Seconds that each commit was given.
    """

    def __init__(self, clock, *errors, sending=0.0, takes=0.0):
        super().__init__(scarce=True)
        self.clock, self.errors, self.sending, self.takes = clock, list(errors), sending, takes
        self.may_take = []

    def upload(self, files, revision, tell):
        self.clock.passed += self.sending
        super().upload(files, revision, tell)

    def commit(self, change, revision):
        self.may_take.append(calls.left())
        if self.errors:
            self.clock.passed += self.takes
            raise self.errors.pop(0)
        return super().commit(change, revision)


def published_to(storage, clock, seconds, tmp_path):
    ann = Watched(tmp_path / "ann")
    made = warm(ann.session, ann.prepare()).record
    return publish(storage, [offer(ann.store, made)], seconds=seconds, clock=clock, wait=lambda s, _: clock.sleep(s))


@pytest.mark.feature("R4")
def test_a_push_whose_files_took_long_runs_a_lost_race_again(tmp_path):
    """While files are sent, others commit."""
    clock = Passing()
    lost = ConflictError("somebody else wrote in the meantime")
    done = published_to(Sent(clock, lost, BusyError("busy"), sending=600.0), clock, 20.0, tmp_path)
    assert (done.tries, bool(done.revision)) == (3, True)


@pytest.mark.feature("R8")
def test_a_commit_that_hangs_gets_no_longer_than_its_push(tmp_path):
    clock = Passing()
    lost = UncertainError("no answer")
    storage = Sent(clock, lost, lost, lost, takes=50.0)
    with pytest.raises(BusyError, match="did not take the push"):
        published_to(storage, clock, 120.0, tmp_path)
    assert [left < most for left, most in zip(storage.may_take, (121, 69, 18), strict=True)] == [True] * 3


@pytest.mark.feature("R6")
def test_one_bad_answer_to_a_change_leaves_nothing_pending(tmp_path):
    away = RemoteError("it cannot be reached")
    clock = Passing()
    assert published_to(Sent(clock, away, away), clock, 20.0, tmp_path).tries == 3
    with pytest.raises(RemoteError, match="cannot be reached"):
        published_to(Sent(clock, *[away] * 9), clock, 20.0, tmp_path)
    with pytest.raises(RemoteError, match="full"):
        published_to(Sent(clock, RemoteError("it is full", lasting=True)), clock, 20.0, tmp_path)
