"""Write records as a bundle: one file with what a remote would hold of them, for a machine that reaches no remote."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from msgspec import Struct

from cachekit.errors import UntrustedError, UsageError
from cachekit.files import hold, opened, pieces
from cachekit.remotes import layout
from cachekit.remotes.comparison import Comparison
from cachekit.remotes.draft import Drafts
from cachekit.remotes.judging import OWN, Trust
from cachekit.remotes.notes import Copies
from cachekit.remotes.offer import Draft
from cachekit.remotes.port import Entry, Storage, Upload
from cachekit.remotes.push import offer
from cachekit.remotes.signing import Signing
from cachekit.store import Store
from cachekit.store.bundle import BLOCK, INDEX, BundleSum, Member, Writer, header
from cachekit.store.durable import sync_folder
from cachekit.store.record import File, Record, check_shareable
from cachekit.text import cause_of

STEP = 16 << 20  # bytes between two signs of life
_PART = ".cachekit-export-"  # how the name of an unfinished bundle begins, whatever the bundle's own will be
_FULL = "free some space, or name a file on another disk"
_HINTS = {errno.ENOENT: "make the folder first, or name another", errno.ENOSPC: _FULL, errno.EDQUOT: _FULL}
Count = Callable[[Iterator[bytes]], Iterator[bytes]]


class _Empty:
    """An empty remote, as far as a draft asks: a bundle begins as one."""

    batch = lines = 1
    compares = True
    copies = Copies()

    def stat(self, paths: Sequence[str], revision: str) -> dict[str, Entry]:
        return {}


class Written(Struct, frozen=True):
    """A bundle that was written, or would be.

    Attributes:
        records: What it carries, in its order.
        members: Its files.
        totals: Its own size and digest; None where nothing was written.
        signed: Each of its records has a signature.
    """

    records: tuple[Record, ...]
    members: tuple[Member, ...]
    totals: BundleSum | None
    signed: bool


def write_bundle(
    store: Store, records: Sequence[Record], target: Path | None, trust: Trust | None = None, *, dry_run: bool = False
) -> Written:
    """Write records and their files as a bundle. The file appears whole, or not at all.

    Args:
        store: Has the records; its `using` is open.
        records: The records.
        target: A file; None is standard output.
        trust: Signs the records that were made here, where the settings name a key.
        dry_run: Only say what it would hold.

    Raises:
        UntrustedError: A record is not given to others: nobody vouches for where it came from.
        IntegrityError: A record of the store is not whole. Nothing was written.
        SecretError: A record holds a secret. Nothing was written.
        UsageError: The file cannot be written, or something else lies there.
    """
    ordered = sorted(records, key=lambda record: (record.directory, record.model_type, record.key))
    for record in ordered:
        check_shareable(record)
    offers = [offer(store, record) for record in ordered]
    trust = trust or Trust()
    for one in offers:
        if reason := trust.unshared(one.shared.record, one.beside):
            raise UntrustedError(
                f"{one.shared.record.recipe} ({one.shared.record.key[:12]}) is not put into a bundle",
                cause=reason,
                hint=f"{OWN}; or leave it out",
            )
    signing = Signing(trust, dry_run=dry_run)
    drafted = Drafts(Comparison(cast("Storage", _Empty()), offers, read=False, signing=signing)).draft("")
    members = _members(drafted)
    totals = None
    if not dry_run:
        _check(target)
        with _opened(target) as out:
            totals = _write(store, drafted, members, out)
    return Written(tuple(ordered), members, totals, len(drafted.signatures) == len(drafted.records))


def _members(drafted: Draft) -> tuple[Member, ...]:
    """Records and their signatures first, so that whoever reads knows of each file whether it is wanted."""
    documents = [
        Member(path, len(raw), hashlib.sha256(raw).hexdigest())
        for kind in (_records(drafted), _signatures(drafted))
        for path, raw in sorted(kind.items())
    ]
    files = sorted(drafted.files, key=lambda file: file.path)
    return (*documents, *(Member(file.path, file.size, file.sha256) for file in files))


def _records(drafted: Draft) -> dict[str, bytes]:
    """Each in one document: a bundle is read from its beginning to its end."""
    return {layout.record_path(shared.record.place): shared.raw for shared in drafted.rows}


def _signatures(drafted: Draft) -> dict[str, bytes]:
    return {write.path: write.data or b"" for write in drafted.signatures}


def _write(store: Store, drafted: Draft, members: Sequence[Member], out: IO[bytes]) -> BundleSum:
    documents = _records(drafted) | _signatures(drafted)
    files = {file.path: file for file in drafted.files}
    counted = counting(store, "export.progress", members)
    writer = Writer(out, members)
    for member in members:
        if member.path in documents:
            writer.add(member, iter((documents[member.path],)))
        else:
            _add(store, writer, member, files[member.path], counted)
    return writer.finish()


def counting(store: Store, event: str, members: Sequence[Member]) -> Count:
    """A function that passes bytes of members on, and shows in the journal how many have passed."""
    done, told, total = 0, 0, sum(member.size for member in members)

    def counted(chunks: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal done, told
        for chunk in chunks:
            done += len(chunk)
            if done - told >= STEP:
                told = done
                store.journal.show(event, bytes=done, total=total)
            yield chunk

    return counted


def _add(store: Store, writer: Writer, member: Member, file: Upload, counted: Count) -> None:
    if isinstance(file.source, bytes):
        writer.add(member, counted(iter((file.source,))))
        return
    # The digest is computed beside: what has decayed on the disk never gets into a bundle.
    with store.reading(File(member.path, member.size, member.sha256)) as blob, blob.path.open("rb") as source:
        writer.add(member, counted(pieces(source)))


def _check(path: Path | None) -> None:
    """Refuse to overwrite a file that is not a bundle: a typing error must not cost somebody's data.

    Raises:
        UsageError: Something else lies there.
    """
    if path is None or not path.exists():
        return
    known = header(INDEX, 0)[: len(INDEX) + 1]
    try:
        with opened(path) as source:  # what is not a file, a device for example, has no room for one either
            ours = source.read(BLOCK).startswith(known) or not path.stat().st_size
    except OSError as error:
        raise UsageError(f"{path} cannot be written", cause=cause_of(error), hint="name another file") from error
    if not ours:
        raise UsageError(f"{path} exists and is not a bundle", hint="name another file, or remove it")


@contextmanager
def _opened(path: Path | None) -> Iterator[IO[bytes]]:
    """Write beside, and rename at the end."""
    if path is None:
        if sys.stdout.isatty():
            raise UsageError(
                "a bundle cannot be written to a terminal", hint="name a file, or pipe it: cachekit store export - …"
            )
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except OSError as error:
            # What waits to be written would fail once more while Python exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise UsageError(
                "cannot write to standard output", cause=cause_of(error), hint="check the program that reads the pipe"
            ) from error
        return
    _sweep(path.parent)
    beside = path.with_name(f"{_PART}{uuid.uuid4().hex}.part")
    try:
        try:
            with os.fdopen(_held(beside), "wb") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            beside.replace(path)
            sync_folder(path.resolve().parent)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written", cause=cause_of(error), hint=_HINTS.get(error.errno or 0, "name another")
            ) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove what this user's killed exports left in a folder: a live export holds the lock of its file."""
    for left in folder.glob(f"{_PART}{'[0-9a-f]' * 32}.part"):
        with suppress(OSError):
            status = left.lstat()
            if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
                continue
            handle = hold(left, os.O_RDWR)  # NFS locks alone only who may write
            if handle is not None:
                try:
                    left.unlink()
                finally:
                    os.close(handle)


def _held(beside: Path) -> int:
    """A new file, with its lock; where another swept it before it was locked, it is made once more."""
    with suppress(OSError):  # without locks there: it is then removed by nobody after a kill
        while True:
            handle = hold(beside, os.O_WRONLY | os.O_CREAT, mode=0o666)
            if handle is not None:
                return handle
    return os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
