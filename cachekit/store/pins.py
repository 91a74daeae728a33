"""Keys whose records stay, whatever limits are set: a small file for each, which is as durable as a record."""

from __future__ import annotations

from contextlib import suppress

import msgspec
from msgspec import Struct, structs

from cachekit import files
from cachekit.store import durable
from cachekit.store.durable import store_error
from cachekit.store.layout import Layout
from cachekit.store.rwlock import RWLock
from cachekit.store.scratch import Scratch


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
