"""Real processes on each kind of remote, in real time: one compiles, and one that is killed is taken over."""

import hashlib
import itertools
import os
import signal

import pytest

from tests.remotes.lease_cases import holders
from tests.remotes.lease_worker import Job, is_published, warm
from tests.remotes.storage_processes import KINDS, ending, serve, started

_numbers = itertools.count()


SLOW = {"bucket", "hub"}  # whose processes take a second each to import its client


@pytest.fixture(
    scope="module", params=[pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW)) for kind in KINDS]
)
def make(request, tmp_path_factory):
    with serve(request.param, tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.fixture
def job(tmp_path):
    """One key; the log says who did what."""
    return Job(hashlib.sha256(b"%d" % next(_numbers)).hexdigest(), tmp_path / "log")


def joined(processes):
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


@pytest.mark.feature("C2")
def test_eight_processes_compile_once(make, job):
    with ending([started(make, warm, job) for _ in range(8)]) as fleet:
        assert joined(fleet) == [0] * 8
    assert len(job.notes("compiles")) == 1
    assert len(job.notes("done")) == 8
    assert holders(make(), job.key) == []


@pytest.mark.feature("C3")
def test_a_killed_holder_is_taken_over(make, tmp_path, job):
    job = Job(job.key, job.log, seconds=2.0, compile=60.0)
    with ending([started(make, warm, job)]) as fleet:
        while not job.notes("compiles"):
            assert fleet[0].is_alive()
            fleet[0].join(0.02)
        fleet.append(started(make, warm, Job(job.key, job.log, seconds=2.0, compile=0.1)))
        os.kill(fleet[0].pid, signal.SIGKILL)
        assert joined(fleet) == [-signal.SIGKILL, 0]
    assert job.notes("compiles") == [process.pid for process in fleet]
    assert is_published(make(), job)
    assert holders(make(), job.key) == []
