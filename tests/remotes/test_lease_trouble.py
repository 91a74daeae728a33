"""Leases on a tier in trouble: it never stops a compile."""

import json
import threading

import pytest

from cachekit.errors import AuthError, IntegrityError, RemoteError, WaitedTooLongError
from cachekit.remotes.layout import lease_path
from cachekit.remotes.lease.lease import Lease
from cachekit.remotes.port import ABSENT, BusyError, UncertainError
from tests.remotes.lease_cases import holders, job, make, never, silent, tier, until  # noqa: F401 - fixtures
from tests.remotes.lease_worker import Blind, Cut
from tests.remotes.tier_processes import serve, write


@pytest.fixture
def folder(tmp_path):
    """The tier that is always there, for what does not depend on its kind."""
    with serve("folder", tmp_path) as opened:
        yield opened()


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
