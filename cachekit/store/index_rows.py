"""The rows of the index: which records changed since they were read, and what a record's file becomes in the index."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from msgspec import Struct

from cachekit.files import DIGEST, opened
from cachekit.key.canonical import canonical_json, key_of
from cachekit.key.nearest import group_of
from cachekit.store.layout import Place, Placed
from cachekit.store.record import DamagedRecordError, Record, decode
from cachekit.text import cause_of

if TYPE_CHECKING:
    import sqlite3

SETTLED = 2 * 10**9  # ns after which a file's times tell a later change of it: those of a disk may be this coarse
_DIGESTS = re.compile(DIGEST.encode())

NOBODY = -1  # instead of the user whose file it is
VALUES = 64  # of one ingredient, that are told of a folder's records

# See `key.nearest.Folder`. A record that goes takes nothing away: what is told then is near at best, all the same.
Common = dict[str, list[str] | None]
Ask = Callable[..., list[tuple[Any, ...]]]  # see `IndexFile.ask`


class IndexRow(Struct, Placed, frozen=True, gc=False):
    """A record without its modules; see `record.Record` for the fields of the same names.

    Attributes:
        id: Of the row.
        state: Of the record's file: another state is another file. Empty where the file cannot be read.
        published: When that file was written, seconds since the epoch.
        size: Bytes of that file.
        flaw: Why the record cannot be used; empty for a good one.
        usable: Whether it can: neither has it a flaw, nor is it a later cachekit's.
        modules: How many there are.
        bytes: Of all files.
        created, user, host, instance: Of its provenance.
    """

    id: int
    directory: str
    model_type: str
    key: str
    state: str
    published: float
    size: int
    flaw: str
    usable: bool
    compiler: str
    recipe: str
    graphs: int
    modules: int
    bytes: int
    compile_seconds: float
    cold_seconds: float
    created: str
    user: str
    host: str
    instance: str


class Listed(Struct, Placed, frozen=True, gc=False, tag_field="schema", tag="cachekit/record-row/1"):
    """A record as `ls` lists it.

    Attributes:
        bytes: Of all files.
        compile_seconds: What compiling took of the graphs that were compiled for it.
        cold_seconds: What compiling took of all its graphs, also of those that came from another record.
        by: Who made it on which host, as it says.
        refused: Why it is not used: somebody else can have written it, and nobody whom the settings name signed it.
    """

    key: str
    recipe: str
    compiler: str
    directory: str
    model_type: str
    graphs: int
    modules: int
    bytes: int
    compile_seconds: float
    cold_seconds: float
    created: str
    by: str
    refused: str = ""


class WholeBlob(Struct, frozen=True):
    """What is known of a blob that was found whole.

    Attributes:
        state: Of its file, at that moment; see `state_of`.
        pieces: The checksums of its pieces.
    """

    state: str
    pieces: tuple[str, ...]


class ReadRecord(Struct, frozen=True):
    """A record's file, read: the record, or what is wrong with it, and the digests that stand in it.

    Attributes:
        owner: The user whose file it is; `NOBODY` of a link, and where others can write to it as well.
    """

    owner: int
    state: str
    seen: int
    published: float
    size: int
    record: Record | None
    flaw: str
    named: dict[str, int]


def state_of(status: os.stat_result) -> str:
    """A file's state, as text: another one where the file was changed or replaced."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def judged(raw: bytes) -> tuple[Record | None, str]:
    """The record in these bytes, and what is wrong with them; neither for one of a later cachekit."""
    try:
        return decode(raw), ""
    except DamagedRecordError as error:
        return None, str(error)


def read_file(place: Place, path: Path) -> ReadRecord:
    """Read a record's file.

    Raises:
        FileNotFoundError: It is not there.
    """
    seen = time.time_ns()
    try:
        with opened(path) as source:
            status = os.fstat(source.fileno())
            raw = source.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        return ReadRecord(NOBODY, "", seen, 0.0, 0, None, f"it cannot be read: {cause_of(error)}", {})
    record, flaw = judged(raw)
    if record is not None and (record.directory, record.model_type, record.key) != place:
        record, flaw = None, "it is another key's record"
    if record is not None:
        named = {file.sha256: file.size for file in record.files}
    else:
        named = {found.decode("ascii"): -1 for found in _DIGESTS.findall(raw) if found != place[2].encode()}
    open_to_others = path.is_symlink() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    owner = NOBODY if open_to_others else status.st_uid
    return ReadRecord(owner, state_of(status), seen, status.st_mtime, len(raw), record, flaw, named)


def job_of(hard: Mapping[str, Any]) -> str:
    """What two records have in common that differ in their toolchains only."""
    return key_of({name: value for name, value in hard.items() if group_of(name) != "toolchain"})


