"""Take chosen records out of the store: `cachekit store rm`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cachekit.errors import UsageError
from cachekit.store import pins
from cachekit.store.gc import GoneFile, below
from cachekit.store.index_rows import IndexRow
from cachekit.store.removal import Going, Remover, Victim, check_readable
from cachekit.store.rwlock import used_now
from cachekit.values import Answer
from cachekit.verbs.entry import row_of
from cachekit.verbs.session import Session


class Deleted(Answer, frozen=True):
    """A record that went, or would go.

    Attributes:
        dry_run: Nothing was removed.
        unpinned: It was pinned.
        bytes: Of what goes with it.
        shared_bytes: Of blobs that stay, because other records name them or a process uses them.
        files: What goes with it.
    """

    key: str
    recipe: str
    directory: str
    model_type: str
    dry_run: bool
    unpinned: bool
    bytes: int
    shared_bytes: int
    files: tuple[GoneFile, ...]


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
    index = session.store.refresh(exact=True)
    check_readable(index, layout)
    rows = list({row.place: row for row in (_row(session, name) for name in names)}.values())
    pinned, now = pins.pinned(layout), used_now(layout)
    for row in rows if not force else ():
        if row.key in pinned:
            raise UsageError(
                f"{row.recipe} ({row.key[:16]}) is pinned",
                cause="a pinned record is kept until it is unpinned",
                hint=f"cachekit store unpin {row.key[:16]}, or --force",
            )
        if row.key in now.keys:
            raise UsageError(
                f"{row.recipe} ({row.key[:16]}) is in use",
                cause=f"by process {', '.join(map(str, now.processes))}",
                hint="wait for it, or --force: it keeps what it needs until it is done",
            )
    named = {row.place: index.named(row) for row in rows}
    if dry_run:
        going = Going(layout, index, now.blobs, [row.id for row in rows])
        taken = [(row, going.take(row)) for row in rows]
    else:
        remover = Remover(session.store)
        remover.records([Victim(row, time.time(), "named") for row in rows], force=force)
        for row in rows:
            if row.key in pinned:
                pins.unpin(layout, row.key)
        taken = [(victim.row, files) for victim, files in remover.removed.records]
        if remover.removed.kept:
            victim, why = remover.removed.kept[0]
            raise UsageError(f"{victim.row.key[:16]} was not removed: {why}", hint="try again")
        session.journal.emit(
            "rm.end", keys=[row.key for row, _ in taken], bytes=sum(sum(files.values()) for _, files in taken)
        )
    return [
        Deleted(
            row.key, row.recipe, row.directory, row.model_type, dry_run, row.key in pinned, sum(files.values()),
            sum(max(size, 0) for digest, size in named[row.place].items() if str(layout.blob(digest)) not in files),
            tuple(GoneFile(below(layout, path), size) for path, size in files.items()),
        )
        for row, files in taken
    ]  # fmt: skip


def _row(session: Session, name: str) -> IndexRow:
    """The record that a person means; one that is damaged, or not to be used, too: nobody else would find it."""
    rows = session.store.index.by_prefix(name.lower())
    return row_of([row for row in rows if not row.flaw] or rows, name)
