"""Garbage: folders of processes that are gone, old unfinished files, and notes about records that are gone.

Garbage does no harm. `gc` removes it, and `verify` reports it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from cachekit.files import hold
from cachekit.inside import Inside
from cachekit.store import pins, staying
from cachekit.store.durable import folder_of, made_again
from cachekit.store.layout import Layout
from cachekit.store.partial import OLDEST
from cachekit.store.rwlock import used_now
from cachekit.text import DAY

QUARANTINED = 30 * DAY  # seconds that damaged files stay for people to look at


class Garbage(Struct, frozen=True):
    """Something to remove.

    Attributes:
        path: A file, or a folder with all that is in it.
        size: Bytes.
        why: In words.
        lock: The lock of its owner, if it has one: garbage is removed only while nobody holds the lock.
        scratch: It is the private folder of a process; see `scratch`.
    """

    path: Path
    size: int
    why: str
    lock: Path | None = None
    scratch: bool = False


def garbage(layout: Layout, cache_dirs: Path, keys: Collection[str], *, now: float | None = None) -> list[Garbage]:
    """All garbage of a store, in the order of paths."""
    now = time.time() if now is None else now
    found: list[Garbage] = []
    for base in dict.fromkeys((layout.tmp, layout.cache_dirs, cache_dirs)):
        found += _ownerless(base, layout.inside_for(base))
    found += [
        Garbage(path, size, "unfinished for more than a week")
        for when, path, size in unfinished(layout)
        if when < now - OLDEST
    ]
    found += [
        Garbage(path, size, "set aside more than a month ago")
        for when, path, size in quarantined(layout)
        if when < now - QUARANTINED
    ]
    found += [Garbage(path, size_of(path), "notes of processes that are gone") for path in used_now(layout).dead]
    found += [
        Garbage(path, 0, "notes of uses of what is gone") for key, path in pins.uses(layout).items() if key not in keys
    ]
    found += [
        Garbage(path, size, "notes of records that are gone")
        for path, size in origins(layout)
        if not record_of(layout, path).exists()
    ]
    found += [Garbage(path, size_of(path), "notes of modules that are gone") for path in staying.over(layout)]
    found += _locks(layout, keys)
    return sorted(found, key=lambda one: str(one.path))


def quarantined(layout: Layout) -> Iterator[tuple[float, Path, int]]:
    """What was set aside: when, as its name says, where, and bytes."""
    for path in _files(layout.inside, layout.quarantine):
        with suppress(OSError):
            status = path.stat()
            try:
                when = time.mktime(time.strptime(path.name.partition("-")[0], "%Y%m%dT%H%M%S"))
            except (ValueError, OverflowError):
                when = status.st_ctime
            yield when, path, status.st_size


def unfinished(layout: Layout) -> Iterator[tuple[float, Path, int]]:
    """What arrived of blobs that are being fetched, or were to be: when last, where, and bytes."""
    for path in _files(layout.inside, layout.partial):
        with suppress(OSError):
            status = path.stat()
            yield status.st_mtime, path, status.st_size


def origins(layout: Layout) -> Iterator[tuple[Path, int]]:
    """The notes of where records came from, and their bytes."""
    for path in sorted(layout.trust.glob("*/*/*.json")):
        yield path, size_of(path)


def record_of(layout: Layout, path: Path) -> Path:
    """The record that such a note is about."""
    return layout.records / path.relative_to(layout.trust)


def _ownerless(base: Path, inside: Inside) -> list[Garbage]:
    found, why = [], "folders of processes that are gone"
    for lock in _files(inside, base):
        if folder_of(lock.name) and is_free(lock):
            folder = lock.with_suffix("")
            found.append(Garbage(folder, size_of(folder) + size_of(lock), why, lock, True))
    with suppress(OSError), inside.folder(base) as handle:
        again = [base / name for name in made_again(handle)]
        found += [Garbage(folder, size_of(folder), why, scratch=True) for folder in again]
    return found


def _locks(layout: Layout, keys: Collection[str]) -> list[Garbage]:
    """Locks of keys that have no record, and that nobody holds."""
    found = []
    for path in _files(layout.inside, layout.locks):
        key = path.name.partition(".")[0]
        if path.suffix == ".json":  # who holds it: removed by him, or killed with him
            lock = path.with_suffix(".lock")
            if not lock.exists() or is_free(lock):
                found.append(Garbage(path, size_of(path), "notes of processes that are gone", lock))
        elif path.suffix == ".lock" and key not in keys and is_free(path):
            found.append(Garbage(path, size_of(path), "locks of keys without a record", path))
    return found


def is_free(lock: Path) -> bool:
    """Whether a lock is there, and nobody holds it."""
    try:
        handle = hold(lock, os.O_RDONLY)
    except OSError:
        return False
    if handle is None:
        return False
    os.close(handle)
    return True


def _files(inside: Inside, folder: Path) -> list[Path]:
    return [folder / name for name in inside.names(folder)]


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files in a folder; links are not followed."""
    try:
        if not path.is_dir() or path.is_symlink():
            return path.lstat().st_size
    except OSError:
        return 0
    return sum(_sizes(path))


def _sizes(folder: Path) -> Iterable[int]:
    for base, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(base, name)).st_size  # noqa: PTH118 - of many files
