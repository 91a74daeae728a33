"""Pin keys, so that their records stay in the store whatever limits are set; let them go; say which are pinned."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from cachekit.key.canonical import DIGITS
from cachekit.store import Store
from cachekit.store import pins as noted
from cachekit.store.pins import Pin
from cachekit.values import Answer
from cachekit.verbs.entry import Named, one_of


class Pinned(Answer, frozen=True, tag="cachekit/pin/1"):
    """A pin, and what it keeps.

    Attributes:
        pinned: Since when, in UTC, ISO 8601; empty where that is unknown.
        directory: The compiler's folder of the key's record.
        bytes: Of the key's record; None where the store has none yet.
        changed: This command made the pin, or took it away; or it would.
        dry_run: Nothing was written.
    """

    key: str
    recipe: str
    pinned: str
    directory: str
    bytes: int | None
    changed: bool
    dry_run: bool = False


def pin(store: Store, wanted: Sequence[Named], *, dry_run: bool = False) -> list[Pinned]:
    """Pin keys. One without a record keeps what will be made for it. A dry run only says which would be pinned.

    Raises:
        UnknownNameError: Digits fit no record, or several.
        StoreError: The store cannot be written.
    """
    known = _records(store)
    chosen = [(_key(one, known), one.recipe) for one in wanted]
    made = []
    for key, recipe in chosen:
        name = recipe or (known[key][0] if key in known else "")
        if dry_run:
            fresh = key not in noted.pinned(store.layout)
        else:
            fresh = noted.pin(store.layout, store.rwlock, Pin(key, name, time.time()))
        now = noted.pinned(store.layout).get(key, Pin(key, name))
        made.append(_pinned(now, known, changed=fresh, dry_run=dry_run))
    return made


def unpin(store: Store, wanted: Sequence[Named], *, dry_run: bool = False) -> list[Pinned]:
    """Let keys go. A dry run only says which would be.

    Raises:
        UnknownNameError: Digits fit no pin, or several.
        StoreError: The store cannot be written.
    """
    known, pins = _records(store), noted.pinned(store.layout)
    chosen = [one.key if one.recipe else _key(one, pins, "pin") for one in wanted]
    done = []
    for key, one in zip(chosen, wanted, strict=True):
        gone = key in pins if dry_run else noted.unpin(store.layout, key)
        done.append(_pinned(pins.get(key, Pin(key, one.recipe)), known, changed=gone, dry_run=dry_run))
    return done


def pins(store: Store) -> list[Pinned]:
    """Every pin, in the order of keys."""
    known = _records(store)
    return [_pinned(one, known, changed=False) for one in noted.pinned(store.layout).values()]


def _records(store: Store) -> dict[str, tuple[str, str, int]]:
    """Recipe, compiler's folder and bytes of each record, by key."""
    return {one.key: (one.recipe, one.directory, one.bytes) for one in store.rows()}


def _pinned(pin: Pin, known: dict[str, tuple[str, str, int]], *, changed: bool, dry_run: bool = False) -> Pinned:
    _, directory, size = known.get(pin.key, ("", "", None))
    since = datetime.fromtimestamp(pin.since, timezone.utc).isoformat(timespec="seconds") if pin.since else ""
    return Pinned(pin.key, pin.recipe, since, directory, size, changed, dry_run)


def _key(one: Named, known: Iterable[str], what: str = "record") -> str:
    if one.recipe or (len(one.key) == DIGITS and what == "record"):
        return one.key
    hint = "`cachekit store ls` lists the keys, `cachekit store pin --list` those that are pinned"
    return one_of(known, one.key, what, hint)
