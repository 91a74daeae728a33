"""Which modules of records that came from elsewhere stay in a compiler's own folder, which no run takes away again.

A compile of another key may find them there, and its record has them in it: it reuses those records, also
when they are gone from the store by then. So a note is kept of each such record and folder, from before
its modules are put there until they are gone from there. The note lies in two places: in the folder itself, where every
other store of this user that works in the folder finds it; and in the store, which so knows the modules wherever else
it meets them, in a copy of the folder or on a remote.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from cachekit import files, whose
from cachekit.inside import Inside
from cachekit.private import closed_folder
from cachekit.store import durable
from cachekit.store.access import Owners
from cachekit.store.layout import Layout
from cachekit.store.origin import LARGEST, UNKNOWN, Beside, legible, reuses
from cachekit.store.record import DamagedRecordError, Module, Record, decode, encode, paths_of
from cachekit.text import DAY

YOUNG = DAY
STRANGE = 32 << 20  # bytes of strangers' notes that are read at once


class Staying(Struct, frozen=True):
    """A record that came from elsewhere, or reuses such, and a folder that has modules of it.

    Attributes:
        tree: The folder, without links in its path.
        document: The record, as it is stored.
        beside: Where it came from.
    """

    tree: str
    document: str
    beside: Beside

    def of(self, tree: Path) -> bool:
        """Whether this is a note of a folder, however the folder's path is spelled."""
        return os.path.realpath(self.tree) == os.path.realpath(tree)

    @property
    def record(self) -> Record | None:
        """The record; None where this cachekit cannot read it."""
        with suppress(DamagedRecordError):
            return decode(self.document.encode())
        return None


class _Strange(Struct, frozen=True):
    """What of a stranger's note is read: the rest, of any size, is passed over."""

    tree: str
    document: str


def note(layout: Layout, scratch: Path, tree: Path, record: Record, beside: Beside) -> None:
    """Note in a store that modules of a record are about to be put into a folder.

    Args:
        layout: The store's paths.
        scratch: An own folder on the store's file system.
        tree: The compiler's own folder.
        record: The record.
        beside: Where it came from.

    Raises:
        IntegrityError: It is too long to be read again.
        OSError: It cannot be written.
    """
    path = _path(layout, tree, record)
    if _own(layout, path) is None:
        raw = _encoded(tree, record, beside)
        Owners(layout).remember(raw)
        durable.write_bytes(scratch, path, layout.home, raw)


def note_there(tree: Path, record: Record, beside: Beside) -> None:
    """Note the same in the folder itself; notes there of modules that are gone are removed.

    Args:
        tree: The compiler's own folder, which is made where it is missing.
        record: The record.
        beside: Where it came from.

    Raises:
        IntegrityError: It is too long to be read again.
        OSError: It cannot be written.
    """
    path = _path_there(tree, record)
    closed_folder(path.parent)
    for old, one in _noted_there(tree):
        with suppress(OSError):
            if _is_over(old, structs.replace(one, tree=str(tree))):
                old.unlink()
    # Of a note that cannot be read nobody learns anything.
    if files.noted(path, Staying, whose.wrote, most=LARGEST) is None:
        with durable.Scratch(path.parent) as scratch:
            durable.write_bytes(scratch, path, path.parent, _encoded(tree, record, beside))


def forget(layout: Layout, tree: Path, record: Record) -> None:
    """Remove the notes of a record: its modules are gone from a folder.

    Raises:
        OSError: One cannot be removed.
    """
    with suppress(FileNotFoundError):
        path = _path_there(tree, record)
        Inside(path.parent.parent).unlink(path)
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
    """All notes of a store that can be read, and where they lie. A stranger's does not say where a record came from.

    Of strangers' notes `STRANGE` bytes are read: whoever can write to the store can put any number there.
    """
    left = STRANGE

    def fits(handle: int) -> bool:
        nonlocal left
        if (size := os.fstat(handle).st_size) > left:
            return False
        left -= size
        return True

    for path in paths(layout):
        if (one := _own(layout, path)) is not None:
            yield path, one
        elif (other := files.noted(path, _Strange, fits, most=STRANGE)) is not None:
            yield path, Staying(other.tree, other.document, UNKNOWN)


def _own(layout: Layout, path: Path) -> Staying | None:
    """A note that an owner of the store wrote."""
    owners = Owners(layout)

    def ours(handle: int) -> bool:
        if owners.open:
            return whose.wrote(handle) and owners.remembers(os.pread(handle, min(os.fstat(handle).st_size, LARGEST), 0))
        return whose.wrote(handle) or not owners.stranger(path, handle)

    return files.noted(path, Staying, ours, most=LARGEST)


def records(layout: Layout, tree: Path) -> dict[str, tuple[Record, Beside]]:
    """The records that are noted of a folder, by digest: in the store, and by others of this user's in the folder.

    What the store itself says of a record counts before what the folder says, and what strangers say in it last.
    """
    return _by_digest([one for _, one in noted(layout) if one.of(tree)], tree)


def _by_digest(stored: Sequence[Staying], tree: Path | None) -> dict[str, tuple[Record, Beside]]:
    there = [one for _, one in _noted_there(tree)] if tree else []
    found: dict[str, tuple[Record, Beside]] = {}
    for one in sorted((*stored, *there), key=lambda one: one.beside == UNKNOWN):
        if (record := one.record) is not None:
            found.setdefault(record.digest, (record, one.beside))
    return found


def reused(layout: Layout, modules: Sequence[Module], tree: Path | None = None) -> Iterator[tuple[Record, Beside]]:
    """Records from elsewhere that have some of these modules, as they stayed in a folder.

    Args:
        layout: The store's paths.
        modules: The modules.
        tree: The folder in which they were found, if any: what other stores noted of it counts as well.
    """
    found = _by_digest([one for _, one in noted(layout)], tree)
    yield from (one for one in found.values() if reuses(modules, one[0]))


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


def _noted_there(tree: Path) -> Iterator[tuple[Path, Staying]]:
    """The notes in a folder that this user or root wrote, and where they lie."""
    folder = _folder_there(tree)
    for name in Inside(folder.parent).names(folder):
        if name.endswith(".json") and (one := files.noted(folder / name, Staying, whose.wrote, most=LARGEST)):
            yield folder / name, one


def _encoded(tree: Path, record: Record, beside: Beside) -> bytes:
    one = Staying(os.path.realpath(tree), encode(record).decode(), beside)
    return legible(msgspec.json.encode(one), record)


def _path(layout: Layout, tree: Path, record: Record) -> Path:
    folder = hashlib.sha256(os.fsencode(os.path.realpath(tree))).hexdigest()[:16]
    return layout.staying / folder / f"{record.digest}.json"


def _path_there(tree: Path, record: Record) -> Path:
    return _folder_there(tree) / f"{record.digest}.json"


def _folder_there(tree: Path) -> Path:
    """Where notes lie in a folder; hidden, so that no scan takes them for a part of the cache."""
    return Path(os.path.realpath(tree), f".notes-of-cachekit-{os.geteuid()}")
