"""One key, many machines: one compiles and the others wait, take over when it dies, and never wait for ever."""

import hashlib
import itertools
import json
import os
import signal
import threading
import time
from functools import partial

import pytest
from lease_worker import Blind, Cut, Job, blind, is_published, publish, warm
from tier_processes import KINDS, ending, serve, started, write

from cachekit.errors import AuthError, IntegrityError, InterruptedRunError, RemoteError, WaitedTooLongError
from cachekit.tiers.layout import LEASES, lease_path
from cachekit.tiers.lease.lease import Lease
from cachekit.tiers.port import ABSENT, BusyError, UncertainError

_numbers = itertools.count()
BLIND = "folder without compare-and-swap"


@pytest.fixture(scope="module", params=[*KINDS, BLIND])
def make(request, tmp_path_factory):
    kind = "folder" if request.param == BLIND else request.param
    with serve(kind, tmp_path_factory.mktemp(kind)) as opened:
        yield partial(blind, opened) if request.param == BLIND else opened


@pytest.fixture
def tier(make):
    return make()


@pytest.fixture
def folder(tmp_path):
    """The tier that is always there, for what does not depend on its kind."""
    with serve("folder", tmp_path) as opened:
        yield opened()


@pytest.fixture
def job(tmp_path):
    return Job(hashlib.sha256(b"%d" % next(_numbers)).hexdigest(), tmp_path / "log")


def but(job, **changes):
    return Job(
        **{**{name: getattr(job, name) for name in ("key", "log", "seconds", "compile", "wait", "away")}, **changes}
    )


def until(condition, processes=()):
    """Wait for something that must happen; a process that fails meanwhile fails the test."""
    while not condition():
        assert not any(process.exitcode for process in processes)
        time.sleep(0.02)


def holders(tier, key):
    """The claims that lie there, however the tier keeps them."""
    revision = tier.revision()
    paths = [lease_path(key)] if tier.compares else [e.path for e in tier.list(f"{LEASES}/{key}", revision)]
    documents = [tier.read(path, revision, 1 << 16) for path in paths]
    return [json.loads(document.data) for document in documents if document]


def joined(processes):
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def never():
    return False


def silent(holder, waited):
    pass


class TestFleet:
    @pytest.mark.feature("C2")
    def test_eight_processes_compile_once(self, make, tier, job):
        with ending([started(make, warm, job) for _ in range(8)]) as fleet:
            assert joined(fleet) == [0] * 8
        assert len(job.notes("compiles")) == 1
        assert len(job.notes("done")) == 8
        assert holders(tier, job.key) == []

    @pytest.mark.feature("C3")
    def test_a_killed_holder(self, make, tier, job):
        job = but(job, seconds=2.0, compile=60.0)
        with ending([started(make, warm, job)]) as fleet:
            until(lambda: job.notes("compiles"), fleet)
            fleet.append(started(make, warm, but(job, compile=0.1)))
            os.kill(fleet[0].pid, signal.SIGKILL)
            assert joined(fleet) == [-signal.SIGKILL, 0]
        assert len(job.notes("compiles")) == 2
        assert job.notes("done") == [fleet[1].pid]
        assert job.notes("waited") == [fleet[1].pid]
        assert holders(tier, job.key) == []

    @pytest.mark.feature("C3")
    def test_a_holder_that_was_killed_on_this_machine(self, make, tier, job):
        """Nobody waits for what is certain: the lease would last for an hour."""
        job = but(job, seconds=3600.0, compile=60.0, wait=30.0, away=False)
        with ending([started(make, warm, job)]) as fleet:
            until(lambda: job.notes("compiles"), fleet)
            fleet.append(started(make, warm, but(job, compile=0.1)))
            until(lambda: len(job.notes("looks")) > 1, fleet)
            os.kill(fleet[0].pid, signal.SIGKILL)
            assert joined(fleet) == [-signal.SIGKILL, 0]
        assert job.notes("compiles") == [process.pid for process in fleet]
        assert holders(tier, job.key) == []

    @pytest.mark.feature("C3")
    def test_many_wait_for_a_killed_holder(self, make, job):
        job = but(job, seconds=5.0, compile=60.0)
        with ending([started(make, warm, job)]) as fleet:
            until(lambda: job.notes("compiles"), fleet)
            fleet += [started(make, warm, but(job, compile=0.5)) for _ in range(4)]
            os.kill(fleet[0].pid, signal.SIGKILL)
            assert joined(fleet) == [-signal.SIGKILL, 0, 0, 0, 0]
        assert len(job.notes("compiles")) == 2
        assert len(job.notes("done")) == 4

    @pytest.mark.feature("C3")
    def test_a_stopped_holder(self, make, tier, job):
        job = but(job, seconds=2.0, compile=4.0)
        with ending([started(make, warm, job)]) as fleet:
            until(lambda: job.notes("compiles"), fleet)
            os.kill(fleet[0].pid, signal.SIGSTOP)
            fleet.append(started(make, warm, but(job, compile=0.1)))
            assert joined(fleet[1:]) == [0]
            os.kill(fleet[0].pid, signal.SIGCONT)
            assert joined(fleet) == [0, 0]
        assert len(job.notes("compiles")) == 2
        assert fleet[0].pid in job.notes("lost")
        assert is_published(tier, job)
        assert holders(tier, job.key) == []

    @pytest.mark.feature("C3")
    @pytest.mark.parametrize("clocks", [(3600.0, -3600.0), (-3600.0, 3600.0)])
    def test_clocks_that_are_off(self, make, tier, job, clocks):
        # Longer than the lease, unless nobody may renew it there.
        job = but(job, seconds=30.0 if tier.scarce else 4.0, compile=5.0)
        with ending([started(make, warm, but(job, clock=clocks[0]))]) as fleet:
            until(lambda: job.notes("compiles"), fleet)
            fleet.append(started(make, warm, but(job, clock=clocks[1])))
            assert joined(fleet) == [0, 0]
        assert job.notes("compiles") == [fleet[0].pid]
        assert job.notes("held") == [fleet[0].pid]


