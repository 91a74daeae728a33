"""Check everything that a store holds, to a chosen depth, and say what is bad."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cachekit import files, text
from cachekit.errors import IntegrityError, UntrustedError
from cachekit.store.blobs import Depth
from cachekit.store.garbage import garbage, quarantined
from cachekit.store.gc import scanned
from cachekit.store.index_rows import IndexRow, judged, state_of
from cachekit.store.layout import Place
from cachekit.store.record import File, Module, Record, file_path
from cachekit.values import Answer

if TYPE_CHECKING:
    from cachekit.store.store import Store

LANES = 4  # blobs hashed at once, at most
SHOWN = 5  # keys that an error names

# What is wrong with a compiled graph, and whether that is damage; the first is empty for a good one. It is asked of a
# module, its file, and where that lies.
Examine = Callable[[Module, File, Path], tuple[str, bool]]


class Count(Struct, frozen=True):
    """Some files and their bytes."""

    files: int = 0
    bytes: int = 0


class Problem(Struct, frozen=True):
    """Something that is not what it should be, and what became of it where it was to be repaired.

    Attributes:
        kind: `record`; `blob`: a file of modules; `graph`: a compiled graph that is what its record says, and cannot be
            used all the same, or an archive with such a graph in it.
        place: The record that it is of, or the first of several.
        keys: Of all of them.
        recipe: Of the first.
        file: The module and its file, or what it is.
        path: Where it lies in the store.
        sha256: Of the blob that should be there; empty for records.
        reason: What is wrong.
        repaired: Where the good bytes came from.
        left: Why it could not be repaired.
    """

    kind: str
    place: Place
    keys: tuple[str, ...]
    recipe: str
    file: str
    path: str
    sha256: str
    reason: str
    repaired: str = ""
    left: str = ""


class Distrusted(Struct, frozen=True):
    """A record that the settings do not let be used any more, or be given to others, and why."""

    key: str
    recipe: str
    reason: str


class OriginCounts(Struct, frozen=True):
    """Where the records of the store came from: another question than whether their bytes are right.

    Attributes:
        here: How many were made here.
        owner: Came from where only this user, or an organisation of this user, can write.
        signed: Were signed by somebody whom the settings named then.
        all: Were taken whoever made them.
        unknown: Came from nobody knows where: the note of that is damaged or gone.
        refused: Those that somebody else can have written in the store, and that nobody whom the settings name signed.
        revoked: Those that are not used any more.
        kept: Those that are used, and not given to others.
    """

    here: int = 0
    owner: int = 0
    signed: int = 0
    all: int = 0
    unknown: int = 0
    refused: tuple[Distrusted, ...] = ()
    revoked: tuple[Distrusted, ...] = ()
    kept: tuple[Distrusted, ...] = ()


class Verified(Answer, frozen=True, tag="cachekit/verify/1"):
    """What a check found.

    Attributes:
        quick: Nothing was hashed.
        repair: What was bad was to be repaired.
        records: That were looked at.
        of_later_versions: Of those, records of a newer cachekit, which cannot be checked.
        blobs: Files that records name.
        bytes: Of those.
        problems: What was bad.
        notes: What is odd, and no damage.
        orphans: Blobs that no record names: `gc` removes them.
        garbage: What dead processes left: `gc` removes that, too.
        quarantined: Files that were set aside earlier.
        origins: Where the records came from.
        seconds: Wall time.
    """

    quick: bool
    repair: bool = False
    records: int = 0
    of_later_versions: int = 0
    blobs: int = 0
    bytes: int = 0
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    orphans: Count = Count()
    garbage: Count = Count()
    quarantined: Count = Count()
    origins: OriginCounts = OriginCounts()
    seconds: float = 0.0

    @property
    def bad(self) -> tuple[Problem, ...]:
        """What is still bad."""
        return tuple(problem for problem in self.problems if not problem.repaired)

    @property
    def good(self) -> bool:
        """Nothing is bad."""
        return not self.bad

    def error(self) -> IntegrityError | UntrustedError | None:
        """The error to end with, if something is still bad, or revoked, or somebody else's."""
        revoked, refused = self.origins.revoked, self.origins.refused
        if self.good and (gone := revoked or refused):
            return UntrustedError(
                f"{len(gone)} of {text.count(self.records, 'record')} {'is' if len(gone) == 1 else 'are'} "
                f"{'revoked' if revoked else 'not used'}: " + text.first_of((one.key[:12] for one in gone), SHOWN),
                cause=f"{gone[0].recipe} is {gone[0].reason}",
                hint="what is revoked is not used, and the next plan sets it aside; or `cachekit store rm KEY`"
                if revoked
                else "`cachekit store rm KEY`, or let its maker sign it",
            )
        if self.good:
            return None
        keys = sorted({key[:12] for problem in self.bad for key in problem.keys})
        first = self.bad[0]
        return IntegrityError(
            f"{len(keys)} of {text.count(self.records, 'record')} cannot be used: {text.first_of(keys, SHOWN)}",
            cause=f"{first.file or first.path}: {first.reason}",
            hint="warm their recipes again, or `cachekit store rm KEY`"
            if self.repair
            else "cachekit store verify --repair",
        )