def put_all(database: sqlite3.Connection, found: list[tuple[Place, ReadRecord]]) -> None:
    """Write the rows of some records, in place of those that they have."""
    folders: dict[tuple[str, str], tuple[int, Common | None]] = {}
    for place, read in found:
        if place[:2] not in folders:
            database.execute("INSERT OR IGNORE INTO folder (directory, model_type) VALUES (?, ?)", place[:2])
            query = "SELECT id, common FROM folder WHERE directory = ? AND model_type = ?"
            number, common = database.execute(query, place[:2]).fetchone()
            folders[place[:2]] = number, None if common is None else json.loads(common)
        number, common = folders[place[:2]]
        pairs = _put(database, number, place[2], read)
        if pairs is not None:
            folders[place[:2]] = number, _in_common(common, pairs)
    for number, common in folders.values():
        if common is not None:
            database.execute("UPDATE folder SET common = ? WHERE id = ?", (json.dumps(common), number))


def _in_common(common: Common | None, pairs: Mapping[str, str]) -> Common:
    """What the records of a folder have in common, with one more record; of the first one, all that it has."""
    if common is None:
        return {name: [text] for name, text in pairs.items()}
    same: Common = {}
    for name in common.keys() & pairs.keys():
        texts = same[name] = common[name]
        if texts is not None and pairs[name] not in texts:
            same[name] = [*texts, pairs[name]] if len(texts) < VALUES else None
    return same


def _put(database: sqlite3.Connection, folder: int, key: str, read: ReadRecord) -> dict[str, str] | None:
    """Write a record's rows; its hard ingredients, values as canonical JSON, where it can be used."""
    named = dict(read.named)
    for (old,) in database.execute("SELECT id FROM record WHERE folder = ? AND key = ?", (folder, key)).fetchall():
        if read.flaw:  # it may come back from a remote, and then it needs what it named when it was good
            before = database.execute("SELECT digest, size FROM named WHERE record = ?", (old,))
            named |= {digest.hex(): size for digest, size in before}
        drop(database, old)
    record, pairs, said = read.record, None, ("", "", 0, 0, 0, 0.0, 0.0, "", "", "", "", "", "[]")
    if record is not None:
        database.execute("INSERT OR IGNORE INTO made_by VALUES (?, ?)", (folder, record.compiler))
        made = record.provenance
        pairs = {name: canonical_json(value).decode() for name, value in sorted(record.hard.items())}
        said = (
            record.compiler, record.recipe, record.graphs, len(record.modules), record.size,
            record.compile_seconds + 0.0, record.cold_seconds + 0.0,  # SQLite has no -0.0
            made.created, made.user, made.host, made.instance, job_of(record.hard),
            json.dumps(_part_numbers(database, pairs)),
        )  # fmt: skip
    about = (
        folder,
        key,
        read.owner,
        read.state,
        read.seen,
        read.published,
        read.size,
        read.flaw,
        int(record is not None),
    )
    blobs = {bytes.fromhex(digest): size for digest, size in named.items()}
    row = [*about, *said]
    row.append(_checksum(row, sum(map(_checksum_of_named, blobs, blobs.values()))))
    marks = ",".join("?" * (1 + len(row)))
    new = database.execute(f"INSERT INTO record VALUES ({marks})", (None, *row)).lastrowid  # noqa: S608
    database.executemany("INSERT INTO named VALUES (?, ?, ?)", ((digest, new, size) for digest, size in blobs.items()))
    return pairs


def check(database: sqlite3.Connection) -> None:
    """Compare each record's row, what it names, and its ingredients with their checksums.

    Raises:
        ValueError: They are not as they were written.
    """
    parts = set[int]()
    for number, body, checksum in database.execute("SELECT id, body, checksum FROM part"):
        if crc32(body.encode()) != checksum:
            raise ValueError(f"part {number} has another checksum")
        parts.add(number)
    named = defaultdict[int, int](int)
    for record, digest, size in database.execute("SELECT record, digest, size FROM named NOT INDEXED"):
        named[record] += _checksum_of_named(digest, size)
    for number, *row, checksum in database.execute("SELECT * FROM record"):
        if _checksum(row, named.pop(number, 0)) != checksum or not parts.issuperset(json.loads(row[-1])):
            raise ValueError(f"row {number} has another checksum, or lacks a part")
    if named:
        raise ValueError("some names are of no record")


def _checksum(row: list[Any], named: int) -> int:
    return crc32(repr((row, named)).encode())


def _checksum_of_named(digest: bytes, size: int) -> int:
    """Of one blob that a record names: their sum is that of all, in any order."""
    return crc32(digest, size & 0xFFFFFFFF)


def _part_numbers(database: sqlite3.Connection, pairs: Mapping[str, str]) -> list[int]:
    """The numbers of the parts that make up some ingredients: those whose names begin alike are one."""
    groups: dict[str, dict[str, str]] = {}
    for name, text in pairs.items():
        groups.setdefault(group_of(name), {})[name] = text
    numbers = []
    for group in groups.values():
        body = json.dumps(group, ensure_ascii=False)
        database.execute("INSERT OR IGNORE INTO part (body, checksum) VALUES (?, ?)", (body, crc32(body.encode())))
        numbers += [number for (number,) in database.execute("SELECT id FROM part WHERE body = ?", (body,))]
    return numbers


