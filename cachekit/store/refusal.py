"""Records of the store that the settings do not let be used: a miss, with its reason.

What is revoked goes to quarantine, and what reuses it as well: its bytes are right, and nobody is to run
them. What a command alone does not want (`--trust signed`) stays where it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from cachekit import files
from cachekit.events import Journal, bypass
from cachekit.store import staying
from cachekit.store.access import Owners
from cachekit.store.layout import Layout, Place
from cachekit.store.origin import MADE_HERE, Beside, Origins, reuses
from cachekit.store.quarantine import Quarantine
from cachekit.store.record import DamagedRecordError, File, Module, Record, decode, paths_of


class Refused(Struct, frozen=True):
    """Why a record is not used: words that go on after "it is"; and whether for good, so that it is set aside."""

    reason: str
    revoked: bool = True


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
        self._reasons: dict[str, str] = {}

    def reason(self, key: str) -> str:
        """Why the record of a key was not used when it was last looked at; empty where it was."""
        return self._reasons.get(key, "")

    def strange(self, path: Path, handle: int) -> str:
        """Why somebody else can have written an open record, where that is asked; see `Owners.stranger`.

        Raises:
            OSError: It cannot be looked at.
        """
        return "" if self._asked is None else self._owners.stranger(path, handle)

    def judged(self, record: Record) -> Refused | None:
        """Why a record of the store is not to be used, see `refuses`; None where it is. Tells and changes nothing.

        Raises:
            OSError: It cannot be looked at.
        """
        if self._asked is None:
            return None
        path = self._layout.record(record.place)
        with files.opened(path, buffering=0) as source:
            return self._asked(record, self._origins.of, self._owners.stranger(path, source.fileno()))

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
        self._reasons[record.key] = refused.reason
        if self._quarantine.tell_once(path):
            self._journal.emit("store.refused", key=record.key, reason=refused.reason, quarantine=refused.revoked)
            bypass(self._journal, "store-refused", record.key)
        if refused.revoked:
            self._quarantine.document(path, refused.reason, raw, quiet=True)
            self._set_aside_reuse(record.digest)
        return True

    def withdraw(self, tree: Path, anew: Place | None = None) -> dict[str, str]:
        """Take what is revoked out of a compiler's own folder, where earlier runs restored it.

        Args:
            tree: The folder.
            anew: Where the record lies that is to be compiled anew: what came from elsewhere for it goes, too.

        Returns:
            The names of the modules that were there, and why they went.

        Raises:
            OSError: One cannot be removed.
        """
        gone: dict[str, str] = {}
        if self._asked is not None:
            for record in self._revoked(tree):
                gone |= dict.fromkeys(_taken(tree, record), "it is revoked")
                staying.forget(self._layout, tree, record)
        for record in self._from_elsewhere(tree, anew) if anew else ():
            gone |= dict.fromkeys(_taken(tree, record), "it came from elsewhere, and is compiled anew")
            staying.forget(self._layout, tree, record)
        return gone

    def known(self, modules: Sequence[Module]) -> list[tuple[Record, Beside]]:
        """The records that have modules which were found without a word of where they came from.

        They are noted of some folder, or were set aside; each with what is kept beside it.
        """
        aside = [(other, self._origins.of(other)) for other in self._aside() if reuses(modules, other)]
        return [*staying.reused(self._layout, modules), *aside]

    def judged_found(self, record: Record, beside: Beside) -> Refused | None:
        """Why one of `known` is not to be used; None where it is."""
        return self._asked(record, partial(_said, beside), "") if self._asked else None

    def _from_elsewhere(self, tree: Path, place: Place) -> Iterator[Record]:
        """The records of a key that came from elsewhere, or reuse such: that of the store, and those of before."""
        with suppress(OSError, DamagedRecordError):
            record = decode(files.read(self._layout.record(place)))
            if record and self._origins.of(record) != MADE_HERE:
                yield record
        for _, one in staying.noted(self._layout):
            if one.tree == str(tree) and (noted := one.record) and noted.place == place:
                yield noted

    def _revoked(self, tree: Path) -> Iterator[Record]:
        """The records in quarantine, and those noted of a folder, that are revoked, or reuse what is."""
        for _, one in staying.noted(self._layout):
            record = one.record if one.tree == str(tree) else None
            refused = self.judged_found(record, one.beside) if record else None
            if record and refused and refused.revoked:
                yield record
        for record in self._aside():
            refused = self.judged_found(record, self._origins.of(record))
            if refused and refused.revoked:
                yield record

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


def _taken(tree: Path, record: Record) -> Iterator[str]:
    """Remove the modules of a record from a folder, where they have its bytes, and name them."""
    for module in record.modules:
        paths = {tree / path: file for path, file in paths_of([module])}
        if any(file.size and _has(path, file) for path, file in paths.items()):
            for path in paths:
                path.unlink(missing_ok=True)
            yield module.name


def _has(path: Path, file: File) -> bool:
    """Whether the bytes of a record's file lie at a path."""
    try:
        with files.opened(path) as source:
            if os.fstat(source.fileno()).st_size != file.size:
                return False
            return files.digest_of(files.pieces(source))[0] == file.sha256
    except (FileNotFoundError, NotADirectoryError):
        return False
