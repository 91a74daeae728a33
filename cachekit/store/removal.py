"""Take records out of a store, with all that only they name, while others go on.

The order is publishing's, turned round: the record first, then its copy, then the blobs that nobody names any more. A
removal that dies leaves records that are whole, and blobs that nobody names: the next one takes those. Each slice is
done at the gate's exclusive side, in a fraction of a second, after a look at what has been published, used, pinned and
held meanwhile.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cachekit.errors import StoreError
from cachekit.store import durable, uses
from cachekit.store.durable import store_error
from cachekit.store.gate import OFTEN, Gate, Held, held
from cachekit.store.layout import Layout
from cachekit.store.leftovers import Leftover, is_free
from cachekit.store.pins import pinned
from cachekit.store.reach import Entry, Reach
from cachekit.store.scratch import hold

SLICE = 3_000  # files that are removed while others wait
WAIT = 300.0  # seconds for a moment in which nobody publishes
BREATH = 1.5 * OFTEN  # seconds between two slices, in which those who wait come in; without, they hardly ever do


@dataclass(frozen=True, slots=True)
class Victim:
    """A record that is to go.

    Attributes:
        entry: The record.
        used: When it was used last; it stays where it is used after that.
        why: In words.
    """

    entry: Entry
    used: float
    why: str


@dataclass(slots=True)
class Removed:
    """What went.

    Attributes:
        records: Each with its files and their sizes: record, copy, blobs that nobody else names, notes.
        files: Everything else, with sizes.
        kept: What was to go and stayed, with the reason.
    """

    records: list[tuple[Victim, dict[Path, int]]] = field(default_factory=list)
    files: dict[Path, int] = field(default_factory=dict)
    kept: list[tuple[Victim, str]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of it all."""
        return sum(self.files.values()) + sum(sum(files.values()) for _, files in self.records)


