"""What the records of a store say, in one file: reading 10,000 takes seconds, looking whether they changed does not.

The file is a cache. An entry holds for the record file in the state in which it was read (size, times, inode); whatever
else lies in the records' folder is read as ever. A file that is lost, torn, damaged or old costs time and nothing else,
and a store that cannot be written to does without. It is replaced as a whole, by whoever finds enough that it lacks.
"""

from __future__ import annotations

import gc
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from cachekit.record import SCHEMA, Record
from cachekit.store.layout import Layout
from cachekit.store.scratch import Scratch
from cachekit.store.summary import Shelf, Summaries, Summary, Vocabulary, summarise

# Raise the number when the form of the file or the meaning of a summary changes.
MAGIC = b"cachekit catalogue 1, records of schema %d\n" % SCHEMA
DIGEST = 32  # bytes of it
SETTLED = 2 * 10**9  # ns after which a file's times tell a later change of it: those of a disk may be this coarse
WORTH = 128 << 10  # bytes of records that are not in the file, from which on it is written anew
DEAD = 256  # entries of the file without a record, likewise

State = tuple[int, int, int, int]  # of a file: mtime and ctime in ns, size, inode


class _Entry(Struct, frozen=True, array_like=True, gc=False):
    """A record file in a state; without a summary it is another schema's."""

    name: str
    state: State
    summary: Summary | None


class _Folder(Struct, frozen=True, array_like=True):
    """Records of a compiler and a model type: what looking for the nearest needs, and all else, which may stay closed.

    Attributes:
        names, parts: Of the entries that have a summary.
        entries: All of them, encoded.
    """

    directory: str
    model_type: str
    names: list[str]
    parts: list[tuple[int, ...]]
    entries: msgspec.Raw


class _Document(Struct, frozen=True, array_like=True):
    pairs: list[tuple[str, str]]
    parts: list[tuple[int, ...]]
    folders: list[_Folder]


_UNKNOWN: State = (0, 0, 0, 0)
_Place = tuple[str, str]  # a compiler's directory and a model type


class _Known:
    """What is known of a folder; read out of the file when somebody asks for it.

    Args:
        folder: As the file has it.
        entries: As they are; by name, sorted.
    """

    def __init__(self, folder: _Folder | None = None, entries: dict[str, _Entry] | None = None) -> None:
        self._folder = folder
        self._entries = {} if folder is None and entries is None else entries

    @property
    def entries(self) -> dict[str, _Entry]:
        """By name."""
        if self._entries is None:
            assert self._folder is not None
            self._entries = {
                entry.name: entry for entry in msgspec.msgpack.decode(self._folder.entries, type=list[_Entry])
            }
        return self._entries

    def shelf(self, path: Path) -> Shelf | None:
        """The records, where the folder has their files and no others."""
        if self._folder is not None:
            names, parts = self._folder.names, self._folder.parts
        else:
            known = {name: entry.summary.parts for name, entry in self.entries.items() if entry.summary is not None}
            names, parts = list(known), list(known.values())
        return Shelf(names, parts, self._summaries) if set(names) == _names(path) else None

    def _summaries(self) -> list[Summary]:
        return [entry.summary for entry in self.entries.values() if entry.summary is not None]


