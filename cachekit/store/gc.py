"""Remove from the store what is not needed: blobs of no record, and records beyond a size, an age or a compiler.

Which records go first is decided by their last use. Pinned ones stay, and those that somebody uses at this moment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cachekit.files import is_digest
from cachekit.store import staying
from cachekit.store.garbage import Garbage, garbage, origins, quarantined, record_of, size_of, unfinished
from cachekit.store.index import Index
from cachekit.store.layout import Layout
from cachekit.store.pins import last_use, pinned
from cachekit.store.removal import AHEAD, Going, Removed, Remover, Victim, check_readable
from cachekit.store.rwlock import used_now
from cachekit.text import DAY
from cachekit.values import Answer

if TYPE_CHECKING:
    from cachekit.store.index_rows import IndexRow
    from cachekit.store.store import Store

RECENT = DAY  # seconds: somebody may still be fetching it
ROUNDS = 5  # that a removal takes at most to keep a limit: others may publish all the time


class Keep(Struct, frozen=True):
    """What may stay.

    Attributes:
        max_size: Bytes of the whole store; None means no limit.
        max_age: Seconds since a record was used last; None means no limit.
        compiler: Only records of compilers' folders, or of versions in their names, that fit this pattern go; all of
            them where no limit is given. Empty means all compilers.
    """

    max_size: int | None = None
    max_age: float | None = None
    compiler: str = ""


class GoneFile(Struct, frozen=True, omit_defaults=True, gc=False):
    """A file or folder that goes: its path below the store's folder where it lies in that, and why."""

    path: str
    bytes: int
    why: str = ""


class GoneRecord(Struct, frozen=True, gc=False):
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


class Collected(Answer, frozen=True, tag="cachekit/gc/1"):
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
    layout = store.layout
    first = last = _Plan(store, cache_dirs, keep, dry_run=dry_run)
    if dry_run:
        removed = Removed(files={str(one.path): one.size for one in first.garbage})
        removed.files |= {str(layout.blob(digest)): size for digest, size in first.orphans.items()}
        reasons, after, records = first.reasons(), first.after, tuple(first.told)
    else:
        remover = Remover(store, tell=lambda count: store.journal.show("gc.removing", files=count))
        removed, reasons = remover.removed, {}
        for _ in range(ROUNDS):
            reasons |= last.reasons()
            remover.garbage(last.garbage)
            remover.blobs([*last.orphans])
            remover.records(last.victims)
            last = _Plan(store, cache_dirs, keep)
            if keep.max_size is None or last.before <= keep.max_size or last.is_empty:
                break
        after = last.before
        if removed.records:
            store.index.tidy()
        records = tuple(_told(layout, *one) for one in removed.records)
    files = tuple(
        GoneFile(below(layout, path), size, reasons.get(path, "of no record")) for path, size in removed.files.items()
    )
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

    Of many records no more is held than is asked for: what goes, or what is told of it.

    Attributes:
        garbage: Garbage that goes.
        orphans: Blobs that no record names and no process uses, by digest, with sizes.
        victims: Records that go, where they are to be removed.
        told: And where they are only to be told.
        before: Bytes of the store.
        after: And when all of that is gone.
        pinned: Bytes of the records that stay because they are pinned.
        used: And because somebody uses them now.
    """

    def __init__(self, store: Store, cache_dirs: Path, keep: Keep, *, dry_run: bool = False) -> None:
        self._layout = layout = store.layout
        self._keep = keep
        self._now = time.time()
        self._pins = frozenset(pinned(layout))
        self._used_now = used_now(layout)
        self._index = index = store.refresh(exact=True, checked=True)  # sizes decide how much goes
        check_readable(index, layout)
        keys, pinned_rows, used_rows = set(self._pins), list[int](), list[int]()
        self.before = 0
        for row in index.rows(flawed=True):
            keys.add(row.key)
            self.before += row.size
            if row.key in self._pins:
                pinned_rows.append(row.id)
            elif row.key in self._used_now.keys:
                used_rows.append(row.id)
        self.garbage = garbage(layout, cache_dirs, keys)
        del keys
        self.orphans: dict[str, int] = {}
        for found in scanned(layout, index):
            self.before += sum(found.blobs.values()) + sum(found.unknown.values())
            self.orphans |= {one: of for one, of in found.orphans.items() if one not in self._used_now.blobs}
        self.before += sum(size for path, size in origins(layout) if record_of(layout, path).exists())
        gone = {one.path for one in self.garbage}
        self.before += sum(size_of(path) for path in staying.paths(layout) if path not in gone)
        self.before += sum(size for _, _, size in (*quarantined(layout), *unfinished(layout)))
        apart = {layout.partial, layout.quarantine}  # counted already
        self.before += sum(one.size for one in self.garbage if one.path.parent not in apart)
        self.after = self.before - sum(one.size for one in self.garbage) - sum(self.orphans.values())
        self._press()
        self.victims: list[Victim] = []
        self.told: list[GoneRecord] = []
        for victim, files in self._choose():
            if dry_run:
                self.told.append(_told(layout, victim, files))
            else:
                self.victims.append(victim)
        self.pinned = _bytes(layout, index, pinned_rows)
        self.used = _bytes(layout, index, used_rows)

    @property
    def is_empty(self) -> bool:
        """Nothing goes."""
        return not (self.garbage or self.orphans or self.victims)

    def reasons(self) -> dict[str, str]:
        """Why each file that is not a record's goes, by path, but for the orphans."""
        return {str(one.path): one.why for one in self.garbage}

    def kept(self, removed: Removed) -> tuple[Stayed, ...]:
        """What was to go and is there still, each once."""
        found = {victim.row.key: why for victim, why in removed.kept if self._layout.record(victim.row.place).exists()}
        return tuple(Stayed(key, why) for key, why in found.items())

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

    def _choose(self) -> Iterator[tuple[Victim, dict[str, int]]]:
        """The records that go, each with its files."""
        keep = self._keep
        everything = keep.compiler and keep.max_size is None and keep.max_age is None
        found = self._candidates(everything=bool(everything) or self._is_beyond())
        numbers = [number for *_, number in found]
        going = Going(self._layout, self._index, self._used_now.blobs, numbers)
        rows: dict[int, IndexRow] = {}
        for place, (_, used, number) in enumerate(found):
            if not (everything or self._is_old(used) or self._is_beyond()):
                continue
            if number not in rows:
                rows = self._index.rows_of(numbers[place : place + AHEAD])
            row = rows.get(number)
            if row is None:
                continue  # another one was quicker
            if everything:
                why = f"of {row.directory}"
            else:
                why = "not used for that long" if self._is_old(used) else "beyond the limit"
            files = going.take(row)
            self.after -= sum(files.values())
            yield Victim(row, used, why), files

    def _is_old(self, used: float) -> bool:
        return self._keep.max_age is not None and self._now - used > self._keep.max_age

    def _is_beyond(self) -> bool:
        """Whether what is left is more than may stay."""
        return self._keep.max_size is not None and self.after > self._keep.max_size

    def _candidates(self, *, everything: bool) -> list[tuple[bool, float, int]]:
        """The records that may go, in the order in which they do: all of them, or those that are too old.

        Of each whether a push of it is to be tried again, when it was used last, and the number of its row.
        """
        layout = self._layout
        if not everything and self._keep.max_age is None:
            return []
        pending = {path.name for path in layout.pending()}  # no other place has them yet
        found = [
            (row.key in pending, used, row.id)
            for row in self._index.rows(flawed=True)
            if (row.usable or row.flaw)  # not a later cachekit's
            and row.key not in self._pins
            and row.key not in self._used_now.keys
            and fits(row.directory, self._keep.compiler)
            and (self._is_old(used := last_use(layout, row.key, row.published)) or everything)
        ]
        found.sort(key=lambda one: one[:2])  # those alike stay in order of paths
        return found