class Remover:
    """Removes from one store; see `remove` of each kind.

    Args:
        layout: The store's paths.
        gate: The store's.
        reach: What its records name; kept up to date.
        wait_seconds: How long to wait for a moment in which nobody publishes.
        tell: Told how many files went so far.
    """

    def __init__(
        self,
        layout: Layout,
        gate: Gate,
        reach: Reach,
        *,
        wait_seconds: float = WAIT,
        tell: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._layout = layout
        self._gate = gate
        self._reach = reach
        self._wait = wait_seconds
        self._tell = tell
        self._count = 0
        self.removed = Removed()

    def records(self, victims: Sequence[Victim], *, force: bool = False) -> None:
        """Remove records, with what only they name.

        Args:
            victims: In the order in which they go.
            force: Pinned ones too, and those in use: what is held of those stays until its holder is done.

        Raises:
            StoreError: The store cannot be written, or its index is not whole.
            WaitedTooLongError: Others publish all the time.
        """
        for part in _slices(victims, lambda victim: len(victim.entry.files) + 2):
            with self._alone() as now:
                self._take([victim for victim in part if self._may_go(victim, now, force=force)], now)

    def blobs(self, digests: Sequence[str]) -> None:
        """Remove those of these blobs that nobody names or holds; raises as `records`."""
        for part in _slices(digests, lambda _: 1):
            with self._alone() as now:
                free = (digest for digest in part if digest not in self._reach.named and digest not in now.held.blobs)
                for digest in free:
                    self._blob(digest, self.removed.files)

    def leftovers(self, found: Sequence[Leftover]) -> None:
        """Remove what is left over; raises as `records`."""
        folders = [one for one in found if one.lock is not None and one.path != one.lock and one.path.suffix != ".json"]
        for one in folders:  # their owner's lock is enough, and there may be gigabytes
            self._locked(one)
        for part in _slices([one for one in found if one not in folders], lambda _: 1):
            with self._alone() as now:
                for one in part:
                    if one.path.name in now.held.blobs:
                        continue
                    if one.lock is not None:
                        self._locked(one)
                    elif one.path.parent != self._layout.holds or one.path in now.held.dead:
                        self._unlink(one.path, self.removed.files)

    # One slice

    @contextmanager
    def _alone(self) -> Iterator[_Now]:
        """Alone in the store, and knowing what there is at this moment."""
        try:
            with self._gate.exclusive(self._wait):
                if not (self._layout.records / ".complete").exists():
                    raise StoreError(
                        "the index of the store is not whole",
                        cause="some of it was lost, and nobody knows what it named",
                        hint="`cachekit ls` rebuilds it",
                    )
                self._reach.refresh()
                yield _Now(held(self._layout), frozenset(pinned(self._layout)))
            time.sleep(BREATH)
        except OSError as error:
            raise store_error(self._layout.home, error) from error

    def _may_go(self, victim: Victim, now: _Now, *, force: bool) -> bool:
        entry = victim.entry
        current = self._reach.entries.get(entry.path)
        reason = ""
        if current is None:
            return False  # another one was quicker
        if current.stamp != entry.stamp:
            reason = "it was published anew"
        elif not force and entry.key in now.pins:
            reason = "it was pinned"
        elif not force and entry.key in now.held.keys:
            reason = "it is in use"
        elif not force and uses.last(self._layout, entry.key, entry.published) > victim.used:
            reason = "it was used"
        if reason:
            self.removed.kept.append((victim, reason))
        return not reason

    def _take(self, victims: Sequence[Victim], now: _Now) -> None:
        gone: list[tuple[Victim, dict[Path, int], list[str]]] = []
        for victim in victims:
            files: dict[Path, int] = {}
            self._unlink(victim.entry.path, files)
            gone.append((victim, files, self._reach.drop(victim.entry)))
            self.removed.records.append((victim, files))
        # Durable before a blob goes: else a power cut could bring records back without their blobs.
        for folder in {victim.entry.path.parent for victim in victims}:
            durable.sync_folder(folder)
            for empty in (folder, folder.parent):
                with suppress(OSError):
                    empty.rmdir()
        for victim, files, freed in gone:
            if victim.entry.copy in freed:  # a rebuilt index is made of those
                self._blob(victim.entry.copy, files)
            for note in _beside(self._layout, victim.entry.key):
                self._unlink(note, files)
        for victim, files, freed in gone:
            for digest in freed:
                if digest != victim.entry.copy and digest not in now.held.blobs:
                    self._blob(digest, files)

    def _blob(self, digest: str, files: dict[Path, int]) -> None:
        for path in _blob_files(self._layout, digest):
            self._unlink(path, files)

    def _unlink(self, path: Path, files: dict[Path, int]) -> None:
        try:
            size = path.lstat().st_size
            path.unlink()
        except FileNotFoundError:
            return
        files[path] = size
        self._count += 1
        self._tell(self._count)

    def _locked(self, one: Leftover) -> None:
        """Remove what has an owner's lock, if nobody holds that."""
        assert one.lock is not None
        try:
            handle = hold(one.lock, os.O_RDONLY)
        except FileNotFoundError:
            handle = -1  # a note without a lock
        except OSError:
            return
        if handle is None:
            return
        try:
            if one.path.is_dir():
                shutil.rmtree(one.path, ignore_errors=True)
                if one.path.exists():
                    return  # its lock stays, so that it is found again
            elif one.path != one.lock:
                one.path.unlink(missing_ok=True)
            if one.path == one.lock or one.path.suffix != ".json":
                one.lock.unlink(missing_ok=True)
        finally:
            if handle >= 0:
                os.close(handle)
        self.removed.files[one.path] = one.size
        self._count += 1
        self._tell(self._count)


def _beside(layout: Layout, key: str) -> list[Path]:
    """Small files that go with a record: of its last use, of pushes that were to be tried again, free locks."""
    locks = (layout.locks / f"{key}{ending}" for ending in (".lock", ".record.lock"))
    return [layout.used / key, *layout.remotes.glob(f"*/pending/{key}"), *filter(is_free, locks)]


def files_of(layout: Layout, reach: Reach, entry: Entry, held_blobs: Collection[str] = ()) -> dict[Path, int]:
    """What goes with a record, and how large it is, as `Remover.records` takes it; `reach` forgets the record."""
    freed = reach.drop(entry)
    paths = [entry.path]
    if entry.copy in freed:
        paths += _blob_files(layout, entry.copy)
    paths += _beside(layout, entry.key)
    for digest in freed:
        if digest != entry.copy and digest not in held_blobs:
            paths += _blob_files(layout, digest)
    sizes = {}
    for path in paths:
        with suppress(FileNotFoundError):
            sizes[path] = path.lstat().st_size
    return sizes


def _blob_files(layout: Layout, digest: str) -> list[Path]:
    return [layout.blob(digest), layout.verified / digest]


@dataclass(frozen=True, slots=True)
class _Now:
    held: Held
    pins: frozenset[str]


_T = TypeVar("_T")


def _slices(items: Sequence[_T], weight: Callable[[_T], int]) -> Iterator[list[_T]]:
    part: list[_T] = []
    total = 0
    for item in items:
        part.append(item)
        total += weight(item)
        if total >= SLICE:
            yield part
            part, total = [], 0
    if part:
        yield part
