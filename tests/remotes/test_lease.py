"""One key, many machines: one compiles and the others wait, take over when it dies, and never wait for ever.

On remotes in memory of each sort, by a clock that jumps: the machines are threads. Real processes on real remotes, and
real time: `test_sharing_campaign`.
"""

import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pytest

from cachekit import process
from cachekit.errors import (
    BusyError,
    ConflictError,
    InterruptedRunError,
    RemoteError,
    UncertainError,
    WaitedTooLongError,
)
from cachekit.remotes.lease.backends import CROWD
from cachekit.remotes.lease.fleet import CROWDED_LEASE, SCARCE_LEASE
from cachekit.remotes.port import ABSENT, Commit, Write
from tests.remotes.jumping_clock import OfMachine
from tests.remotes.lease_cases import Cut, clock, holders, key, never, remote, wanting  # noqa: F401 - fixtures
from tests.remotes.memory_remote import MemoryRemote
from tests.remotes.storage_processes import title, write
from tests.remotes.watched_storages import Counted


@dataclass
class Fleet:
    """Machines that want one key; each compiles it, or waits until it is published."""

    remote: object
    key: str
    clock: object
    wanting: object
    notes: list = field(default_factory=list)
    threads: list = field(default_factory=list)

    @property
    def record(self):
        return f"cachekit/v1/records/x-1/bert/{self.key}.json"

    def published(self):
        return self.remote.read(self.record, self.remote.revision(), 1 << 16)

    def machine(self, name, *, compiles=10.0, clock=None, remote=None, seconds=60.0):
        """Begin one."""
        clock, remote = clock or self.clock, remote or self.remote

        def run():
            how = {"wait": 10_000.0, "done": self.published, "clock": clock}
            with self.wanting(remote, name, seconds, **how) as lease:
                if lease.state != "finished":
                    self.notes.append(("compiles", name))
                    clock.sleep(compiles)
                    self.notes.append(("held" if lease.held else "lost", name))
                    publish(self, lease, clock)
            self.notes.append(("done", name))

        self.threads.append(self.clock.start(run, name))

    def ended(self):
        self.clock.join(self.threads)
        return self

    def noted(self, what):
        return sorted({name for noted, name in self.notes if noted == what})


def publish(fleet, lease, clock):
    """Record and release in one commit."""
    while True:
        try:
            revision = fleet.remote.revision()
            there = fleet.remote.read(fleet.record, revision, 1 << 16)
            removal = lease.give_back(revision)
            writes = [Write(fleet.record, b"record", there.token if there else ABSENT)]
            fleet.remote.commit(Commit(title(), writes=[*writes, *([removal] if removal else [])]), revision)
        except (ConflictError, BusyError, UncertainError):
            lease.settled(removed=False)
            clock.sleep(0.05)
        else:
            lease.settled(removed=True)
            return


@pytest.fixture
def fleet(remote, key, clock, wanting, monkeypatch):
    # Each is another machine, whose processes nobody here can see.
    monkeypatch.setattr(process, "namespace", lambda: threading.current_thread().name)
    return Fleet(remote, key, clock, wanting)


class TestFleet:
    @pytest.mark.feature("C2")
    def test_eight_machines_compile_once(self, fleet):
        for number in range(8):
            fleet.machine(f"machine {number}")
        fleet.ended()
        assert len(fleet.noted("compiles")) == 1
        assert len(fleet.noted("done")) == 8
        assert holders(fleet.remote, fleet.key) == []

    @pytest.mark.feature("C3")
    def test_many_wait_for_a_dead_holder(self, fleet):
        fleet.machine("dead", clock=OfMachine(fleet.clock, stops=(5.0, 1e6)), compiles=8.0)
        fleet.clock.sleep(6.0)
        for number in range(4):
            fleet.machine(f"machine {number}", compiles=0.5)
        fleet.ended()
        assert len(fleet.noted("compiles")) == 2
        assert len(fleet.noted("done")) == 5
        assert [name for what, name in fleet.notes if what == "done"][-1] == "dead"

    @pytest.mark.feature("C3")
    def test_a_stopped_holder(self, fleet):
        """It goes on when another has compiled, and knows that the lease is lost."""
        fleet.machine("stopped", clock=OfMachine(fleet.clock, stops=(5.0, 500.0)), compiles=8.0)
        fleet.clock.sleep(6.0)
        fleet.machine("other", compiles=0.5)
        fleet.ended()
        assert fleet.noted("compiles") == ["other", "stopped"]
        assert fleet.noted("lost") == ["stopped"]
        assert fleet.published()
        assert holders(fleet.remote, fleet.key) == []

    @pytest.mark.feature("C3")
    @pytest.mark.parametrize("off", [3600.0, -3600.0])
    def test_clocks_that_are_off(self, fleet, off):
        fleet.machine("first", clock=OfMachine(fleet.clock, off=off), compiles=200.0)
        fleet.clock.sleep(5.0)
        fleet.machine("second", clock=OfMachine(fleet.clock, off=-off))
        fleet.ended()
        assert fleet.noted("compiles") == fleet.noted("held") == ["first"]

    @pytest.mark.feature("C2", "C3")
    @pytest.mark.parametrize("moment", range(0, 20, 3))
    def test_a_holder_that_stops_at_any_moment_has_one_successor(self, fleet, moment):
        fleet.machine("stopped", clock=OfMachine(fleet.clock, stops=(moment, 400.0)), compiles=30.0)
        fleet.clock.sleep(0.5)
        for name in ("one", "other"):
            fleet.machine(name, compiles=5.0)
        fleet.ended()
        assert len(fleet.noted("compiles")) <= 2
        assert len(fleet.noted("done")) == 3
        assert holders(fleet.remote, fleet.key) == []


