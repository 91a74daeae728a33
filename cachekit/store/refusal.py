"""What of a store is not used: damaged files, and records that the settings refuse.

What is damaged is moved out of the way, told once, and never served. What is revoked goes to quarantine, and what
reuses it as well: its bytes are right, and nobody is to run them. What a command alone does not want (`--trust signed`)
stays where it is; it is a miss, with its reason.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from cachekit import files
from cachekit.errors import Helps, IntegrityError
from cachekit.events import Journal, bypass
from cachekit.store import staying
from cachekit.store.access import Owners
from cachekit.store.blobs import MISSING, Blobs
from cachekit.store.layout import Layout, Place
from cachekit.store.origin import MADE_HERE, Beside, Origins, reuses
from cachekit.store.record import DamagedRecordError, File, Module, Record, decode, paths_of


class Refused(Struct, frozen=True):
    """Why a record is not used: words that go on after "it is"; whether it is set aside for that; and what helps."""

    reason: str
    revoked: bool = True
    helps: Helps = "nothing"


# Asked about a record, with what gives what is kept beside it, and why somebody else can have written it, if so.
Asked = Callable[[Record, Callable[[Record], Beside], str], "Refused | None"]


class Refusal:
    """What the settings say of the records of one store.

    Args:
        layout: The store's paths.
        owners: To whom it belongs.
        origins: Where its records came from.
        quarantine: Gets what is revoked.
        journal: Told once of each.
        asked: Says whether a record is used; None lets all be used.
    """

    def __init__(
        self,
        layout: Layout,
        owners: Owners,
        origins: Origins,
        quarantine: Quarantine,
        journal: Journal,
        *,
        asked: Asked | None,
    ) -> None:
        self._layout, self._owners, self._origins, self._quarantine = layout, owners, origins, quarantine
        self._journal, self._asked = journal, asked
        self._reasons: dict[str, Refused] = {}

    def of(self, key: str) -> Refused | None:
        """Why the record of a key was not used when it was last looked at; None where it was."""
        return self._reasons.get(key)

    def strange(self, path: Path, handle: int) -> str:
        """Why somebody else can have written an open record, where that is asked; see `Owners.stranger`.

        Raises:
            OSError: It cannot be looked at.
        """
        return "" if self._asked is None else self._owners.stranger(path, handle)

    def judged(self, record: Record) -> Refused | None:
        """Why a record of the store is not to be used, see `refuses`; None where it is, or is gone. Changes nothing.

        Raises:
            OSError: It cannot be looked at.
        """
        if self._asked is None:
            return None
        path = self._layout.record(record.place)
        with suppress(FileNotFoundError), files.opened(path, buffering=0) as source:
            return self._asked(record, self._origins.of, self._owners.stranger(path, source.fileno()))
        return None  # somebody has removed it meanwhile

    def judged_strange(self, record: Record) -> Refused | None:
        """As `judged`, of a record that somebody else can have written; None of any other, and of one that is gone."""
        path = self._layout.record(record.place)
        with suppress(OSError), files.opened(path, buffering=0) as source:
            return self.judged(record) if self.strange(path, source.fileno()) else None
        return None

    def set_aside(self, beginning: str) -> Record | None:
        """The latest record in quarantine whose key begins so, and which can be read; None if there is none."""
        for path in sorted(self._layout.quarantine.glob(f"*-{beginning.lower()}*.json"), reverse=True):
            with suppress(OSError, DamagedRecordError):
                record = decode(files.read(path))
                if record is not None and record.key.startswith(beginning.lower()):
                    return record
        return None

    def refuses(self, record: Record, raw: bytes, strange: str) -> bool:
        """Whether a record that was read is not to be used.

        Args:
            record: The record.
            raw: Its document, as it was read.
            strange: Why somebody else can have written that; see `strange`.
        """
        if self._asked is None:
            return False
        self._reasons.pop(record.key, None)
        path = self._layout.record(record.place)
        refused = self._asked(record, self._origins.of, strange)
        if refused is None:
            return False
        self._reasons[record.key] = refused
        if self._quarantine.tell_once(path):
            self._journal.emit("store.refused", key=record.key, reason=refused.reason, quarantine=refused.revoked)
            bypass(self._journal, "store-refused", record.key)
        if refused.revoked:
            self._quarantine.document(path, refused.reason, raw, quiet=True)
            self._set_aside_reuse(record.digest)
        return True

    def withdraw(self, tree: Path, anew: Place | None = None) -> dict[str, str]:
        """Take what is refused out of a compiler's own folder, where earlier runs restored it.

        Args:
            tree: The folder.
            anew: Where the record lies that is to be compiled anew: what came from elsewhere for it goes, too.

        Returns:
            The names of the modules, and why they went; an empty reason of those that were not there.

        Raises:
            OSError: One cannot be removed.
        """
        gone: dict[str, str] = {}
        if self._asked is not None:
            for record, refused in self._refused(tree):
                reason = "it is revoked" if refused.revoked else f"it is {refused.reason}"
                _take(tree, record, reason, gone)
                staying.forget(self._layout, tree, record)
        for record in self._from_elsewhere(tree, anew) if anew else ():
            reason = "it came from elsewhere, and is compiled again"
            _take(tree, record, reason, gone)
            staying.forget(self._layout, tree, record)
        return gone

    def known(self, modules: Sequence[Module], tree: Path | None = None) -> list[tuple[Record, Beside]]:
        """The records that have modules which were found without a word of where they came from.

        They are noted of some folder, or were set aside; each with what is kept beside it.

        Args:
            modules: The modules.
            tree: The folder in which they were found, if any; see `staying.reused`.
        """
        aside = [(other, self._origins.of(other)) for other in self._aside() if reuses(modules, other)]
        return [*staying.reused(self._layout, modules, tree), *aside]

    def judged_found(self, record: Record, beside: Beside) -> Refused | None:
        """Why one of `known` is not to be used; None where it is."""
        return self._asked(record, partial(_said, beside), "") if self._asked else None

    def _from_elsewhere(self, tree: Path, place: Place) -> Iterator[Record]:
        """The records of a key that came from elsewhere, or reuse such: that of the store, and those of before."""
        with suppress(OSError, DamagedRecordError):
            record = decode(files.read(self._layout.record(place)))
            if record and self._origins.of(record) != MADE_HERE:
                yield record
        yield from (noted for noted, _ in staying.records(self._layout, tree).values() if noted.place == place)

    def _refused(self, tree: Path) -> Iterator[tuple[Record, Refused]]:
        """The records noted of a folder that are not to be used; and those in quarantine that are revoked."""
        for record, beside in staying.records(self._layout, tree).values():
            if refused := self.judged_found(record, beside):
                yield record, refused
        for record in self._aside():
            refused = self.judged_found(record, self._origins.of(record))
            if refused and refused.revoked:
                yield record, refused

    def _aside(self) -> Iterator[Record]:
        """The records in quarantine that can be read."""
        for path in self._layout.quarantine.glob("*.json"):
            with suppress(OSError, DamagedRecordError):
                if (record := decode(files.read(path))) is not None:
                    yield record

    def _set_aside_reuse(self, digest: str) -> None:
        """Set the records aside that reuse one."""
        from cachekit.store.garbage import origins, record_of

        for note, _ in list(origins(self._layout)):
            path = record_of(self._layout, note)
            with suppress(OSError, DamagedRecordError):
                raw = files.read(path)
                other = decode(raw)
                if other is not None and digest in {one.record for one in self._origins.of(other).origin.reused}:
                    reason = f"made by reuse of {digest[:12]}, which is revoked"
                    self._journal.emit("store.refused", key=other.key, reason=reason, quarantine=True)
                    self._quarantine.document(path, reason, raw, quiet=True)


def _said(beside: Beside, _: Record) -> Beside:
    return beside


def _take(tree: Path, record: Record, reason: str, gone: dict[str, str]) -> None:
    """Remove the modules of a record from a folder, where they have its bytes; see `Refusal.withdraw`."""
    for module in record.modules:
        paths = {tree / path: file for path, file in paths_of([module])}
        there = any(file.size and _has(path, file) for path, file in paths.items())
        for path in paths if there else ():
            path.unlink(missing_ok=True)
        gone[module.name] = reason if there else gone.get(module.name, "")


def _has(path: Path, file: File) -> bool:
    """Whether the bytes of a record's file lie at a path."""
    try:
        with files.opened(path) as source:
            if os.fstat(source.fileno()).st_size != file.size:
                return False
            return files.digest_of(files.pieces(source))[0] == file.sha256
    except (FileNotFoundError, NotADirectoryError):
        return False


