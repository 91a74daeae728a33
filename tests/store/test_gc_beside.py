"""`gc` beside readers, writers, pulls, pushes, pins and checks: nobody fails, no pin is lost, the limit is kept."""

import os
import random
import time
from contextlib import suppress

import pytest

from cachekit.errors import UsageError, WaitedTooLongError
from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.push import push
from cachekit.store import removal, rwlock
from cachekit.store.compile_lock import CompileLock
from cachekit.store.gc import Keep, gc
from cachekit.verbs.entry import Named
from cachekit.verbs.records import pin, remove, unpin
from cachekit.verbs.verify import verify
from cachekit.verbs.warm import warm
from tests.store.aged_store import managed
from tests.support.processes import PATIENCE, side_by_side
from tests.support.standins import Watched, blob_bytes, find, make_record, publish, served

pytest_plugins = ["tests.support.doctor_cases"]

KEYS = 24
SIZE = 2000
LIMIT = 60_000  # bytes: about a third of what all keys need
MINUTES = float(os.environ.get("CACHEKIT_TEST_GC_MINUTES", "10"))


def made(number, salt=0):
    """A record: of files of its own, of one that its salt makes another, and of one that all records share."""
    return make_record(number, (f"own {number}", f"salted {number} {salt}", "same"), size=SIZE)


def contents(record):
    return {
        file.path: blob_bytes(file.path.removeprefix("model-").removesuffix(".code"), SIZE) for file in record.files
    }


class Roles:
    """What the processes do, again and again, until the time is over."""

    def __init__(self, home, shared, seed):
        self.chosen = random.Random(seed)
        self.watched = Watched(home, shared=[(FolderStorage(shared), "rw")])
        self.store, self.session = self.watched.store, self.watched.session
        self.count = 0

    def check(self, record):
        assert served(self.store, record) == contents(record)
        self.count += 1

    def read(self):
        with self.store.using():
            record = find(self.store, made(self.chosen.randrange(KEYS))[0])
            if record is not None:
                time.sleep(self.chosen.choice([0, 0, 0.01, 0.1]))
                self.check(record)

    def look(self):
        self.count += sum(1 for _ in self.store.records())
        find(self.store, made(self.chosen.randrange(KEYS))[0])

    def write(self):
        with self.store.using():
            record = publish(self.store, made(self.chosen.randrange(KEYS), self.chosen.randrange(3)))
            if self.chosen.random() < 0.3:
                self.check(record)
        self.count += 1

    def pull(self):
        wanted = made(self.chosen.randrange(KEYS))[0]
        found = self.session.remotes.find(wanted.place, anew=True)
        with self.store.using():
            record = self.session.fetch(found)
            assert record is not None, self.watched.events[-3:]
            self.check(record)

    def push(self):
        with self.store.using():
            record = find(self.store, made(self.chosen.randrange(KEYS))[0])
            if record is not None:
                (done,) = push(self.store, self.session.remotes, [record])
                assert done.error is None, done.error
                self.count += 1

    def verify(self):
        found = verify(self.session, quick=self.chosen.random() < 0.5)
        assert found.problems == (), found.problems[0]
        self.count += 1

    def gc(self):
        gc(
            self.session.store,
            self.session.config.compiler_cache_dir,
            Keep(max_size=self.chosen.choice([0, LIMIT, LIMIT])),
        )
        time.sleep(self.chosen.choice([0, 0.01, 0.1]))
        self.count += 1

    def pin(self):
        """Pin what is there: from then on it stays."""
        record = publish(self.store, made(KEYS + 10 + self.chosen.randrange(8)))
        pin(self.store, [Named(record.key)])
        for _ in range(3 if find(self.store, record) else 0):
            time.sleep(0.02)
            assert find(self.store, record) == record
        unpin(self.store, [Named(record.key)])
        self.count += 1

    def compile(self):
        """Compile for a moment: the lock of a key without a record, which is removed where nobody holds it."""
        key = made(KEYS + self.chosen.randrange(2))[0].key
        compile_lock = CompileLock(self.store.layout, key, "toy", self.store.rwlock)
        with compile_lock.hold(PATIENCE, lambda *_: None):
            mark = self.store.layout.home / f"at-work-{key}"
            mark.touch(exist_ok=False)  # nobody else is
            time.sleep(0.005)
            mark.unlink()
        self.count += 1

    def rm(self):
        with suppress(UsageError):  # pinned, in use, or not there
            remove(self.session, [made(self.chosen.randrange(KEYS))[0].key])
        time.sleep(0.05)
        self.count += 1


CREW = ("read", "read", "look", "write", "pull", "push", "verify", "gc", "gc", "compile", "compile", "rm", "pin")


