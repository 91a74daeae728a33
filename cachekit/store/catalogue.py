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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from cachekit.store.layout import Layout
from cachekit.store.ranking import Columns, Shelf, Summaries
from cachekit.store.record import SCHEMA, Record
from cachekit.store.scratch import Scratch
from cachekit.store.summary import Summary, Vocabulary, summarise

# Raise the number when the form of the file or the meaning of a summary changes.
MAGIC = b"cachekit catalogue 3, records of schema %d\n" % SCHEMA
DIGEST = 32  # bytes of it
SUFFIX = ".json"  # of a record
SETTLED = 2 * 10**9  # ns after which a file's times tell a later change of it: those of a disk may be this coarse
WORTH = 128 << 10  # bytes of records that are not in the file, from which on it is written anew
TOLD = 100  # records from one word about how far the reading is to the next
DEAD = 256  # entries of the file without a record, likewise

State = tuple[int, int, int, int]  # of a file: mtime and ctime in ns, size, inode


class _Entry(Struct, frozen=True, array_like=True, gc=False):
    """A record file in a state; without a summary it is another schema's."""

    name: str
    state: State
    summary: Summary | None


class _Folder(Struct, frozen=True, array_like=True):
    """Records of a compiler and a model type: what tells whether to open it, and the rest, which may stay closed.

    Attributes:
        state: Of the folder, when these were all records in it.
        compilers: Of all entries that have a summary, each once.
        common: Pairs that all of these have.
        columns: What looking for the nearest among them needs, encoded.
        entries: All entries, encoded.
    """

    directory: str
    model_type: str
    state: State
    compilers: list[str]
    common: list[int]
    columns: msgspec.Raw
    entries: msgspec.Raw


class _Document(Struct, frozen=True, array_like=True):
    pairs: list[tuple[str, str]]
    parts: list[tuple[int, ...]]
    folders: list[_Folder]


_UNKNOWN: State = (0, 0, 0, 0)  # of no file or folder that is there
_Place = tuple[str, str]  # a compiler's directory and a model type


class _Known:
    """What is known of a folder; read out of the file when somebody asks for it.

    Args:
        folder: As the file has it.
        entries: As they are; by name, sorted.
        state: The state of the folder in which they are all of its records; unknown where it may be another soon.
    """

    def __init__(
        self, folder: _Folder | None = None, entries: dict[str, _Entry] | None = None, state: State = _UNKNOWN
    ) -> None:
        self._folder = folder
        self._entries = {} if folder is None and entries is None else entries
        self.state = folder.state if folder else state

    @property
    def entries(self) -> dict[str, _Entry]:
        """By name."""
        if self._entries is None:
            assert self._folder is not None
            self._entries = {
                entry.name: entry for entry in msgspec.msgpack.decode(self._folder.entries, type=list[_Entry])
            }
        return self._entries

    def shelf(self, place: _Place, path: str) -> Shelf | None:
        """The records, where the folder has their files and no others."""
        state = _settled(path)
        if self.state == _UNKNOWN or self.state != state:
            there = {name for name in _names(path) if name.endswith(SUFFIX)}
            # What another schema's record was may be ours by now.
            if {entry.name for entry in self.entries.values() if entry.summary is not None} != there:
                return None
            self.state = state
        return self.unchanged(place)

    def unchanged(self, place: _Place) -> Shelf:
        """The records, which are known to be as they were."""
        if self._folder is None:
            return Shelf.of(self._summaries())
        return Shelf(place[0], self._folder.compilers, self._folder.common, self._columns, self._summaries)

    def _columns(self) -> Columns:
        assert self._folder is not None
        return Columns(*msgspec.msgpack.decode(self._folder.columns, type=tuple[list[str], list[tuple[int, ...]]]))

    def _summaries(self) -> list[Summary]:
        return [entry.summary for entry in self.entries.values() if entry.summary is not None]


class _Look:
    """A folder whose records are looked at one by one.

    Args:
        place: Which it is.
        folder: Its path.
        before: What is known of it, by name.
        glance: See `Catalogue.summaries`.

    Attributes:
        state: In which it has these and no others.
        files: Its records, with the states that they are in.
        fresh: How many of them are to be read.
    """

    def __init__(self, place: _Place, folder: str, before: dict[str, _Entry], *, glance: bool) -> None:
        self.place, self.folder, self.before = place, folder, before
        self.state = _settled(folder)
        self.files = _files(folder, before if glance else {})
        self.fresh = sum(name not in before or before[name].state != state for name, state in self.files)


class _Count:
    """Tells now and then how many records were read, and that all were."""

    def __init__(self, of: int, tell: Callable[[int, int], object]) -> None:
        self._done, self._of, self._tell = 0, of, tell

    def next(self) -> None:
        if self._done % TOLD == 0:
            self._tell(self._done, self._of)
        self._done += 1

    def end(self) -> None:
        if self._of:
            self._tell(self._of, self._of)


