"""Where the records of a store came from, kept beside them, each with the signatures that it came with.

    {"of": {"<digest of a record>": {"origin": {"remote": "hf://team/cache", "how": "signed", …}, "envelopes": […]}}}

Written before its record, by the digest of that: a record that was written stands never beside the origin of another
one. A record without such a note was made here, out of nothing that came from elsewhere: if an owner of the store wrote
it, and its own document does not say that there was a note. So nobody makes it this user's by removing that. In a store
that others can write to, what was made here has a note, too, as what lies there may be another file of this user's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from cachekit import files
from cachekit.decode import from_json
from cachekit.errors import IntegrityError
from cachekit.store.access import Owners
from cachekit.store.layout import Layout, Place
from cachekit.store.record import HEAD, Digest, Module, Record, is_document_of, is_noted

# Why a record was taken: made in this store; it lay where only this user, or an organisation of this user, can write;
# signed by somebody whom the settings name; somebody said to use what anybody made. One that is reused: by what was
# taken, as whoever signed that says. Empty: nobody knows any more.
How = Literal["here", "owner", "signed", "all", "stated", ""]


class ReusedOrigin(Struct, frozen=True):
    """A record whose files another one reuses, and where it came from.

    Attributes:
        key: Of that record.
        record: Its digest.
        remote: As in `Origin`; so are the next two.
        created: When that record was made; empty where an older cachekit did not say.
    """

    key: Digest
    record: Digest
    remote: str = ""
    how: How = "here"
    signers: tuple[str, ...] = ()
    created: str = ""


class Origin(Struct, frozen=True):
    """Where a record came from.

    Attributes:
        remote: The remote, bundle or folder; empty where it was made here.
        how: Why it was taken; see `How`.
        signers: Fingerprints of the keys whose signatures held, also where none was asked for, of whomever they are.
        reused: The records whose files it reuses, and those whose files they reuse.
    """

    remote: str = ""
    how: How = "here"
    signers: tuple[str, ...] = ()
    reused: tuple[ReusedOrigin, ...] = ()


HERE = Origin()


class Beside(Struct, frozen=True):
    """What is kept beside a record.

    Attributes:
        origin: Where it came from.
        envelopes: The signatures that it came with, as JSON values; see `cachekit.trust`.
    """

    origin: Origin = HERE
    envelopes: tuple[dict[str, Any], ...] = ()


MADE_HERE = Beside()
LARGEST = 128 << 20  # bytes of a note, here and in `staying`: of 10,000 modules, each signature takes 10 MB
_KERNEL = re.compile(
    r"kernel-[0-9a-f]{32}\Z"
)  # see `nki.carried_as`: code that the compiler puts into other graphs, too
UNKNOWN = Beside(Origin(remote="somewhere", how=""))  # the note is damaged or gone, or a stranger wrote the record


class _Note(Struct, frozen=True):
    of: dict[Digest, Beside] = {}


class Origins:
    """The notes of one store.

    Args:
        layout: The store's paths.
        owners: To whom it belongs: what others wrote is no note.
    """

    def __init__(self, layout: Layout, owners: Owners) -> None:
        self._layout, self._owners = layout, owners

    def of(self, record: Record) -> Beside:
        """What is kept beside a record of the store."""
        try:
            found = self._noted(record)
            if found is None and not self._made_here(record):
                # Perhaps it was made here when the note was looked for, and the same came from elsewhere since: a note
                # is written before its record.
                found = self._noted(record) or UNKNOWN
        except (OSError, ValueError, RecursionError):
            return UNKNOWN
        return found or MADE_HERE

    def _noted(self, record: Record) -> Beside | None:
        """What the note of a record says; None where it says nothing.

        Raises:
            OSError, ValueError, RecursionError: It cannot be read.
        """
        note = self._read(self._layout.origin(record.place))
        if note is None or record.digest in note.of:
            return note.of[record.digest] if note else None
        if self._owners.open:  # what a signer says was reused may be another file of this user's that was moved here
            return None
        # Of one that was replaced more than once meanwhile, those tell that grew from it.
        for origin in (beside.origin for beside in note.of.values()):
            for one in origin.reused:
                if one.record == record.digest:
                    others = tuple(other for other in origin.reused if other != one)
                    return Beside(Origin(one.remote, one.how, one.signers, others))
        return None

    def elsewhere(self, place: Place) -> bool:
        """Whether a record's own file says that it came from elsewhere: by what it says, or who can have written it."""
        path = self._layout.record(place)
        try:
            with files.opened(path, buffering=0) as source:
                return is_noted(source.read(HEAD)) or bool(self._owners.stranger(path, source.fileno()))
        except OSError:
            return False

    def _read(self, path: Path) -> _Note | None:
        """The note at a path; None where there is none, or a stranger's.

        Raises:
            OSError, ValueError, RecursionError: It cannot be read.
        """
        try:
            with files.opened(path, buffering=0) as source:
                if self._owners.stranger(path, source.fileno()):
                    return None
                raw = source.read(LARGEST)
        except FileNotFoundError:
            return None
        if not self._owners.remembers(raw):
            return None
        return from_json(raw, _Note)

    def _made_here(self, record: Record) -> bool:
        """Whether a record of the store without a note was made here; of one that is gone nobody knows."""
        if self._owners.open:
            return False
        path = self._layout.record(record.place)
        try:
            with files.opened(path, buffering=0) as source:
                if self._owners.stranger(path, source.fileno()):
                    return False
                raw = source.read()
        except OSError:
            return False
        if not is_document_of(raw, record):  # it was replaced meanwhile
            return True
        return not is_noted(raw)

    def made(self, record: Record, before: Record | None, reused: Iterable[tuple[Record, Beside]]) -> Beside:
        """What belongs beside a record that is made here.

        Args:
            record: The record.
            before: The record of the key so far: what is the same keeps its origin, and what has files of it reuses
                it, so that whoever revokes it by its digest revokes also what it grew to.
            reused: Records that the compiler was given, or whose modules it found in its own folder (see
                `staying.reused`), each with what was beside it then: it may be gone by now.
        """
        if before == record:
            return self.of(record)
        found = [one for other, beside in reused for one in chain(other, beside.origin)]
        if before is not None and reuses(record.modules, before):
            found += chain(before, self.of(before).origin)
        return Beside(Origin(reused=tuple(dict.fromkeys(found)))) if found else MADE_HERE

    def found(
        self, origin: Origin, known: Iterable[tuple[Record, Beside]], there: Iterable[tuple[Record, Beside]] = ()
    ) -> Beside:
        """What belongs beside modules that were found in a folder: what is known of them is not forgotten.

        Args:
            origin: What the folder itself says.
            known: The records that have them, and where those came from.
            there: Those that only a note in the folder tells of. Whoever made the folder may have made the note: it
                makes nothing signed.
        """
        elsewhere = [(other, beside) for other, beside in known if beside != MADE_HERE]
        reused = [one for other, beside in (*elsewhere, *there) for one in chain(other, beside.origin)]
        signed = next((beside.origin for _, beside in elsewhere if beside.origin.how == "signed"), None)
        if signed and origin.how == "owner":  # one of its signers is needed still
            origin = structs.replace(origin, remote=signed.remote, how="signed", signers=signed.signers)
        return Beside(structs.replace(origin, reused=tuple(dict.fromkeys(reused))))

    def note(self, record: Record, beside: Beside, before: Record | None) -> bytes:
        """The note to write before the record is: what it replaces keeps its own until it is replaced.

        Returns:
            The bytes; empty where there is nothing to be said.

        Raises:
            IntegrityError: They are too many; see `legible`.
        """
        of = {record.digest: beside} if beside != MADE_HERE or self._owners.open else {}
        if before is not None and before != record and (kept := self.of(before)) != MADE_HERE:
            of[before.digest] = kept
        raw = legible(msgspec.json.encode(_Note(of)), record) if of else b""
        self._owners.remember(raw)
        return raw


