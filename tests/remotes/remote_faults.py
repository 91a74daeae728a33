"""Twenty-five ways in which a remote fails, each on the test Hub: what the table in docs/sharing.md is tested with."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager

from cachekit.errors import CachekitError

BOUND = 20.0  # seconds beyond a limit, on a loaded machine; what has no end takes longer
READ = "GET */resolve/*"
BYTES = "GET /cdn/*"
SENT = ("PUT /cdn/*", "* /xet/*")
COMMITTED = "POST */commit/*"


@contextmanager
def deaf():
    """A server that takes no connection: its queue is full."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(address)
        try:
            yield f"http://127.0.0.1:{address[1]}"
        finally:
            for one in crowd:
                one.close()


STATUSES = ("401", "403", "404-repo", "408", "409", "412", "429-window", "500", "502", "503", "504", "507")

# name -> (kind, on which requests, options)
ON_HUB = {
    "before-headers": [("black-hole", "*", {})],
    "in-the-body": [("slow", BYTES, {"rate": 0.001}), ("slow", READ, {"rate": 0.001})],
    "drip": [("slow", BYTES, {"rate": 1000})],
    "truncated": [("cut", BYTES, {}), ("cut", READ, {})],
    "wrong-bytes": [("wrong-bytes", BYTES, {"count": 5})],
    "reset": [("drop", "*", {})],
    **{status: [(status, "*", {"seconds": 1})] for status in STATUSES},
    "landed": [("504", COMMITTED, {"landed": True, "times": 1})],
    "commit-hangs": [("black-hole", COMMITTED, {})],
    "upload-hangs": [("black-hole", pattern, {}) for pattern in SENT],
    "clock": [],
}
ELSEWHERE = {"connect": None, "dns": "http://nobody.invalid", "tls": "https"}
EVERY = [*ELSEWHERE, *ON_HUB]


@contextmanager
def failing(hub, fault):
    """The Hub with one of the faults; yields the address to use."""
    if fault == "connect":
        with deaf() as address:
            yield address
        return
    if fault == "dns":
        yield ELSEWHERE["dns"]
        return
    if fault == "tls":
        yield hub.endpoint.replace("http://", "https://")
        return
    for kind, pattern, options in ON_HUB[fault]:
        hub.fault(kind, pattern, **{"times": None, **options})
    try:
        yield hub.endpoint
    finally:
        hub.faults.clear()


def a_clock_that_jumps(monkeypatch):
    real, start = time.time, time.monotonic()
    monkeypatch.setattr(time, "time", lambda: real() + (-1e6 if time.monotonic() - start < 0.1 else 1e6))


def timed(action):
    begun, code, found = time.monotonic(), 0, None
    try:
        found = action()
    except CachekitError as error:
        code, found = error.exit_code, error
    return time.monotonic() - begun, code, found
