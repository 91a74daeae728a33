"""One key, many machines: one compiles and the others wait, take over when it dies, and never wait for ever."""

import hashlib
import os
import signal
import time
from functools import partial

import pytest

from cachekit.errors import InterruptedRunError, RemoteError, WaitedTooLongError
from cachekit.remotes.lease.lease import Lease
from tests.remotes.lease_cases import holders, job, make, never, silent, tier, until  # noqa: F401 - fixtures
from tests.remotes.lease_worker import Cut, Job, is_published, publish, warm
from tests.remotes.tier_processes import ending, serve, started


def but(job, **changes):
    return Job(
        **{**{name: getattr(job, name) for name in ("key", "log", "seconds", "compile", "wait", "away")}, **changes}
    )


def joined(processes):
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


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
