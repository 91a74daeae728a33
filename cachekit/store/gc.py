"""Remove from the store what is not needed: blobs of no record, and records beyond a size, an age or a compiler.

Which records go first is decided by their last use. Pinned ones stay, and those that somebody uses at this moment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from cachekit.store import uses
from cachekit.store.garbage import Garbage, garbage, quarantined, unfinished
from cachekit.store.in_use import held
from cachekit.store.index import Index
from cachekit.store.index_rows import DIGEST, IndexRow
from cachekit.store.layout import Layout
from cachekit.store.pins import pinned
from cachekit.store.removal import Going, Removed, Remover, Victim, check_readable
from cachekit.values import Answer

if TYPE_CHECKING:
    from cachekit.store.store import Store

RECENT = 86_400.0  # seconds: somebody may still be fetching it


class Keep(Struct, frozen=True):
    """What may stay.

    Attributes:
        max_size: Bytes of the whole store; None is no limit.
        max_age: Seconds since a record was used last; None is no limit.
        compiler: Only records of compilers' folders, or of versions in their names, that fit this pattern go; all of
            them where no limit is given. Empty means all compilers.
    """

    max_size: int | None = None
    max_age: float | None = None
    compiler: str = ""


class GoneFile(Struct, frozen=True, omit_defaults=True):
    """A file or folder that goes: its path below the store's folder where it lies in that, and why."""

    path: str
    bytes: int
    why: str = ""


class GoneRecord(Struct, frozen=True):
    """A record that goes, with its files; `last_used` is UTC, ISO 8601."""

    key: str
    recipe: str
    directory: str
    model_type: str
    last_used: str
    why: str
    bytes: int
    files: tuple[GoneFile, ...]


class Stayed(Struct, frozen=True):
    """A record that was to go and stayed."""

    key: str
    why: str


class Collected(Answer, frozen=True):
    """What went, or would go.

    Attributes:
        dry_run: Nothing was removed.
        records: In the order in which they go.
        files: Everything else.
        kept: What was to go and stayed.
        bytes: That went.
        before: Bytes of the store.
        after: And afterwards.
        max_size: What was asked for, and so are the next two; see `Keep`.
        pinned_bytes: Of the records that stay because they are pinned.
        used_bytes: And because somebody uses them now.
        seconds: Wall time.
    """

    dry_run: bool
    records: tuple[GoneRecord, ...]
    files: tuple[GoneFile, ...]
    kept: tuple[Stayed, ...]
    bytes: int
    before: int
    after: int
    max_size: int | None
    max_age: float | None
    compiler: str
    pinned_bytes: int
    used_bytes: int
    seconds: float = 0.0


def gc(store: Store, live: Path, keep: Keep, *, dry_run: bool = False) -> Collected:
    """Remove what is not needed, while other processes use the store.

    Raises:
        StoreError: The store cannot be written, or not all of its records be read.
        WaitedTooLongError: Others publish all the time.
    """
    start = time.monotonic()
    plan = _Plan(store, live, keep)
    if dry_run:
        removed = Removed(plan.records, {one.path: one.size for one in plan.garbage} | plan.orphans)
    else:
        remover = Remover(store, tell=lambda count: store.journal.show("gc.removing", files=count))
        remover.garbage(plan.garbage)
        remover.blobs([path.name for path in plan.orphans])
        remover.records([victim for victim, _ in plan.records])
        removed = remover.removed
        if removed.records:
            store.index.tidy()
    done = plan.told(removed, dry_run=dry_run, seconds=round(time.monotonic() - start, 3))
    if not dry_run:
        store.journal.emit(
            "gc.end", records=len(done.records), files=len(done.files), bytes=done.bytes, before=done.before,
            after=done.after, seconds=done.seconds,
        )  # fmt: skip
    return done


