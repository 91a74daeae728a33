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

from cachekit.record import SCHEMA, Record
from cachekit.store.layout import Layout
from cachekit.store.scratch import Scratch
from cachekit.store.summary import Summaries, Summary, Vocabulary, summarise

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
    directory: str
    model_type: str
    entries: list[_Entry]


class _Document(Struct, frozen=True, array_like=True):
    pairs: list[tuple[str, str]]
    parts: list[tuple[int, ...]]
    folders: list[_Folder]


_UNKNOWN: State = (0, 0, 0, 0)
_Place = tuple[str, str]  # a compiler's directory and a model type


class Catalogue:
    """The summaries of a store's records.

    Args:
        layout: The store's paths.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._vocabulary = Vocabulary()
        self._known: dict[_Place, dict[str, _Entry]] | None = None

    def summaries(self, read: Callable[[Path], tuple[Record | None, bool]], without: str, *, glance: bool) -> Summaries:
        """Look at every record, and read those that are not known in the state they are in.

        Args:
            read: Reads a record; and whether that is all there is to say, so that None is no damage.
            without: A model type whose records are not even looked at.
            glance: Look only whether they are there: one whose name is known is taken to be as it was.
        """
        known = self._load() if self._known is None else self._known
        found: list[Summary] = []
        settled = dead = 0
        folders = {(folder.parent.name, folder.name): folder for folder in _folders(self._layout.records)}
        for place in [place for place in known if place not in folders]:
            dead += len(known.pop(place))
        for place, folder in folders.items():
            if folder.name == without:
                continue
            entries, kept = known.get(place, {}), dict[str, _Entry]()
            if glance and _same(folder, entries):
                found.extend(entry.summary for entry in entries.values() if entry.summary is not None)
                continue
            for name, state in _files(folder, entries if glance else {}):
                entry = entries.get(name)
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
                    found.append(entry.summary)
            dead += len(entries.keys() - kept.keys())
            known[place] = kept
        self._known = known
        if settled >= WORTH or dead >= DEAD:
            self._save(known)
        return Summaries(found, self._vocabulary)

    def _load(self) -> dict[_Place, dict[str, _Entry]]:
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
        return {
            (folder.directory, folder.model_type): {entry.name: entry for entry in folder.entries}
            for folder in document.folders
        }

    def _save(self, known: dict[_Place, dict[str, _Entry]]) -> None:
        vocabulary = Vocabulary()  # without those of records that are gone

        def fresh(entry: _Entry) -> _Entry:
            if entry.summary is None:
                return entry
            parts = vocabulary.add_pairs(self._vocabulary.pairs_of(entry.summary.parts))
            return structs.replace(entry, summary=structs.replace(entry.summary, parts=parts))

        folders = [_Folder(*place, list(map(fresh, entries.values()))) for place, entries in known.items() if entries]
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


def _same(folder: Path, entries: dict[str, _Entry]) -> bool:
    """A folder has these files and no others."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - of 10,000 files, and only their names
    except OSError:
        return False
    return len(names) == len(entries) and entries.keys() >= set(names)


def _files(folder: Path, known: dict[str, _Entry]) -> list[tuple[str, State]]:
    """Records in a folder with their states, by name; not looked at are those of which an entry is given."""
    found = []
    with suppress(OSError), os.scandir(folder) as listing:
        for item in listing:
            if item.name in known:
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
