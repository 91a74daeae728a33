"""A test Hub in a process of its own, whose log counts requests; and who uses it: cachekit here, clients elsewhere.

The client reads its environment when it is imported, so import this first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPO = "team/cache"
os.environ |= {
    "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_admin",
    "NO_PROXY": "127.0.0.1,localhost", "NEURON_SDK_DEFAULT_ROOT": "/nowhere",
}  # fmt: skip
sys.path.insert(0, str(ROOT))

from hub_client import Client  # noqa: E402

from cachekit.remotes.hub import HubStorage  # noqa: E402
from tests.support.standins import PROVENANCE, Watched  # noqa: E402

__all__ = ["PROVENANCE", "REPO", "ROOT", "Client", "Hub", "Watched", "count", "serve"]


class Hub:
    """A running test Hub.

    Attributes:
        endpoint, token: As `Client` wants them.
        folder: Its files.
    """

    def __init__(self, endpoint: str, token: str, folder: Path) -> None:
        self.endpoint, self.token, self.folder = endpoint, token, folder

    def slow(self, seconds: float, line: float = 0.0, connection: float = 0.0) -> None:
        """Put the Hub far away, from now on.

        Args:
            seconds: That pass before each answer.
            line: Bytes a second that all bodies have together.
            connection: Bytes a second that each body has; in the place of `line`.
        """
        self._control("DELETE", "faults")
        if seconds:
            self._control("POST", "faults", {"kind": "latency", "seconds": seconds, "times": None})
        if rate := line or connection:
            self._control("POST", "faults", {"kind": "slow", "rate": rate, "shared": bool(line), "times": None})

    def clear(self) -> None:
        """Count from now on."""
        self._control("DELETE", "requests")

    def requests(self, pattern: str = "*") -> list[dict[str, Any]]:
        """What was asked since `clear`: `METHOD PATH`s of this pattern."""
        entries: list[dict[str, Any]] = json.loads(self._control("GET", "requests"))
        return [entry for entry in entries if fnmatchcase(f"{entry['method']} {entry['path']}", pattern)]

    def storage(self) -> HubStorage:
        """The repo, as a new run opens it."""
        return HubStorage(REPO, endpoint=self.endpoint, token=self.token)

    def member(self, home: Path, may: str = "rw") -> Watched:
        """A member of the team."""
        return Watched(home, shared=[(self.storage(), may)], push=300)

    def _control(self, method: str, what: str, body: object = None) -> bytes:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.endpoint}/_test/{what}", data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            raw: bytes = answer.read()
        return raw


@contextmanager
def serve(*options: str) -> Iterator[Hub]:
    """A Hub with an empty private repo."""
    with tempfile.TemporaryDirectory(prefix="bench-hub-", dir=os.environ.get("BENCH_DIR")) as folder:
        command = [sys.executable, "-m", "tests.support.hubserver", folder, "--port", "0", *options]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            words = dict(word.split("=", 1) for word in process.stdout.readline().split() if "=" in word)
            hub = Hub(words["HF_ENDPOINT"], words["HF_TOKEN"], Path(folder))
            hub.storage()._client.api.create_repo(REPO, private=True)  # noqa: SLF001 - the real client, bound to this Hub
            yield hub
        finally:
            process.terminate()
            process.wait()


def count(name: str, made: Sequence[object], at_most: int) -> bool:
    """Print how many requests there were against a limit."""
    holds = len(made) <= at_most
    print(f"{name}: {len(made)} requests, at most {at_most}: {'ok' if holds else 'MISSED'}")
    return holds
