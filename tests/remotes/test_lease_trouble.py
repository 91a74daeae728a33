"""Leases on a remote in trouble: it never stops a compile."""

import itertools
import json

import pytest

from cachekit.errors import AuthError, BusyError, IntegrityError, RemoteError, UncertainError, WaitedTooLongError
from cachekit.remotes.layout import lease_path
from cachekit.remotes.lease.lease import TAKING
from cachekit.remotes.port import ABSENT
from tests.remotes.lease_cases import Cut, clock, holders, key, never, remote, wanting  # noqa: F401 - fixtures
from tests.remotes.memory_remote import MemoryRemote
from tests.remotes.storage_processes import write


@pytest.fixture
def swapped():
    """The sort of remote for what does not depend on it."""
    return MemoryRemote()


@pytest.mark.parametrize("error", [RemoteError("dead"), AuthError("no"), IntegrityError("not a lease")])
def test_a_remote_that_never_answers(remote, wanting, error):
    cut = Cut(remote)
    cut.error = error
    with wanting(cut, wait=30.0) as lease:
        assert lease.trouble is error
        assert lease.state == "without"
        assert lease.give_back() is None


@pytest.mark.feature("R6")
@pytest.mark.parametrize("working", [0, 2, 5], ids=["looks", "takes", "confirms"])
def test_one_bad_answer_costs_no_lease(remote, wanting, working):
    """A connection that the server had closed meanwhile, say: without the lease, two machines would compile."""
    calls = itertools.count()

    class Blinking(Cut):
        def __getattr__(self, name):
            value = getattr(self._storage, name)
            if callable(value) and next(calls) == working:
                raise RemoteError("for a moment")
            return value

    with wanting(Blinking(remote), wait=30.0, poll=10.0) as lease:
        assert (lease.held, lease.trouble) == (True, None)


@pytest.mark.parametrize("error", [RemoteError("full"), AuthError("read-only"), BusyError("quota", wait=0.1)])
def test_a_remote_that_takes_no_lease(remote, key, wanting, error):
    cut = Cut(remote)
    cut.refusal = error
    with wanting(cut, wait=30.0) as lease:
        assert lease.trouble is error
        assert lease.state == "without"
    assert holders(remote, key) == []


def test_a_remote_that_dies_while_one_waits(remote, clock, wanting):
    cut = Cut(remote)

    def dies(waiting):
        cut.error = RemoteError("dead")

    with wanting(remote, seconds=600.0), wanting(cut, wait=500.0, told=dies) as lease:
        assert lease.trouble is cut.error
        assert not lease.held
        assert lease.waited < 100.0


@pytest.mark.feature("C3")
def test_a_holder_that_is_cut_off(remote, key, wanting):
    cut = Cut(remote)
    with wanting(cut, wait=300.0) as mine:
        assert mine.held
        cut.error = RemoteError("cut off")
        with wanting(remote, wait=300.0) as yours:
            assert yours.held
            assert not mine.held
            assert mine.give_back() is None
            cut.error = None
            assert mine.give_back() is None
            assert yours.held
        assert mine.release()
    assert holders(remote, key) == []


def test_a_holder_that_stays_cut_off(remote, key, wanting):
    cut = Cut(remote)
    with wanting(cut) as lease:
        cut.error = RemoteError("cut off")
        assert not lease.release()
    assert len(holders(remote, key)) == 1  # it runs out


@pytest.mark.feature("C3")
def test_a_short_cut_loses_nothing(swapped, key, clock, wanting):
    cut = Cut(swapped)
    with wanting(cut, seconds=60.0) as lease:
        first = holders(swapped, key)[0]["beat"]
        cut.error = RemoteError("for a moment")
        clock.sleep(35.0)
        assert cut.refused
        cut.error = None
        clock.sleep(20.0)
        assert holders(swapped, key)[0]["beat"] > first
        assert lease.held
        with pytest.raises(WaitedTooLongError), wanting(swapped):
            pytest.fail("two hold one lease")


def test_an_answer_that_was_lost(remote, key, wanting):
    class Lossy(Cut):
        def commit(self, change, revision):
            revision = super().commit(change, revision)
            if self.commits == 1:
                raise UncertainError("no answer")
            return revision

    lossy = Lossy(remote)
    with wanting(lossy, wait=30.0) as lease:
        assert lease.held
        assert lossy.commits == (1 if remote.compares else 3)
    assert holders(remote, key) == []


@pytest.mark.feature("R8")
@pytest.mark.parametrize("seconds", [TAKING, 0.1])
def test_a_taking_that_is_never_answered_is_not_tried_for_longer_than_one(swapped, clock, wanting, seconds):
    class Silent(Cut):
        def commit(self, change, revision):
            clock.sleep(seconds)
            raise UncertainError("no answer")

    begun = clock.now()
    with wanting(Silent(swapped), wait=3600.0) as lease:
        assert (lease.state, clock.now() - begun < 2 * TAKING) == ("without", True)
        assert isinstance(lease.trouble, RemoteError)


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
        b'{"recipe": "\xff"}',
        b"x" * 100_000,
    ],
)
def test_a_lease_that_nobody_can_read(swapped, key, wanting, data):
    write(swapped, lease_path(key), data, ABSENT)
    told = []
    with wanting(swapped, wait=100.0, told=lambda waiting: told.append(waiting.holder)) as lease:
        assert lease.held
        assert 60.0 <= lease.waited < 70.0
    assert set(told) == {None}


def test_a_lease_that_was_taken_over_counts_its_owners(swapped, key, wanting):
    for generation in (1, 2, 3):
        with wanting(swapped):
            document = {**holders(swapped, key)[0], "seconds": 10.0, "generation": generation}
        write(swapped, lease_path(key), json.dumps(document).encode(), ABSENT)
        with wanting(swapped, wait=30.0):
            assert holders(swapped, key)[0]["generation"] == generation + 1


def test_a_lease_that_asks_for_ever(swapped, key, wanting):
    with wanting(swapped):
        document = holders(swapped, key)[0]
    write(swapped, lease_path(key), json.dumps({**document, "seconds": 1e12}).encode(), ABSENT)
    with wanting(swapped, wait=100.0) as lease:
        assert lease.held


@pytest.mark.feature("C2")
def test_who_asks_beside_others_is_believed_for_longer_than_all_take_to_settle(key, wanting):
    """With a shorter lease, each would take the others for dead while it waits, and compile."""
    remote = MemoryRemote(compares=False)
    with wanting(remote, seconds=1.0, settle=2.0):
        assert [one["seconds"] for one in holders(remote, key)] == [6.0]
