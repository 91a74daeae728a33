"""A release in the zoo on a Hub repo: real leases and pushes over HTTP, by a clock that jumps, by the Hub's rules.

These are 128 commits an hour, one at a time, each on the present state. The figures that `pytest -s` prints are in
`docs/decisions/0017-a-million-records.md`.
"""

import sys
import threading
from collections import Counter

import pytest

from cachekit import process
from cachekit.errors import BusyError, RemoteError
from cachekit.remotes.document import Shared
from cachekit.remotes.layout import record_path
from cachekit.remotes.lease import lease
from cachekit.remotes.lease.fleet import CROWDED_LEASE, SCARCE_LEASE
from cachekit.remotes.offer import Offer
from cachekit.remotes.publish import publish
from tests.remotes.jumping_clock import JumpingClock
from tests.remotes.lease_cases import Cut, silent
from tests.remotes.memory_remote import MemoryRemote
from tests.remotes.storage_processes import serve
from tests.support.standins import make_record

COMPILES = 900.0  # seconds: a BERT on trn1.2xlarge
COMES = 600.0  # seconds within which all have asked


class Team:
    """Machines that want some keys, all at nearly the same time; some die while they compile."""

    def __init__(self, make, clock, beside):
        self.make, self.clock, self.beside = make, clock, beside
        self.compiled, self.waited, self.dead, self.refused = Counter(), [], [], []

    def machine(self, number, key, *, dies):
        """One machine, from its coming to having the record."""
        self.clock.sleep(COMES * (number * 0.618 % 1.0))
        storage = self.make()
        leases = Cut(self.beside or storage)
        record, contents = make_record(key)
        path = record_path(record.place)

        def done():
            return storage.read(path, storage.revision(), 1 << 20)

        came = self.clock.now()
        how = {"wait": 1e6, "crowded": CROWDED_LEASE, "told": silent, "done": done, "clock": self.clock}
        with lease(leases, record.key, "toy", SCARCE_LEASE, **how) as mine:
            if mine.state != "finished":
                self.compiled[key] += 1
                if dies and self.compiled[key] == 1:
                    self.clock.sleep(COMPILES / 2)
                    self.dead.append(number)
                    leases.error = RemoteError("this machine is gone")
                    return
                self.clock.sleep(COMPILES)
                mine.settled(removed=self.publish(storage, Offer(Shared(record, contents), contents), mine))
            self.waited.append(self.clock.now() - came)

    def publish(self, storage, offer, mine):
        """Put the record there, as a push after a run does; whether that gave the lease back as well."""
        release = None if self.beside else mine.give_back
        try:
            publish(storage, [offer], release=release, clock=self.clock, seconds=120.0, wait=self.wait)
        except BusyError:
            self.refused.append(offer)
            return False
        return release is not None

    def wait(self, seconds, _):
        self.clock.sleep(seconds)


@pytest.mark.slow
@pytest.mark.feature("C2", "C3")
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(("machines", "keys", "dying"), [(24, 4, 0), (24, 4, 2), (24, 24, 0), (48, 48, 0), (51, 48, 2)])
def test_a_release_in_the_zoo(tmp_path, monkeypatch, *, machines, keys, dying, beside):
    clock = JumpingClock()
    monkeypatch.setattr(process, "namespace", lambda: threading.current_thread().name)
    with serve("hub", tmp_path / "server") as make:
        make.hub.now, make.hub.commits_per_hour, make.hub.overlap_409 = clock.wall, 128, True
        team = Team(make, clock, MemoryRemote(compares=False) if beside else None)
        before, began = len(list(make.repo.history(make.repo.head))), clock.now()

        def begin(number):
            dies = number % keys < dying
            return clock.start(lambda: team.machine(number, number % keys, dies=dies), f"machine {number}")

        clock.join([begin(number) for number in range(machines)])
        took = clock.now() - began
        commits = len(list(make.repo.history(make.repo.head))) - before
        requests = Counter(entry.status for entry in make.hub.log.entries("/api/*"))
    sys.stderr.write(
        f"\n{machines} machines, {keys} keys, {dying} die, leases {'in a bucket' if beside else 'on the repo'}:"
        f" {sum(team.compiled.values())} compiles, {commits} commits, {len(team.refused)} not pushed, {took:.0f} s,"
        f" {sum(requests.values()) / machines:.0f} requests each, {dict(requests)}; longest {max(team.waited):.0f} s\n"
    )
    assert len(team.dead) == dying
    assert sum(team.compiled.values()) == keys + dying
    if beside:
        assert commits == keys, "one for each record"
    assert not team.refused
    assert max(team.waited) <= COMPILES + dying / max(dying, 1) * (COMPILES / 2 + 360) + 60
