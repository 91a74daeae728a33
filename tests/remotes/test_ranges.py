import random
import threading
import time

import pytest

from cachekit.errors import RemoteError
from cachekit.remotes import ranges
from cachekit.remotes.ranges import in_order


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(ranges, "RANGE", 1000)


class Line:
    """Gives pieces of a file; remembers the ranges that were asked for, and how many were under way at once."""

    def __init__(self, data, fail=None):
        self.data, self.fail = data, fail
        self.asked, self.most, self.now = [], 0, 0
        self.lock = threading.Lock()

    def __call__(self, start, end):
        with self.lock:
            self.asked.append((start, end))
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            for at in range(start, end or len(self.data), 300):
                time.sleep(random.random() / 2000)
                if self.fail is not None and at >= self.fail:
                    raise RemoteError("cut")
                yield self.data[at : min(at + 300, end or len(self.data))]
        finally:
            with self.lock:
                self.now -= 1


def test_ranges_come_in_order():
    for start in [0, 1, 999]:
        for size in [2000, 2001, 20_000, 33_333]:
            line = Line(random.Random(size).randbytes(size))
            assert b"".join(in_order(line, start, size, 4)) == line.data[start:]
            assert line.most <= 4
            if size - start >= 2000:
                assert sorted(line.asked) == [(at, min(at + 1000, size)) for at in range(start, size, 1000)]


@pytest.mark.parametrize(("size", "count"), [(1999, 4), (0, 4), (20_000, 1)])
def test_what_is_small_or_has_one_connection_is_one_question(size, count):
    line = Line(bytes(size))
    assert b"".join(in_order(line, 0, size, count)) == line.data
    assert line.asked == [(0, None)]


def test_what_came_before_an_error_is_given():
    line, came = Line(random.Random(1).randbytes(20_000), fail=7_500), []
    with pytest.raises(RemoteError, match="cut"):
        came.extend(in_order(line, 0, 20_000, 4))
    assert b"".join(came) == line.data[:7_600]


def test_nobody_runs_far_ahead_of_who_takes_the_bytes():
    line = Line(bytes(50_000))
    pieces = in_order(line, 0, 50_000, 4)
    next(pieces)
    while line.now or len(line.asked) < 5:
        time.sleep(0.01)
    time.sleep(0.05)
    assert max(line.asked) == (4000, 5000)  # the one that is taken, and four more
    pieces.close()
    assert len(line.asked) == 5
