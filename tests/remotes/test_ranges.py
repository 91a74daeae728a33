import hashlib
import random
import threading
import time
from types import SimpleNamespace

import pytest

from cachekit.errors import RemoteError
from cachekit.remotes import fetch_files, ranges
from cachekit.remotes.fetch_files import Fetch, WantedFile
from cachekit.remotes.ranges import in_order
from tests.support.standins import Watched


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


def test_what_came_on_a_slow_line_is_handed_on_before_the_range_is_whole(monkeypatch):
    monkeypatch.setattr(ranges, "HANDED_AFTER", 0.0)
    taken = threading.Event()

    def chunks(start, end):
        yield bytes(300)
        assert start or taken.wait(60)
        yield bytes(end - start - 300)

    pieces = in_order(chunks, 0, 4000, 4)
    assert len(next(pieces)) == 300
    taken.set()
    assert sum(map(len, pieces)) == 3700


def test_what_comes_in_ranges_before_their_turn_counts_for_the_speed(tmp_path, monkeypatch):
    """Eight ranges come side by side, in 10 s; of them the first is an eighth of what comes."""
    for module in (ranges, fetch_files):
        monkeypatch.setattr(module, "RANGE", 1 << 16)
    monkeypatch.setattr(ranges, "HANDED", 1 << 12)
    monkeypatch.setattr(fetch_files, "LOOK_SECONDS", 2.0)
    data, together, lock = random.Random(3).randbytes(8 << 16), threading.Barrier(8), threading.Lock()
    came = [0]
    monkeypatch.setattr(fetch_files, "time", SimpleNamespace(monotonic=lambda: 10 * came[0] / len(data)))

    def chunks(path, revision, start, end):
        for at in range(start, end, 1 << 12):
            together.wait(60)
            with lock:
                came[0] += 1 << 12
            yield data[at : at + (1 << 12)]

    store = Watched(tmp_path).store
    storage = SimpleNamespace(name="line", lines=8, compares=True, chunks=chunks, expect=lambda *_: None)
    digest = hashlib.sha256(data).hexdigest()
    (tmp_path / "workspace").mkdir()
    fetch = Fetch(store, storage, "", tmp_path / "workspace", worth=15.0)
    found = fetch.all([WantedFile("model.neff", len(data), digest, digest.__eq__)])
    assert found[digest].path.read_bytes() == data