class TestHolder:
    def test_the_holder_is_named_to_those_who_wait(self, make, tier, job):
        told = []

        def on_wait(holder, waited):
            told.append(holder)
            raise InterruptedRunError("enough")

        with (
            Lease(tier, job.key, "recipes/bert.yaml", 20.0, settle=0.2).lead(10, silent, never) as lead,
            pytest.raises(InterruptedRunError),
            Lease(make(), job.key, "", 20.0, settle=0.2).lead(10, on_wait, never),
        ):
            pytest.fail("two hold one lease")
        assert lead.trouble is None
        assert told[0].owner.pid == os.getpid()
        assert told[0].recipe == "recipes/bert.yaml"
        assert str(told[0]).startswith(f"process {os.getpid()} of ")
        assert "since 20" in str(told[0])

    @pytest.mark.feature("C3")
    @pytest.mark.parametrize("wait", [0.0, 0.5])
    def test_a_wait_has_a_deadline(self, make, tier, job, wait):
        with Lease(tier, job.key, "mine", 20.0, settle=0.2).lead(0, silent, never) as lead:
            with (
                pytest.raises(WaitedTooLongError) as caught,
                Lease(make(), job.key, "yours", 20.0, poll=0.1, settle=0.2).lead(wait, silent, never),
            ):
                pytest.fail("two hold one lease")
            assert f"process {os.getpid()}" in caught.value.cause
            assert lead.held
        assert holders(tier, job.key) == []

    def test_one_after_the_other(self, make, job):
        for _ in range(3):
            with Lease(make(), job.key, "", 20.0, settle=0.1).lead(0, silent, never) as lead:
                assert lead.held
                assert not lead.finished

    def test_what_is_published_is_not_compiled(self, tier, job):
        tier = Cut(tier)
        with Lease(tier, job.key, "", 20.0).lead(0, silent, lambda: True) as lead:
            assert lead.finished
            assert not lead.held
            assert lead.release_write() is None
        assert tier.commits == 0

    def test_record_and_release_in_one_commit(self, make, job):
        tier = Cut(make())
        with Lease(tier, job.key, "", 60.0, settle=0.1).lead(0, silent, partial(is_published, tier, job)) as lead:
            before = tier.commits
            publish(tier, job, lead)
            assert tier.commits == before + 1
            assert holders(tier, job.key) == []
        assert tier.commits == before + 1
        assert is_published(tier, job)

    def test_a_release_that_the_caller_did(self, make, job):
        tier = Cut(make())
        with Lease(tier, job.key, "", 60.0, settle=0.1).lead(0, silent, never) as lead:
            revision = tier.revision()
            assert lead.release_write(revision) == lead.release_write()
            publish(tier, job, lead)
            lead.removed()
            assert not lead.held
            tier.error = RemoteError("asked once more")
        assert not tier.refused

    def test_a_failed_compile_leaves_nothing(self, make, tier, job):
        with (
            pytest.raises(RuntimeError),
            Lease(tier, job.key, "", 60.0, settle=0.1).lead(0, silent, never),
        ):
            raise RuntimeError
        with Lease(make(), job.key, "", 60.0, settle=0.1).lead(0, silent, never) as lead:
            assert lead.held

    def test_signs_of_life(self, tier, job):
        if tier.scarce:
            pytest.skip("commits are scarce on this kind: a lease there is written once")
        with Lease(tier, job.key, "", 0.6, settle=0.1).lead(0, silent, never) as lead:
            first = holders(tier, job.key)[0]
            until(lambda: holders(tier, job.key)[0]["beat"] > first["beat"] + 2)
            assert not lead.finished
        assert holders(tier, job.key) == []


