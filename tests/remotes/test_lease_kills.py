"""Machines are killed at random while they compile: at most one compile more for each, and nobody waits for long.

Two hundred kills over a Hub repo, a bucket, S3 and a folder take some minutes, with a lease of `CAMPAIGN_LEASE` seconds
(4) and all other times in proportion: `pytest -m slow tests/remotes/test_lease_kills.py -n 4`. What a lease of real
length costs and how long it lasts, `test_lease` has, by a clock that jumps.
"""

import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field

import pytest

from tests.remotes.lease_machine import begun
from tests.remotes.sharing_worker import told_by
from tests.remotes.storage_processes import ending, serve
from tests.support.processes import until
from tests.support.standins import compiles

LEASE = float(os.environ.get("CAMPAIGN_LEASE", "4"))
SLACK = 6.0  # seconds for two settlings on a bucket, and for a busy machine
KINDS = ("hub", "bucket", "s3", "folder")


@dataclass
class Race:
    """Machines that want one key, of which some are killed.

    Attributes:
        gaps: Seconds from the death of one that compiled until another one did, by the signal.
    """

    make: object
    folder: object
    number: int
    lease: float
    dice: random.Random
    processes: list = field(default_factory=list)
    homes: list = field(default_factory=list)
    killed: int = 0
    gaps: list = field(default_factory=list)

    @property
    def log(self):
        return self.folder / f"log{self.number}"

    def join(self):
        """One machine more."""
        home = self.folder / f"r{self.number}m{len(self.homes)}"
        how = {"batch": self.number + 1, "delay": self.lease / 4, "lease": self.lease}
        machine = begun(self.make, home, self.log, **how)
        self.processes.append(machine)
        self.homes.append(home)

    @property
    def long(self):
        """Seconds after which something does not come."""
        return 10 * self.lease + 60

    @property
    def alive(self):
        return [machine for machine in self.processes if machine.is_alive()]

    def over(self):
        """Whether somebody has the record."""
        return any(map(told_by, self.homes))

    def run(self, kills):
        """Kill machines, mostly the one that compiles; a new one comes for each. What came of it is checked."""
        with ending(self.processes):
            for _ in range(3):
                self.join()
            seen = 0
            while self.killed < kills and not self.over():
                if self.dice.random() < 0.8:
                    until(lambda: len(compiles(self.log)) > seen or self.over(), "a compile", self.long)
                    seen = len(compiles(self.log))
                time.sleep(self.dice.uniform(0, 0.6 * self.lease))
                self.kill()
            for machine in self.alive:
                machine.join(self.long)
            assert not self.alive
        answers = list(filter(None, map(told_by, self.homes)))
        assert len(compiles(self.log)) <= 1 + self.killed
        assert len(answers) >= len(self.homes) - self.killed
        assert len({str(answer["modules"]) for answer in answers}) == 1

    def kill(self):
        """Kill the machine that compiles, if one does, or any other."""
        before = compiles(self.log)
        alive = {machine.pid: machine for machine in self.alive}
        holder = alive.get(before[-1]["pid"]) if before else None
        victim = holder if holder and self.dice.random() < 0.8 else self.dice.choice(self.alive or [None])
        if victim is None or self.over():
            return
        number = self.dice.choice([signal.SIGKILL] * 3 + [signal.SIGTERM])
        self.join()
        died = time.monotonic()
        os.kill(victim.pid, number)
        self.killed += 1
        if victim is holder:
            until(lambda: len(compiles(self.log)) > len(before) or self.over(), "an heir", self.long)
            self.gaps.append((signal.Signals(number).name, round(time.monotonic() - died, 1)))
            assert self.gaps[-1][1] <= 1.2 * self.lease + SLACK


def campaign(kind, folder, *, kills, lease, seed):
    """Race after race, until so many were killed; returns all gaps."""
    dice, killed, gaps, number = random.Random(seed), 0, [], 0
    with serve(kind, folder / "server") as make:
        while killed < kills:
            race = Race(make, folder, number, lease, dice)
            race.run(min(dice.randint(2, 6), kills - killed))
            killed, number, gaps = killed + race.killed, number + 1, [*gaps, *race.gaps]
    return gaps


@pytest.mark.campaign
@pytest.mark.feature("C2", "C3", "C4")
def test_a_few_kills(tmp_path):
    campaign("folder", tmp_path, kills=3, lease=1.0, seed=17)


@pytest.mark.slow
@pytest.mark.feature("C2", "C3", "C4")
@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_kills(kind, tmp_path):
    gaps = campaign(kind, tmp_path, kills=50, lease=LEASE, seed=KINDS.index(kind))
    for name in ("SIGKILL", "SIGTERM"):
        some = sorted(gap for number, gap in gaps if number == name)
        sys.stderr.write(f"\n{kind}: {name} of {len(some)} that compiled: heirs after {some}\n")
