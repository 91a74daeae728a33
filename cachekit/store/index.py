"""The index of a store: what its records say and which blobs they name, in one SQLite file that may be deleted.

The record files are the truth. The index has a row for each, with the state of the file that the row was made of, and
every question begins with a look at what has changed since: one `stat` for each folder of records, and one for each
record where the answer must be exact (`gc`, `verify`). So a change is seen whoever made it, and an index that is lost,
damaged or old costs the time of reading records, and nothing else.

Where SQLite cannot work with the file (a store that others own, a file system without locks, a process that holds the
file for seconds) the index is built in memory, from a copy of the file where that can be read.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from cachekit.key.canonical import canonical_json, key_of
from cachekit.ordinary import opened
from cachekit.store.record import SCHEMA, DamagedRecordError, Record, decode
from cachekit.store.layout import Layout
from cachekit.store.nearest import Folder, Near, Nearest, group_of

if TYPE_CHECKING:
    import sqlite3  # where it is used: a hit needs no index, and importing this takes 9 ms

# Raise the number when the tables or the meaning of a column change: an index of another number is built anew.
VERSION = 100 * SCHEMA + 1
SETTLED = 2 * 10**9  # ns after which a file's times tell a later change of it: those of a disk may be this coarse
PATIENCE = 5.0  # seconds to wait for another process that writes to the index
TOLD = 100  # records from one word about how far the reading is to the next
BATCH = 1_000  # records that are read between two commits: a killed process loses no more
DIGEST = re.compile(r"[0-9a-f]{64}")
_DIGESTS = re.compile(rb"[0-9a-f]{64}")
_TABLES = """
CREATE TABLE folder (id INTEGER PRIMARY KEY, directory TEXT NOT NULL, model_type TEXT NOT NULL,
    changed INTEGER NOT NULL DEFAULT 0, common TEXT,
    UNIQUE (directory, model_type));
CREATE TABLE record (id INTEGER PRIMARY KEY, folder INTEGER NOT NULL, key TEXT NOT NULL,
    inode INTEGER NOT NULL, state TEXT NOT NULL, seen INTEGER NOT NULL, published REAL NOT NULL, size INTEGER NOT NULL,
    flaw TEXT NOT NULL, usable INTEGER NOT NULL, compiler TEXT NOT NULL, recipe TEXT NOT NULL, graphs INTEGER NOT NULL,
    modules INTEGER NOT NULL, bytes INTEGER NOT NULL, compile_seconds REAL NOT NULL, cold_seconds REAL NOT NULL,
    created TEXT NOT NULL, user TEXT NOT NULL, host TEXT NOT NULL, instance TEXT NOT NULL,
    job TEXT NOT NULL, parts TEXT NOT NULL, UNIQUE (folder, key));
CREATE INDEX record_key ON record (key);
CREATE INDEX record_job ON record (job) WHERE job <> '';
CREATE INDEX record_flaw ON record (flaw) WHERE flaw <> '';
CREATE TABLE part (id INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE);
CREATE TABLE named (digest BLOB NOT NULL, record INTEGER NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (digest, record)) WITHOUT ROWID;
CREATE INDEX named_record ON named (record);
CREATE TABLE whole (digest BLOB PRIMARY KEY, state TEXT NOT NULL, pieces BLOB NOT NULL) WITHOUT ROWID;
"""

Place = tuple[str, str, str]  # of a record: compiler's directory, model type, key
_T = TypeVar("_T")


class Row(Struct, frozen=True):
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

    @property
    def place(self) -> Place:
        """Where the record lies."""
        return self.directory, self.model_type, self.key


_COLUMNS = (
    "record.id, folder.directory, folder.model_type, record.key, state, published, size, flaw, usable, compiler, "
    "recipe, graphs, modules, bytes, compile_seconds, cold_seconds, created, user, host, instance"
)
_ROWS = f"SELECT {_COLUMNS} FROM record JOIN folder ON folder.id = record.folder"  # noqa: S608 - no stranger's text
_IN_ORDER = "ORDER BY folder.directory, folder.model_type, record.key"


class Whole(Struct, frozen=True):
    """What is known of a blob that was found whole.

    Attributes:
        state: Of its file, at that moment; see `state_of`.
        pieces: The checksums of its pieces.
    """

    state: str
    pieces: tuple[str, ...]


class _Read(Struct, frozen=True):
    """A record's file, read: the record, or what is wrong with it, and the digests that stand in it."""

    inode: int
    state: str
    seen: int
    published: float
    size: int
    record: Record | None
    flaw: str
    named: dict[str, int]