def legible(note: bytes, record: Record) -> bytes:
    """A note about a record, which can be read again: one that cannot would hide where the record came from.

    Raises:
        IntegrityError: It has too many bytes. Whoever can write to a remote can put more beside a record there.
    """
    if len(note) <= LARGEST:
        return note
    raise IntegrityError(
        f"{record.key[:12]} is not taken: its origin cannot be noted",
        cause=f"the record and its signatures take {len(note):,} bytes, and at most {LARGEST:,} are read again",
    )


def chain(record: Record, origin: Origin) -> tuple[ReusedOrigin, ...]:
    """A record as one that is reused, and after it those that it reuses itself."""
    created = record.provenance.created
    first = ReusedOrigin(record.key, record.digest, origin.remote, origin.how, origin.signers, created)
    return (first, *origin.reused)


def reuses(modules: Iterable[Module], other: Record) -> bool:
    """Whether something in these modules was compiled for a record."""
    return any(True for _ in reused_modules(modules, other))


def reused_modules(modules: Iterable[Module], other: Record) -> Iterator[Module]:
    """The modules of a record that these modules have in them."""
    mine = {file.sha256 for module in modules for file in module.files}
    return (module for module in other.modules if not mine.isdisjoint(marks_of(module)))


def marks_of(module: Module) -> set[Digest]:
    """What a module is known again by: its largest file, and those that other graphs may take in.

    The small ones, its flags and marks, are alike in many.
    """
    largest = max(module.files, key=lambda file: file.size)
    return {file.sha256 for file in module.files if file is largest or _KERNEL.match(file.path)}
