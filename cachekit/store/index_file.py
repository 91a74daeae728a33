"""The file of a store's index: opened for each question, made anew where it is bad, in memory where it cannot serve."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cachekit.store.layout import Layout
from cachekit.store.record import SCHEMA

if TYPE_CHECKING:
    import sqlite3  # where it is used: a hit needs no index, and importing this takes 9 ms

# Raise the number when the tables or the meaning of a column change: an index of another number is built anew.
VERSION = 100 * SCHEMA + 1
PATIENCE = 5.0  # seconds to wait for another process that writes to the index
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

_T = TypeVar("_T")


class IndexFile:
    """Runs queries on the index of one store, for all threads of a process.

    Each opens the file and closes it again: a connection must not be carried into a forked process.

    Args:
        layout: The store's paths.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._memory: sqlite3.Connection | None = None
        self._mutex = threading.Lock()

    def ask(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """The answers to a query."""
        return self._run(lambda database: database.execute(query, values).fetchall())

    def ask_for(self, query: str, numbers: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        """Answers to a query that ends with `IN`, for any number of numbers."""
        wanted = list(numbers)
        for start in range(0, len(wanted), 500):
            some = tuple(wanted[start : start + 500])
            yield from self.ask(f"{query} ({','.join('?' * len(some))})", some)

    def change(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Do work that changes the index: all of it or nothing; it may be done twice."""

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
