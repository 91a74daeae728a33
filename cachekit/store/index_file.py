"""The file of an index: opened for each question, rebuilt if damaged, in memory if SQLite cannot use the file.

SQLite does what the files say that it finds beside a database: a journal names another file, which is removed once the
journal is rolled back [pager.c, pager_delsuper]. So the file lies only where nobody else can put one: in the store if
it is this user's own, else in a private folder of this user on this host.
"""

from __future__ import annotations

import hashlib
import os
import random
import stat
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cachekit import whose
from cachekit.errors import StoreError
from cachekit.private import FILE
from cachekit.store.layout import Layout, temporary_folder
from cachekit.store.record import SCHEMA
from cachekit.store.rwlock import has_locks

if TYPE_CHECKING:
    import sqlite3  # where it is used: a hit needs no index, and importing this takes 9 ms

# Raise the number when the tables or the meaning of a column change: an index of another number is built anew.
VERSION = 100 * SCHEMA + 5
PATIENCE = 5.0  # seconds to wait for another process that writes to the index
_TABLES = """
CREATE TABLE folder (id INTEGER PRIMARY KEY, directory TEXT NOT NULL, model_type TEXT NOT NULL,
    changed INTEGER NOT NULL DEFAULT 0, common TEXT,
    UNIQUE (directory, model_type));
CREATE TABLE made_by (folder INTEGER NOT NULL, compiler TEXT NOT NULL, PRIMARY KEY (folder, compiler)) WITHOUT ROWID;
CREATE TABLE record (id INTEGER PRIMARY KEY, folder INTEGER NOT NULL, key TEXT NOT NULL,
    owner INTEGER NOT NULL, state TEXT NOT NULL, seen INTEGER NOT NULL,
    published REAL NOT NULL, size INTEGER NOT NULL, flaw TEXT NOT NULL, usable INTEGER NOT NULL,
    compiler TEXT NOT NULL, recipe TEXT NOT NULL, graphs INTEGER NOT NULL,
    modules INTEGER NOT NULL, bytes INTEGER NOT NULL, compile_seconds REAL NOT NULL, cold_seconds REAL NOT NULL,
    created TEXT NOT NULL, user TEXT NOT NULL, host TEXT NOT NULL, instance TEXT NOT NULL,
    job TEXT NOT NULL, parts TEXT NOT NULL, checksum INTEGER NOT NULL, UNIQUE (folder, key));
CREATE INDEX record_key ON record (key);
CREATE INDEX record_job ON record (job) WHERE job <> '';
CREATE INDEX record_flaw ON record (flaw) WHERE flaw <> '';
CREATE INDEX record_listed ON record (created, key, recipe, compiler, folder, graphs, modules, bytes, compile_seconds,
    cold_seconds, user, host, usable) WHERE usable;
CREATE TABLE part (id INTEGER PRIMARY KEY, body TEXT NOT NULL UNIQUE, checksum INTEGER NOT NULL);
CREATE TABLE named (digest BLOB NOT NULL, record INTEGER NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (digest, record)) WITHOUT ROWID;
CREATE INDEX named_record ON named (record);
CREATE TABLE whole (digest BLOB PRIMARY KEY, state TEXT NOT NULL, pieces BLOB NOT NULL) WITHOUT ROWID;
"""

_T = TypeVar("_T")
# What it raises to make something of answers that cannot be true.
_IMPOSSIBLE = (LookupError, TypeError, ValueError, AttributeError, msgspec.DecodeError)


class LostIndexError(StoreError):
    """The index was damaged, or removed, since the look at the store that the answer is about."""

    def __init__(
        self,
        message: str = "the index of the store was damaged or removed while it was read",
        *,
        cause: str = "",
        hint: str = "run the command again: the index is rebuilt",
    ) -> None:
        super().__init__(message, cause=cause, hint=hint)


class _Thread(threading.local):
    """The file as one thread has it open, between questions that it asks together."""

    keeps = still = False
    database: sqlite3.Connection | None = None

    @contextmanager
    def opened(self, path: Path) -> Iterator[sqlite3.Connection]:
        if not self.keeps:
            with closing(_connect(path)) as database:
                yield database
            return
        try:
            self.database = self.database or _connect(path)
            if self.still and not self.database.in_transaction:
                self.database.execute("BEGIN")
            yield self.database
        except BaseException:
            self.close()  # what comes next may find another file
            raise

    def close(self) -> None:
        database, self.database = self.database, None
        if database is not None:
            database.close()