class _Look(Struct, frozen=True):
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


class Index:
    """The index of one store, for all threads of a process; each question opens the file and closes it again.

    Args:
        layout: The store's paths.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._memory: sqlite3.Connection | None = None
        self._mutex = threading.Lock()

    # Questions: answered as of the last `refresh`

    def rows(self, *, flawed: bool = False) -> Iterator[Row]:
        """Every record that can be used, in the order of their paths.

        Args:
            flawed: All others, too.
        """
        where = "" if flawed else "WHERE usable"
        return self._rows(f"{_ROWS} {where} {_IN_ORDER}")

    def row(self, place: Place) -> Row | None:
        """The record that lies there."""
        found = self._rows(f"{_ROWS} WHERE directory = ? AND model_type = ? AND record.key = ?", place)
        return next(found, None)

    def by_prefix(self, digits: str) -> list[Row]:
        """All records whose keys begin so, those that cannot be used among them."""
        return list(self._rows(f"{_ROWS} WHERE record.key >= ? AND record.key < ? {_IN_ORDER}", (digits, digits + "g")))

    def flawed(self) -> list[Row]:
        """The records with a flaw."""
        return list(self._rows(f"{_ROWS} WHERE flaw <> '' {_IN_ORDER}"))

    def nearest(self, hard: Mapping[str, Any], *, compiler: str = "", directory: str = "") -> Iterator[Near]:
        """The records that can be used by their distance from some hard ingredients, nearest first; see `key.nearest`.

        As many are looked at as the caller takes.

        Args:
            hard: What is wanted.
            compiler: Only records of this compiler.
            directory: Only records of this directory.
        """
        nearest = Nearest(hard)
        folders = [
            Folder(number, json.loads(common or "{}"))
            for number, common in self._ask(
                "SELECT id, common FROM folder WHERE directory = ? OR ? = ''", (directory, directory)
            )
        ]

        def records(folder: int) -> list[tuple[int, str, list[int]]]:
            asked = (folder, compiler, compiler)
            found = self._ask(
                "SELECT id, key, parts FROM record WHERE folder = ? AND usable AND (compiler = ? OR ? = '')", asked
            )
            return [(number, key, msgspec.json.decode(parts, type=list[int])) for number, key, parts in found]

        for number, far in nearest.search(folders, records, self._parts):
            row = next(self._rows(f"{_ROWS} WHERE record.id = ?", (number,)), None)
            if row is not None:
                yield Near(row, self.hard(row), far)

    def same_job(self, hard: Mapping[str, Any]) -> list[Row]:
        """The records that can be used with these hard ingredients, whatever their toolchains are."""
        return list(self._rows(f"{_ROWS} WHERE job = ? {_IN_ORDER}", (_job(hard),)))

    def hard(self, row: Row) -> dict[str, Any]:
        """The hard ingredients of a record that can be used; numbers in their canonical form."""
        (parts,) = next(iter(self._ask("SELECT parts FROM record WHERE id = ?", (row.id,))), ("[]",))
        bodies = self._parts(msgspec.json.decode(parts, type=list[int]))
        return {name: json.loads(text) for body in bodies.values() for name, text in body.items()}

    def named(self, row: Row) -> dict[str, int]:
        """Sizes of the blobs that a record names, by digest; -1 where only the digest can be told."""
        found = self._ask("SELECT digest, size FROM named WHERE record = ?", (row.id,))
        return {digest.hex(): size for digest, size in found}

    def named_by(self, rows: Iterable[int]) -> dict[int, list[str]]:
        """The digests that each of some records names, by the numbers of their rows."""
        named: dict[int, list[str]] = {}
        for record, digest in self._some("SELECT record, digest FROM named WHERE record IN", rows):
            named.setdefault(record, []).append(digest.hex())
        return named

    def named_all(self, rows: Iterable[int]) -> Iterator[tuple[str, int, int]]:
        """Each digest that some records name, its size, and the number of the record's row."""
        for digest, size, record in self._some("SELECT digest, size, record FROM named WHERE record IN", rows):
            yield digest.hex(), size, record

    def shared(self) -> dict[str, int]:
        """How many records name each blob that more than one names."""
        found = self._ask("SELECT digest, count(*) FROM named GROUP BY digest HAVING count(*) > 1")
        return {digest.hex(): count for digest, count in found}

    def named_below(self, first: str) -> set[str]:
        """The digests with this first byte, two hex digits, that any record names."""
        low = bytes.fromhex(first)
        found = self._ask("SELECT DISTINCT digest FROM named WHERE digest BETWEEN ? AND ?", (low, low + b"\xff" * 32))
        return {digest.hex() for (digest,) in found}

    # Blobs that were found whole

    def whole(self, digest: str) -> Whole | None:
        """What is known of a blob that was found whole."""
        for state, pieces in self._ask("SELECT state, pieces FROM whole WHERE digest = ?", (bytes.fromhex(digest),)):
            text = pieces.hex()
            return Whole(state, tuple(text[at : at + 32] for at in range(0, len(text), 32)))
        return None

    def note_whole(self, found: Mapping[str, Whole | None]) -> None:
        """Note by digest which blobs were found whole; None is that a blob was not."""
        self._change(lambda database: _note_whole(database, found))

    # Changes

    def published(self, place: Place, whole: Mapping[str, Whole]) -> None:
        """Take in a record that was just written, and which of its blobs were found whole, by digest."""
        with suppress(FileNotFoundError):  # removed already
            read = _read(place, self._layout.record(*place))

            def work(database: sqlite3.Connection) -> None:
                _put_all(database, [(place, read)])
                _note_whole(database, whole)

            self._change(work)

    def forget(self, rows: Iterable[Row]) -> None:
        """Forget records that were removed."""

        def work(database: sqlite3.Connection) -> None:
            for row in rows:
                _drop(database, row.id)

        self._change(work)

    def tidy(self) -> None:
        """Give back the room of what no record needs any more."""

        def work(database: sqlite3.Connection) -> None:
            used = set[int]()
            for (parts,) in database.execute("SELECT parts FROM record"):
                used.update(msgspec.json.decode(parts, type=list[int]))
            unused = [(number,) for (number,) in database.execute("SELECT id FROM part") if number not in used]
            database.executemany("DELETE FROM part WHERE id = ?", unused)
            database.execute("DELETE FROM whole WHERE digest NOT IN (SELECT digest FROM named)")

        self._change(work)

    def refresh(self, *, exact: bool = False, tell: Callable[[int, int], object] = lambda *_: None) -> None:
        """Look what has changed in the store, and read it.

        Args:
            exact: Look at each record's file, and not only whether others came to a folder or went.
            tell: Told how many of how many records were read.
        """
        if not self._layout.records.is_dir() and not self._layout.index.exists():
            return
        looks = self._looks(exact=exact)
        fresh = [(one, name) for one in looks for name in one.fresh]
        for start in range(0, len(fresh), BATCH):
            part = []
            for number, (one, name) in enumerate(fresh[start : start + BATCH], start):
                if number % TOLD == 0:
                    tell(number, len(fresh))
                place = (one.directory, one.model_type, name.removesuffix(".json"))
                part.append((place, Path(one.path, name)))
            self._take(part)
        if fresh:
            tell(len(fresh), len(fresh))
        if looks:
            self._change(lambda database: _settle(database, looks))

    def _looks(self, *, exact: bool) -> list[_Look]:
        known: dict[tuple[str, str], tuple[int, int]] = {}
        for number, *place, changed in self._ask("SELECT id, directory, model_type, changed FROM folder"):
            known[place[0], place[1]] = number, changed
        looks = []
        there = _folders(self._layout.records, strict=exact)
        for place, path in there.items():
            number, changed = known.get(place, (0, 0))
            now, state = time.time_ns(), _changed(path)
            if state == changed and not exact:
                continue
            fresh, gone = self._compare(path, number, exact=exact)
            settled = state if now - state > SETTLED else 0
            if fresh or gone or (settled and settled != changed):
                looks.append(_Look(*place, path, settled, fresh, gone))
        for place in known.keys() - there.keys():
            rows = [row for (row,) in self._ask("SELECT id FROM record WHERE folder = ?", (known[place][0],))]
            looks.append(_Look(*place, "", 0, [], rows))
        return looks

    def _compare(self, path: str, folder: int, *, exact: bool) -> tuple[list[str], list[int]]:
        """Names of the records of a folder that are to be read, and rows whose files are gone."""
        known = {
            f"{key}.json": (number, inode, state, seen)
            for key, number, inode, state, seen in self._ask(
                "SELECT key, id, inode, state, seen FROM record WHERE folder = ?", (folder,)
            )
        }
        fresh = []
        try:
            with os.scandir(path) as listing:
                for item in listing:
                    if not item.name.endswith(".json") or not item.name.isascii():
                        continue
                    _, inode, state, seen = known.pop(item.name, (0, 0, "", 0))
                    if inode != item.inode() or not state or (exact and not _is_as(item, state, seen)):
                        fresh.append(item.name)
        except FileNotFoundError:  # and so are its records
            fresh = []
        except OSError:
            if exact:
                raise
            return [], []
        return sorted(fresh), [number for number, *_ in known.values()]

    def _take(self, wanted: list[tuple[Place, Path]]) -> None:
        found: list[tuple[Place, _Read]] = []
        for place, path in wanted:
            with suppress(FileNotFoundError):  # gone since it was listed
                found.append((place, _read(place, path)))
        self._change(lambda database: _put_all(database, found))

    # The file

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[Row]:
        same: dict[Any, Any] = {}  # most texts are those of many records
        for values_of in self._ask(query, values):
            row = [same.setdefault(value, value) if type(value) is str else value for value in values_of]
            row[8] = bool(row[8])
            yield Row(*row)

    def _parts(self, numbers: Iterable[int]) -> dict[int, dict[str, str]]:
        """Hard ingredients by part: names, and values as canonical JSON."""
        found = self._some("SELECT id, body FROM part WHERE id IN", numbers)
        return {number: msgspec.json.decode(body, type=dict[str, str]) for number, body in found}

    def _some(self, query: str, numbers: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        """Answers to a query that ends with `IN`, for any number of numbers."""
        wanted = list(numbers)
        for start in range(0, len(wanted), 500):
            some = tuple(wanted[start : start + 500])
            yield from self._ask(f"{query} ({','.join('?' * len(some))})", some)

    def _ask(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._run(lambda database: database.execute(query, values).fetchall())

    def _change(self, work: Callable[[sqlite3.Connection], None]) -> None:
        def changing(database: sqlite3.Connection) -> None:
            database.execute("BEGIN IMMEDIATE")
            try:
                work(database)
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise

        self._run(changing)

    def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Do work on the file, or in memory where SQLite cannot."""
        import sqlite3

        if self._memory is None:
            if not self._layout.root.is_dir():
                with closing(_memory()) as database:
                    return work(database)
            for attempt in (1, 2):
                try:
                    with closing(_connect(self._layout.index)) as database:
                        return work(database)
                except sqlite3.DatabaseError as error:
                    if attempt == 1 and _is_damage(error):
                        self._discard()
                    else:
                        break
        with self._mutex:
            if self._memory is None:
                self._memory = _memory(self._layout.index)
                weakref.finalize(self, self._memory.close)
            return work(self._memory)

    def _discard(self) -> None:
        for path in (self._layout.index.with_name(f"{self._layout.index.name}-journal"), self._layout.index):
            with suppress(OSError):
                path.unlink()


def state_of(status: os.stat_result) -> str:
    """A file's state, as text: another one where the file was changed or replaced."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def judged(raw: bytes) -> tuple[Record | None, str]:
    """The record in these bytes, and what is wrong with them; neither for one of a later cachekit."""
    try:
        return decode(raw), ""
    except DamagedRecordError as error:
        return None, str(error)


def _connect(path: Path) -> sqlite3.Connection:
    import sqlite3

    database = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    try:
        _prepare(database)
    except BaseException:
        database.close()
        raise
    return database


def _memory(copied: Path | None = None) -> sqlite3.Connection:
    """An index in memory, from a copy of a file if that can be read."""
    import sqlite3

    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    if copied is not None:
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"{copied.as_uri()}?mode=ro", uri=True)) as source:
            source.backup(memory)
            if _version(memory) == VERSION:
                return memory
        memory.close()
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _prepare(memory)
    return memory