def verify(store: Store, cache_dirs: Path, depth: Depth, examine: Callable[[str], Examine | None]) -> Verified:
    """Check records, blobs and compiled graphs; nothing is changed.

    Args:
        store: The store.
        cache_dirs: Where compiler cache dirs are made.
        depth: To which blobs are checked; compiled graphs are looked into at `digest`.
        examine: Gives what looks into the graphs of a compiler's directory; None if nothing can.

    Raises:
        StoreError: The store cannot be read.
    """
    start = time.monotonic()
    layout = store.layout
    if not layout.root.exists():
        return Verified(depth == "there")
    index = store.refresh(exact=True, checked=True)
    keys, later = index.keys(), index.count_later()
    look = _Look(store, depth, examine)
    problems, notes = look.at_all(len(keys))
    left = garbage(layout, cache_dirs, keys)
    aside = list(quarantined(layout))
    store.refresh(exact=True)  # published meanwhile
    orphans: list[int] = []
    # The blobs of a record that cannot be read only seem to have no record: `gc` removes nothing then.
    told = all(row.state for row in index.flawed())
    for found in scanned(layout, index):
        orphans += found.orphans.values() if told else []
        notes += [f"{path} is not a blob, but is among them" for path in sorted(found.unknown)]
    done = Verified(
        depth == "there",
        records=len(keys),
        of_later_versions=later,
        blobs=look.seen,
        bytes=look.size,
        problems=tuple(problems),
        notes=tuple(notes),
        orphans=Count(len(orphans), sum(orphans)),
        garbage=Count(len(left), sum(one.size for one in left)),
        quarantined=Count(len(aside), sum(size for _, _, size in aside)),
        seconds=round(time.monotonic() - start, 3),
    )
    told_of = done.as_dict()
    del told_of["notes"]
    store.journal.emit("verify.end", **told_of)
    return done


def verify_record(store: Store, place: Place, examine: Callable[[str], Examine | None]) -> list[Problem]:
    """What is wrong with the record that lies there now, and with all that it names."""
    row = store.refresh(exact=True).row(place)
    return _Look(store, "digest", examine).at(row) if row else []