def note_whole(database: sqlite3.Connection, found: Mapping[str, WholeBlob | None]) -> None:
    """Write down by digest which blobs were found whole; None is that a blob was not."""
    for digest, whole in found.items():
        if whole is None:
            database.execute("DELETE FROM whole WHERE digest = ?", (bytes.fromhex(digest),))
        else:
            row = bytes.fromhex(digest), whole.state, bytes.fromhex("".join(whole.pieces))
            database.execute("INSERT OR REPLACE INTO whole VALUES (?, ?, ?)", row)


def drop(database: sqlite3.Connection, record: int) -> None:
    """Remove a record's rows."""
    database.execute("DELETE FROM named WHERE record = ?", (record,))
    database.execute("DELETE FROM record WHERE id = ?", (record,))


# What has changed since the records were read


class ChangedFolder(Struct, frozen=True):
    """A folder of records that changed: what is to be done about its rows.

    Attributes:
        path: Empty for a folder that is not there any more.
        changed: When it did, by its status before it was listed; 0 where a later change might have the same time.
        fresh: Names of the records to read.
        gone: Rows whose files are not there any more.
    """

    directory: str
    model_type: str
    path: str
    changed: int
    fresh: list[str]
    gone: list[int]


def changed_folders(ask: Ask, records: Path, *, exact: bool) -> list[ChangedFolder]:
    """The folders of records that are not as the index knows them.

    Raises:
        OSError: A folder cannot be read, and it is to be exact.
    """
    known: dict[tuple[str, str], tuple[int, int]] = {}
    for number, directory, model_type, changed in ask("SELECT id, directory, model_type, changed FROM folder"):
        known[directory, model_type] = number, changed
    found = []
    there = _folders(records, strict=exact)
    for place, path in there.items():
        number, changed = known.get(place, (0, 0))
        now, state = time.time_ns(), _changed(path)
        if state == changed and not exact:
            continue
        fresh, gone = _compare(ask, path, number, exact=exact)
        settled = state if now - state > SETTLED else 0
        if fresh or gone or (settled and settled != changed):
            found.append(ChangedFolder(*place, path, settled, fresh, gone))
    for place in known.keys() - there.keys():
        rows = [row for (row,) in ask("SELECT id FROM record WHERE folder = ?", (known[place][0],))]
        found.append(ChangedFolder(*place, "", 0, [], rows))
    return found


def _compare(ask: Ask, path: str, folder: int, *, exact: bool) -> tuple[list[str], list[int]]:
    """Names of the records of a folder that are to be read, and rows whose files are gone."""
    rows = ask("SELECT key, id, state, seen FROM record WHERE folder = ?", (folder,))
    known = {f"{key}.json": (number, state, seen) for key, number, state, seen in rows}
    fresh = []
    try:
        with os.scandir(path) as listing:
            for item in listing:
                if not item.name.endswith(".json") or not item.name.isascii():
                    continue
                _, state, seen = known.pop(item.name, (0, "", 0))
                if not _is_as(item, state, seen if exact else None):
                    fresh.append(item.name)
    except FileNotFoundError:  # and so are its records
        fresh = []
    except OSError:
        if exact:
            raise
        return [], []
    return sorted(fresh), [number for number, *_ in known.values()]


def _folders(records: Path, *, strict: bool) -> dict[tuple[str, str], str]:
    """All folders of records."""
    found = {}
    for directory in _subfolders(str(records), strict=strict):
        for model_type in _subfolders(f"{records}/{directory}", strict=strict):
            found[directory, model_type] = f"{records}/{directory}/{model_type}"
    return found


def _subfolders(path: str, *, strict: bool) -> list[str]:
    try:
        with os.scandir(path) as listing:
            return sorted(item.name for item in listing if item.is_dir(follow_symlinks=False) and _is_text(item.name))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        if strict:
            raise
        return []


def _is_as(item: os.DirEntry[str], state: str, seen: int | None) -> bool:
    """Whether a record's file is as it was when it was read; and when, if it could have changed in that moment."""
    try:
        status = item.stat()
    except OSError:
        return False
    return state == state_of(status) and (seen is None or seen - status.st_ctime_ns > SETTLED)


def _is_text(name: str) -> bool:
    return name == name.encode("utf-8", "replace").decode("utf-8")


def _changed(folder: str) -> int:
    """When a folder was changed last, ns; now where that cannot be told."""
    try:
        return os.stat(folder).st_ctime_ns  # noqa: PTH116 - of hundreds of folders
    except OSError:
        return time.time_ns()


def settle(database: sqlite3.Connection, found: Iterable[ChangedFolder]) -> None:
    """Forget the records that are gone, and write down until when each folder's rows are its records."""
    for one in found:
        for row in one.gone:
            drop(database, row)
        place = one.directory, one.model_type
        if one.path:
            query = "UPDATE folder SET changed = ? WHERE directory = ? AND model_type = ?"
            database.execute(query, (one.changed, *place))
            continue
        query = "SELECT id FROM folder WHERE directory = ? AND model_type = ?"
        for folder in database.execute(query, place).fetchall():
            database.execute("DELETE FROM made_by WHERE folder = ?", folder)
            database.execute("DELETE FROM folder WHERE id = ?", folder)
