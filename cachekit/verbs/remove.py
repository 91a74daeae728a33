"""Take chosen records out of the store: `cachekit rm`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachekit.errors import UnknownNameError, UsageError
from cachekit.store import pins
from cachekit.store.gate import held
from cachekit.store.reach import Entry, Reach
from cachekit.store.removal import Remover, Victim, files_of
from cachekit.values import by_value
from cachekit.verbs.inspect import find
from cachekit.verbs.session import Session


@dataclass(frozen=True, slots=True)
class Deleted:
    """A record that went, or would go.

    Attributes:
        entry: The record.
        home: The store's folder.
        files: What goes with it, with sizes; blobs that other records name stay.
        shared: Bytes of those.
        dry_run: Nothing was removed.
        unpinned: It was pinned.
    """

    entry: Entry
    home: Path
    files: dict[Path, int]
    shared: int
    dry_run: bool
    unpinned: bool

    __hash__ = by_value

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "key": self.entry.key,
            "recipe": self.entry.recipe,
            "directory": self.entry.directory,
            "model_type": self.entry.model_type,
            "dry_run": self.dry_run,
            "unpinned": self.unpinned,
            "bytes": sum(self.files.values()),
            "shared_bytes": self.shared,
            "files": [{"path": str(path.relative_to(self.home)), "bytes": n} for path, n in self.files.items()],
        }


def remove(session: Session, names: Sequence[str], *, force: bool = False, dry_run: bool = False) -> list[Deleted]:
    """Remove records, with what only they name.

    Args:
        session: Collaborators.
        names: Keys, or the first digits of each.
        force: Pinned ones too, and those that a running process uses: it keeps what it needs until it is done.
        dry_run: Only say what would go.

    Raises:
        UnknownNameError: Digits fit no record, or several. Nothing was removed.
        UsageError: A record is pinned, or in use. Nothing was removed.
        StoreError: The store cannot be written.
    """
    layout = session.store.layout
    reach = session.store.reach()
    entries = list({entry.path: entry for entry in (_entry(session, reach, name) for name in names)}.values())
    pinned, now = pins.pinned(layout), held(layout)
    for entry in entries if not force else ():
        if entry.key in pinned:
            raise UsageError(
                f"{entry.key[:16]} is pinned", cause=entry.recipe, hint=f"cachekit unpin {entry.key[:16]}, or --force"
            )
        if entry.key in now.keys:
            raise UsageError(
                f"{entry.key[:16]} is in use",
                cause=f"by process {', '.join(map(str, now.processes))}",
                hint="wait for it, or --force: it keeps what it needs until it is done",
            )
    before = {entry.path: set(entry.files) for entry in entries}
    if dry_run:
        pretend = reach.copied()
        taken = [(entry, files_of(layout, pretend, entry, now.blobs)) for entry in entries]
    else:
        remover = Remover(layout, session.store.gate, reach)
        remover.records([Victim(entry, time.time(), "named") for entry in entries], force=force)
        for entry in entries:
            if entry.key in pinned:
                pins.unpin(layout, entry.key)
        taken = [(victim.entry, files) for victim, files in remover.removed.records]
        if remover.removed.kept:
            victim, why = remover.removed.kept[0]
            raise UsageError(f"{victim.entry.key[:16]} stays: {why} a moment ago", hint="try again")
        session.journal.emit(
            "rm.end", keys=[entry.key for entry, _ in taken], bytes=sum(sum(files.values()) for _, files in taken)
        )
    return [
        Deleted(
            entry, layout.home, files, sum(_size(entry, d) for d in before[entry.path] if layout.blob(d) not in files),
            dry_run, entry.key in pinned,
        )
        for entry, files in taken
    ]  # fmt: skip


def _entry(session: Session, reach: Reach, name: str) -> Entry:
    """The record that a person means; a damaged one, too, which nobody else would find."""
    flawed = [entry for entry in reach.entries.values() if entry.key.startswith(name.lower()) and entry.flaw]
    try:
        record = find(session.store, name)
    except UnknownNameError:
        if len(flawed) != 1:
            raise
        return flawed[0]
    path = session.store.layout.record(record.directory, record.model_type, record.key)
    if path not in reach.entries:
        raise UnknownNameError(f"no records begin with {name!r}", cause="it went a moment ago")
    return reach.entries[path]


def _size(entry: Entry, digest: str) -> int:
    return max(entry.files[digest], 0)