class Quarantine:
    """Where damaged files of a store go."""

    def __init__(self, layout: Layout, blobs: Blobs, journal: Journal) -> None:
        self._layout = layout
        self._blobs = blobs
        self._journal = journal
        self._told: set[Path] = set()

    def tell_once(self, path: Path) -> bool:
        """Whether nothing was told about a file yet; from now on it was."""
        first = path not in self._told
        self._told.add(path)
        return first

    def blob(self, file: File, reason: str) -> bool:
        """Set a blob aside that is not what its name says; returns whether it is not what its record says.

        Another process may just have put a whole one in its place; and a stranger's record may say another size.
        """
        path = self._layout.blob(file.sha256)

        def is_bad() -> bool:
            return self._blobs.check(structs.replace(file, size=path.stat().st_size), "digest") != ""

        return self.file(path, reason, is_bad) or self._blobs.check(file, "noted") != ""

    def document(self, path: Path, reason: str, raw: bytes, *, quiet: bool = False) -> None:
        """Set a record aside that was read, where these are still its bytes; see `file`."""
        self.file(path, reason, lambda: files.read(path) == raw, quiet=quiet)

    def file(self, path: Path, reason: str, is_bad: Callable[[], bool], *, quiet: bool = False) -> bool:
        """Move a damaged file out of the way, and say so once; returns False where it is found whole by now.

        Args:
            path: The file.
            reason: What is wrong with it.
            is_bad: Looks again: since it was read, it may have been replaced.
            quiet: Say nothing.
        """
        place = self._layout.quarantine / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{path.name}"
        inside = self._layout.inside
        kept, moved = False, False
        try:
            judged = path.stat()
            if not is_bad():
                return False
            with inside.folder(path.parent) as here, inside.folder(place.parent, make=True) as there:
                os.rename(path.name, place.name, src_dir_fd=here, dst_dir_fd=there)
                moved = True
                if not os.path.samestat(os.stat(place.name, dir_fd=there), judged):
                    # Replaced between the look and the rename: what came is judged for itself. Linked, so that nothing
                    # is overwritten that has come since.
                    with suppress(FileExistsError):
                        os.link(place.name, path.name, src_dir_fd=there, dst_dir_fd=here)
                    os.unlink(place.name, dir_fd=there)
                    return is_bad()
        except FileNotFoundError:
            pass  # it is missing, or another process was quicker
        except OSError:
            kept = True  # a read-only store; it stays, and stays a miss
        # Once set aside, a blob is missing where its record still names it: the same damage, told already.
        if not quiet and not (path in self._told and reason == MISSING):
            where = str(place) if moved else ""
            self._journal.emit("store.damaged", path=str(path), reason=reason, kept=kept, quarantine=where)
        self._told.add(path)
        return True

    def refuse(self, file: File, reason: str) -> IntegrityError:
        """Set a blob aside that was to be used; returns the error to raise."""
        self.blob(file, reason)
        if reason == MISSING:
            return IntegrityError(
                f"{file.sha256[:16]} is missing from the store",
                cause=file.path,
                hint="run `cachekit warm` again, which compiles it",
            )
        return IntegrityError(
            f"{file.sha256[:16]} in the store is damaged",
            cause=reason,
            hint="it was moved to quarantine; run `cachekit warm` again, which compiles it",
        )
