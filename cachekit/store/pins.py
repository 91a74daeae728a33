"""What removal heeds of records: pins, and when each was used last.

A pin is a small file, as durable as a record. A use is the time of an empty file of the key's name: beside the record,
whose own time says when it was published, as what is derived from records is not to change each time one is used.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from cachekit import files
from cachekit.store import durable
from cachekit.store.durable import Scratch, store_error
from cachekit.store.layout import Layout
from cachekit.store.rwlock import RWLock


class Pin(Struct, frozen=True):
    """A pinned key.

    Attributes:
        key: The key.
        recipe: The name of what it is the key of, for people.
        since: When it was pinned, seconds since the epoch.
    """

    key: str
    recipe: str = ""
    since: float = 0.0


def pinned(layout: Layout) -> dict[str, Pin]:
    """All pins by key. The file's name is what counts: one with nothing readable in it pins all the same."""
    found = {}
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted(layout.pins.iterdir()):
            key = path.name.removesuffix(".json")
            if path.suffix != ".json" or not files.is_digest(key):
                continue
            found[key] = structs.replace(files.noted(path, Pin) or Pin(key), key=key)
    return found


def pin(layout: Layout, rwlock: RWLock, wanted: Pin) -> bool:
    """Pin a key; False where it was pinned already.

    Raises:
        StoreError: The store cannot be written.
    """
    path = layout.pins / f"{wanted.key}.json"
    if path.exists():
        return False
    try:
        # A removal that looked before it sees the pin has ended by then.
        with Scratch(layout.tmp, "pin", layout.inside) as folder, rwlock.read_lock():
            durable.write_bytes(folder, path, layout.home, msgspec.json.encode(wanted) + b"\n", mode=0o644)
    except OSError as error:
        raise store_error(layout.home, error) from error
    return True


def unpin(layout: Layout, key: str) -> bool:
    """Let a key go; False where it was not pinned.

    Raises:
        StoreError: The store cannot be written.
    """
    try:
        layout.inside.unlink(layout.pins / f"{key}.json")
    except FileNotFoundError:
        return False
    except OSError as error:
        raise store_error(layout.home, error) from error
    return True


def note_use(layout: Layout, key: str) -> None:
    """Note that a record is used now; never fails a run on a store that cannot be written."""
    with suppress(OSError), layout.inside.folder(layout.used, make=True) as folder:
        try:
            os.utime(key, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            files.touch(Path(key), above=folder)


def last_use(layout: Layout, key: str, published: float) -> float:
    """When a record was used last, in seconds since the epoch: when it was published, where it never was."""
    path = f"{layout.used}/{key}"
    with suppress(OSError):
        if os.access(path, os.F_OK):  # most records have none: to be told so takes a third of what an error does
            return max(os.stat(path).st_mtime, published)  # noqa: PTH116 - of many records
    return published


def uses(layout: Layout) -> dict[str, Path]:
    """Every note, by key."""
    try:
        return {path.name: path for path in layout.used.iterdir()}
    except OSError:
        return {}
