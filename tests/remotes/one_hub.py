"""One test Hub for all tests of a process.

The client's Xet part remembers, for as long as the process lives, which pieces it has sent, and sends them to no other
Hub again: with a Hub for each test, the second one would lack what the first has.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.hubserver import HubServer

DEFAULTS = {
    "xet": True, "latency": 0.0, "commits_per_hour": None, "overlap_409": False, "commit_seconds": 0.0, "tree_page": 0,
}  # fmt: skip


@functools.cache
def _running() -> HubServer:
    folder = Path(tempfile.mkdtemp(prefix="cachekit-hub-"))
    hub = HubServer(folder)
    hub.__enter__()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(hub.__exit__, None, None, None)
    return hub


@contextmanager
def one_hub() -> Iterator[HubServer]:
    """The Hub, without faults and with an empty log."""
    hub = _running()
    hub.log.clear()
    try:
        yield hub
    finally:
        hub.faults.clear()
        for name, value in DEFAULTS.items():
            setattr(hub, name, value)
