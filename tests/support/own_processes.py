"""Processes that a test starts, and what it waits for."""

from __future__ import annotations

import os
import time

from cachekit.process import below


def started(before):
    """What this process and those below it started since, and still runs; other tests' servers may be there."""
    return set(below(os.getpid())) - before


def wait_for(condition):
    end = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found
