"""The index of a store: what its records say and which blobs they name, in one SQLite file that may be deleted.

The record files are the truth. The index has a row for each, with the state of the file that the row was made of, and
every question begins with a look at what has changed since: one `stat` for each folder of records, and one for each
record where the answer must be exact (`gc`, `verify`). So a change is seen whoever made it, and an index that is lost,
damaged or old costs the time of reading records. Before anything is removed, the checksums of all rows are compared, as
SQLite has none.

Where SQLite cannot work with the file (a store that others own, a file system without locks, a process that holds the
file for seconds) the index is built in memory, from a copy of the file where that can be read.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from cachekit.errors import StoreError
from cachekit.key.nearest import Distances, Folder
from cachekit.store.index_file import IndexFile, LostIndexError
from cachekit.store.index_rows import (
    IndexRow,
    Listed,
    WholeBlob,
    changed_folders,
    check,
    drop,
    job_of,
    note_whole,
    put_all,
    read_file,
    settle,
)
from cachekit.store.layout import Layout, Place
from cachekit.store.record import IMPORTED
from cachekit.text import cause_of

if TYPE_CHECKING:
    import sqlite3


TOLD = 100  # records from one word about how far the reading is to the next
PART = 10_000  # blobs that are told of at once
LOOKS = 3  # at the records, for an answer from an index that stays good meanwhile
BATCH = 1_000  # records that are read between two commits: a killed process loses no more
_COLUMNS = (
    "record.id, folder.directory, folder.model_type, record.key, state, published, record.size, flaw, usable, "
    "compiler, recipe, graphs, modules, bytes, compile_seconds, cold_seconds, created, user, host, instance"
)
_NUMBERS = msgspec.json.Decoder(list[int])  # of parts
_PAIRS = msgspec.json.Decoder(dict[str, str])  # of one
_ROWS = f"SELECT {_COLUMNS} FROM record JOIN folder ON folder.id = record.folder"  # noqa: S608 - no stranger's text
_IN_ORDER = "ORDER BY folder.directory, folder.model_type, record.key"


class Index:
    """The index of one store, for all threads of a process; see `IndexFile` for when it is opened."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._file = IndexFile(layout)

    # Questions: answered as of the last of `looks`

    def rows(self, *, flawed: bool = False) -> Iterator[IndexRow]:
        """Every record that can be used, in the order of their paths; those of a folder are asked for at once."""
        folders = self._file.ask("SELECT id FROM folder ORDER BY directory, model_type")
        for folder in folders:
            yield from self._rows(f"{_ROWS} WHERE folder = ? AND (usable OR ?) ORDER BY record.key", (*folder, flawed))

    def row(self, place: Place) -> IndexRow | None:
        """The record that lies there."""
        found = self._rows(f"{_ROWS} WHERE directory = ? AND model_type = ? AND record.key = ?", place)
        return next(found, None)

    def rows_of(self, numbers: Iterable[int]) -> dict[int, IndexRow]:
        """Some records, by the numbers of their rows."""
        return {row.id: row for row in self._made_of(self._file.ask_for(f"{_ROWS} WHERE record.id IN", numbers))}

    def keys(self) -> set[str]:
        """The keys of all records, those that cannot be used among them."""
        return {key for (key,) in self._file.ask("SELECT key FROM record")}

    def count_later(self) -> int:
        """How many records were made by a newer cachekit, and cannot be read by this one."""
        ((count,),) = self._file.ask("SELECT count(*) FROM record WHERE NOT usable AND flaw = ''")
        return int(count)

    def listed(self) -> list[Listed]:
        """The records that can be used, the youngest first."""
        query = (
            "SELECT key, recipe, compiler, folder, graphs, modules, bytes, compile_seconds, cold_seconds, created, "
            "user || '@' || host FROM record INDEXED BY record_listed WHERE usable ORDER BY created DESC, key DESC"
        )  # all of it stands there in this order: of 100,000 records the rows are a hundred megabytes
        same = dict[str, str]().setdefault  # most texts are those of many records: each is kept once

        def listed(database: sqlite3.Connection) -> list[Listed]:
            named = database.execute("SELECT id, directory, model_type FROM folder")
            folders = {number: (directory, model_type) for number, directory, model_type in named}
            return [
                Listed(
                    key, same(recipe, recipe), same(compiler, compiler), *folders[folder],
                    graphs, modules, size, seconds, cold, created, same(by, by),
                )
                for key, recipe, compiler, folder, graphs, modules, size, seconds, cold, created, by
                in database.execute(query)
            ]  # fmt: skip

        return self._file.read(listed)

    def doubtful(self, user: int) -> set[Place]:
        """The records that somebody else than a user and root can have written, by their files as they were read."""
        query = (
            "SELECT directory, model_type, key FROM record JOIN folder ON folder.id = record.folder "
            "WHERE owner NOT IN (0, ?)"
        )
        return {Place(*found) for found in self._file.ask(query, (user,))}

    def by_prefix(self, digits: str) -> list[IndexRow]:
        """All records whose keys begin so, those that cannot be used among them."""
        return list(self._rows(f"{_ROWS} WHERE record.key >= ? AND record.key < ? {_IN_ORDER}", (digits, digits + "g")))

    def flawed(self) -> list[IndexRow]:
        """The records with a flaw."""
        return list(self._rows(f"{_ROWS} WHERE flaw <> '' {_IN_ORDER}"))

    def nearest(self, hard: Mapping[str, Any], *, compiler: str = "", directory: str = "") -> Iterator[NearRecord]:
        """The records that can be used by their distance from some hard ingredients, nearest first; see `key.nearest`.

        Of equally near ones those of a later compiler come first. As many are looked at as the caller takes.
        """
        found = self._nearest(Distances(hard), compiler, directory)
        while True:
            with self._file.believed(), self._file.together(still=True):
                near = next(found, None)
            if near is None:
                return
            yield near

    def _nearest(self, distances: Distances, compiler: str, directory: str) -> Iterator[NearRecord]:
        query = (
            "SELECT id, common FROM folder WHERE (directory = ? OR ? = '') AND "
            "(? = '' OR EXISTS (SELECT 1 FROM made_by WHERE folder = folder.id AND compiler = ?)) "
            "ORDER BY directory DESC, model_type"
        )
        found = self._file.ask(query, (directory, directory, compiler, compiler))
        folders = [Folder(number, json.loads(common or "{}")) for number, common in found]

        def records(folder: int) -> list[tuple[int, str, list[int]]]:
            asked = (folder, compiler, compiler)
            found = self._file.ask(
                "SELECT id, key, parts FROM record WHERE folder = ? AND usable AND (compiler = ? OR ? = '')", asked
            )
            return [(number, key, _NUMBERS.decode(parts)) for number, key, parts in found]

        for number, far in distances.search(folders, records, self._parts):
            row = next(self._rows(f"{_ROWS} WHERE record.id = ?", (number,)), None)
            if row is not None:
                yield NearRecord(row, self.hard(row), far)

    def same_job(self, hard: Mapping[str, Any]) -> list[NearRecord]:
        """The records that can be used with these hard ingredients, whatever their toolchains; no distance is told."""
        with self._file.together(still=True):
            found = self._rows(f"{_ROWS} WHERE job = ? AND job <> '' {_IN_ORDER}", (job_of(hard),))
            return [NearRecord(row, self.hard(row)) for row in found]

    def hard(self, row: IndexRow) -> dict[str, Any]:
        """The hard ingredients of a record that can be used; numbers in their canonical form."""
        with self._file.believed(), self._file.together(still=True):
            found = self._file.ask("SELECT parts FROM record WHERE id = ?", (row.id,))
            if not found:  # it was removed, or replaced
                raise LostIndexError
            numbers = _NUMBERS.decode(found[0][0])
            bodies = self._parts(numbers)
            return {name: json.loads(text) for number in numbers for name, text in bodies[number].items()}

    def named(self, row: IndexRow) -> dict[str, int]:
        """Sizes of the blobs that a record names, by digest; -1 where only the digest can be told."""
        found = self._file.ask("SELECT digest, size FROM named WHERE record = ?", (row.id,))
        return {digest.hex(): size for digest, size in found}

    def named_by(self, rows: Iterable[int]) -> dict[int, list[str]]:
        """The digests that each of some records names, by the numbers of their rows."""
        named: dict[int, list[str]] = {}
        for record, digest in self._file.ask_for("SELECT record, digest FROM named WHERE record IN", rows):
            named.setdefault(record, []).append(digest.hex())
        return named

    def named_parts(self) -> Iterator[list[tuple[str, int]]]:
        """Digests and sizes of all blobs that records which can be used name, some thousands at a time."""
        query = (
            "SELECT digest, group_concat(DISTINCT named.size) FROM named CROSS JOIN record ON record.id = named.record "
            "WHERE digest > ? AND usable GROUP BY digest LIMIT ?"
        )
        last = b""
        while found := self._file.ask(query, (last, PART)):
            last = found[-1][0]
            with self._file.believed():
                part = [(digest.hex(), int(size)) for digest, sizes in found for size in sizes.split(",")]
            yield part

    def naming(self, digest: str, size: int) -> list[IndexRow]:
        """The records that can be used and name a blob of this digest and size."""
        query = (
            f"{_ROWS} JOIN named ON named.record = record.id WHERE digest = ? AND named.size = ? AND usable {_IN_ORDER}"
        )
        return list(self._rows(query, (bytes.fromhex(digest), size)))

    def named_total(self) -> tuple[int, int]:
        """How many blobs the records that can be used name, and their bytes; each is counted once."""
        (found,) = self._file.ask(
            "SELECT count(DISTINCT digest), ifnull(sum(size), 0) FROM "
            "(SELECT DISTINCT digest, named.size FROM named CROSS JOIN record ON record.id = named.record WHERE usable)"
        )
        return int(found[0]), int(found[1])

    def shared(self) -> dict[str, int]:
        """How many records name each blob that more than one names."""
        found = self._file.ask("SELECT digest, count(*) FROM named GROUP BY digest HAVING count(*) > 1")
        return {digest.hex(): count for digest, count in found}

    def named_below(self, first: str) -> set[str]:
        """The digests with this first byte, two hex digits, that any record names."""
        low = bytes.fromhex(first)
        found = self._file.ask(
            "SELECT DISTINCT digest FROM named WHERE digest BETWEEN ? AND ?", (low, low + b"\xff" * 32)
        )
        return {digest.hex() for (digest,) in found}

    # Blobs that were found whole

    def whole(self, digest: str) -> WholeBlob | None:
        """What is known of a blob that was found whole."""
        query = "SELECT state, pieces FROM whole WHERE digest = ?"
        for state, pieces in self._file.ask(query, (bytes.fromhex(digest),), any_file=True):
            text = pieces.hex()
            return WholeBlob(state, tuple(text[at : at + 32] for at in range(0, len(text), 32)))
        return None

    def note_whole(self, found: Mapping[str, WholeBlob | None]) -> None:
        """Note by digest which blobs were found whole; None is that a blob was not."""
        self._file.change(lambda database: note_whole(database, found), any_file=True)

    # Changes

    def published(self, place: Place, whole: Mapping[str, WholeBlob]) -> None:
        """Take in a record that was just written, and which of its blobs were found whole, by digest."""
        with suppress(FileNotFoundError):  # removed already
            read = read_file(place, self._layout.record(place))

            def work(database: sqlite3.Connection) -> None:
                put_all(database, [(place, read)])
                note_whole(database, whole)

            self._file.change(work, any_file=True)

    def forget(self, rows: Iterable[IndexRow]) -> None:
        """Forget records that were removed."""

        def work(database: sqlite3.Connection) -> None:
            for row in rows:
                drop(database, row.id)

        self._file.change(work)

    def tidy(self) -> None:
        """Give back the room of what no record needs any more."""

        def work(database: sqlite3.Connection) -> None:
            used = set[int]()
            for (parts,) in database.execute("SELECT parts FROM record"):
                used.update(_NUMBERS.decode(parts))
            unused = [(number,) for (number,) in database.execute("SELECT id FROM part") if number not in used]
            database.executemany("DELETE FROM part WHERE id = ?", unused)
            database.execute("DELETE FROM whole WHERE digest NOT IN (SELECT digest FROM named)")

        self._file.change(work)

    def looks(self, *, exact: bool, checked: bool, tell: Callable[[int, int], object]) -> Iterator[Index]:
        """The index as the records are now; then, for whom it was lost before an answer came, as they are then.

        This is the only place that tries again: damage is found by any question, and what finds it discards the file.

        Args:
            exact: Look at each record's file, and not only whether others came to a folder or went.
            checked: Compare the checksums of all rows.
            tell: Told how many of how many records were read.

        Raises:
            StoreError: A folder cannot be read, and it is to be exact.
            LostIndexError: The index goes bad again and again.
        """
        for _ in range(LOOKS):
            try:
                with self._file.together():
                    self._refresh(exact=exact, checked=checked, tell=tell)
            except LostIndexError:
                continue
            except OSError as error:
                raise StoreError(
                    f"the records of the store cannot be read: {error.filename}",
                    cause=cause_of(error),
                    hint="make the folder readable: `cachekit doctor` says who owns it",
                ) from error
            yield self
        raise LostIndexError

    def _refresh(self, *, exact: bool, checked: bool, tell: Callable[[int, int], object]) -> None:
        """Look what has changed in the store, and read it."""
        if not self._layout.records.is_dir() and not self._layout.index.exists():
            return
        self._file.begin()
        if checked:
            with self._file.together(still=True):
                self._file.read(check)
        looks = changed_folders(self._file.ask, self._layout.records, exact=exact)
        fresh = [(one, name) for one in looks for name in one.fresh]
        for start in range(0, len(fresh), BATCH):
            part = []
            for number, (one, name) in enumerate(fresh[start : start + BATCH], start):
                if number % TOLD == 0:
                    tell(number, len(fresh))
                place = Place(one.directory, one.model_type, name.removesuffix(".json"))
                with suppress(FileNotFoundError):  # gone since it was listed
                    part.append((place, read_file(place, Path(one.path, name))))
            self._file.change(partial(put_all, found=part))
        if fresh:
            tell(len(fresh), len(fresh))
        if looks:
            self._file.change(lambda database: settle(database, looks))

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> Iterator[IndexRow]:
        return self._made_of(self._file.ask(query, values))

    def _made_of(self, answers: Iterable[tuple[Any, ...]]) -> Iterator[IndexRow]:
        same = dict[str, str]().setdefault  # most texts are those of many records: each is kept once
        for (
            number, directory, model_type, key, state, published, size, flaw, usable, compiler, recipe, graphs, modules,
            total, compile_seconds, cold_seconds, created, user, host, instance,
        ) in answers:  # fmt: skip
            yield IndexRow(
                number, same(directory, directory), same(model_type, model_type), key, state, published, size, flaw,
                bool(usable), same(compiler, compiler), same(recipe, recipe), graphs, modules, total, compile_seconds,
                cold_seconds, created, same(user, user), same(host, host), same(instance, instance),
            )  # fmt: skip

    def _parts(self, numbers: Iterable[int]) -> dict[int, dict[str, str]]:
        """Hard ingredients by part: names, and values as canonical JSON."""
        found = self._file.ask_for("SELECT id, body FROM part WHERE id IN", numbers)
        return {number: _PAIRS.decode(body) for number, body in found}