class Catalogue:
    """The summaries of a store's records.

    Args:
        layout: The store's paths.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._vocabulary = Vocabulary()
        self._known: dict[_Place, _Known] | None = None

    def summaries(
        self,
        read: Callable[[Path], tuple[Record | None, bool]],
        without: str,
        *,
        glance: bool,
        tell: Callable[[int, int], object] = lambda *_: None,
    ) -> Summaries:
        """Look at every record, and read those that are not known in the state they are in.

        Args:
            read: Reads a record; and whether that is all there is to say, so that None is no damage.
            without: A model type whose records are not even looked at.
            glance: Look only whether they are there: one that has a summary is taken to be as it was.
            tell: Told how many of how many were read.
        """
        known = self._load() if self._known is None else self._known
        self._known = known
        shelves: list[Shelf | _Look] = []
        settled = dead = 0
        folders = _folders(self._layout.records)
        for place in [place for place in known if place not in folders]:
            dead += len(known.pop(place).entries)
        for place, folder in folders.items():
            if place[1] == without:
                continue
            before = known.setdefault(place, _Known())
            shelf = before.shelf(place, folder) if glance else None
            shelves.append(_Look(place, folder, before.entries, glance=glance) if shelf is None else shelf)
        count = _Count(sum(look.fresh for look in shelves if isinstance(look, _Look)), tell)
        found: list[Shelf] = []
        for look in shelves:
            if isinstance(look, Shelf):
                found.append(look)
                continue
            if not look.fresh and len(look.files) == len(look.before):
                found.append(known[look.place].unchanged(look.place))
                continue
            summaries, kept = list[Summary](), dict[str, _Entry]()
            for name, state in look.files:
                entry = look.before.get(name)
                if entry is None or entry.state != state:
                    count.next()
                    now = time.time_ns()
                    record, certain = read(Path(look.folder, name))
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
            dead += len(look.before.keys() - kept.keys())
            whole = len(kept) == len(look.files) == len(summaries)
            known[look.place] = _Known(entries=kept, state=look.state if whole else _UNKNOWN)
            found.append(Shelf.of(summaries))
        count.end()
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

        def packed(place: _Place, known: _Known) -> _Folder:
            summaries, fresh = dict[str, Summary](), list[_Entry]()
            for entry in known.entries.values():
                if entry.summary is None:
                    fresh.append(entry)
                    continue
                parts = vocabulary.add_pairs(self._vocabulary.pairs_of(entry.summary.parts))
                summaries[entry.name] = structs.replace(entry.summary, parts=parts)
                fresh.append(structs.replace(entry, summary=summaries[entry.name]))
            columns = [one.key for one in summaries.values()], [one.parts for one in summaries.values()]
            pairs = [{pair for part in one.parts for pair in vocabulary.parts[part]} for one in summaries.values()]
            return _Folder(
                *place,
                known.state,
                sorted({one.compiler for one in summaries.values()}),
                sorted(set.intersection(*pairs)) if pairs else [],
                msgspec.Raw(msgspec.msgpack.encode(columns)),
                msgspec.Raw(msgspec.msgpack.encode(fresh)),
            )

        folders = [packed(place, one) for place, one in known.items() if one.entries]
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


def _folders(records: Path) -> dict[_Place, str]:
    """All folders of records, in order; by hand, for there may be hundreds of them."""
    found = {}
    for directory in _subfolders(str(records)):
        for model_type in _subfolders(f"{records}/{directory}"):
            found[directory, model_type] = f"{records}/{directory}/{model_type}"
    return found


def _subfolders(path: str) -> list[str]:
    try:
        with os.scandir(path) as listing:
            return sorted(item.name for item in listing if item.is_dir())
    except OSError:
        return []


def _settled(folder: str) -> State:
    """The state of a folder; unknown where another would look the same because it was changed a moment ago."""
    try:
        now, state = time.time_ns(), _state(os.stat(folder))  # noqa: PTH116
    except OSError:
        return _UNKNOWN
    return state if now - max(state[:2]) > SETTLED else _UNKNOWN


def _state(status: os.stat_result) -> State:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _names(folder: str) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208 - of 10,000 files, and only their names
    except OSError:
        return set()


def _files(folder: str, known: dict[str, _Entry]) -> list[tuple[str, State]]:
    """Records in a folder with their states, by name; not looked at are those whose summary is given."""
    found = []
    with suppress(OSError), os.scandir(folder) as listing:
        for item in listing:
            if item.name in known and known[item.name].summary is not None:
                found.append((item.name, known[item.name].state))
            elif item.name.endswith(SUFFIX):
                try:
                    status = item.stat()
                except FileNotFoundError:
                    continue
                except OSError:
                    found.append((item.name, _UNKNOWN))  # reading it will say why
                    continue
                state = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
                found.append((item.name, state))
    return sorted(found)