class TestHolder:
    def test_the_holder_is_named_to_those_who_wait(self, remote, wanting):
        told = []

        def enough(waiting):
            told.append(waiting)
            raise InterruptedRunError("enough")

        with (
            wanting(remote, "recipes/bert.yaml") as lease,
            pytest.raises(InterruptedRunError),
            wanting(remote, wait=10.0, told=enough),
        ):
            pytest.fail("two hold one lease")
        assert lease.trouble is None
        holder = told[0].holder
        assert holder.owner.pid == os.getpid()
        assert holder.recipe == "recipes/bert.yaml"
        assert str(told[0]).startswith(f"process {os.getpid()} of ")
        assert "since 20" in str(told[0])
        assert told[0].sign is None, "none came since it waits"
        assert told[0].left == 60.0

    @pytest.mark.feature("C3")
    @pytest.mark.parametrize("wait", [0.0, 100.0])
    def test_a_wait_has_a_deadline(self, remote, key, wanting, wait):
        with wanting(remote, "mine", 300.0) as lease:
            with pytest.raises(WaitedTooLongError) as caught, wanting(remote, "yours", 300.0, wait=wait):
                pytest.fail("two hold one lease")
            assert f"process {os.getpid()}" in caught.value.cause
            assert " s if no sign of life comes; waited" in caught.value.cause
            assert f"waited {wait:.0f} s" in caught.value.cause
            assert lease.held
        assert holders(remote, key) == []

    def test_one_after_the_other(self, remote, wanting):
        for _ in range(3):
            with wanting(remote) as lease:
                assert lease.state == "held"

    def test_what_is_published_is_not_compiled(self, remote, wanting):
        remote = Cut(remote)
        with wanting(remote, done=lambda: "the record") as lease:
            assert lease.state == "finished"
            assert lease.found == "the record"
            assert not lease.held
            assert lease.give_back() is None
        assert remote.commits == 0

    # Where commits are scarce, taking fails if anything was published since.
    @pytest.mark.parametrize("remote", ["compares", "side-by-side"], indirect=True)
    def test_published_between_question_and_taking(self, remote, key, wanting):
        answers = iter([None, "the record"])
        with wanting(remote, done=lambda: next(answers)) as lease:
            assert lease.state == "finished"
        assert holders(remote, key) == []

    def test_record_and_release_in_one_commit(self, fleet, wanting):
        remote = Cut(fleet.remote)
        with wanting(remote) as lease:
            before = remote.commits
            publish(Fleet(remote, fleet.key, fleet.clock, wanting), lease, fleet.clock)
            assert remote.commits == before + 1
            assert holders(remote, fleet.key) == []
            assert not lease.held
            remote.error = RemoteError("asked once more")
        assert not remote.refused

    def test_a_commit_that_failed_keeps_the_lease(self, remote, key, clock, wanting):
        with wanting(remote, seconds=30.0) as lease:
            assert lease.give_back() == lease.give_back(remote.revision())
            lease.settled(removed=False)
            clock.sleep(25.0)
            assert lease.held
            assert len(holders(remote, key)) == 1
            assert holders(remote, key)[0]["beat"] > 0

    def test_a_failed_compile_leaves_nothing(self, remote, key, wanting):
        with pytest.raises(RuntimeError), wanting(remote):
            raise RuntimeError
        assert holders(remote, key) == []

    def test_signs_of_life(self, remote, key, clock, wanting):
        with wanting(remote, seconds=30.0) as lease:
            first = holders(remote, key)[0]
            clock.sleep(29.0)
            assert lease.held
            last = holders(remote, key)[0]
            assert last["beat"] > first["beat"]
            assert last["sign"] > first["sign"] >= first["since"] == last["since"]
        assert holders(remote, key) == []

    def test_threads_end_with_the_lease(self, remote, wanting):
        def hearts():
            return [thread for thread in threading.enumerate() if thread.name == "cachekit-lease"]

        with wanting(remote):
            assert hearts()
        assert not hearts()


