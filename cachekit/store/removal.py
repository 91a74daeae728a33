"""Take records out of a store, with all that only they name, while others go on.

The order is that of a publish reversed: the record first, then the blobs that no record names any more. A removal that
dies leaves whole records, and blobs without a record, which the next removal takes. Each slice is done under the
store's write lock, in a fraction of a second, after a look at what has been published, used, pinned and put to use
meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field, structs

from cachekit.errors import StoreError
from cachekit.files import hold
from cachekit.store import durable
from cachekit.store.durable import store_error, sweep
from cachekit.store.garbage import Garbage, is_free, record_of
from cachekit.store.index import Index
from cachekit.store.index_rows import IndexRow
from cachekit.store.layout import Layout
from cachekit.store.pins import last_use, pinned
from cachekit.store.rwlock import OFTEN, UsedNow, used_now

if TYPE_CHECKING:
    from cachekit.store.store import Store

AHEAD = 500  # records whose blobs are asked for at once
SLICE = 3_000  # files that are removed while others wait
OPEN = 400  # folders at once: there are 256 of blobs
WAIT = 300.0  # seconds for a moment in which nobody publishes
BREATH = 1.5 * OFTEN  # seconds between two slices, in which those who wait come in; without, they hardly ever do


class Victim(Struct, frozen=True):
    """A record that is to go.

    Attributes:
        row: The record.
        used: When it was used last, seconds since the epoch; it stays where it is used after that.
        why: In words.
    """

    row: IndexRow
    used: float
    why: str


class Removed(Struct):
    """What went.

    Attributes:
        records: Each with its files by path, and their sizes: the record, small notes, blobs that nobody else names.
        files: Everything else by path, with sizes.
        kept: What was to go and stayed, with the reason.
    """

    records: list[tuple[Victim, dict[str, int]]] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    kept: list[tuple[Victim, str]] = field(default_factory=list)


class Going:
    """Records that go one after the other, and the files that go with each: to be removed, or only to be told.

    Args:
        layout: The store's paths.
        index: What the records name.
        in_use: Digests of blobs that stay all the same.
        rows: The numbers of the rows of the records that may go, in the order in which they do.
    """

    def __init__(self, layout: Layout, index: Index, in_use: Collection[str], rows: Sequence[int]) -> None:
        self._layout = layout
        self._index = index
        self._in_use = in_use
        self._rows = rows
        self._next = 0  # none before that is asked for again
        self._named: dict[int, list[str]] = {}  # of some of them: as many as are asked for at once
        self._shared = index.shared() if rows else {}
        self._pending: dict[str, list[str]] = {}  # pushes to be tried again, by key
        for path in layout.pending():
            self._pending.setdefault(path.name, []).append(str(path))

    def take(self, row: IndexRow) -> dict[str, int]:
        """Let a record go: its own file, small notes, and the blobs that no other record names by now, with sizes."""
        if row.id not in self._named:
            start = self._rows.index(row.id, self._next)
            self._next = start + AHEAD
            ahead = self._rows[start : self._next]
            named = self._index.named_by(ahead)
            self._named = {one: named.get(one, []) for one in ahead}  # one that names nothing is not asked for again
        last = [digest for digest in self._named[row.id] if self._is_last(digest)]
        return dict(_sized(self._paths(row, [digest for digest in last if digest not in self._in_use])))

    def _paths(self, row: IndexRow, blobs: Iterable[str]) -> Iterator[str]:
        """What goes with a record where it is there, as text: there are several paths for each of many records."""
        layout, place = self._layout, f"{row.directory}/{row.model_type}/{row.key}.json"
        yield f"{layout.records}/{place}"
        yield from self._pending.get(row.key, ())
        origin, use = f"{layout.trust}/{place}", f"{layout.used}/{row.key}"
        locks = [f"{layout.locks}/{row.key}{ending}" for ending in (".lock", ".record.lock")]
        # Most records have none of these: to be told so takes a third of what an error does.
        yield from (path for path in (origin, use) if os.access(path, os.F_OK))
        yield from (path for path in locks if os.access(path, os.F_OK) and is_free(Path(path)))
        for digest in blobs:
            yield f"{layout.blobs}/{digest[:2]}/{digest}"

    def _is_last(self, digest: str) -> bool:
        count = self._shared.get(digest, 1) - 1
        if digest in self._shared:
            self._shared[digest] = count
        return count == 0


class Remover:
    """Removes from one store."""

    def __init__(self, store: Store, *, tell: Callable[[int], object] = lambda _: None) -> None:
        self._store = store
        self._layout = store.layout
        self._tell = tell
        self._count = 0
        self._checked = False
        self._folders: dict[str, int | None] = {}  # that are open during a slice; None where there is no such folder
        self.removed = Removed()

    def records(self, victims: Sequence[Victim], *, force: bool = False) -> None:
        """Remove records, with what only they name.

        Args:
            victims: In the order in which they go.
            force: Pinned ones too, and those in use: what a process uses of those stays until the process is done.

        Raises:
            StoreError: The store cannot be written, or a record cannot be read, so that its blobs are unknown.
            WaitedTooLongError: Others publish all the time.
        """
        for part in _slices(victims, lambda victim: 4 * victim.row.modules + 2):
            with self._alone() as now:
                self._take([one for victim in part if (one := self._may_go(victim, now, force=force))], now)

    def blobs(self, digests: Sequence[str]) -> None:
        """Remove the blobs among these that no record names and no process uses; raises as `records`."""
        for part in _slices(digests, lambda _: 1):
            with self._alone() as now:
                named = {digest for first in {one[:2] for one in part} for digest in now.index.named_below(first)}
                for digest in part:
                    if digest not in named and digest not in now.used.blobs:
                        self._unlink(str(self._layout.blob(digest)), self.removed.files)

    def garbage(self, found: Sequence[Garbage]) -> None:
        """Remove garbage; raises as `records`."""
        folders = {one.path: one.size for one in found if one.scratch}
        for base in dict.fromkeys(folder.parent for folder in folders):
            for folder in sweep(
                base, self._layout.inside_for(base)
            ):  # their owners' locks are enough, and there may be gigabytes
                self._gone(str(folder), folders.get(folder, 0), self.removed.files)
        for part in _slices([one for one in found if not one.scratch], lambda _: 1):
            with self._alone() as now:
                for one in part:
                    if one.path.name in now.used.blobs:
                        continue
                    if one.lock is not None:
                        self._locked(one.path, one.lock)
                    elif self._is_left(one.path, now):
                        self._unlink(str(one.path), self.removed.files)

    def _is_left(self, path: Path, now: _Now) -> bool:
        """Whether a file is garbage still: a record comes after the note of where that came from."""
        if path.parent == self._layout.in_use:
            return path in now.used.dead
        return not (path.is_relative_to(self._layout.trust) and record_of(self._layout, path).exists())

    # One slice

    @contextmanager
    def _alone(self) -> Iterator[_Now]:
        """Alone in the store, and knowing what there is at this moment."""
        if not self._checked:  # while others may work
            self._store.refresh(checked=True)
            self._checked = True
        try:
            with self._store.rwlock.write_lock(WAIT), ExitStack() as self._slice:
                self._folders.clear()
                index = self._store.refresh()
                check_readable(index, self._layout)
                yield _Now(index, used_now(self._layout), frozenset(pinned(self._layout)))
            time.sleep(BREATH)
        except OSError as error:
            raise store_error(self._layout.home, error) from error

    def _may_go(self, victim: Victim, now: _Now, *, force: bool) -> Victim | None:
        """The record as it is now, where it may go."""
        row = victim.row
        current = now.index.row(row.place)
        reason = ""
        if current is None:
            return None  # another one was quicker
        if current.state != row.state:
            reason = "it was published again"
        elif not force and row.key in now.pins:
            reason = "it was pinned"
        elif not force and row.key in now.used.keys:
            reason = "it is in use"
        elif not force and last_use(self._layout, row.key, row.published) > victim.used:
            reason = "it was used"
        if reason:
            self.removed.kept.append((victim, reason))
            return None
        return structs.replace(victim, row=current)

    def _take(self, victims: Sequence[Victim], now: _Now) -> None:
        rows = [victim.row for victim in victims]
        going = Going(self._layout, now.index, now.used.blobs, [row.id for row in rows])
        gone: list[tuple[dict[str, int], dict[str, int]]] = []
        for victim in victims:
            wanted, files = going.take(victim.row), dict[str, int]()
            self._unlink(str(self._layout.record(victim.row.place)), files)
            self.removed.records.append((victim, files))
            gone.append((wanted, files))
        # Durable before a blob goes: else a power cut could bring records back without their blobs.
        for folder in {self._layout.record(row.place).parent for row in rows}:
            durable.sync_folder(folder)
            self._remove_empty(folder)
        for wanted, files in gone:
            for path in wanted:
                if path not in files:
                    self._unlink(path, files)
        for folder in {self._layout.origin(row.place).parent for row in rows}:
            self._remove_empty(folder)
        now.index.forget(rows)

    def _locked(self, path: Path, lock: Path) -> None:
        """Remove a file if nobody holds its owner's lock, which may be that very file."""
        try:
            handle = hold(lock, os.O_RDONLY)
        except FileNotFoundError:  # a note without a lock
            self._unlink(str(path), self.removed.files)
            return
        except OSError:
            return
        if handle is not None:
            try:
                self._unlink(str(path), self.removed.files)
            finally:
                os.close(handle)

    def _unlink(self, path: str, files: dict[str, int]) -> None:
        above, _, name = path.rpartition("/")
        if (folder := self._folder(above)) is None:
            return
        with suppress(FileNotFoundError):
            size = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
            os.unlink(name, dir_fd=folder)
            self._gone(path, size, files)

    def _folder(self, path: str) -> int | None:
        """A folder of the store, open until the end of the slice: thousands of files are removed from few folders."""
        if path not in self._folders:
            if len(self._folders) >= OPEN:
                self._slice.close()
                self._folders.clear()
            self._folders[path] = None
            with suppress(FileNotFoundError):
                self._folders[path] = self._slice.enter_context(self._layout.inside.folder(Path(path)))
        return self._folders[path]

    def _remove_empty(self, folder: Path) -> None:
        """Remove a folder of records, and that of its compiler, where nothing is in them."""
        for empty in (folder, folder.parent):
            with suppress(OSError), self._layout.inside.folder(empty.parent) as above:
                os.rmdir(empty.name, dir_fd=above)

    def _gone(self, path: str, size: int, files: dict[str, int]) -> None:
        files[path] = size
        self._count += 1
        self._tell(self._count)


def check_readable(index: Index, layout: Layout) -> None:
    """See that of every record it is known what it names.

    Raises:
        StoreError: One cannot be read.
    """
    for row in index.flawed():
        if not row.state:
            raise StoreError(
                f"a record cannot be read: {layout.record(row.place)}",
                cause=row.flaw,
                hint="make the record readable or delete it: removal must know which blobs it names",
            )


def _sized(paths: Iterable[str]) -> Iterator[tuple[str, int]]:
    for path in paths:
        try:
            yield path, os.lstat(path).st_size
        except FileNotFoundError:
            continue


class _Now(Struct, frozen=True):
    index: Index
    used: UsedNow
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