class TestTrouble:
    """A tier in trouble never stops a compile."""

    def lead(self, tier, job, wait=30.0, **more):
        return Lease(tier, job.key, "", more.pop("seconds", 1.0), settle=0.1, patience=2.0, **more).lead(
            wait, silent, never
        )

    @pytest.mark.parametrize("error", [RemoteError("dead"), AuthError("no"), IntegrityError("not a lease")])
    def test_a_tier_that_never_answers(self, folder, job, error):
        tier = Cut(folder)
        tier.compares, tier.scarce, tier.error = True, False, error
        with self.lead(tier, job) as lead:
            assert lead.trouble is error
            assert not lead.held
            assert not lead.finished
            assert lead.release_write() is None

    @pytest.mark.parametrize("error", [RemoteError("full"), AuthError("read-only"), BusyError("quota", wait=0.1)])
    @pytest.mark.parametrize("compares", [True, False])
    def test_a_tier_that_takes_no_lease(self, folder, job, error, compares):
        tier = Cut(folder if compares else Blind(folder))
        tier.refusal = error
        with self.lead(tier, job) as lead:
            assert lead.trouble is error
            assert not lead.held
        assert holders(folder, job.key) == []

    def test_a_tier_that_dies_while_one_waits(self, folder, job):
        tier = Cut(folder)
        tier.compares, tier.scarce = True, False

        def cut(holder, waited):
            tier.error = RemoteError("dead")

        with (
            Lease(folder, job.key, "", 30.0).lead(0, silent, never),
            Lease(tier, job.key, "", 1.0, poll=0.05).lead(60, cut, never) as lead,
        ):
            assert lead.trouble is tier.error
            assert not lead.held

    @pytest.mark.feature("C3")
    @pytest.mark.parametrize("compares", [True, False])
    def test_a_holder_that_is_cut_off(self, folder, job, compares):
        other = folder if compares else Blind(folder)
        tier = Cut(other)
        tier.compares, tier.scarce = compares, False
        with self.lead(tier, job) as mine:
            assert mine.held
            tier.error = RemoteError("cut off")
            with self.lead(other, job) as yours:
                assert yours.held
                assert not mine.held
                assert mine.release_write() is None
                tier.error = None
                assert mine.release_write() is None
                assert yours.held
            assert mine.release()
        assert holders(folder, job.key) == []

    def test_a_holder_that_stays_cut_off(self, folder, job):
        tier = Cut(folder)
        tier.compares, tier.scarce = True, False
        with self.lead(tier, job) as lead:
            tier.error = RemoteError("cut off")
            assert not lead.release()
        assert len(holders(folder, job.key)) == 1  # it runs out

    @pytest.mark.feature("C3")
    def test_a_short_cut_loses_nothing(self, folder, job):
        tier = Cut(folder)
        tier.compares, tier.scarce = True, False
        with self.lead(tier, job, seconds=6.0) as lead:
            first = holders(folder, job.key)[0]["beat"]
            tier.error = RemoteError("for a moment")
            until(lambda: tier.refused)
            tier.error = None
            until(lambda: holders(folder, job.key)[0]["beat"] > first)
            assert lead.held
            with pytest.raises(WaitedTooLongError), self.lead(folder, job, wait=0.0):
                pytest.fail("two hold one lease")

    def test_an_answer_that_was_lost(self, folder, job):
        class Lossy(Cut):
            def commit(self, change, revision):
                super().commit(change, revision)
                if self.commits == 1:
                    raise UncertainError("no answer")

        tier = Lossy(folder)
        with self.lead(tier, job, seconds=30.0) as lead:
            assert lead.held
            assert tier.commits == 1
        assert holders(folder, job.key) == []

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"garbage",
            b"[" * 9000,
            b"{}",
            b'{"seconds": 1e999}',
            b'{"schema": 2}',
            b'{"owner": null}',
            b"\xff\0",
            b"x" * 100_000,
        ],
    )
    def test_a_lease_that_nobody_can_read(self, folder, job, data):
        write(folder, lease_path(job.key), data, ABSENT)
        told = []
        with Lease(folder, job.key, "", 0.5).lead(30, lambda holder, _: told.append(holder), never) as lead:
            assert lead.held
        assert set(told) == {None}

    def test_a_lease_that_was_taken_over_counts_its_owners(self, folder, job):
        for generation in (1, 2, 3):
            with Lease(folder, job.key, "", 20.0).lead(0, silent, never):
                claim = {**holders(folder, job.key)[0], "seconds": 0.3, "generation": generation}
            write(folder, lease_path(job.key), json.dumps(claim).encode(), ABSENT)
            with Lease(folder, job.key, "", 20.0).lead(30, silent, never):
                assert holders(folder, job.key)[0]["generation"] == generation + 1

    def test_a_lease_that_asks_for_ever(self, folder, job):
        with Lease(folder, job.key, "", 20.0).lead(0, silent, never):
            claim = holders(folder, job.key)[0]
        write(folder, lease_path(job.key), json.dumps({**claim, "seconds": 1e12}).encode(), ABSENT)
        with Lease(folder, job.key, "", 0.5).lead(30, silent, never) as lead:
            assert lead.held

    def test_published_between_question_and_taking(self, folder, job):
        answers = iter([False, True, True])
        with Lease(folder, job.key, "", 20.0).lead(0, silent, lambda: next(answers)) as lead:
            assert lead.finished
        assert holders(folder, job.key) == []

    def test_threads_end_with_the_lease(self, folder, job):
        with self.lead(folder, job):
            assert any(thread.name == "cachekit-lease" for thread in threading.enumerate())
        assert not any(thread.name == "cachekit-lease" for thread in threading.enumerate())