class IndexFile:
    """Runs queries on the index of one store, for all threads of a process.

    Each opens the file and closes it again, or several of them do `together`: a connection must not be carried into a
    forked process. Numbers of rows have a meaning only in one file: where another one lies there than when `begin` was
    called, that is an error.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._place: Path | None = None
        self._memory: sqlite3.Connection | None = None
        self._mutex = threading.Lock()
        self._thread = _Thread()
        self._mark = 0  # of the file that was there when `begin` was called

    def begin(self) -> None:
        """From now on all answers are of one index.

        Raises:
            LostIndexError: It was bad; the next call finds a new one.
        """
        self._mark, self._place = 0, None
        self._mark = self._run(_mark)

    @contextmanager
    def together(self, *, still: bool = False) -> Iterator[None]:
        """What this thread asks meanwhile opens the file once: that takes ten times as long as a small question.

        Args:
            still: Nobody changes the index meanwhile: other processes wait until they may. Nothing is changed inside.
        """
        thread = self._thread
        outer, thread.keeps, thread.still = (thread.keeps, thread.still), True, thread.still or still
        try:
            yield
        finally:
            thread.keeps, thread.still = outer
            if not thread.keeps or (still and not thread.still):
                thread.close()

    @contextmanager
    def believed(self) -> Iterator[None]:
        """What the block makes of answers: if they cannot be true, the file is damaged, though SQLite can read it.

        Raises:
            LostIndexError: They cannot; the next call finds a new index.
        """
        try:
            yield
        except _IMPOSSIBLE as error:
            if self._memory is None:
                self._discard()
            else:
                with self._mutex:
                    self._keep(_connect(":memory:"))
            raise LostIndexError from error

    def ask(self, query: str, values: tuple[Any, ...] = (), *, any_file: bool = False) -> list[tuple[Any, ...]]:
        """The answers to a query.

        Args:
            query: The query.
            values: What stands for its question marks.
            any_file: It names no row that an earlier answer told of, so that any index will do.

        Raises:
            LostIndexError: See `begin`.
        """
        return self._surely(lambda database: database.execute(query, values).fetchall(), any_file=any_file)

    def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """What some work makes of the answers to a query as they come; raises as `ask` and `believed`."""
        with self.believed():
            return self._surely(work, any_file=False)

    def ask_for(self, query: str, numbers: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        """Answers to a query that ends with `IN`, for any number of numbers; raises as `ask`."""
        import sqlite3

        wanted, most = list(numbers), 32_000 if sqlite3.sqlite_version_info >= (3, 32) else 900
        for start in range(0, len(wanted), most):
            some = tuple(wanted[start : start + most])
            yield from self.ask(f"{query} ({','.join('?' * len(some))})", some)

    def change(self, work: Callable[[sqlite3.Connection], None], *, any_file: bool = False) -> None:
        """Do work that changes the index, all of it or nothing; raises as `read`. For any file it may be done twice."""
        with self.believed():
            self._surely(_whole(work), any_file=any_file)

    def _surely(self, work: Callable[[sqlite3.Connection], _T], *, any_file: bool) -> _T:
        for _ in range(2 if any_file else 0):
            with suppress(LostIndexError):
                return self._run(work, any_file=True)
        return self._run(work, any_file=any_file)

    def _run(self, work: Callable[[sqlite3.Connection], _T], *, any_file: bool = False) -> _T:
        """Do work on the file, or in memory where SQLite cannot."""
        import sqlite3

        if self._memory is None:
            if not self._layout.root.is_dir():
                with closing(_connect(":memory:")) as database:
                    return work(database)
            self._place = self._place or _place(self._layout)
            try:
                if self._place is None:
                    raise sqlite3.OperationalError("no private folder")
                if not has_locks(self._place.parent):  # SQLite would wait, as for another process that has one
                    raise sqlite3.OperationalError("no locks")
                with self._thread.opened(self._place) as database:
                    if not any_file and self._mark not in {0, _mark(database)}:
                        raise LostIndexError
                    return work(database)
            except sqlite3.DatabaseError as error:
                if _is_damage(error):
                    self._discard()
                    raise LostIndexError from error
                self._take_to_memory()
        with self._mutex:
            assert self._memory is not None
            if not any_file and self._mark not in {0, _mark(self._memory)}:
                raise LostIndexError
            try:
                return work(self._memory)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._keep(_connect(":memory:"))  # the copy was of a damaged file
                raise LostIndexError from error

    def _take_to_memory(self) -> None:
        with self._mutex:
            if self._memory is None:
                self._keep((self._place and _copied(self._place)) or _connect(":memory:"))

    def _keep(self, memory: sqlite3.Connection) -> None:
        self._memory = memory
        weakref.finalize(self, memory.close)

    def _discard(self) -> None:
        for path in _files(self._place) if self._place else ():
            try:
                path.unlink()
            except FileNotFoundError:
                continue
            except OSError:
                self._take_to_memory()


def _whole(work: Callable[[sqlite3.Connection], None]) -> Callable[[sqlite3.Connection], None]:
    """All of some work or nothing."""

    def changing(database: sqlite3.Connection) -> None:
        database.execute("BEGIN IMMEDIATE")
        try:
            work(database)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    return changing


def _place(layout: Layout) -> Path | None:
    """Where the index of a store lies; None where there is no private folder for one."""
    if whose.standing(layout.root).whose == "own":
        return layout.index
    home = hashlib.sha256(os.fsencode(os.path.realpath(layout.home))).hexdigest()
    with suppress(OSError):
        return temporary_folder("indexes") / f"{home[:32]}.sqlite"
    return None


def _connect(path: Path | str) -> sqlite3.Connection:
    """Open an index; `:memory:` is an empty one, which all threads may use."""
    import sqlite3

    in_memory = path == ":memory:"
    if isinstance(path, Path):
        _check_files(path)
        with suppress(OSError):  # which SQLite tells
            path.touch(FILE, exist_ok=False)
    database = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=not in_memory)
    try:
        _prepare(database)
    except BaseException:
        database.close()
        raise
    return database


def _files(path: Path) -> tuple[Path, ...]:
    """The files that SQLite opens for an index, the index itself last."""
    return (*(path.with_name(f"{path.name}-{end}") for end in ("journal", "wal", "shm")), path)


def _check_files(path: Path) -> None:
    """SQLite waits for a pipe without end. A folder is left to SQLite, which says at once that it cannot open one.

    Raises:
        sqlite3.DatabaseError: A file of the index is a pipe, a socket or a device; or a link, where SQLite would write
            to what it leads to; or others wrote it, or can, as in a store that was open to them once.
    """
    import sqlite3

    for one in _files(path):
        # None is opened: where a process closes a file, it loses its POSIX locks on it, those of SQLite included
        # [https://www.sqlite.org/howtocorrupt.html, 2.2.1].
        with suppress(OSError):
            mode = one.lstat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise sqlite3.DatabaseError(f"{one} is not a regular file")
            if whose.outsider(one, one):
                raise sqlite3.DatabaseError(f"others wrote {one}, or can write it")


def _copied(path: Path) -> sqlite3.Connection | None:
    """A copy of an index in memory; None where the file cannot be read."""
    import sqlite3

    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    how = "mode=ro" if has_locks(path.parent) else "mode=ro&nolock=1"
    with suppress(sqlite3.Error):
        _check_files(path)
        with closing(sqlite3.connect(f"{path.as_uri()}?{how}", uri=True)) as source:
            if _version(source) == VERSION:  # an error where a writer takes too long: the backup would wait without end
                source.backup(memory)
                return memory
    memory.close()
    return None


def _prepare(database: sqlite3.Connection) -> None:
    """Make the tables in an empty file.

    Raises:
        sqlite3.DatabaseError: The file is not an index, or an index of another version.
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
            database.execute(f"PRAGMA application_id = {random.getrandbits(31) or 1}")
            database.execute(f"PRAGMA user_version = {VERSION}")
    finally:
        database.execute("COMMIT")


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _mark(database: sqlite3.Connection) -> int:
    """A number that no other index of this store has."""
    return int(database.execute("PRAGMA application_id").fetchone()[0])


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file itself is bad, rather than out of reach for now."""
    import sqlite3

    said = str(error)
    return not isinstance(error, sqlite3.OperationalError) or "no such" in said or "ould not decode" in said