def _prepare(database: sqlite3.Connection) -> None:
    """Make the tables where there are none.

    Raises:
        sqlite3.DatabaseError: The file is no index, or another version's.
    """
    import sqlite3

    if _version(database) == VERSION:
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        if _version(database) != VERSION:
            if _version(database) or list(database.execute("SELECT 1 FROM sqlite_master")):
                raise sqlite3.DatabaseError("an index of another version")
            for statement in _TABLES.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {VERSION}")
    finally:
        database.execute("COMMIT")


def _version(database: sqlite3.Connection) -> int:
    (number,) = database.execute("PRAGMA user_version").fetchone()
    return int(number)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file itself is bad, rather than out of reach for now."""
    import sqlite3

    return not isinstance(error, sqlite3.OperationalError) or "no such" in str(error)


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
            return sorted(item.name for item in listing if item.is_dir() and _is_text(item.name))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        if strict:
            raise
        return []


def _is_as(item: os.DirEntry[str], state: str, seen: int) -> bool:
    """Whether a record's file is in the state in which it was read, and was not changed since in the same moment."""
    try:
        status = item.stat()
    except OSError:
        return False
    return state == state_of(status) and seen - status.st_ctime_ns > SETTLED


def _is_text(name: str) -> bool:
    return name == name.encode("utf-8", "replace").decode("utf-8")