def _told(layout: Layout, victim: Victim, files: dict[str, int]) -> GoneRecord:
    """A record that went, or would go, with its files, as the answer has it."""
    row = victim.row
    return GoneRecord(
        row.key,
        row.recipe,
        row.directory,
        row.model_type,
        _moment(int(victim.used)),
        victim.why,
        sum(files.values()),
        tuple([GoneFile(below(layout, path), size) for path, size in files.items()]),
    )


@lru_cache(4096)
def _moment(seconds: int) -> str:
    """A time as answers have it; many records were last used together."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def below(layout: Layout, path: str) -> str:
    """A path as answers have it: below the store's folder where it lies in that."""
    return path.removeprefix(f"{layout.home}{os.sep}")


def fits(directory: str, pattern: str) -> bool:
    """Whether a compiler's folder, its version, or that without its commit, fits a pattern; all fit none."""
    if not pattern:
        return True
    version = directory.partition("-")[2]
    names = {directory, version, directory.partition("+")[0], version.partition("+")[0]}
    return any(fnmatchcase(name, pattern) for name in names)


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
                    is_blob = item.name[:2] == folder.name and is_digest(item.name)
                    if is_blob and item.is_file(follow_symlinks=False):
                        found[item.name] = size
                    else:
                        unknown[Path(item.path)] = size
        except FileNotFoundError:
            continue
        named = index.named_below(folder.name) if found else set()
        yield ScannedBlobs(found, {digest: size for digest, size in found.items() if digest not in named}, unknown)


def _bytes(layout: Layout, index: Index, rows: Iterable[int]) -> int:
    """Of the blobs that records name, by the numbers of their rows."""
    named = index.named_by(rows)
    total = 0
    for digest in {digest for digests in named.values() for digest in digests}:
        try:
            total += layout.blob(digest).stat().st_size
        except OSError:
            continue
    return total
