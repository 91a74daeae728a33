"""Two builds of one key with other bytes: who made which, told once and kept for `coverage`.

A compiler that is not deterministic does so, and so does a machine that is broken, or somebody who must not push. Which
of the two serves is decided elsewhere; here nothing is changed.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from cachekit.events import Journal
from cachekit.store.layout import Layout
from cachekit.store.record import Record, twins

HERE = "local"
MOST = 20  # notes that are kept of a key, the youngest


def tell(layout: Layout, journal: Journal, ours: Record, theirs: Record, where: str) -> bool:
    """Tell of two builds of a key, once for each pair; nothing where their bytes are the same.

    Args:
        layout: The store's.
        journal: Gets `record.differs`.
        ours: What this machine has, or makes.
        theirs: What lies in the other place.
        where: That place: a tier's name, or `HERE` for the store itself.

    Returns:
        Whether they differ.
    """
    found = twins(ours, theirs)
    if not found:
        return False
    note = {
        "key": ours.key,
        "recipe": ours.recipe,
        "where": where,
        "modules": [
            {"name": one.module, "ours": one.ours, "theirs": one.theirs, "files": list(one.files)} for one in found
        ],
        "ours": builder(ours),
        "theirs": builder(theirs),
    }
    notes = noted(layout, ours.key)
    if not any(_same(note, old) for old in notes):
        _write(layout, ours.key, [*notes, note][-MOST:])
        journal.emit("record.differs", **note)
    return True


def builder(record: Record) -> dict[str, Any]:
    """Who made a record, as far as it says."""
    made = record.provenance
    return {
        "by": f"{made.user}@{made.host}",
        "created": made.created,
        "cachekit": made.cachekit,
        "platform": made.platform,
        "instance": made.instance,
    }


def noted(layout: Layout, key: str) -> list[dict[str, Any]]:
    """What has been told of a key's builds, the oldest first."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(layout.builds(key).read_bytes())
        if isinstance(found, list):
            return [note for note in found if isinstance(note, dict)]
    return []


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[name] == other.get(name) for name in ("where", "modules"))


def _write(layout: Layout, key: str, notes: list[dict[str, Any]]) -> None:
    path = layout.builds(key)
    with suppress(OSError):  # a store that cannot be written: it is told again
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps(notes), encoding="utf-8")
        fresh.replace(path)