def _changed(folder: str) -> int:
    """When a folder was changed last, ns; now where that cannot be told."""
    try:
        return os.stat(folder).st_ctime_ns  # noqa: PTH116 - of hundreds of folders
    except OSError:
        return time.time_ns()


def _read(place: Place, path: Path) -> _Read:
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
        return _Read(0, "", seen, 0.0, 0, None, f"it cannot be read: {error.strerror or error}", {})
    record, flaw = judged(raw)
    if record is not None and (record.directory, record.model_type, record.key) != place:
        record, flaw = None, "it is another key's record"
    if record is not None:
        named = {file.sha256: file.size for file in record.files}
    else:
        named = {found.decode("ascii"): -1 for found in _DIGESTS.findall(raw) if found != place[2].encode()}
    return _Read(
        status.st_ino, state_of(status), seen, status.st_mtime, len(raw), record, flaw, named
    )


def _job(hard: Mapping[str, Any]) -> str:
    """What two records have in common that differ in their toolchains only."""
    return key_of({name: value for name, value in hard.items() if group_of(name) != "toolchain"})


def _put_all(database: sqlite3.Connection, found: list[tuple[Place, _Read]]) -> None:
    folders: dict[tuple[str, str], tuple[int, dict[str, str] | None]] = {}
    for place, read in found:
        if place[:2] not in folders:
            database.execute("INSERT OR IGNORE INTO folder (directory, model_type) VALUES (?, ?)", place[:2])
            query = "SELECT id, common FROM folder WHERE directory = ? AND model_type = ?"
            number, common = database.execute(query, place[:2]).fetchone()
            folders[place[:2]] = number, None if common is None else json.loads(common)
        number, common = folders[place[:2]]
        pairs = _put(database, number, place[2], read)
        if pairs is not None:
            same = pairs if common is None else dict(common.items() & pairs.items())
            folders[place[:2]] = number, same
    for number, common in folders.values():
        if common is not None:
            database.execute("UPDATE folder SET common = ? WHERE id = ?", (json.dumps(common), number))


