"""Remember compiles that will fail again, with their log, for a limited time.

One JSON document a module and compiler version, in one folder. Only deterministic failures are written down: what was
interrupted, killed for memory or stopped by a full disk may end well next time. Another compiler version knows
nothing of them, and time makes them forgotten. A document that is damaged, from another schema or not about what it is
named after counts as none.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
from msgspec import Struct

from cachekit.compilers.neuron.failures import CLASSES, Failure, FailureClass

SCHEMA = 1
DAYS = 7.0  # after that the compile is tried again, once: the world around a "deterministic" failure changes too
_LONGEST_DAYS = 30.0  # whatever a document says
_EXCERPT = 16_000  # characters of the log that are kept: its end, where the reason stands
_LARGEST = 1 << 20  # bytes of a document


class Remembered(Struct, frozen=True, forbid_unknown_fields=True):
    """A failure that is expected to come again.

    Attributes:
        module: `MODULE_<graph>+<flags>`.
        compiler: The compiler's full version, or its directory's name.
        kind: The class's name, as in `failures.CLASSES`.
        code: The compiler's error code, or empty.
        message: The line that told the class.
        log: The end of the log.
        when: UTC, ISO 8601.
        expires: UTC, ISO 8601; the failure is forgotten then.
    """

    module: str
    compiler: str
    kind: str
    code: str
    message: str
    log: str
    when: str
    expires: str
    schema: int = SCHEMA

    @property
    def failure_class(self) -> FailureClass:
        """The class, with its advice."""
        return CLASSES[self.kind]


def _now() -> datetime:
    return datetime.now(timezone.utc)


class FailureMemory:
    """The failures remembered in a folder, which is made when the first one is written.

    Args:
        folder: One folder of a host's store; several processes may use it at once.
        days: How long a failure is remembered; at most 30.
        clock: Gives the time, in UTC.
    """

    def __init__(self, folder: Path, *, days: float = DAYS, clock: Callable[[], datetime] = _now) -> None:
        self._folder = folder
        self._time = timedelta(days=min(days, _LONGEST_DAYS))
        self._clock = clock

    def remember(self, module: str, failure: Failure, *, compiler: str, log: str = "") -> Remembered | None:
        """Write a failure down, over an older one of the same module.

        Returns:
            What was written; None for a failure that may not come again, of which nothing is kept.

        Raises:
            OSError: The folder cannot be written; the failure itself is no less known for that.
        """
        if not failure.deterministic:
            return None
        now = self._clock()
        entry = Remembered(
            module=module,
            compiler=compiler,
            kind=failure.kind.name,
            code=failure.code,
            message=failure.message,
            log=log[-_EXCERPT:].encode("utf-8", "replace").decode(),
            when=now.isoformat(timespec="seconds"),
            expires=(now + self._time).isoformat(timespec="seconds"),
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        _publish(self.path(module, compiler), msgspec.json.encode(entry))
        return entry

    def recall(self, module: str, *, compiler: str) -> Remembered | None:
        """The failure of a module under a compiler version, if one is known and its time is not over."""
        entry = _read(self.path(module, compiler))
        if entry is None or (entry.module, entry.compiler) != (module, compiler) or not self._valid(entry):
            return None
        return entry

    def forget(self, module: str, *, compiler: str) -> bool:
        """Drop what is known of a module; True if there was something."""
        with suppress(FileNotFoundError):
            self.path(module, compiler).unlink()
            return True
        return False

    def entries(self) -> list[Remembered]:
        """All failures whose time is not over, by module; what is over or damaged is left out."""
        try:
            paths = sorted(self._folder.glob("*.json"))
        except OSError:
            return []
        found = [entry for path in paths if (entry := _read(path)) and path == self.path(entry.module, entry.compiler)]
        return sorted((entry for entry in found if self._valid(entry)), key=lambda entry: entry.module)

    def sweep(self) -> int:
        """Remove documents that are over, damaged or misplaced; gives their number."""
        kept = {self.path(entry.module, entry.compiler) for entry in self.entries()}
        gone = [path for path in self._folder.glob("*.json") if path not in kept] if self._folder.is_dir() else []
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def _valid(self, entry: Remembered) -> bool:
        """Within its time, and within the longest time whatever the document or a wrong clock says."""
        try:
            when, expires = datetime.fromisoformat(entry.when), datetime.fromisoformat(entry.expires)
            age = self._clock() - when
            return timedelta(days=-1) < age < timedelta(days=_LONGEST_DAYS) and self._clock() < expires
        except (ValueError, TypeError, OverflowError):
            return False

    def path(self, module: str, compiler: str) -> Path:
        """Where the failure of a module is written down."""
        # Readable for people, and distinct whatever the names are made of.
        digest = hashlib.sha256(f"{compiler}\n{module}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        name = re.sub(r"[^A-Za-z0-9_+-]", "_", module)[:80]
        return self._folder / f"{name}.{digest}.json"


def _read(path: Path) -> Remembered | None:
    try:
        if path.stat().st_size > _LARGEST:
            return None
        entry = msgspec.json.decode(path.read_bytes(), type=Remembered)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return entry if entry.schema == SCHEMA and entry.kind in CLASSES and CLASSES[entry.kind].deterministic else None


def _publish(path: Path, data: bytes) -> None:
    """Whole or not at all. A power cut may lose it, which costs one more failing compile and no more."""
    handle, name = tempfile.mkstemp(prefix=".", suffix=".new", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
