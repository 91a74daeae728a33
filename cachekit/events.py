"""What happened in a run: one JSON line an event, for statistics later, and for the screen now.

A journal never makes a run fail: on a full disk or a read-only store it goes on in memory and says so once.

Why a run bypassed the cache, or a part of it, is one table of reasons, counted by name. Each time is an
event, `cache.bypass`, with `reason` (a name of the table) and `detail`. It is not the place where people are told: what
they must know is told as it happens, by the event that belongs to it.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import msgspec

from cachekit import files, private, redact
from cachekit.decode import from_json
from cachekit.inside import Inside
from cachekit.text import DAY, cause_of

SECOND = 10**9  # ns

Event = dict[str, Any]
Listener = Callable[[Event], None]

BYPASS = "cache.bypass"

REASONS = {
    "recache": "the user asked to compile although a record was there (--recache)",
    "caching-off": "the compiler kept nothing of what it compiled: its own cache is switched off",
    "compiler-bypass": "the compiler's own cache refused a graph",
    "compiler-not-keyed": "the compiler cannot be inspected, so there is no key",
    "store-unreadable": "the key's record in the store cannot be read",
    "store-refused": "the settings do not let a record of the store be used",
    "store-damaged": "the key's record in the store, or a file of it, is damaged or missing",
    "store-schema": "only another version of cachekit can read the key's record in the store",
    "store-not-writable": "the store cannot be written: read-only, no permission, or no space",
    "not-kept": "what was compiled could not be kept",
    "cache-dir-unusable": "the compiler cache dir cannot be used",
    "restore-refused": "the record could not be restored",
    "module-left": "a module of the record was not restored: what is in its place must not be touched",
    "remote-offline": "a remote was not asked: no connection may be opened",
    "remote-failed": "a remote could not be reached, or gave up",
    "remote-skipped": "a remote was not asked, because it had failed a moment ago",
    "remote-refused": "a remote denied access",
    "remote-untrusted": "a remote may hold what somebody else made, and this user's settings do not trust it",
    "remote-damaged": "what a remote has for the key is damaged",
    "remote-write-only": "a remote was not asked, because the settings allow only writing there",
    "remote-read-only": "what was compiled was not put on a remote, because the settings allow only reading there",
    "push-failed": "what was compiled could not be put on a remote",
}


class Journal:
    """The events of one run.

    Args:
        folder: Where journals live; None keeps the events in memory only.
        verb: The command of the run.
        inside: Opens the folders of the store that the folder lies in.
        instance: This machine's type; empty where nothing says it.

    Attributes:
        run: The run's identity: its start, in UTC, to the second and then in hex, and four random digits. Names sort by
            time.
    """

    def __init__(self, folder: Path | None, verb: str, inside: Inside | None = None, instance: str = "") -> None:
        self.run = _name(time.time_ns())
        self._verb, self._instance = verb, instance
        self._inside = inside
        self._file: TextIO | None = None
        self._path = folder / self.run[:6] / f"{self.run}.jsonl" if folder else None
        self._listeners: list[Listener] = []
        self._closed = False
        self._counts: dict[str, Counter[str]] = {}
        self.failure: str = ""

    @property
    def path(self) -> Path | None:
        """Where the events are written; None in memory-only mode."""
        return self._path

    def listen(self, listener: Listener) -> None:
        """Call `listener` with each event from now on."""
        self._listeners.append(listener)

    def emit(self, event: str, **fields: Any) -> Event:
        """Write one event and tell the listeners; without secrets, see `cachekit.redact`.

        Args:
            event: Its name, dotted: `warm.start`, `store.damaged`.
            **fields: JSON values.
        """
        fields = redact.document(fields)
        line: Event = {"event": event, "time": round(time.time(), 3), "run": self.run, **fields}
        self._write(line)
        for listener in self._listeners:
            listener(line)
        return line

    def count(self, what: str, name: str) -> None:
        """Count something by name, for the run's summary."""
        self._counts.setdefault(what, Counter())[name] += 1

    def counted(self, what: str) -> dict[str, int]:
        """What was counted so far, by name."""
        return dict(sorted(self._counts.get(what, Counter()).items()))

    def show(self, event: str, **fields: Any) -> None:
        """Tell the listeners of something too frequent to write down: a training step, a second of waiting."""
        fields = redact.document(fields)
        for listener in self._listeners:
            listener({"event": event, "time": time.time(), "run": self.run, **fields})

    def _write(self, line: Event) -> None:
        if self._path is None or self._closed:
            return
        try:
            if self._file is None:
                # Line-buffered append: a killed run leaves whole lines, and at most one torn last line.
                if self._inside:
                    self._inside.check(self._path.parents[2])
                private.closed_folder(self._path.parents[1])
                private.closed_folder(self._path.parent)
                self._file = open(self._path, "a", encoding="utf-8", buffering=1, opener=private.opened)  # noqa: SIM115
                start = {"event": "run", "time": line["time"], "run": self.run, "verb": self._verb}
                start |= {"pid": os.getpid(), "host": os.uname().nodename, "instance": self._instance}
                self._file.write(json.dumps(start) + "\n")
            self._file.write(_encoded(line))
        except OSError as error:
            self.failure = cause_of(error)
            taken = shlex.quote(str(error.filename))
            if error.errno in {errno.EPERM, errno.ELOOP, errno.ENOTDIR}:  # somebody else's is in its place
                self.failure += f": mv {taken} {taken}.away, or set CACHEKIT_HOME to a store of your own"
            self._path = None

    def close(self) -> None:
        """Say that the run has come to its end, and close the file; later events stay in memory."""
        if self._file is not None:
            self._write({"event": "run.end", "time": round(time.time(), 3), "run": self.run})
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self.failure = cause_of(error)
            self._file = None
        self._closed = True