def _put(database: sqlite3.Connection, folder: int, key: str, read: _Read) -> dict[str, str] | None:
    """Write a record's rows; its hard ingredients, values as canonical JSON, where it can be used."""
    for (old,) in database.execute("SELECT id FROM record WHERE folder = ? AND key = ?", (folder, key)).fetchall():
        _drop(database, old)
    record, pairs, said = read.record, None, ("", "", 0, 0, 0, 0.0, 0.0, "", "", "", "", "", "[]")
    if record is not None:
        made = record.provenance
        pairs = {name: canonical_json(value).decode() for name, value in sorted(record.hard.items())}
        said = (
            record.compiler, record.recipe, record.graphs, len(record.modules), record.size, record.compile_seconds,
            record.cold_seconds, made.created, made.user, made.host, made.instance, _job(record.hard),
            json.dumps(_part_numbers(database, pairs)),
        )  # fmt: skip
    about = folder, key, read.inode, read.state, read.seen, read.published, read.size, read.flaw, record is not None
    marks = ",".join("?" * (1 + len(about) + len(said)))
    new = database.execute(f"INSERT INTO record VALUES ({marks})", (None, *about, *said)).lastrowid  # noqa: S608
    rows = ((bytes.fromhex(digest), new, size) for digest, size in read.named.items())
    database.executemany("INSERT OR IGNORE INTO named VALUES (?, ?, ?)", rows)
    return pairs