class _Plan:
    """What goes, decided at one moment.

    Attributes:
        garbage: Garbage that goes.
        orphans: Blobs that no record names and no process uses, by path, with sizes.
        records: Records that go, each with its files and their sizes.
    """

    def __init__(self, store: Store, live: Path, keep: Keep) -> None:
        self._layout = layout = store.layout
        self._keep = keep
        self._now = time.time()
        self._pins = frozenset(pinned(layout))
        self._held = held(layout)
        index = store.refresh(exact=True)
        check_readable(index, layout)
        rows = list(index.rows(flawed=True))
        self.garbage = garbage(layout, live, {row.key for row in rows} | self._pins)
        self.orphans: dict[Path, int] = {}
        self._before = sum(row.size for row in rows)
        for found in scanned(layout, index):
            self._before += sum(found.blobs.values()) + sum(found.unknown.values())
            own = {layout.blob(one): of for one, of in found.orphans.items() if one not in self._held.blobs}
            self.orphans |= own
        self._before += sum(size for _, _, size in (*quarantined(layout), *unfinished(layout)))
        apart = {layout.partial, layout.quarantine}  # counted already
        self._before += sum(one.size for one in self.garbage if one.path.parent not in apart)
        self._size = self._before - sum(one.size for one in self.garbage) - sum(self.orphans.values())
        self._press()
        self.records = list(self._choose(index, rows))
        going = {victim.row.id for victim, _ in self.records}
        stay = [row for row in rows if row.id not in going]
        self._pinned = _bytes(layout, index, (row for row in stay if row.key in self._pins))
        self._used = _bytes(layout, index, (row for row in stay if row.key in self._held.keys - self._pins))

    def told(self, removed: Removed, *, dry_run: bool, seconds: float) -> Collected:
        """The answer, for what went or would go."""
        records = tuple(
            GoneRecord(
                victim.row.key,
                victim.row.recipe,
                victim.row.directory,
                victim.row.model_type,
                datetime.fromtimestamp(victim.used, timezone.utc).isoformat(timespec="seconds"),
                victim.why,
                sum(own.values()),
                tuple(GoneFile(self._below(path), size) for path, size in own.items()),
            )
            for victim, own in removed.records
        )
        reasons = {one.path: one.why for one in self.garbage}
        files = tuple(
            GoneFile(self._below(path), size, reasons.get(path, "of no record")) for path, size in removed.files.items()
        )
        size = sum(one.bytes for one in records) + sum(one.bytes for one in files)
        return Collected(
            dry_run=dry_run,
            records=records,
            files=files,
            kept=tuple(Stayed(victim.row.key, why) for victim, why in removed.kept),
            bytes=size,
            before=self._before,
            after=self._before - size,
            max_size=self._keep.max_size,
            max_age=self._keep.max_age,
            compiler=self._keep.compiler,
            pinned_bytes=self._pinned,
            used_bytes=self._used,
            seconds=seconds,
        )

    def _below(self, path: Path) -> str:
        home = self._layout.home
        return str(path.relative_to(home)) if path.is_relative_to(home) else str(path)

    def _press(self) -> None:
        """Under pressure what was set aside goes before anything of use, the oldest first."""
        limit = self._keep.max_size
        if limit is None:
            return
        known = {one.path for one in self.garbage}
        old = [one for one in unfinished(self._layout) if one[0] < self._now - RECENT]
        for _, path, size in sorted([*quarantined(self._layout), *old]):
            if self._size <= limit:
                return
            if path not in known:
                self.garbage.append(Garbage(path, size, "beyond the limit, and of no use"))
                self._size -= size

    def _choose(self, index: Index, rows: Iterable[IndexRow]) -> Iterator[tuple[Victim, dict[Path, int]]]:
        """The records that go, each with its files."""
        keep = self._keep
        everything = keep.compiler and keep.max_size is None and keep.max_age is None
        victims = self._candidates(rows)
        going = Going(self._layout, index, self._held.blobs, [victim.row for victim in victims])
        for victim in victims:
            if everything:
                why = f"of {victim.row.directory}"
            elif keep.max_age is not None and self._now - victim.used > keep.max_age:
                why = "not used for so long"
            elif keep.max_size is not None and self._size > keep.max_size:
                why = "beyond the limit"
            else:
                continue
            files = going.take(victim.row)
            self._size -= sum(files.values())
            yield structs.replace(victim, why=why), files

    def _candidates(self, rows: Iterable[IndexRow]) -> list[Victim]:
        layout = self._layout
        found = [
            Victim(row, uses.last(layout, row.key, row.published), "")
            for row in rows
            if (row.usable or row.flaw)  # not a later cachekit's
            and row.key not in self._pins
            and row.key not in self._held.keys
            and fits(row.directory, self._keep.compiler)
        ]
        pending = {path.name for path in layout.remotes.glob("*/pending/*")}  # no other place has them yet
        return sorted(found, key=lambda victim: (victim.row.key in pending, victim.used, victim.row.place))


def fits(directory: str, pattern: str) -> bool:
    """Whether a compiler's folder, its version, or that without its commit, fits a pattern; all fit none."""
    version = directory.partition("-")[2]
    names = {directory, version, directory.partition("+")[0], version.partition("+")[0]}
    return not pattern or any(fnmatchcase(name, pattern) for name in names)


class ScannedBlobs(Struct, frozen=True):
    """What lies in a folder of blobs, with sizes: the blobs, those that no record names, and other files by path."""

    blobs: dict[str, int]
    orphans: dict[str, int]
    unknown: dict[Path, int]


def scanned(layout: Layout, index: Index) -> Iterator[ScannedBlobs]:
    """What lies among the blobs, a folder at a time."""
    try:
        folders = sorted(path for path in layout.blobs.iterdir() if path.is_dir() and not path.is_symlink())
    except (FileNotFoundError, NotADirectoryError):
        return
    for folder in folders:
        found: dict[str, int] = {}
        unknown: dict[Path, int] = {}
        try:
            with os.scandir(folder) as items:
                for item in items:
                    size = item.stat(follow_symlinks=False).st_size
                    is_blob = item.name[:2] == folder.name and DIGEST.fullmatch(item.name)
                    if is_blob and item.is_file(follow_symlinks=False):
                        found[item.name] = size
                    else:
                        unknown[Path(item.path)] = size
        except FileNotFoundError:
            continue
        named = index.named_below(folder.name) if found else set()
        yield ScannedBlobs(found, {digest: size for digest, size in found.items() if digest not in named}, unknown)


def _bytes(layout: Layout, index: Index, rows: Iterable[IndexRow]) -> int:
    named = index.named_by(row.id for row in rows)
    total = 0
    for digest in {digest for digests in named.values() for digest in digests}:
        try:
            total += layout.blob(digest).stat().st_size
        except OSError:
            continue
    return total
