"""Take a bundle into the store: all of it is checked before any of it becomes visible."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Literal, cast

from msgspec import Struct

from cachekit.disk import existing
from cachekit.errors import StoreError, UsageError
from cachekit.remotes import document, layout
from cachekit.remotes.bundle_out import counting
from cachekit.remotes.document import RECORD_LIMIT, Shared
from cachekit.store import Store
from cachekit.store.bundle import BundleSum, Member, Reader
from cachekit.store.durable import store_error
from cachekit.store.partial import Partial
from cachekit.store.record import DamagedRecordError, File, Record

State = Literal["added", "merged", "present", "kept"]


class _Taken(Struct):
    """What was read so far; without a workspace the bundle is only checked."""

    workspace: Path | None = None
    shared: list[Shared] = []
    states: list[State] = []
    wanted: dict[str, File] = {}
    finished: dict[str, Path] = {}
    pieces: dict[str, tuple[str, ...]] = {}


class TakenBundle(Struct, frozen=True):
    """A bundle that was taken, or would be.

    Attributes:
        records: Each with what became of it: `added`; `merged` with modules that the store's own has; `present` as a
            whole; `kept` is another build in the store, which stays.
        size: Bytes that the store lacked.
        totals: The bundle's size and digest.
    """

    records: tuple[tuple[Record, State], ...]
    size: int
    totals: BundleSum


class _Source:
    """The bundle's bytes; an error while reading them becomes a UsageError, so that it is not taken for the store's."""

    def __init__(self, source: IO[bytes], name: str) -> None:
        self._source, self._name = source, name

    def read(self, size: int) -> bytes:
        try:
            return self._source.read(size)
        except OSError as error:
            cause = error.strerror or str(error)
            raise UsageError(f"{self._name} cannot be read", cause=cause, hint="name a bundle") from error


def read_bundle(store: Store, source: IO[bytes], name: str, *, dry_run: bool = False) -> TakenBundle:
    """Take the records of a bundle into the store.

    Read once, in order. Files wait in a private folder of the store until the last byte was compared; a killed import
    leaves nothing but that, which the next run sweeps.

    Args:
        store: Gets the records; its `holding` is open.
        source: The bundle's bytes.
        name: For messages.
        dry_run: Only check the bundle, and say what would be taken.

    Raises:
        IntegrityError: It is no bundle, or not whole. Nothing was taken.
        UsageError: A later cachekit made it, or it cannot be read.
        StoreError: The store cannot be written, or has no room.
    """
    taken = _Taken()
    try:
        reader = Reader(cast("IO[bytes]", _Source(source, name)), name)
        with nullcontext() if dry_run else store.workspace() as taken.workspace:
            size = _read(store, reader, taken)
            _publish(store, taken)
    except OSError as error:
        raise store_error(store.layout.home, error) from error
    assert reader.totals is not None  # it came to its end
    records = tuple((shared.record, state) for shared, state in zip(taken.shared, taken.states, strict=True))
    return TakenBundle(records, size, reader.totals)


def _read(store: Store, reader: Reader, taken: _Taken) -> int:
    """Read all of it; returns how many bytes the store lacks."""
    documents = [member for member in reader.members if member.path.startswith(f"{layout.RECORDS}/")]
    size, counted = 0, counting(store, "import.progress", reader.members)
    for number, (member, raw) in enumerate(reader.each()):
        chunks = counted(raw)
        if number < len(documents):
            taken.shared.append(_document(reader, member, chunks))
        elif taken.workspace and member.sha256 in taken.wanted and member.sha256 not in taken.finished:
            path = taken.workspace / member.sha256
            sha256, taken.pieces[member.sha256] = _received(path, chunks)
            if sha256 != member.sha256:
                raise reader.damaged(f"{member.path}: its digest does not match")
            taken.finished[sha256] = path
        elif _digest(chunks) != member.sha256:
            raise reader.damaged(f"{member.path}: its digest does not match")
        if number == len(documents) - 1:
            _compare(reader, documents, taken.shared)
            size = _decide(store, taken)
    if not documents:
        raise reader.damaged("it has no record")
    return size


def _document(reader: Reader, member: Member, chunks: Iterator[bytes]) -> Shared:
    if member.size > RECORD_LIMIT:
        raise reader.damaged(f"{member.path}: {member.size:,} bytes are too many for a record")
    raw = b"".join(chunks)
    if hashlib.sha256(raw).hexdigest() != member.sha256:
        raise reader.damaged(f"{member.path}: its digest does not match")
    try:
        shared = document.read(raw)
    except DamagedRecordError as error:
        raise reader.damaged(f"{member.path}: {error}") from error
    if shared is None:
        raise UsageError(f"{member.path} was written by a later version of cachekit", hint="upgrade cachekit here")
    if layout.path_of(shared.record) != member.path:
        raise reader.damaged(f"{member.path}: it is the record of another key")
    return shared


def _compare(reader: Reader, documents: Sequence[Member], shared: Sequence[Shared]) -> None:
    """A bundle holds what its records name, where they say, and nothing else."""
    needed: set[tuple[str, int, str]] = set()
    allowed: set[tuple[str, int, str]] = set()
    for one in shared:
        for module in one.record.modules:
            for file in module.files:
                own = layout.file_path(module, file)
                allowed.add((own, file.size, file.sha256))
                needed.add((one.places.get(file.sha256) or own, file.size, file.sha256))
    files = {(member.path, member.size, member.sha256) for member in reader.members[len(documents) :]}
    if strange := sorted((needed - files) | (files - needed - allowed)):
        raise reader.damaged(f"{strange[0][0]}: its records and its index differ")


def _decide(store: Store, taken: _Taken) -> int:
    """Find out what the store lacks; returns the number of bytes.

    Raises:
        StoreError: It has no room for them.
    """
    for shared in taken.shared:
        record, state = _merged(store, shared)
        taken.states.append(state)
        if state in {"added", "merged"}:
            taken.wanted |= {file.sha256: file for file in record.files}
    lacking = {file.sha256: file for file in store.lacking(taken.wanted.values())}
    taken.wanted = lacking
    size = sum(file.size for file in lacking.values())
    if taken.workspace:
        free = shutil.disk_usage(existing(store.layout.home)).free
        if size > free:
            raise StoreError(
                f"the store at {store.layout.home} has no room for this bundle",
                cause=f"it lacks {size:,} bytes, and {free:,} are free",
                hint="free some space, or set CACHEKIT_HOME to another disk",
            )
    return size


def _merged(store: Store, shared: Shared) -> tuple[Record, State]:
    """What the store should hold for a key, and what that makes of the bundle's record."""
    record = shared.record
    mine = store.lookup(record.key, record.directory, record.model_type)
    if mine is None:
        return record, "added"
    merged = document.merge(shared, Shared(mine)).record
    if merged == mine:
        held = {module.name: module.files for module in mine.modules}
        same = all(held.get(module.name) == module.files for module in record.modules)
        return mine, "present" if same else "kept"
    return merged, "merged"


def _received(path: Path, chunks: Iterator[bytes]) -> tuple[str, tuple[str, ...]]:
    """Write a file and hash it meanwhile; the digests of the whole and of its pieces."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    part = Partial(path, handle)
    try:
        for chunk in chunks:
            part.write(chunk)
        return part.finish()
    finally:
        part.close()
        os.close(handle)


def _publish(store: Store, taken: _Taken) -> None:
    if taken.workspace is None:
        return
    left = dict(taken.finished)
    for number, shared in enumerate(taken.shared):
        with store.changing(shared.record.key):
            record, state = _merged(store, shared)  # again: a warm may have come to its end meanwhile
            taken.states[number] = state
            if state in {"added", "merged"}:
                own = {file.sha256: left.pop(file.sha256) for file in record.files if file.sha256 in left}
                store.publish(record, own, {sha256: taken.pieces[sha256] for sha256 in own})
                store.journal.emit("import.record", key=record.key, state=state)


def _digest(chunks: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