def _part_numbers(database: sqlite3.Connection, pairs: Mapping[str, str]) -> list[int]:
    """The numbers of the parts that make up some ingredients: those whose names begin alike are one."""
    groups: dict[str, dict[str, str]] = {}
    for name, text in pairs.items():
        groups.setdefault(group_of(name), {})[name] = text
    numbers = []
    for group in groups.values():
        body = json.dumps(group, ensure_ascii=False)
        database.execute("INSERT OR IGNORE INTO part (body) VALUES (?)", (body,))
        numbers += [number for (number,) in database.execute("SELECT id FROM part WHERE body = ?", (body,))]
    return numbers


def _note_whole(database: sqlite3.Connection, found: Mapping[str, Whole | None]) -> None:
    for digest, whole in found.items():
        if whole is None:
            database.execute("DELETE FROM whole WHERE digest = ?", (bytes.fromhex(digest),))
        else:
            row = bytes.fromhex(digest), whole.state, bytes.fromhex("".join(whole.pieces))
            database.execute("INSERT OR REPLACE INTO whole VALUES (?, ?, ?)", row)


def _drop(database: sqlite3.Connection, record: int) -> None:
    database.execute("DELETE FROM named WHERE record = ?", (record,))
    database.execute("DELETE FROM record WHERE id = ?", (record,))


def _settle(database: sqlite3.Connection, looks: Iterable[_Look]) -> None:
    """Forget the records that are gone, and write down until when each folder's rows are its records."""
    for look in looks:
        for row in look.gone:
            _drop(database, row)
        if not look.path:
            database.execute("DELETE FROM folder WHERE directory = ? AND model_type = ?", (look.directory, look.model_type))
        else:
            database.execute(
                "UPDATE folder SET changed = ? WHERE directory = ? AND model_type = ?",
                (look.changed, look.directory, look.model_type),
            )
