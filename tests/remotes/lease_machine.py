"""A machine of a team in a process and a home of its own, which wants one key and may be killed at any moment."""

from __future__ import annotations

import hashlib
import os

from cachekit import process
from cachekit.cli import stop
from cachekit.verbs.warm import warm
from tests.remotes.sharing_worker import note
from tests.remotes.storage_processes import started
from tests.support.standins import StandIn, Watched, recipe


def begun(make, home, log, *, batch, delay, lease):
    """Begin a machine that warms the recipe of this batch size; see `sharing_worker.note` for what it leaves.

    Args:
        make: Opens the remote.
        home: Of its store.
        log: Where each compile is noted.
        batch: Another one is another key.
        delay: Seconds that a graph takes to compile; there are two.
        lease: Seconds of a lease.
    """
    return started(make, _machine, home, {"STANDIN_LOG": str(log), "STANDIN_DELAY": str(delay)}, batch, lease)


def _machine(make, home, variables, batch, lease):
    os.environ.update(variables)
    stop.listen()
    # A machine whose processes the others cannot see. A lease with a name longer than 64 characters cannot be read.
    process.namespace = lambda: home.name
    one = Watched(home, shared=[(make(), "rw")], compiler=StandIn(graphs=2), lease=lease, wait=3600).limit(0)
    prepared = one.prepare(recipe(batch))
    done = warm(one.session, prepared)
    restored = one.restored("check", done.record)
    modules = {name: hashlib.sha256(raw).hexdigest() for name, raw in sorted(restored.items())}
    note(home, compiled=done.compiled, waited=done.waited_seconds, modules=modules)
