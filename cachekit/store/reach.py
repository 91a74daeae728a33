"""What a store holds, and which of it a record names: the rest is nobody's.

A record that cannot be read, or that a later cachekit wrote, still names its blobs: every digest that stands in it
counts, and none of those is removed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cachekit.errors import StoreError
from cachekit.ordinary import opened
from cachekit.store.layout import Layout
from cachekit.store.record import DamagedRecordError, Record, decode

DIGEST = re.compile(r"[0-9a-f]{64}")
_DIGESTS = re.compile(rb"[0-9a-f]{64}")
_COPY = b'{"record":'
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """A record as it lies in the index.

    Attributes:
        path: Its file.
        key: As its file is called.
        directory: The compiler's folder that it lies in.
        model_type: The folder in that.
        recipe: What it was made from; empty where it cannot be read.
        created: When it was made, as it says.
        published: When its file was written, seconds since the epoch.
        size: Of its file.
        copy: The digest of its bytes: the name of its copy among the blobs; empty where they cannot be read.
        files: Sizes of the blobs that it names, by digest; -1 where only the digest can be told.
        flaw: Why it cannot be used; empty for a good one.
        foreign: A later cachekit's, which is no flaw.
        stamp: Tells another state of the file.
    """

    path: Path
    key: str
    directory: str
    model_type: str
    recipe: str
    created: str
    published: float
    size: int
    copy: str
    files: Mapping[str, int]
    flaw: str
    foreign: bool
    stamp: _Stamp

    @property
    def named(self) -> Iterator[str]:
        """Digests of what must stay as long as it does."""
        yield from self.files
        if self.copy and self.copy not in self.files:
            yield self.copy


class Reach:
    """The records of a store, and how many of them name each blob.

    Args:
        layout: The store's paths.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.entries: dict[Path, Entry] = {}
        self.named: Counter[str] = Counter()

    def refresh(self, tell: Callable[[int, int], object] = lambda *_: None, *, strict: bool = True) -> None:
        """Look at the records again: only those that changed are read.

        Args:
            tell: Told how many of how many were looked at.
            strict: Raise where nobody knows what a record names. Without it such a record is an entry with a flaw, and
                what `named` leaves out may be wanted all the same: nothing is to be removed by it.

        Raises:
            StoreError: One cannot be read.
        """
        found = dict(_record_files(self._layout.records))
        for path in self.entries.keys() - found.keys():
            self.drop(self.entries[path])
        fresh = [path for path, stamp in found.items() if path not in self.entries or self.entries[path].stamp != stamp]
        for number, path in enumerate(fresh):
            if number % 100 == 0:
                tell(number, len(fresh))
            if path in self.entries:
                self.drop(self.entries[path])
            try:
                entry = read_entry(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                if strict:
                    raise StoreError(
                        f"a record cannot be read: {path}",
                        cause=error.strerror or str(error),
                        hint="nobody knows what it names; make it readable, or remove it",
                    ) from error
                entry = unreadable(path, error)
            self.entries[path] = entry
            self.named.update(entry.named)

    def drop(self, entry: Entry) -> list[str]:
        """Forget a record; returns the digests that nobody names now."""
        del self.entries[entry.path]
        freed = []
        for digest in entry.named:
            self.named[digest] -= 1
            if self.named[digest] <= 0:
                del self.named[digest]
                freed.append(digest)
        return freed

    def copied(self) -> Reach:
        """One that can be changed without this one."""
        other = Reach(self._layout)
        other.entries, other.named = dict(self.entries), Counter(self.named)
        return other


def _record_files(folder: Path) -> Iterator[tuple[Path, _Stamp]]:
    for outer in _folders(folder):
        for inner in _folders(outer):
            try:
                with os.scandir(inner) as found:
                    for item in found:
                        if item.name.endswith(".json"):
                            status = item.stat(follow_symlinks=False)
                            yield Path(item.path), (status.st_mtime_ns, status.st_ino, status.st_size)
            except (FileNotFoundError, NotADirectoryError):
                continue


def _folders(folder: str | Path) -> list[str]:
    try:
        with os.scandir(folder) as found:
            return sorted(item.path for item in found if item.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_entry(path: Path) -> Entry:
    """A record of the index.

    Raises:
        OSError: It cannot be read.
    """
    with opened(path) as source:
        status = os.fstat(source.fileno())
        raw = source.read()
    place, stamp = path.parts[-3:], (status.st_mtime_ns, status.st_ino, status.st_size)
    record, flaw = judged(raw)
    key = path.name.removesuffix(".json")
    if record is not None and (record.directory, record.model_type, record.key) != (*place[:2], key):
        record, flaw = None, "it is another key's record"
    if record is None:
        files = {found.decode("ascii"): -1 for found in _DIGESTS.findall(raw)}
        files.pop(key, None)
        recipe = created = ""
    else:
        files = {file.sha256: file.size for file in record.files}
        recipe, created = record.recipe, record.provenance.created
    copy = hashlib.sha256(raw).hexdigest()
    return Entry(
        path, key, place[0], place[1], recipe, created, status.st_mtime, len(raw), copy, files, flaw,
        record is None and not flaw, stamp,
    )  # fmt: skip


def unreadable(path: Path, error: OSError) -> Entry:
    """A record of the index of which only its place can be told."""
    directory, model_type, name = path.parts[-3:]
    flaw = f"it cannot be read: {error.strerror or error}"
    return Entry(
        path, name.removesuffix(".json"), directory, model_type, "", "", 0.0, 0, "", {}, flaw, foreign=False,
        stamp=(0, 0, 0),
    )  # fmt: skip


def judged(raw: bytes) -> tuple[Record | None, str]:
    """The record in these bytes, and what is wrong with them; neither for one of a later cachekit."""
    try:
        return decode(raw), ""
    except DamagedRecordError as error:
        return None, str(error)


def blobs(layout: Layout) -> tuple[dict[str, int], dict[Path, int]]:
    """Sizes of all blobs by digest, and of what lies among them and is none, by path."""
    found: dict[str, int] = {}
    strangers: dict[Path, int] = {}
    for folder in _folders(layout.blobs):
        prefix = os.path.basename(folder)  # noqa: PTH119 - a hundred thousand times
        try:
            with os.scandir(folder) as items:
                for item in items:
                    size = item.stat(follow_symlinks=False).st_size
                    if item.name[:2] == prefix and DIGEST.fullmatch(item.name) and item.is_file(follow_symlinks=False):
                        found[item.name] = size
                    else:
                        strangers[Path(item.path)] = size
        except FileNotFoundError:
            continue
    return found, strangers


def copy_of(path: Path) -> Record | None:
    """The record of which a blob is the copy; None where it is none, or a damaged one."""
    try:
        with opened(path) as source:
            if source.read(len(_COPY)) != _COPY:
                return None
            source.seek(0)
            raw = source.read()
    except OSError:
        return None
    record, _ = judged(raw)
    return record if record is not None and hashlib.sha256(raw).hexdigest() == path.name else None
