"""A machine of a team in a process and a home of its own, which wants one key and may be killed at any moment.

The processes come from the server that commands are forked from, see `tests.support.forked`: there is one in a test's
process. So each has none of the test's threads, locks or connections, and imports the Hub's client, which reads
variables as it is imported, itself.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os

from cachekit import process
from cachekit.cli import stop
from cachekit.verbs.warm import warm
from tests.remotes.sharing_worker import note
from tests.support import forked
from tests.support.standins import StandIn, Watched, recipe

FRESH = multiprocessing.get_context("forkserver")


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
    environ = {**os.environ, "STANDIN_LOG": str(log), "STANDIN_DELAY": str(delay)}
    forked.ready()
    machine = FRESH.Process(target=_machine, args=(make, home, environ, batch, lease), daemon=True)
    machine.start()
    return machine


def _machine(make, home, environ, batch, lease):
    os.environ.clear()
    os.environ.update(environ)
    stop.listen()
    # A machine whose processes the others cannot see. A lease with a name longer than 64 characters cannot be read.
    process.namespace = lambda: home.name
    one = Watched(home, shared=[(make(), "rw")], compiler=StandIn(graphs=2), lease=lease, wait=3600).limit(0)
    prepared = one.prepare(recipe(batch))
    done = warm(one.session, prepared)
    restored = one.restored("check", done.record)
    modules = {name: hashlib.sha256(raw).hexdigest() for name, raw in sorted(restored.items())}
    note(home, compiled=done.compiled, waited=done.waited_seconds, modules=modules)