@pytest.mark.feature("C3")
class TestScarceCommits:
    """What a lease costs on a Hub repo, whose commits are few, and how long a dead holder is waited for there."""

    @pytest.fixture
    def remote(self):
        return Cut(MemoryRemote(scarce=True))

    @pytest.mark.parametrize(("compiles", "at_most"), [(300.0, 2), (3600.0, 12), (3 * 3600.0, 36)])
    def test_commits_of_a_holder(self, remote, clock, wanting, compiles, at_most):
        """Beside what takes the lease and gives it back, a short compile makes none."""
        with wanting(remote, seconds=SCARCE_LEASE) as lease:
            clock.sleep(compiles)
            assert lease.held
        assert remote.commits <= at_most

    @pytest.mark.feature("C4")
    @pytest.mark.parametrize("lived", [1.0, 329.0, 331.0, 1000.0, 5000.0])
    @pytest.mark.parametrize("comes", [-1e9, 0.0, 30.0, 340.0])
    def test_a_dead_holder_holds_nobody_up_for_more_than_six_minutes(self, remote, clock, wanting, lived, comes):
        """However long it lived, and whether the other one waits already, or comes so long after its death."""
        taken = []

        def heir():
            with wanting(remote, seconds=SCARCE_LEASE, wait=1e5) as lease:
                assert lease.state == "held"
                taken.append(clock.now())

        mortal = Cut(remote)
        with wanting(mortal, seconds=SCARCE_LEASE):
            died = clock.now() + lived
            waits = [clock.start(heir, "heir")] if comes < 0 else []
            clock.sleep(lived)
            mortal.error = RemoteError("dead")
            clock.sleep(comes)
            clock.join(waits or [clock.start(heir, "heir")])
        assert 0 < taken[0] - max(died, died + comes) <= 360.0

    def test_a_sign_is_given_in_spite_of_what_others_commit(self, remote, clock, key, wanting):
        """A commit that loses the race against another one is tried again before the lease is taken for dead."""
        races = iter([True, True])

        def commit(change, revision):
            if "renews" in change.title and next(races, False):
                there = remote.read("other.json", "", 99)
                write(remote, "other.json", b"%d" % remote.commits, there.token if there else ABSENT)
            return Cut.commit(remote, change, revision)

        with wanting(remote, seconds=SCARCE_LEASE) as lease:
            remote.commit = commit
            clock.sleep(345.0)
            assert lease.held
            assert holders(remote, key)[0]["beat"] == 1

    def test_in_a_crowd_signs_of_life_leave_commits_for_what_is_compiled(self, remote, key, clock, wanting):
        """To a remote in memory all commits are of the same moment."""
        told = []
        with wanting(remote, seconds=SCARCE_LEASE, crowded=CROWDED_LEASE, rarely=told.append):
            assert (holders(remote, key)[0]["seconds"], told) == (SCARCE_LEASE, [])
            for number in range(CROWD):
                write(remote, f"{number}.json", b"", ABSENT)
            clock.sleep(SCARCE_LEASE)
            before = remote.commits
            assert (holders(remote, key)[0]["beat"], holders(remote, key)[0]["seconds"]) == (1, CROWDED_LEASE)
            clock.sleep(CROWDED_LEASE - 60)
            assert remote.commits == before
            clock.sleep(60)
            assert remote.commits == before + 1
            assert told == [CROWDED_LEASE], "once"
        with wanting(remote, seconds=SCARCE_LEASE, crowded=CROWDED_LEASE, rarely=told.append):
            assert holders(remote, key)[0]["seconds"] == CROWDED_LEASE
        assert told == [CROWDED_LEASE] * 2

    def test_who_waits_asks_for_the_revision_only_while_nothing_changes(self, remote, clock, wanting):
        asked, done = Counted(remote), []
        with wanting(remote, seconds=SCARCE_LEASE):
            with (
                suppress(WaitedTooLongError),
                wanting(asked, seconds=SCARCE_LEASE, wait=300.0, done=lambda: done.append(1)),
            ):
                pytest.fail("two hold one lease")
            assert asked.calls.count("read") == 1
            assert len(done) == 1
            assert 30 <= asked.calls.count("revision") <= 62


def test_a_lease_of_a_process_that_is_dead_on_this_machine_is_taken_at_once(remote, key, clock, wanting):
    """Nobody waits for what is certain: the lease would last for an hour."""
    waits = partial(wanting, remote, seconds=3600.0, wait=30.0)
    with waits() as lease:
        document = holders(remote, key)[0]
        path = lease.give_back().path
    dead = {**document, "owner": {**document["owner"], "id": "dead", "pid": 2**22 + 1}}
    write(remote, path.replace(document["owner"]["id"], "dead"), json.dumps(dead).encode(), ABSENT)
    before = clock.now()
    with waits() as lease:
        assert lease.state == "held"
        assert clock.now() - before < 5.0
    assert holders(remote, key) == []


@pytest.mark.feature("T7")
def test_a_lease_says_what_is_compiled_without_secrets(remote, key, wanting, monkeypatch):
    monkeypatch.setenv("MY_SERVICE_TOKEN", "zqsvcvalue991122")
    with wanting(remote, "bert-zqsvcvalue991122"):
        assert [one["recipe"] for one in holders(remote, key)] == ["bert-***"]
