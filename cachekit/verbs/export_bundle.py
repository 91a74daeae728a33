"""Export records as one file, for a machine that no shared cache reaches: `cachekit export NAME.tar`."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from cachekit.errors import MissError, UnknownNameError, UsageError
from cachekit.ordinary import opened
from cachekit.remotes.draft import Draft, Known, draft
from cachekit.remotes.port import Entry, Tier, Upload
from cachekit.store import Store
from cachekit.store.bundle import BLOCK, INDEX, PIECE, Member, Totals, Writer, header
from cachekit.store.durable import sync_folder
from cachekit.store.record import File, Record
from cachekit.verbs.inspect import find
from cachekit.verbs.push import offer
from cachekit.verbs.session import Session, holding

STEP = 16 << 20  # bytes between two signs of life


@dataclass(frozen=True, slots=True)
class Bundled:
    """What an export wrote, or would write.

    Attributes:
        target: The file; `-` is standard output.
        dry_run: Nothing was written.
        records: What it carries.
        members: Its files.
        totals: The bundle's own size and digest; none in a dry run.
        seconds: Wall time.
    """

    target: str
    dry_run: bool
    records: tuple[Record, ...]
    members: tuple[Member, ...]
    totals: Totals | None
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "bundle": self.target,
            "dry_run": self.dry_run,
            "records": [
                {"key": record.key, "recipe": record.recipe, "directory": record.directory, "bytes": record.size}
                for record in self.records
            ],
            "files": [{"path": member.path, "bytes": member.size, "sha256": member.sha256} for member in self.members],
            "bytes": sum(member.size for member in self.members),
            "size": self.totals.size if self.totals else 0,
            "sha256": self.totals.sha256 if self.totals else "",
            "seconds": round(self.seconds, 3),
        }


class _Empty:
    """A cache without anything, as far as a draft asks: what a bundle is to begin with."""

    def stat(self, paths: Sequence[str], revision: str) -> dict[str, Entry]:  # noqa: ARG002 - as the port's
        return {}


def chosen(store: Store, keys: Sequence[str], all_of: str = "") -> list[Record]:
    """What a bundle is to carry.

    Args:
        store: The store.
        keys: Of records, or their first digits; none means all.
        all_of: Of these those of one compiler's folder.

    Raises:
        UnknownNameError: Nothing is called that.
    """
    if keys:
        return list({record.key: record for record in (find(store, key) for key in keys)}.values())
    records = list(store.records(lambda one: not all_of or one.directory == all_of))
    if not records:
        raise UnknownNameError(
            f"the store has no records{f' of {all_of}' if all_of else ''}", hint="`cachekit ls` lists the records"
        )
    return records


def check_warm(store: Store, key: str, recipe: str, machine: Sequence[str] = ()) -> None:
    """See that a recipe's record is there.

    Args:
        store: The store.
        key: The recipe's.
        recipe: As it is typed.
        machine: The options that say which other machine is meant.

    Raises:
        MissError: It is not.
    """
    if not any(row.usable for row in store.refresh().by_prefix(key)):
        raise MissError(
            f"{recipe} is not in the store: key {key[:16]} has no record",
            hint=f"cachekit pull {' '.join([recipe, *machine])}, or there cachekit warm {recipe}"
            if machine
            else f"cachekit pull {recipe}, or cachekit warm {recipe}",
        )


@holding
def export_bundle(
    session: Session, records: Sequence[Record], target: Path | None, *, dry_run: bool = False
) -> Bundled:
    """Write records and their files as a bundle. The file appears whole, or not at all.

    Args:
        session: Collaborators.
        records: Of the store.
        target: A file; None is standard output.
        dry_run: Only say what it would hold.

    Raises:
        IntegrityError: A record of the store is not whole. Nothing was written.
        UsageError: The file cannot be written, or something else lies there.
    """
    start = time.monotonic()
    ordered = sorted(records, key=lambda record: (record.directory, record.model_type, record.key))
    offers = [offer(session, record) for record in ordered]
    drafted = draft(cast("Tier", _Empty()), offers, "", Known((), read=False, taken=set(), lost=set()))
    members = _members(drafted)
    totals = None
    if not dry_run:
        _check(target)
        with _opened(target) as out:
            totals = _write(session, drafted, members, out)
    return Bundled(str(target or "-"), dry_run, tuple(ordered), members, totals, time.monotonic() - start)


def _members(drafted: Draft) -> tuple[Member, ...]:
    """Records first, so that whoever reads knows of each file whether it is wanted."""
    documents = [
        Member(write.path, len(write.data or b""), hashlib.sha256(write.data or b"").hexdigest())
        for write in sorted(drafted.records, key=lambda write: write.path)
    ]
    files = sorted(drafted.files, key=lambda file: file.path)
    return (*documents, *(Member(file.path, file.size, file.sha256) for file in files))


def _write(session: Session, drafted: Draft, members: Sequence[Member], out: IO[bytes]) -> Totals:
    documents = {write.path: write.data or b"" for write in drafted.records}
    files = {file.path: file for file in drafted.files}
    total, done, told = sum(member.size for member in members), 0, 0

    def tell(chunks: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal done, told
        for chunk in chunks:
            done += len(chunk)
            if done - told >= STEP:
                told = done
                session.journal.show("export.progress", bytes=done, total=total)
            yield chunk

    writer = Writer(out, members)
    for member in members:
        if member.path in documents:
            writer.add(member, iter((documents[member.path],)))
        else:
            _add(session, writer, member, files[member.path], tell)
    return writer.finish()


def _add(
    session: Session,
    writer: Writer,
    member: Member,
    file: Upload,
    tell: Callable[[Iterator[bytes]], Iterator[bytes]],
) -> None:
    if isinstance(file.source, bytes):
        writer.add(member, tell(iter((file.source,))))
        return
    # The digest is computed beside: what has decayed on the disk never gets into a bundle.
    with session.store.reading(File(member.path, member.size, member.sha256)) as blob, blob.path.open("rb") as source:
        writer.add(member, tell(iter(lambda: source.read(PIECE), b"")))


def _check(path: Path | None) -> None:
    """Never write over what is no bundle: a typing error must not cost somebody's data.

    Raises:
        UsageError: Something else lies there.
    """
    if path is None or not path.exists():
        return
    known = header(INDEX, 0)[: len(INDEX) + 1]
    try:
        with opened(path) as source:  # what is no file, a device for example, has no room for one either
            ours = source.read(BLOCK).startswith(known) or not path.stat().st_size
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written", cause=error.strerror or str(error), hint="name another file"
        ) from error
    if not ours:
        raise UsageError(f"{path} is there, and no bundle", hint="name another file, or remove it")


@contextmanager
def _opened(path: Path | None) -> Iterator[IO[bytes]]:
    """Write beside, and rename at the end."""
    if path is None:
        if sys.stdout.isatty():
            raise UsageError("a bundle is nothing for a terminal", hint="name a file, or pipe it: cachekit export - …")
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except OSError as error:
            # What waits to be written would fail once more while Python exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise UsageError(
                "standard output cannot be written", cause=error.strerror or str(error), hint="see who reads it"
            ) from error
        return
    _sweep(path)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        try:
            with beside.open("xb") as out:
                with suppress(OSError):  # without locks there: it is then removed by nobody after a kill
                    fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield out
                out.flush()
                os.fsync(out.fileno())
            beside.replace(path)
            sync_folder(path.resolve().parent)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written", cause=error.strerror or str(error), hint="name a file on another disk"
            ) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Remove what killed exports of the same name left beside it: a live export holds the lock of its file."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.part"):
        with suppress(OSError), left.open("rb") as source:
            fcntl.flock(source, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if source.read(1):  # an empty one may be another's that is about to lock it
                left.unlink()
