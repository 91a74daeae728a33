"""Calls that may never come back: what is waited for, and what is not."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cachekit.errors import RemoteError
from cachekit.remotes.deadline import Progress, bounded, parallel, streamed

NEVER = threading.Event()


def test_a_call_in_time_returns_and_raises_its_own():
    assert bounded(lambda: 7, 5, "count") == 7
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 // 0, 5, "count")
    with pytest.raises(KeyboardInterrupt):
        bounded(lambda: (_ for _ in ()).throw(KeyboardInterrupt), 5, "count")


@pytest.mark.feature("R4")
def test_a_panic_of_a_client_is_an_error_like_others():
    """Rust's: pyo3 makes a BaseException of it, which would end the whole run."""

    class PanicException(BaseException):
        pass

    def panic():
        raise PanicException

    for call in (
        lambda: bounded(panic, 5, "a test"),
        lambda: list(streamed(lambda: iter(panic, None), 5, "a test")),
        lambda: parallel([panic, panic], 2, "a test"),
    ):
        with pytest.raises(RemoteError, match="its client failed"):
            call()


def test_a_call_that_hangs_is_left_behind():
    with pytest.raises(RemoteError, match="s3://team: look: no answer") as caught:
        bounded(NEVER.wait, 0.05, "s3://team: look")
    assert caught.value.cause == "nothing came for 0.05 s"


def test_progress_moves_the_deadline():
    progress = Progress()

    def work() -> str:
        for _ in range(8):
            NEVER.wait(0.2)
            progress()
        return "done"

    assert bounded(work, 1.0, "send", progress) == "done"  # 1.6 s in all


def test_a_stream_yields_until_its_end_its_error_or_silence():
    assert list(streamed(lambda: iter("abc"), 5, "read")) == ["a", "b", "c"]
    assert list(streamed(lambda: range(1000), 5, "read")) == list(range(1000))

    def broken():
        yield 1
        raise OSError("cut")

    with pytest.raises(OSError, match="cut"):
        list(streamed(broken, 5, "read"))

    def silent():
        yield 1
        NEVER.wait()

    got = []
    with pytest.raises(RemoteError, match="no answer"):
        got.extend(streamed(silent, 0.05, "read"))


def test_whoever_stops_reading_stops_the_reader():
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield b"x"
        finally:
            closed.set()

    stream = streamed(endless, 5, "read")
    assert next(stream) == b"x"
    stream.close()
    assert closed.wait(30)


def test_parallel_keeps_the_order_and_raises_the_first_error():
    assert parallel([lambda n=n: n * n for n in range(50)], 4, "look") == [n * n for n in range(50)]
    assert parallel([], 4, "look") == []
    begun = []

    def one(number):
        begun.append(number)
        if number == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        parallel([lambda n=n: one(n) for n in range(200)], 1, "look")
    assert begun == [0, 1, 2, 3]


@pytest.mark.feature("R4")
def test_a_process_ends_whatever_is_still_under_way():
    code = """
import threading, sys
from cachekit.errors import RemoteError
from cachekit.remotes.deadline import bounded, streamed
for call in (lambda: bounded(threading.Event().wait, 0.05, "look"),
             lambda: list(streamed(lambda: iter(threading.Event().wait, None), 0.05, "read"))):
    try:
        call()
    except RemoteError:
        print("late")
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["late", "late"]