class _Look:
    """Looks at records and what they name; of all that lies in a store, a part at a time.

    Attributes:
        seen: Files that were looked at.
        size: Their bytes.
    """

    def __init__(self, store: Store, depth: Depth, examine: Callable[[str], Examine | None]) -> None:
        self._store = store
        self._layout = store.layout
        self._index = store.index
        self._depth = depth
        self._examine = examine
        self._done = 0  # bytes so far
        self._names: tuple[int, dict[str, str]] = (0, {})  # of the last record that was asked for: see `_name`
        self.seen = self.size = 0

    def at_all(self, count: int) -> tuple[list[Problem], list[str]]:
        """What is wrong with the records of the store, and what is odd."""
        problems = self._flaws(self._index.flawed())
        self.seen, self.size = self._index.named_total()
        broken: set[int] = set()
        found: list[Problem] = []
        for named in self._index.named_parts():
            for one in self._checked(named):
                rows = self._index.naming(*one)
                broken.update(row.id for row in rows)
                found += self._of_blob(one, rows)
        problems += sorted(found, key=lambda problem: problem.place)
        if self._depth != "digest":
            return problems, []
        more, notes = self._graphs((row for row in self._index.rows() if row.id not in broken), count)
        return problems + more, notes

    def at(self, row: IndexRow) -> list[Problem]:
        """What is wrong with one record."""
        if not row.usable:
            return self._flaws([row])
        bad = self._checked(list(self._index.named(row).items()))
        problems = [problem for one in bad for problem in self._of_blob(one, [row])]
        return problems or self._graphs([row], 1)[0]

    def _flaws(self, rows: Iterable[IndexRow]) -> list[Problem]:
        return [
            Problem("record", row.place, (row.key,), row.recipe, "its record", str(self._path(row)), "", row.flaw)
            for row in rows
            if row.flaw and self._is_as(row)
        ]

    def _path(self, row: IndexRow) -> Path:
        return self._layout.record(row.place)

    # Blobs

    def _checked(self, named: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int]]:
        """Of some blobs, by digest and size, those that are not what records say.

        The sizes of one digest may differ in a stranger's record: then that record is wrong, whatever is there.
        """
        if self._depth == "there":
            yield from filter(self._check, named)
            return
        with ThreadPoolExecutor(min(LANES, os.cpu_count() or 1), thread_name_prefix="verify") as pool:
            for start in range(0, len(named), 64):  # so that Ctrl-C does not wait for all of them
                part = named[start : start + 64]
                for one, reason in zip(part, pool.map(self._check, part), strict=True):
                    self._done += one[1]
                    if reason:
                        yield one
                self._store.journal.show("verify.progress", bytes=self._done, total=self.size)

    def _check(self, one: tuple[str, int]) -> str:
        digest, size = one
        return self._store.blobs.check(File(digest, size, digest), self._depth)

    def _of_blob(self, one: tuple[str, int], rows: Iterable[IndexRow]) -> list[Problem]:
        """One problem for a blob, with all records that it is of."""
        reasons = [(row, reason) for row in rows if (reason := self._again(row, one))]
        if not reasons:
            return []
        row, reason = reasons[0]
        keys = tuple(row.key for row, _ in reasons)
        path = str(self._layout.blob(one[0]))
        return [Problem("blob", row.place, keys, row.recipe, self._name(row, one[0]), path, one[0], reason)]

    def _again(self, row: IndexRow, one: tuple[str, int]) -> str:
        """What is wrong with a blob of a record, looked at again while the record lies there.

        The record may have been removed since, with its blobs, and published once more, byte for byte. Blobs come
        before their record and go after it: those of one that is the same file before and after the look were meant to
        be there.
        """
        path = self._path(row)
        with suppress(OSError):
            before = state_of(path.stat())
            record = self.record(row)
            reason = self._check(one)
            named = record is not None and one in {(file.sha256, file.size) for file in record.files}
            if reason and named and state_of(path.stat()) == before:
                return reason
        return ""

    def _name(self, row: IndexRow, digest: str) -> str:
        if self._names[0] != row.id:
            record, names = self.record(row), dict[str, str]()
            for module in record.modules if record else ():
                for file in module.files:
                    names.setdefault(file.sha256, file_path(module, file))
            self._names = row.id, names
        return self._names[1].get(digest, "")

    def _is_as(self, row: IndexRow) -> bool:
        try:
            return state_of(self._path(row).stat()) == row.state or not row.state
        except OSError:
            return False

    def record(self, row: IndexRow) -> Record | None:
        """The record that lies there now."""
        try:
            return judged(files.read(self._path(row)))[0]
        except OSError:
            return None

    # Compiled graphs

    def _graphs(self, rows: Iterable[IndexRow], count: int) -> tuple[list[Problem], list[str]]:
        problems: list[Problem] = []
        notes: list[str] = []
        known: dict[tuple[str, str], tuple[str, bool]] = {}
        for number, row in enumerate(rows):
            self._store.journal.show("verify.graphs", done=number, of=count)
            examine = self._examine(row.directory)
            if examine is None:
                continue
            record = self.record(row)
            for module in record.modules if record else ():
                for file in module.files:
                    one = module.name, file.sha256
                    path = self._layout.blob(file.sha256)
                    if one not in known:
                        known[one] = examine(module, file, path)
                        if known[one][0] and not known[one][1]:
                            notes.append(f"{file_path(module, file)}: {known[one][0]}")
                    reason, damaged = known[one]
                    if reason and damaged and self._is_as(row):
                        name = file_path(module, file)
                        problems.append(
                            Problem("graph", row.place, (row.key,), row.recipe, name, str(path), file.sha256, reason)
                        )
        return problems, notes
