"""Failures that are remembered: by Neuron for ever, in the folder of the module, and by cachekit for a week.

Neuron never compiles such a graph again, and its run goes on without it. cachekit writes down only what would fail
again: one JSON document a module and compiler version, in one folder. What was interrupted, killed for memory or
stopped by a full disk may end well next time. Another compiler version knows nothing of a failure. A document that is
damaged, from another schema, or not about what it is named after counts as none.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from cachekit import files, redact
from cachekit.compilers.neuron import facts, locks
from cachekit.compilers.neuron.entries import CacheEntry, read_entry
from cachekit.compilers.neuron.failures import CLASSES, CompileFailure, classify
from cachekit.compilers.port import Failed

HEAD, TAIL = 4 << 10, 64 << 10  # bytes of Neuron's log that are looked at
SCHEMA = 1
DAYS = 7.0  # after that the compile is tried again, once: the world around a "deterministic" failure changes too
_KEPT = 16_000  # characters of a log that are kept: its end, where the reason stands


class FailedModule(Struct, frozen=True):
    """A module whose failure Neuron remembers."""

    entry: CacheEntry
    log: Path  # the file that remembers
    age: float  # seconds since it was written
    inode: int  # with `modified`, what tells the log from a later one
    modified: int  # when it was written, in nanoseconds since 1970
    text: str  # the log, of a long one its beginning and its end

    @property
    def failure(self) -> CompileFailure:
        """What the log tells of the reason."""
        return classify(self.text)


def by_neuron(entries: Iterable[CacheEntry]) -> list[FailedModule]:
    """The failures that Neuron remembers among some modules."""
    found = []
    for entry in entries:
        log = entry.path / facts.FAILURE_LOG
        if entry.state == "failed":
            with suppress(OSError):  # it is gone, or somebody else's
                status, text = log.stat(), _ends(log)
                age = time.time() - status.st_mtime
                found.append(FailedModule(entry, log, age, status.st_ino, status.st_mtime_ns, text))
    return found


def clear(failed: FailedModule) -> str:
    """Remove what Neuron remembers of a failure, so that its graph is compiled again; gives why it was left."""
    try:
        entry = read_entry(failed.entry.place, failed.entry.compiler, failed.entry.name)
    except OSError:
        return ""
    if entry.locks:
        return "its module is locked"
    return locks.remove(failed.log, failed.inode, failed.modified)


def _ends(log: Path) -> str:
    with files.opened(log) as source:
        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        if size <= HEAD + TAIL:
            return source.read().decode("utf-8", "replace")
        head = source.read(HEAD)
        source.seek(size - TAIL)
        return head.decode("utf-8", "replace") + "\n…\n" + source.read(TAIL).decode("utf-8", "replace")


class Remembered(Struct, frozen=True, forbid_unknown_fields=True):
    """A failure that is expected to come again."""

    module: str  # `MODULE_<graph>+<flags>`
    compiler: str  # the compiler's full version, or its directory's name
    kind: str  # the class's name, as in `failures.CLASSES`
    code: str  # the compiler's error code, or empty
    message: str  # the line that told the class
    log: str  # the end of the log
    when: Annotated[datetime, Meta(tz=True)]
    seconds: float | None = None  # how long the compiler had run
    schema: int = SCHEMA

    @property
    def failure(self) -> CompileFailure:
        """What it was."""
        return CompileFailure(CLASSES[self.kind], self.code, self.message, seconds=self.seconds)


def _now() -> datetime:
    return datetime.now(timezone.utc)


class FailureMemory:
    """The failures that cachekit remembers in a folder, which is made when the first one is written.

    Args:
        folder: One folder of a host's store; several processes may use it at once.
        clock: Gives the time, in UTC.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], datetime] = _now) -> None:
        self._folder = folder
        self._clock = clock

    def remember(self, module: str, failure: CompileFailure, *, compiler: str, log: str = "") -> None:
        """Write a failure down, over an older one of the same module. Of one that may not come again nothing is kept.

        Raises:
            OSError: The folder cannot be written; the failure itself is no less known for that.
        """
        if not failure.deterministic:
            return
        entry = Remembered(
            module=module,
            compiler=compiler,
            kind=failure.kind.name,
            code=failure.code,
            message=redact.printed(failure.message),
            log=redact.printed(log[-_KEPT:].encode("utf-8", "replace").decode()),
            when=self._clock().replace(microsecond=0),
            seconds=failure.seconds,
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        files.replace(self.path(module, compiler), msgspec.json.encode(entry))

    def recall(self, module: str, *, compiler: str) -> Remembered | None:
        """The failure of a module under a compiler version, if one is known and its time is not over."""
        entry = _read(self.path(module, compiler))
        if entry is None or (entry.module, entry.compiler) != (module, compiler):
            return None
        # A clock that was wrong may have written a time that is still to come.
        return entry if timedelta(days=-1) < self._clock() - entry.when < timedelta(days=DAYS) else None

    def path(self, module: str, compiler: str) -> Path:
        """Where the failure of a module is written down."""
        # Readable for people, and distinct whatever the names are made of.
        digest = hashlib.sha256(f"{compiler}\n{module}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = re.sub(r"[^A-Za-z0-9_+-]", "_", module)[:80]
        return self._folder / f"{name}.{digest}.json"


def _read(path: Path) -> Remembered | None:
    entry = files.noted(path, Remembered)
    if entry is None or entry.schema != SCHEMA or entry.kind not in CLASSES:
        return None
    return entry if CLASSES[entry.kind].deterministic else None


def by_any(entries: Iterable[CacheEntry], folder: Path) -> dict[str, Failed]:
    """The failures that cachekit (in the folder of `FailureMemory`) or Neuron remembers, by module."""
    entries = list(entries)
    memory = FailureMemory(folder)
    found: dict[str, Failed] = {}
    for entry in entries:
        if ours := memory.recall(entry.name, compiler=entry.compiler):
            log = memory.path(entry.name, entry.compiler)
            found[entry.module] = _failed(ours.failure, log, ours.when)
    for one in by_neuron(entries):
        if one.entry.module not in found:
            when = datetime.fromtimestamp(one.modified / 1e9, timezone.utc)
            found[one.entry.module] = _failed(one.failure, one.log, when)
    return found


def _failed(failure: CompileFailure, log: Path, when: datetime) -> Failed:
    said = when.isoformat(timespec="seconds")
    return Failed(failure.kind.name, failure.message, str(log), said, failure.advice, remembered=True)