@pytest.mark.slow
@pytest.mark.feature("C2", "C3")
@pytest.mark.parametrize("how", ["killed", "stopped", "fast clock", "slow clock"])
def test_two_hundred_takeovers(tmp_path, how):
    """Fifty each: the holder dies or stops at some moment, and one of two others takes over."""
    with serve("folder", tmp_path) as make:
        for number in range(50):
            job = Job(hashlib.sha256(b"%d" % number).hexdigest(), tmp_path / f"log-{number}", seconds=1.5, compile=60.0)
            clock = {"fast clock": 3600.0, "slow clock": -3600.0}.get(how, 0.0)
            with ending([started(make, warm, but(job, clock=clock))]) as fleet:
                until(lambda: job.notes("compiles"), fleet)
                fleet += [started(make, warm, but(job, compile=0.2)) for _ in range(2)]
                time.sleep(number / 50)
                os.kill(fleet[0].pid, signal.SIGSTOP if how == "stopped" else signal.SIGKILL)
                assert joined(fleet[1:]) == [0, 0]
                if how == "stopped":
                    os.kill(fleet[0].pid, signal.SIGCONT)
                    until(lambda: holders(make(), job.key) == [])
            assert len(job.notes("compiles")) == 2
            assert len(job.notes("done")) == 2
            assert holders(make(), job.key) == []
