"""Which modules of records that came from elsewhere stay in a compiler's own folder, which no run takes away again.

A compile of another key may find them there, and its record has them in it: it reuses those records, also
when they are gone from the store by then. So one note is kept of each such record and folder, from before
its modules are put there until they are gone from there.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from cachekit import files
from cachekit.store import durable
from cachekit.store.layout import Layout
from cachekit.store.origin import Beside, reuses
from cachekit.store.record import DamagedRecordError, Module, Record, decode, encode, paths_of

YOUNG = 86_400.0  # seconds


class Staying(Struct, frozen=True):
    """A record that came from elsewhere, or reuses such, and a folder that has modules of it.

    Attributes:
        tree: The folder.
        document: The record, as it is stored.
        beside: Where it came from.
    """

    tree: str
    document: str
    beside: Beside

    @property
    def record(self) -> Record | None:
        """The record; None where this cachekit cannot read it."""
        with suppress(DamagedRecordError):
            return decode(self.document.encode())
        return None


def note(layout: Layout, scratch: Path, tree: Path, record: Record, beside: Beside) -> None:
    """Note that modules of a record are about to be put into a folder.

    Args:
        layout: The store's paths.
        scratch: An own folder on the store's file system.
        tree: The compiler's own folder.
        record: The record.
        beside: Where it came from.

    Raises:
        OSError: It cannot be written.
    """
    path = _path(layout, tree, record)
    if not path.exists():
        raw = msgspec.json.encode(Staying(str(tree), encode(record).decode(), beside))
        durable.write_bytes(scratch, path, layout.home, raw)


def forget(layout: Layout, tree: Path, record: Record) -> None:
    """Remove the note of a record: its modules are gone from a folder.

    Raises:
        OSError: It cannot be removed.
    """
    with suppress(FileNotFoundError):
        layout.inside.unlink(_path(layout, tree, record))


def over(layout: Layout) -> Iterator[Path]:
    """The notes of modules that are gone."""
    for path, one in noted(layout):
        with suppress(OSError):
            if _is_over(path, one):
                yield path


def paths(layout: Layout) -> list[Path]:
    """Where all notes lie, those that cannot be read among them."""
    return sorted(layout.staying.glob("*/*.json"))


def noted(layout: Layout) -> Iterator[tuple[Path, Staying]]:
    """All notes that can be read, and where they lie."""
    for path in paths(layout):
        if (one := files.noted(path, Staying)) is not None:
            yield path, one


def reused(layout: Layout, modules: Sequence[Module]) -> Iterator[tuple[Record, Beside]]:
    """Records from elsewhere that have some of these modules, as they stayed in a folder."""
    for _, one in noted(layout):
        other = one.record
        if other is not None and reuses(modules, other):
            yield other, one.beside


def _is_over(path: Path, one: Staying) -> bool:
    """Whether nothing of the record lies in the folder any more; of a young note nobody knows, as it comes first.

    Args:
        path: The note.
        one: What it says.

    Raises:
        OSError: It was removed meanwhile.
    """
    if path.stat().st_mtime > time.time() - YOUNG:
        return False
    record = one.record
    return record is None or not any(os.path.lexists(Path(one.tree, path)) for path, _ in paths_of(record.modules))


def _path(layout: Layout, tree: Path, record: Record) -> Path:
    return layout.staying / hashlib.sha256(str(tree).encode()).hexdigest()[:16] / f"{record.digest}.json"
