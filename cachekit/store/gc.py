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

from cachekit.store import staying, uses
from cachekit.store.garbage import Garbage, garbage, origins, quarantined, record_of, size_of, unfinished
from cachekit.store.in_use import used_now
from cachekit.store.index import Index
from cachekit.store.index_rows import DIGEST, IndexRow
from cachekit.store.layout import Layout
from cachekit.store.pins import pinned
from cachekit.store.removal import Going, Removed, Remover, Victim, check_readable
from cachekit.values import Answer

if TYPE_CHECKING:
    from cachekit.store.store import Store

RECENT = 86_400.0  # seconds: somebody may still be fetching it
ROUNDS = 5  # that a removal takes at most to keep a limit: others may publish all the time


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
        after: And afterwards, with what others published meanwhile.
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


def gc(store: Store, cache_dirs: Path, keep: Keep, *, dry_run: bool = False) -> Collected:
    """Remove what is not needed, while other processes use the store.

    Others publish and use records meanwhile: as long as the store is above the size limit and more may go, it is
    looked at again.

    Raises:
        StoreError: The store cannot be written, or not all of its records be read.
        WaitedTooLongError: Others publish all the time.
    """
    start = time.monotonic()
    first = last = _Plan(store, cache_dirs, keep)
    if dry_run:
        removed = Removed(first.records, {one.path: one.size for one in first.garbage} | first.orphans)
        reasons, after = first.reasons(), first.after
    else:
        remover = Remover(store, tell=lambda count: store.journal.show("gc.removing", files=count))
        removed, reasons = remover.removed, {}
        for _ in range(ROUNDS):
            reasons |= last.reasons()
            remover.garbage(last.garbage)
            remover.blobs([path.name for path in last.orphans])
            remover.records([victim for victim, _ in last.records])
            last = _Plan(store, cache_dirs, keep)
            if keep.max_size is None or last.before <= keep.max_size or last.is_empty:
                break
        after = last.before
        if removed.records:
            store.index.tidy()
    records = tuple(first.record(*one) for one in removed.records)
    files = first.files(removed.files, reasons)
    done = Collected(
        dry_run=dry_run,
        records=records,
        files=files,
        kept=last.kept(removed),
        bytes=sum(one.bytes for one in records) + sum(one.bytes for one in files),
        before=first.before,
        after=after,
        max_size=keep.max_size,
        max_age=keep.max_age,
        compiler=keep.compiler,
        pinned_bytes=last.pinned,
        used_bytes=last.used,
        seconds=round(time.monotonic() - start, 3),
    )
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
        before: Bytes of the store.
        after: And when all of that is gone.
        pinned: Bytes of the records that stay because they are pinned.
        used: And because somebody uses them now.
    """

    def __init__(self, store: Store, cache_dirs: Path, keep: Keep) -> None:
        self._layout = layout = store.layout
        self._keep = keep
        self._now = time.time()
        self._pins = frozenset(pinned(layout))
        self._used_now = used_now(layout)
        index = store.refresh(exact=True)
        check_readable(index, layout)
        rows = list(index.rows(flawed=True))
        self._places = {row.place for row in rows}
        self.garbage = garbage(layout, cache_dirs, {row.key for row in rows} | self._pins)
        self.orphans: dict[Path, int] = {}
        self.before = sum(row.size for row in rows)
        for found in scanned(layout, index):
            self.before += sum(found.blobs.values()) + sum(found.unknown.values())
            own = {layout.blob(one): of for one, of in found.orphans.items() if one not in self._used_now.blobs}
            self.orphans |= own
        self.before += sum(size for path, size in origins(layout) if record_of(layout, path).exists())
        gone = {one.path for one in self.garbage}
        self.before += sum(size_of(path) for path in staying.paths(layout) if path not in gone)
        self.before += sum(size for _, _, size in (*quarantined(layout), *unfinished(layout)))
        apart = {layout.partial, layout.quarantine}  # counted already
        self.before += sum(one.size for one in self.garbage if one.path.parent not in apart)
        self.after = self.before - sum(one.size for one in self.garbage) - sum(self.orphans.values())
        self._press()
        self.records = list(self._choose(index, rows))
        going = {victim.row.id for victim, _ in self.records}
        stay = [row for row in rows if row.id not in going]
        self.pinned = _bytes(layout, index, (row for row in stay if row.key in self._pins))
        self.used = _bytes(layout, index, (row for row in stay if row.key in self._used_now.keys - self._pins))

    @property
    def is_empty(self) -> bool:
        """Nothing goes."""
        return not (self.garbage or self.orphans or self.records)

    def reasons(self) -> dict[Path, str]:
        """Why each file that is no record's goes, but for the orphans."""
        return {one.path: one.why for one in self.garbage}

    def record(self, victim: Victim, own: dict[Path, int]) -> GoneRecord:
        """A record that went, or would go, with its files, as the answer has it."""
        row = victim.row
        return GoneRecord(
            row.key,
            row.recipe,
            row.directory,
            row.model_type,
            datetime.fromtimestamp(victim.used, timezone.utc).isoformat(timespec="seconds"),
            victim.why,
            sum(own.values()),
            tuple(GoneFile(self._below(path), size) for path, size in own.items()),
        )

    def files(self, gone: dict[Path, int], reasons: dict[Path, str]) -> tuple[GoneFile, ...]:
        """Files of no record that went, or would go, as the answer has them."""
        return tuple(
            GoneFile(self._below(path), size, reasons.get(path, "of no record")) for path, size in gone.items()
        )

    def kept(self, removed: Removed) -> tuple[Stayed, ...]:
        """What was to go and is there still, each once."""
        found = {victim.row.key: why for victim, why in removed.kept if victim.row.place in self._places}
        return tuple(Stayed(key, why) for key, why in found.items())

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
            if self.after <= limit:
                return
            if path not in known:
                self.garbage.append(Garbage(path, size, "beyond the limit, and of no use"))
                self.after -= size

    def _choose(self, index: Index, rows: Iterable[IndexRow]) -> Iterator[tuple[Victim, dict[Path, int]]]:
        """The records that go, each with its files."""
        keep = self._keep
        everything = keep.compiler and keep.max_size is None and keep.max_age is None
        victims = self._candidates(rows)
        going = Going(self._layout, index, self._used_now.blobs, [victim.row for victim in victims])
        for victim in victims:
            if everything:
                why = f"of {victim.row.directory}"
            elif keep.max_age is not None and self._now - victim.used > keep.max_age:
                why = "not used for so long"
            elif keep.max_size is not None and self.after > keep.max_size:
                why = "beyond the limit"
            else:
                continue
            files = going.take(victim.row)
            self.after -= sum(files.values())
            yield structs.replace(victim, why=why), files

    def _candidates(self, rows: Iterable[IndexRow]) -> list[Victim]:
        layout = self._layout
        found = [
            Victim(row, uses.last(layout, row.key, row.published), "")
            for row in rows
            if (row.usable or row.flaw)  # not a later cachekit's
            and row.key not in self._pins
            and row.key not in self._used_now.keys
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
