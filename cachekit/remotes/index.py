"""The index of a remote: what each of its records says, all but the modules, in one small file beside the records.

    cachekit/v1/index.json  {"schema": 1, "change": "…", "unread": 0, "rows": "<base64 of zlib of JSON columns>"}
    cachekit/v1/index/<sha256>.json  the same once more: older rows, to which the first adds, and which it names
    Where no git has to hold these, the rows follow that line as they are, without base64.

The records are the truth. Who changes records writes the index in the same change, whose title names the mark that
stands in the index. So a remote that keeps a history tells whether others wrote records since: then, and where there is
no index or a damaged one, the records are listed, and those of which nothing is known are read (`survey.py`). The next
writer puts that in the place of the index. Where there is no history, writers list the records; where a listing would
be many requests, a question takes the index for all there is for a day after one (`speaks_for_all`), and so does a
writer if no row can be lost in a race. There a long index lies in two documents, so that a push writes a short one.

Anybody who may write there may have written it. A key is the digest of its ingredients, so no row can lie about these;
all else that it says is shown to people, and whatever is used is read and judged first.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field, structs

from cachekit.decode import from_builtins, from_json
from cachekit.errors import TooLargeError
from cachekit.files import digest_of
from cachekit.key.canonical import ABSENT, key_of, key_of_members, member
from cachekit.key.nearest import Distances, Folder
from cachekit.remotes import layout
from cachekit.remotes.columns import Column, text_of
from cachekit.remotes.port import ABSENT as NOTHING
from cachekit.remotes.port import Storage
from cachekit.store.layout import Place, Placed
from cachekit.store.record import Record, names_folder
from cachekit.text import DAY

SCHEMA = 1
SCHEMA_OF_TWO = 2  # older rows lie apart: who does not know that lists the records
# Anybody may have written it: within these, to read it and find the nearest takes about a second and 150 MB at most.
# They are looked at before anything is made of the text. Of 30,000 records with 50 ingredients each:
LARGEST = 4 << 20  # bytes of the document; 1.7 MB
LARGEST_ROWS = 8 << 20  # bytes of the columns; 5 MB
MOST = 40_000  # rows; beside older ones, of which each may be another state of the same record, a tenth of that
_MOST_OF = {b",": 2_200_000, b'"': 1_000_000, b"[": 60_000, b"{": 20_000}  # characters; 1,900,000, 300,000, 130, 1
_MOST_VALUES = 100_000  # of all ingredients together, each once
_MOST_INSIDE = 200_000  # commas in values: lists are long to tell apart
DIGITS = 16  # of a key: which record it is; the ingredients give the others
CURRENT = DAY  # seconds for which a listing by whoever wrote it counts; about as wrong as an hour may clocks be
_DIGITS = re.compile(rf"[0-9a-f]{{{DIGITS}}}")
_HARD = "hard."  # begins the names of columns that are ingredients
_KEY = "key"
_FOLDERS = ("directory", "model_type")  # with the key, where a record lies
_OLDER = "index/older"  # the name of the one copy of them


class Known(Struct, Placed, frozen=True):
    """What is known of a record, all but its modules.

    Attributes:
        size: Bytes of its files.
        by: Who made it.
        instance: The instance type that it was made on, where that is known.
        signers: Whose signatures lie beside it on the remote, as far as somebody looked: fingerprints of their keys.
        modules: How many it has; 0 where that is not known.
        digest: The first digits of the record's digest; empty where that is not known.
    """

    key: str
    directory: str
    model_type: str
    recipe: str
    compiler: str
    hard: dict[str, Any]
    graphs: Annotated[int, Meta(ge=0)]
    size: Annotated[int, Meta(ge=0)]
    compile_seconds: Annotated[float, Meta(ge=0)]
    cold_seconds: Annotated[float, Meta(ge=0)]
    created: str
    by: str
    instance: str = ""
    signers: tuple[str, ...] = ()
    modules: Annotated[int, Meta(ge=0)] = 0
    digest: str = ""

    @classmethod
    def of(cls, record: Record, signers: Iterable[str] = ()) -> Known:
        """What of a record is remembered."""
        made = record.provenance
        return cls(
            record.key,
            record.directory,
            record.model_type,
            record.recipe,
            record.compiler,
            record.hard,
            record.graphs,
            record.size,
            record.compile_seconds,
            record.cold_seconds,
            made.created,
            f"{made.user}@{made.host}",
            made.instance,
            tuple(sorted(signers)),
            len(record.modules),
            digits_of(record),
        )


def digits_of(record: Record) -> str:
    """The first digits of a record's digest, as a row has them."""
    return record.digest[: DIGITS // 2]


_SAID = tuple(name for name in Known.__struct_fields__ if name not in {"key", "hard"})


class RemoteIndex(Struct, frozen=True, dict=True):
    """What is known of the records of a remote, or of a part of them.

    Attributes:
        columns: By name: the first digits of the key, what `Known` has, and each ingredient.
        change: The mark of the change that it was written with.
        unread: How many other records there were of which nothing is known.
        problem: Why the index that lies there is not used, for people.
        listed: When its writer had listed the records, in seconds since the epoch by that one's clock; 0 for never.
        older: The digest of the document with the rows that were known before these; empty where there is none.
    """

    columns: Mapping[str, Column] = field(default_factory=lambda: {_KEY: Column([])})
    change: str = ""
    unread: int = 0
    problem: str = ""
    listed: float = 0.0
    older: str = ""

    def __len__(self) -> int:
        """How many records are known."""
        return len(self.columns[_KEY].numbers)

    @cached_property
    def in_order(self) -> list[str]:
        """What each row tells of the path of its record; see `short_path`."""
        told = [self.columns[name] for name in (*_FOLDERS, _KEY) if name in self.columns]
        return ["/".join(str(column.of(row)) for column in told) for row in range(len(self))]

    @cached_property
    def paths(self) -> dict[str, int]:
        """The rows, by what they tell of the paths of their records."""
        return {path: row for row, path in enumerate(self.in_order)}

    def speaks_for_all(self, storage: Storage) -> bool:
        """Whether it is taken for all there is on a remote that keeps no history, and where a listing costs requests.

        What others than cachekit put there or removed, and a record whose writer was killed before the index was
        written, is seen after a day.
        """
        far = storage.lines > 1 and not storage.scarce
        return far and not self.unread and -CURRENT / 24 < time.time() - self.listed < CURRENT

    def known(self, row: int) -> Known | None:
        """What a row says; None where that cannot be."""
        hard = {
            name.removeprefix(_HARD): value
            for name, column in self.columns.items()
            if name.startswith(_HARD) and (value := column.of(row)) is not ABSENT
        }
        told = {name: self.columns[name].of(row) for name in _SAID if name in self.columns}
        said = {name: value for name, value in told.items() if value is not ABSENT}
        try:
            known = from_builtins({"key": key_of(hard), "hard": hard, **said}, Known)
        except (msgspec.ValidationError, ValueError, TypeError, RecursionError):
            return None
        return known if known.key.startswith(self.columns[_KEY].of(row)) else None

    def tells_of(self, one: Known) -> bool:
        """Whether a row says this of a record, whoever signed it."""
        found = self._row_of(one)
        return found is not None and structs.replace(found, signers=one.signers) == one

    def modules_of(self, one: Known) -> int:
        """How many modules a row says that a record has; 0 where none does."""
        found = self._row_of(one)
        return found.modules if found else 0

    def digest_at(self, short: str) -> str:
        """What a row says of a record's digest; see `short_path`. Empty where none does."""
        row = self.paths.get(short)
        said = self.columns["digest"].of(row) if row is not None and "digest" in self.columns else ""
        return said if isinstance(said, str) else ""

    def _row_of(self, one: Known) -> Known | None:
        row = self.paths.get(short_path(one.place))
        return self.known(row) if row is not None else None

    @cached_property
    def can_be(self) -> bool:
        """Whether all rows say what can be, as `known` has it: each value is looked at once, and each key computed."""
        try:
            return self._fits() and all(
                key_of_members(members).startswith(digits)
                for members, digits in zip(self._members(), map(self.columns[_KEY].of, range(len(self))), strict=True)
            )
        except (msgspec.ValidationError, ValueError, TypeError, RecursionError):
            return False

    def _fits(self) -> bool:
        """Whether each column but those of ingredients says what `Known` may have.

        Raises:
            msgspec.ValidationError: One has values of another type.
        """
        for told in (one for one in structs.fields(Known) if one.name in _SAID):
            column = self.columns.get(told.name) or Column([], [-1] * len(self))
            if told.required and -1 in column.numbers:
                return False
            from_builtins(column.values, list[told.type])  # type: ignore[name-defined]
        return True

    def _members(self) -> Iterator[list[str]]:
        """The ingredients of each row as they are hashed."""
        made = []
        for name in sorted(column.removeprefix(_HARD) for column in self.columns if column.startswith(_HARD)):
            column = self.columns[_HARD + name]
            texts = [*(member(name, value) for value in column.values), ""]  # the last of them is that of -1
            made.append([texts[number] for number in column.numbers])
        return ([column[row] for column in made if column[row]] for row in range(len(self)))

    def rows(self) -> Iterator[Known]:
        """What all rows say that can be."""
        return filter(None, map(self.known, range(len(self))))

    def newest(self, most: int) -> Iterator[Known]:
        """What the rows of the newest records say, so many at most."""
        created = self.columns.get("created", Column([]))
        in_order = sorted(range(len(created.numbers)), key=lambda row: str(created.of(row)), reverse=True)
        return islice(filter(None, map(self.known, in_order)), most)

    def nearest(self, hard: Mapping[str, Any]) -> Iterator[int]:
        """The rows by their distance from some hard ingredients, nearest first; see `key.nearest`."""
        parts: dict[int, dict[str, str]] = {-1: {}}
        numbers = []
        for name, column in self.columns.items():
            if name.startswith(_HARD):
                own = [*range(len(parts), len(parts) + len(column.values)), -1]  # one object a number, not one a row
                parts |= {
                    number: {name.removeprefix(_HARD): text_of(value)}
                    for number, value in zip(own, column.values, strict=False)
                }
                numbers.append([own[number] for number in column.numbers])
        keys = self.columns[_KEY]

        def records(_: int) -> list[tuple[int, str, list[int]]]:
            return [(row, keys.of(row), list(made_of)) for row, made_of in enumerate(zip(*numbers, strict=True))]

        def some(wanted: Iterable[int]) -> dict[int, dict[str, str]]:
            return {number: parts[number] for number in wanted}

        return (row for row, _ in Distances(hard).search([Folder(0, {})], records, some))

    def only(self, paths: Collection[str]) -> RemoteIndex:
        """Without the rows of records at other paths than these; see `short_path`."""
        rows = {row for path, row in self.paths.items() if path in paths}
        if len(rows) == len(self):
            return self
        stays = [row in rows for row in range(len(self))]
        return structs.replace(self, columns={name: column.only(stays) for name, column in self.columns.items()})

    def with_(self, known: Iterable[Known]) -> RemoteIndex:
        """With rows of some records, in the place of those that they have."""
        fresh = {short_path(one.place): one for one in known}
        fresh = {
            path: one for path, one in fresh.items() if path not in self.paths or self.known(self.paths[path]) != one
        }
        if not fresh:
            return self
        kept = self.only(self.paths.keys() - fresh.keys())
        rows = [_row(one) for one in fresh.values()]
        columns = {}
        for name in dict.fromkeys([*kept.columns, *(name for row in rows for name in row)]):
            column = kept.columns.get(name) or Column([], [-1] * len(kept))
            columns[name] = column.with_(row.get(name, ABSENT) for row in rows)
        return structs.replace(self, columns=columns)


def _row(known: Known) -> dict[str, Any]:
    said = {name: getattr(known, name) for name in _SAID}
    return {_KEY: known.key[:DIGITS], **said, **{_HARD + name: value for name, value in known.hard.items()}}


def short_path(place: Place) -> str:
    """What an index tells of the path of a record: of its key the first digits."""
    return f"{place.directory}/{place.model_type}/{place.key[:DIGITS]}"


# The document


class _Document(Struct, frozen=True, omit_defaults=True):
    schema: int
    change: str
    unread: int
    rows: bytes = b""
    listed: float = 0.0
    older: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""


class DamagedIndexError(ValueError):
    """A document that is not an index."""


def encode(index: RemoteIndex, *, as_text: bool = True) -> bytes:
    """The document: as text, so that git itself can hold it, or by a quarter shorter."""
    columns = {name: column.packed() for name, column in index.columns.items()}
    rows = zlib.compress(msgspec.json.encode(columns), 6)
    schema = SCHEMA_OF_TWO if index.older else SCHEMA
    text, packed = (rows, b"") if as_text else (b"", rows)
    head = _Document(schema, index.change, index.unread, text, index.listed, index.older)
    return msgspec.json.encode(head) + b"\n" + packed


def decode(raw: bytes) -> RemoteIndex | None:
    """Read a document back, which anybody may have written; None where a later cachekit did.

    Raises:
        DamagedIndexError: It is not an index.
    """
    try:
        head, _, packed = raw.partition(b"\n")
        document = from_json(head, _Document)
        if document.schema not in {SCHEMA, SCHEMA_OF_TWO}:
            return None
        unpacking = zlib.decompressobj()
        rows = unpacking.decompress(document.rows or packed, LARGEST_ROWS)
        if not unpacking.eof or any(rows.count(mark) > most for mark, most in _MOST_OF.items()):
            raise ValueError("it is too large")  # noqa: TRY301 - as all that is wrong with it
        columns = from_json(rows, dict[str, Column])
        keys = columns[_KEY]
        values = sum(len(column.values) for name, column in columns.items() if name.startswith(_HARD))
        inside = rows.count(b",") - sum(len(column.values) + len(column.rows) for column in columns.values())
        if (
            len(keys.numbers) > (MOST // 10 if document.older else MOST)
            or values > _MOST_VALUES
            or inside > _MOST_INSIDE
        ):
            raise ValueError("it is too large")  # noqa: TRY301 - as all that is wrong with it
        fits = -1 not in keys.rows
        fits = fits and all(column.fits(len(keys.numbers)) for column in columns.values())
        fits = fits and all(isinstance(key, str) and _DIGITS.fullmatch(key) for key in keys.values)
        folders = [columns[name] for name in _FOLDERS if len(keys.numbers)]
        fits = fits and all(names_folder(name) for column in folders for name in column.values)
        fits = fits and not any(-1 in column.rows for column in folders)
    except (msgspec.DecodeError, ValueError, KeyError, TypeError, RecursionError, zlib.error) as error:
        raise DamagedIndexError(f"not an index: {error}") from error
    if not fits:
        raise DamagedIndexError("not an index: its columns do not fit together")
    return RemoteIndex(columns, document.change, max(0, document.unread), listed=document.listed, older=document.older)


def read(storage: Storage, revision: str) -> tuple[RemoteIndex | None, str]:
    """The whole index of a remote, and the token to write another one; an empty index where it cannot be used.

    None is a later cachekit's index, which is left alone.

    Raises:
        RemoteError, AuthError: The remote cannot be asked.
    """
    for _ in range(2):  # who renews it between the two questions removes the older rows
        there, token = recent(storage, revision)
        known = whole(storage, revision, there) if there is not None else None
        if there is None or known is not None:
            return known, token
    return RemoteIndex(problem="its index is not used: its older rows are gone"), token


def whole(storage: Storage, revision: str, there: RemoteIndex) -> RemoteIndex | None:
    """An index with its older rows; None where these are not what it names.

    Raises:
        RemoteError, AuthError: The remote cannot be asked.
    """
    if not there.older:
        return there
    raw = storage.copies.get(_OLDER)
    if raw is None or digest_of([raw])[0] != there.older:
        raw = _read_older(storage, revision, there.older) or _read_older(storage, revision, there.older)
        storage.copies.keep(_OLDER, raw)
    said = {"change": there.change, "unread": there.unread, "listed": there.listed}
    with suppress(DamagedIndexError):
        if raw is not None and (older := decode(raw)) is not None:
            return structs.replace(older.with_(there.rows()), **said)
    return None


def _read_older(storage: Storage, revision: str, digest: str) -> bytes | None:
    """A document of older rows; None where it is not there, or came with other bytes."""
    with suppress(TooLargeError):
        found = storage.read(layout.older_path(digest), revision, LARGEST)
        return found.data if found and digest_of([found.data])[0] == digest else None
    return None


def recent(storage: Storage, revision: str) -> tuple[RemoteIndex | None, str]:
    """As `read`, without older rows.

    Raises:
        RemoteError, AuthError: The remote cannot be asked.
    """
    found, problem = None, ""
    for _ in range(2):  # once more where it came wrong: whoever takes it for damaged writes what a listing finds
        try:
            found = storage.read(layout.INDEX, revision, LARGEST)
            return (decode(found.data), found.token) if found else (RemoteIndex(), NOTHING)
        except TooLargeError as error:
            return RemoteIndex(problem=f"its index is not used: {error.message}"), error.token
        except DamagedIndexError as error:
            problem = f"its index is not used: {error}"
    return RemoteIndex(problem=problem), found.token if found else NOTHING


def last_seen(storage: Storage) -> tuple[RemoteIndex, str] | None:
    """As `recent`, as this store last saw it, for who writes in its place; None where it must be read."""
    copy = storage.copies.seen(layout.INDEX)
    with suppress(DamagedIndexError):
        known = decode(copy.data) if copy and copy.token else None
        if copy and known is not None and storage.heeds(copy.token):
            return known, copy.token
    return None
