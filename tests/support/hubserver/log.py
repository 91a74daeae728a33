"""What was asked, for tests to count: every request but those of the test itself (`/_test/…`).

An entry is there from the moment a request has been read, so that a client that has its answer is always counted.
No header is kept: tokens appear in no log.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

# Sent in the background, or only where the client finds itself run by an agent: no part of what a call costs.
TELEMETRY = {"/v1/telemetry", "/xet/v1/telemetry", "/api/agent-harnesses"}


@dataclass
class Entry:
    """One request. `status` is 0 where no answer was sent; `seconds` are until its last byte was."""

    method: str
    path: str
    user: str
    at: float
    status: int = 0
    received: int = 0
    sent: int = 0
    seconds: float = 0.0
    fault: str = ""

    @property
    def kind(self) -> str:
        """`api`, `resolve`, `lfs` (batch), `cdn` (bytes by signed address), `xet`, or `telemetry`."""
        if self.path.partition("?")[0] in TELEMETRY:
            return "telemetry"
        first = self.path.split("/")[1]
        if first in {"api", "cdn", "xet"}:
            return first
        return "lfs" if "/info/lfs/" in self.path else "resolve"

    def matches(self, pattern: str) -> bool:
        """Whether `METHOD PATH` fits a pattern of the shell; `*` matches slashes too."""
        return matches(pattern, self.method, self.path)


def matches(pattern: str, method: str, path: str) -> bool:
    """Whether a request fits `METHOD GLOB`, or `GLOB` for every method; a query counts only where one is written."""
    method_pattern, _, glob = pattern.rpartition(" ")
    if "?" not in glob:
        path = path.partition("?")[0]
    return method_pattern in {"", "*", method} and fnmatchcase(path, glob.replace("?", "[?]"))


class Log:
    """All entries since the start or the last `clear`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Entry] = []

    def begin(self, method: str, path: str, user: str) -> Entry:
        entry = Entry(method, path, user, time.time())
        with self._lock:
            self._entries.append(entry)
        return entry

    def end(self, entry: Entry) -> None:
        entry.seconds = time.time() - entry.at

    def entries(self, pattern: str = "*") -> list[Entry]:
        with self._lock:
            found = [replace(entry) for entry in self._entries if entry.matches(pattern)]
        return [entry for entry in found if entry.kind != "telemetry"]

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