class NearRecord(Struct, frozen=True):
    """A record and how near it is.

    Attributes:
        row: The record.
        hard: Its hard ingredients.
        distance: The sum of the weights of what differs; see `key.WEIGHTS`.
    """

    row: IndexRow
    hard: dict[str, Any]
    distance: int = 0


class Around:
    """The records around some hard ingredients. All answers are of one look at the store.

    Args:
        looks: Gives the index; anew where it was lost meanwhile, in which case what was told already is not told twice.
        hard: The hard ingredients.
    """

    def __init__(self, looks: Iterator[Index], hard: Mapping[str, Any]) -> None:
        self._looks, self._hard = looks, hard
        self._index = next(looks)
        self._searches: dict[tuple[str, str], tuple[list[NearRecord], Iterator[NearRecord]]] = {}

    def nearest(self, *, compiler: str = "", directory: str = "") -> Iterator[NearRecord]:
        """The records by their distance, nearest first; the caller takes as many as are needed.

        Whoever asks the same again gets what was found, and the search goes on behind that: among 100,000 records it
        takes a fifth of a second.
        """
        begun = self._searches.get((compiler, directory)) or ([], self._search(compiler, directory))
        found, more = self._searches[compiler, directory] = begun
        for place in itertools.count():
            if place == len(found):
                if (near := next(more, None)) is None:
                    return
                found.append(near)
            yield found[place]

    def _search(self, compiler: str, directory: str) -> Iterator[NearRecord]:
        told = set[Place]()
        while True:
            try:
                for near in self._index.nearest(self._hard, compiler=compiler, directory=directory):
                    if near.row.model_type != IMPORTED and near.row.place not in told:
                        told.add(near.row.place)
                        yield near
            except LostIndexError:
                self._index = next(self._looks)
            else:
                return

    def same_job(self) -> list[NearRecord]:
        """The records with these ingredients, whatever their toolchains are; no distance is told of them."""
        while True:
            try:
                return self._index.same_job(self._hard)
            except LostIndexError:
                self._index = next(self._looks)
