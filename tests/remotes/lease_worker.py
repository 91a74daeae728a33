"""A machine that warms one key with a lease; its compile is a note in a log and some sleep."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cachekit import process
from cachekit.remotes.lease import lease
from cachekit.remotes.port import ABSENT, BusyError, Commit, ConflictError, UncertainError, Write
from tests.remotes.storage_processes import title


@dataclass(frozen=True)
class Job:
    """What one process does.

    Attributes:
        seconds: Length of its lease.
        compile: Seconds that it takes.
    """

    key: str
    log: Path
    seconds: float = 20.0
    compile: float = 1.0

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


def is_published(storage, job):
    return storage.read(job.record, storage.revision(), 1 << 16) is not None


def publish(storage, job, mine):
    """Record and release in one commit."""
    while True:
        try:
            revision = storage.revision()
            there = storage.read(job.record, revision, 1 << 16)
            removal = mine.give_back()
            writes = [Write(job.record, b"%d" % os.getpid(), there.token if there else ABSENT)]
            storage.commit(Commit(title(), writes=[*writes, *([removal] if removal else [])]), revision)
        except (ConflictError, BusyError, UncertainError):
            time.sleep(0.05)
        else:
            return


def warm(make, job):
    """Compile the key, or wait until it is published."""
    process.namespace = lambda: f"of {os.getpid()}"  # another machine, whose processes nobody here can see
    storage = make()
    found = partial(is_published, storage, job)
    with lease(
        storage, job.key, "recipes/bert.yaml", job.seconds,
        wait=120.0, told=lambda *_: None, done=lambda: found() or None, poll=0.1, settle=0.5,
    ) as mine:  # fmt: skip
        if mine.state != "finished":
            job.note("compiles")
            time.sleep(job.compile)
            publish(storage, job, mine)
    assert is_published(storage, job)
    job.note("done")


class Cut:
    """A remote whose line can be cut, or that refuses to be written to."""

    def __init__(self, storage):
        self._storage = storage
        self.error = None  # raised by every call
        self.refusal = None  # raised by commits
        self.commits = 0
        self.refused = 0

    def __getattr__(self, name):
        value = getattr(self._storage, name)
        if self.error is not None and callable(value):
            self.refused += 1
            raise self.error
        return value

    def commit(self, change, revision):
        if self.error or self.refusal:
            raise self.error or self.refusal
        self.commits += 1
        return self._storage.commit(change, revision)
