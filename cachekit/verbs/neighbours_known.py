"""What is known of a record without its modules, and how near it is; and the memory of those on shared caches."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from cachekit.key.canonical import Change, distance
from cachekit.remotes import layout
from cachekit.remotes.port import Entry
from cachekit.remotes.remote import Found, Remote
from cachekit.store.record import COMMAND, IMPORTED, Record
from cachekit.verbs.prepare import Prepared

REMEMBERED_SECONDS = 60.0  # of a listing
MOST_REMEMBERED = 4096  # records' ingredients

Fits = Callable[[Mapping[str, Any]], bool]  # of a record's hard ingredients: whether it may be the neighbour


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a neighbour is sought for."""

    key: str
    directory: str
    model_type: str
    hard: Mapping[str, Any]

    @classmethod
    def of(cls, prepared: Prepared) -> Wanted:
        """A recipe."""
        return cls(prepared.key, prepared.fingerprint.directory, prepared.model_type, prepared.ingredients.hard)


class Known(Struct, frozen=True):
    """What is remembered of a record: all but its modules.

    Attributes:
        size: Bytes of its files.
        by: Who made it.
    """

    key: str
    directory: str
    model_type: str
    recipe: str
    compiler: str
    hard: dict[str, Any]
    graphs: int
    size: int
    compile_seconds: float
    created: str
    by: str

    @classmethod
    def of(cls, record: Record) -> Known:
        """What of a record is remembered."""
        made = record.provenance
        return cls(
            record.key, record.directory, record.model_type, record.recipe, record.compiler, record.hard,
            record.graphs, record.size, record.compile_seconds, made.created, f"{made.user}@{made.host}",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The nearest record.

    Attributes:
        known: What it is.
        changes: From it to what is wanted.
        record: The record whole, where it is in the store.
        remote: The shared cache that has it, where it is not.
    """

    known: Known
    changes: tuple[Change, ...]
    record: Record | None = None
    remote: Remote | None = None

    @property
    def tier(self) -> str:
        """Where it is: `local`, or the name of a shared cache."""
        return self.remote.name if self.remote else layout.LOCAL

    @property
    def distance(self) -> int:
        """How far away it is; see `key.WEIGHTS`."""
        return distance(self.changes)

    def find(self) -> Found | None:
        """The record on its shared cache, read there now, for `actions.pull`; None where it is gone or is local.

        Raises:
            RemoteError, AuthError: It cannot be asked.
            DamagedRecordError: What lies there is no record of this key.
        """
        if self.remote is None:
            return None
        return self.remote.find(self.known.directory, self.known.model_type, self.known.key, anew=True)

    @property
    def rank(self) -> tuple[int, int]:
        """What neighbours are sorted by."""
        return self.distance, len(self.changes)


def comparable(model_type: str, wanted: Wanted) -> bool:
    """Recipes and commands have no ingredients in common; what was imported has none at all."""
    return model_type != IMPORTED and (model_type == COMMAND) == (wanted.model_type == COMMAND)


class Memory:
    """What this store remembers of the records on a shared cache; without a writable store nothing, which only costs.

    Args:
        folder: Where, for all shared caches.
        name: The shared cache's.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._records = folder / "records"
        self._listings = folder / hashlib.sha256(name.encode()).hexdigest()[:16] / "listings"

    def known(self, key: str) -> Known | None:
        """A record's ingredients; that they give its key is to be seen by who uses them, which takes longer."""
        try:
            known = msgspec.json.decode((self._records / f"{key}.json").read_bytes(), type=Known)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None
        return known if known.key == key else None

    def keep(self, known: Known) -> None:
        """Remember a record."""
        self._write(self._records / f"{known.key}.json", msgspec.json.encode(known))

    def listing(self, folder: str, remote: Remote) -> list[Entry] | None:
        """What lay in a folder a moment ago; None where that must be asked."""
        try:
            remembered = json.loads(self._listing(folder).read_bytes())
            age = time.time() - float(remembered["time"])
            entries = [Entry(str(path), int(size)) for path, size in remembered["entries"]]
            revision = str(remembered["revision"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if 0 <= age < REMEMBERED_SECONDS:
            return entries
        return entries if revision and revision == remote.revision() else None

    def keep_listing(self, folder: str, revision: str, entries: Iterable[Entry]) -> None:
        """Remember what lies in a folder, and forget the oldest records where they have become many."""
        listed = [[entry.path, entry.size] for entry in entries]
        found = {"time": time.time(), "revision": revision, "folder": folder, "entries": listed}
        self._write(self._listing(folder), json.dumps(found).encode())
        with suppress(OSError):
            kept = [(path.stat().st_mtime, path) for path in self._records.iterdir()]
            for _, path in sorted(kept)[: max(0, len(kept) - MOST_REMEMBERED)]:
                path.unlink(missing_ok=True)

    def _listing(self, folder: str) -> Path:
        return self._listings / f"{hashlib.sha256(folder.encode()).hexdigest()[:16]}.json"

    def _write(self, path: Path, raw: bytes) -> None:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(f".{os.getpid()}")
            fresh.write_bytes(raw)
            fresh.replace(path)
