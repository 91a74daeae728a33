"""A machine that warms one key with a lease; its compile is a note in a log and some sleep."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cachekit.remotes.lease import here
from cachekit.remotes.lease.lease import Lease
from cachekit.remotes.port import ABSENT, BusyError, Change, ConflictError, UncertainError, Write
from tests.remotes.tier_processes import title


@dataclass(frozen=True)
class Job:
    """What one process does.

    Attributes:
        clock: Seconds that its clock is off.
        compile: Seconds that it takes.
        away: It is another machine, whose processes nobody here can see.
    """

    key: str
    log: Path
    seconds: float = 20.0
    compile: float = 1.0
    wait: float = 120.0
    clock: float = 0.0
    poll: float = 0.1
    away: bool = True
    waits: list = field(default_factory=list)

    @property
    def record(self):
        return f"cachekit/v1/records/x-1/bert/{self.key}.json"

    def note(self, what):
        with self.log.open("a") as log:
            log.write(f"{what} {os.getpid()}\n")

    def notes(self, what):
        """The processes that noted it."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [int(line.split()[1]) for line in lines if line.split()[0] == what]


def is_published(tier, job):
    return tier.read(job.record, tier.revision(), 1 << 16) is not None


def publish(tier, job, lead):
    """Record and release in one commit."""
    while True:
        try:
            revision = tier.revision()
            there = tier.read(job.record, revision, 1 << 16)
            removal = lead.release_write()
            writes = [Write(job.record, b"%d" % os.getpid(), there.token if there else ABSENT)]
            tier.commit(Change(title(), writes=[*writes, *([removal] if removal else [])]), revision)
        except (ConflictError, BusyError, UncertainError):
            time.sleep(0.05)
        else:
            return


def warm(make, job):
    """Compile the key, or wait until it is published."""
    if job.clock:
        right = time.time
        time.time = lambda: right() + job.clock
    if job.away:
        here.place = lambda: f"of {os.getpid()}"
    tier = make()
    lease = Lease(tier, job.key, "recipes/bert.yaml", job.seconds, poll=job.poll, settle=0.5)
    waited = []
    job.note("looks")
    with lease.lead(job.wait, lambda holder, _: waited.append(holder), partial(is_published, tier, job)) as lead:
        if not lead.finished:
            job.note("compiles")
            time.sleep(job.compile)
            job.note("held" if lead.held else "lost")
            publish(tier, job, lead)
    if waited:
        job.note("waited")
    assert is_published(tier, job)
    job.note("done")


class Blind:
    """Another tier, as if it had no compare-and-swap: the last write wins."""

    compares = False

    def __init__(self, tier):
        self._tier = tier

    def __getattr__(self, name):
        return getattr(self._tier, name)

    def commit(self, change, revision):
        for write in change.writes:
            while True:
                there = self._tier.read(write.path, revision, 1 << 20)
                again = Write(write.path, write.data, there.token if there else ABSENT)
                try:
                    self._tier.commit(Change(title(), writes=[again]), revision)
                    break
                except (ConflictError, BusyError):
                    time.sleep(0.01)
        return revision


def blind(make):
    return Blind(make())


class Cut:
    """A tier whose line can be cut, or that refuses to be written to."""

    def __init__(self, tier):
        self._tier = tier
        self.error = None  # raised by every call
        self.refusal = None  # raised by commits
        self.commits = 0
        self.refused = 0

    def __getattr__(self, name):
        if self.error is not None:
            self.refused += 1
            raise self.error
        return getattr(self._tier, name)

    def commit(self, change, revision):
        if self.error or self.refusal:
            raise self.error or self.refusal
        self.commits += 1
        return self._tier.commit(change, revision)