def stress(tmp_path, seconds):
    """All roles side by side; returns what they did, for `--junitxml`."""
    home, shared = tmp_path / "home", tmp_path / "shared"
    shared.mkdir()
    watched = Watched(home, shared=[(FolderStorage(shared), "rw")])
    for number in range(KEYS):
        publish(watched.store, made(number))
    push(watched.store, watched.session.remotes, list(watched.store.records()))
    pinned = [made(number)[0].key for number in (3, 7)]
    pin(watched.store, [Named(key) for key in pinned])
    end = time.monotonic() + seconds

    def work(number):
        roles = Roles(home, shared, number)
        role = CREW[number]
        # On a busy machine the time may be over before a role has done anything.
        while time.monotonic() < end or (not roles.count and time.monotonic() < end + PATIENCE):
            getattr(roles, role)()
        damage = roles.watched.told("store.damaged")
        assert damage == [], damage[0]
        return roles.count

    counts = side_by_side(len(CREW), work)
    assert None not in counts, dict(zip(CREW, counts, strict=True))
    assert all(counts), dict(zip(CREW, counts, strict=True))
    done = watched.gc(Keep(max_size=LIMIT))
    assert done.after == sum(managed(home).values()) <= LIMIT
    assert verify(watched.session).problems == ()
    assert {record.key for record in watched.store.records()} >= set(pinned)
    for record in watched.store.records():
        assert find(watched.store, record) == record
        assert served(watched.store, record) == contents(record)
    assert watched.damage() == []
    assert list(watched.store.layout.in_use.iterdir()) == []
    done_by = [f"{role} {count}" for role, count in zip(CREW, counts, strict=True)]
    return f"{', '.join(done_by)}; {done.before} bytes, {done.after} after the last gc, of {LIMIT}"


@pytest.mark.campaign
@pytest.mark.feature("G3", "G2", "G1")
def test_for_some_seconds(tmp_path, record_testsuite_property):
    record_testsuite_property("did", stress(tmp_path, 3))


@pytest.mark.slow
@pytest.mark.feature("G3", "G2", "G1")
def test_for_ten_minutes(tmp_path, record_testsuite_property):
    record_testsuite_property("did", stress(tmp_path, MINUTES * 60))


# One at a time


def test_gc_waits_for_a_publish_and_gives_up_after_a_while(tmp_path):
    watched = Watched(tmp_path / "home")
    publish(watched.store, made(1))
    other = Watched(tmp_path / "home").store
    with other.changing(made(2)[0].key):
        with pytest.raises(WaitedTooLongError), watched.store.rwlock.write_lock(0.1):
            pass
        with other.changing(made(3)[0].key), other.rwlock.read_lock():  # while somebody waits, too
            pass
    with watched.store.rwlock.write_lock(0.1):
        pass


def test_readers_come_in_between_two_slices(tmp_path, monkeypatch):
    """However many slices there are, and however short the time is between them."""
    home = tmp_path / "home"
    for number in range(12):
        publish(Watched(home).store, made(number))
    monkeypatch.setattr(removal, "SLICE", 1)
    monkeypatch.setattr(removal, "pinned", lambda layout: time.sleep(0.15) or ())  # a slice takes its time

    def act(number):
        if number == 0:
            keys = [made(each)[0].key for each in range(11)]
            remove(Watched(home).session, keys)
            return time.monotonic()
        waits = []
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            store, start = Watched(home).store, time.monotonic()
            with store.using():
                find(store, made(11)[0])
            waits.append(time.monotonic() - start)
        return max(waits)

    _, longest = side_by_side(2, act)
    assert longest < 0.9


def test_a_removal_that_hangs_stops_nobody_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(rwlock, "PATIENCE", 0.3)
    watched = Watched(tmp_path / "home")
    publish(watched.store, made(1))
    with watched.store.rwlock.write_lock(0.1):
        start = time.monotonic()
        other = Watched(tmp_path / "home")
        with other.store.using():
            assert find(other.store, made(1)[0]) is not None
            publish(other.store, made(2))
            assert warm(other.session, other.prepare()).compiled
        assert time.monotonic() - start < 5  # and each of them waited for it once, not each time
    assert find(watched.store, made(2)[0]) is not None


@pytest.mark.feature("G3")
@pytest.mark.parametrize("end", ["left", "killed"])
def test_what_a_process_holds_stays_until_it_ends(tmp_path, end):
    """Also the blobs of a record that was replaced meanwhile."""
    home = tmp_path / "home"
    publish(Watched(home).store, made(1))
    out, told = os.pipe()
    gate_out, gate_in = os.pipe()
    pid = os.fork()
    if pid == 0:
        store = Watched(home).store
        with store.using():
            record = find(store, made(1)[0])
            os.write(told, b"held")
            os.read(gate_out, 1)
            good = served(store, record) == contents(made(1)[0])
            os.write(told, b"good" if good else b"bad!")
            if end == "killed":
                os.kill(os.getpid(), 9)
        os._exit(0)
    assert os.read(out, 4) == b"held"
    publish(Watched(home).store, made(1, salt=1))
    Watched(home).gc(Keep(max_size=0))
    os.write(gate_in, b"x")
    assert os.read(out, 4) == b"good"
    os.waitpid(pid, 0)
    watched = Watched(home)
    watched.gc(Keep(max_size=0))
    assert list(watched.store.records()) == []
    assert managed(home) == {}