def bypass(journal: Journal, reason: str, detail: str = "") -> None:
    """Note that this run bypasses the cache, or a part of it.

    Args:
        journal: The run's; it counts.
        reason: A name of `REASONS`.
        detail: What in particular: a remote's name, a path, a cause.
    """
    assert reason in REASONS, reason
    journal.count(BYPASS, reason)
    journal.emit(BYPASS, reason=reason, detail=detail)


def bypassed(journal: Journal) -> dict[str, int]:
    """How often in this run, by reason."""
    return journal.counted(BYPASS)


def _encoded(line: Event) -> str:
    # ASCII: no other character that somebody takes for the end of a line, and no name that is not UTF-8, gets through.
    try:
        return json.dumps(line, default=str) + "\n"
    except (TypeError, ValueError):
        return json.dumps({name: str(value) for name, value in line.items()}) + "\n"


def prune(folder: Path, days: int, now: float | None = None, inside: Inside | None = None) -> int:
    """Remove the logs of a folder that are older than `days`; returns how many. Never fails a run.

    Args:
        folder: Where they lie.
        days: As many.
        now: The time, in seconds since the epoch.
        inside: Opens the folder; by default it is there itself, and no way is looked at.
    """
    oldest = (time.time() if now is None else now) - days * DAY
    removed = 0
    with suppress(OSError), (inside or Inside(folder)).folder(folder) as handle:
        for name in os.listdir(handle):  # noqa: PTH208 - an open folder has no path
            with suppress(OSError):
                found = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if name.endswith(".log") and stat.S_ISREG(found.st_mode) and found.st_mtime < oldest:
                    os.unlink(name, dir_fd=handle)
                    removed += 1
    return removed


def read(path: Path) -> list[Event]:
    """The events of a journal; lines that are not events are left out, such as the torn last line of a killed run.

    Raises:
        OSError: The file cannot be read.
    """
    return parse(files.read(path))


def parse(raw: bytes) -> list[Event]:
    """The events in a journal's bytes; see `read`."""
    events = []
    for line in filter(None, raw.split(b"\n")):
        try:
            event: Any = from_json(line, object)
        except (msgspec.DecodeError, RecursionError):
            try:  # what json writes and msgspec does not read: NaN, halves of surrogate pairs
                event = json.loads(line.decode(errors="replace"))
            except (ValueError, RecursionError):
                continue
        if isinstance(event, dict):
            events.append(event)
    return events


def _name(now: int) -> str:
    seconds, rest = divmod(now, SECOND)
    # Two runs of a script begin in one second, too.
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(seconds))}-{rest * 65536 // SECOND:04x}{os.urandom(2).hex()}"