class Catalogue:
    """The summaries of a store's records.

    Args:
        layout: The store's paths.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._vocabulary = Vocabulary()
        self._known: dict[_Place, _Known] | None = None

    def summaries(self, read: Callable[[Path], tuple[Record | None, bool]], without: str, *, glance: bool) -> Summaries:
        """Look at every record, and read those that are not known in the state they are in.

        Args:
            read: Reads a record; and whether that is all there is to say, so that None is no damage.
            without: A model type whose records are not even looked at.
            glance: Look only whether they are there: one that has a summary is taken to be as it was.
        """
        known = self._load() if self._known is None else self._known
        self._known = known
        found: list[Shelf] = []
        settled = dead = 0
        folders = {(folder.parent.name, folder.name): folder for folder in _folders(self._layout.records)}
        for place in [place for place in known if place not in folders]:
            dead += len(known.pop(place).entries)
        for place, folder in folders.items():
            if folder.name == without:
                continue
            before = known.get(place) or _Known()
            if glance and (shelf := before.shelf(folder)) is not None:
                found.append(shelf)
                continue
            summaries, kept = list[Summary](), dict[str, _Entry]()
            for name, state in _files(folder, before.entries if glance else {}):
                entry = before.entries.get(name)
                if entry is None or entry.state != state:
                    now = time.time_ns()
                    record, certain = read(folder / name)
                    summary = summarise(record, self._vocabulary) if record else None
                    entry = _Entry(name, state, summary)
                    # A file that was changed a moment ago may be changed again in the same tick of the clock.
                    if certain and now - state[1] > SETTLED:
                        settled += state[2]
                        kept[name] = entry
                else:
                    kept[name] = entry
                if entry.summary is not None:
                    summaries.append(entry.summary)
            dead += len(before.entries.keys() - kept.keys())
            known[place] = _Known(entries=kept)
            found.append(Shelf.of(summaries))
        if settled >= WORTH or dead >= DEAD:
            self._save(known)
        return Summaries(found, self._vocabulary)

    def _load(self) -> dict[_Place, _Known]:
        try:
            raw = self._layout.catalogue.read_bytes()
            head, body = raw[: len(MAGIC) + DIGEST], memoryview(raw)[len(MAGIC) + DIGEST :]
            if head != MAGIC + hashlib.sha256(body).digest():
                return {}
            with _uncollected():
                document = msgspec.msgpack.decode(body, type=_Document)
        except (OSError, msgspec.DecodeError):
            return {}
        self._vocabulary = Vocabulary(document.pairs, document.parts)
        return {(folder.directory, folder.model_type): _Known(folder) for folder in document.folders}

    def _save(self, known: dict[_Place, _Known]) -> None:
        vocabulary = Vocabulary()  # without those of records that are gone

        def packed(place: _Place, entries: Iterable[_Entry]) -> _Folder:
            summaries, fresh = dict[str, Summary](), list[_Entry]()
            for entry in entries:
                if entry.summary is None:
                    fresh.append(entry)
                    continue
                parts = vocabulary.add_pairs(self._vocabulary.pairs_of(entry.summary.parts))
                summaries[entry.name] = structs.replace(entry.summary, parts=parts)
                fresh.append(structs.replace(entry, summary=summaries[entry.name]))
            columns = [summary.parts for summary in summaries.values()]
            return _Folder(*place, list(summaries), columns, msgspec.Raw(msgspec.msgpack.encode(fresh)))

        folders = [packed(place, one.entries.values()) for place, one in known.items() if one.entries]
        body = msgspec.msgpack.encode(_Document(vocabulary.pairs, vocabulary.parts, folders))
        with suppress(OSError), Scratch(self._layout.tmp, "catalogue") as scratch:  # a read-only store has none
            finished = scratch / "catalogue"
            # Not made durable: the digest tells a file that a power cut left half written.
            finished.write_bytes(MAGIC + hashlib.sha256(body).digest() + body)
            finished.replace(self._layout.catalogue)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Make many objects that live on: looking for dead ones among them again and again takes as long as making them."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _folders(records: Path) -> Iterator[Path]:
    with suppress(OSError):
        for directory in sorted(path for path in records.iterdir() if path.is_dir()):
            with suppress(OSError):
                yield from sorted(path for path in directory.iterdir() if path.is_dir())


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208 - of 10,000 files, and only their names
    except OSError:
        return set()


def _files(folder: Path, known: dict[str, _Entry]) -> list[tuple[str, State]]:
    """Records in a folder with their states, by name; not looked at are those whose summary is given."""
    found = []
    with suppress(OSError), os.scandir(folder) as listing:
        for item in listing:
            if item.name in known and known[item.name].summary is not None:
                found.append((item.name, known[item.name].state))
            elif item.name.endswith(".json"):
                try:
                    status = item.stat()
                except FileNotFoundError:
                    continue
                except OSError:
                    found.append((item.name, _UNKNOWN))  # reading it will say why
                    continue
                found.append((item.name, (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)))
    return sorted(found)
