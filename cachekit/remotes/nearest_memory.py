"""What a store remembers of the records on a remote, so that a search for the nearest asks little."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from cachekit.remotes.near import Known
from cachekit.remotes.port import Entry
from cachekit.remotes.remote import Remote

REMEMBERED_SECONDS = 60.0  # of a listing
MOST_REMEMBERED = 4096  # records' ingredients


class Memory:
    """What this store remembers of the records on a remote; without a writable store nothing, which only costs.

    Args:
        folder: Where, for all remotes.
        name: The remote's.
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
