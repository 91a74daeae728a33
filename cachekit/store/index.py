"""The index, from keys to records, and how it is made again from the copies of the records among the blobs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cachekit.errors import StoreError
from cachekit.events import Journal
from cachekit.ordinary import opened
from cachekit.store.gate import Gate
from cachekit.store.layout import Layout
from cachekit.store.record import DamagedRecordError, Record, decode


class Index:
    """The index of a store.

    Args:
        layout: The store's paths.
        gate: Kept while it is rebuilt.
        write: Writes bytes to a path of the store, all or nothing.
        journal: Told when it was rebuilt (`store.reindexed`).
    """

    def __init__(self, layout: Layout, gate: Gate, write: Callable[[bytes, Path], None], journal: Journal) -> None:
        self._layout = layout
        self._gate = gate
        self._write = write
        self._journal = journal

    def paths(self) -> list[Path]:
        """Of all records, in order."""
        return sorted(self._layout.records.glob("*/*/*.json"))

    @property
    def complete(self) -> Path:
        """Marks an index that has every record: it is written before the first record, and after a rebuild."""
        return self._layout.records / ".complete"

    def restore(self) -> None:
        """Rebuild it where it was lost."""
        if not self.complete.exists() and self._layout.blobs.exists():
            with suppress(StoreError):
                self.rebuild()

    def rebuild(self) -> int:
        """Write the records again from their copies among the blobs; of several for a key, the youngest.

        Returns:
            How many records the index then has.

        Raises:
            StoreError: The store cannot be written.
        """
        with self._gate.shared():
            return self._rebuild()

    def _rebuild(self) -> int:
        newest: dict[Path, tuple[str, bytes]] = {}
        for path in sorted(self._layout.blobs.glob("*/*")):
            try:
                with opened(path) as source:
                    if not source.read(10).startswith(b'{"record":'):
                        continue
                    source.seek(0)
                    raw = source.read()
                record = decode(raw)
            except (OSError, DamagedRecordError):
                continue
            # One whose blobs are gone was removed, and the machine went down before its copy was.
            if record is not None and hashlib.sha256(raw).hexdigest() == path.name and self._is_here(record):
                place = self._layout.record(record.directory, record.model_type, record.key)
                newest[place] = max(newest.get(place, ("", b"")), (record.provenance.created, raw))
        for place, (_, raw) in newest.items():
            self._write(raw, place)
        self._write(b"", self.complete)
        if newest:
            self._journal.emit("store.reindexed", records=len(newest))
        return len(newest)

    def _is_here(self, record: Record) -> bool:
        return all(self._layout.blob(file.sha256).exists() for file in record.files)
