"""Take a bundle into the store: all of it is checked before any of it becomes visible."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Literal, cast

from msgspec import Struct

from cachekit import files
from cachekit.config_trust import Mode
from cachekit.disk import existing
from cachekit.errors import Helps, StoreError, UsageError
from cachekit.private import opened
from cachekit.remotes import document, layout
from cachekit.remotes.bundle_out import counting
from cachekit.remotes.document import Shared
from cachekit.remotes.judging import (
    HINT_BUNDLE,
    Trust,
    advice,
    beside_of,
    envelopes_of,
    named,
    origin_of,
    refusal,
    unreadable,
)
from cachekit.store import Store, staying
from cachekit.store.bundle import BundleSum, Member, Reader
from cachekit.store.durable import store_error
from cachekit.store.origin import HERE, Beside, Origin, chain
from cachekit.store.partial import Partial
from cachekit.store.record import LARGEST, DamagedRecordError, File, Record, covers, paths_of
from cachekit.text import cause_of
from cachekit.text import size as shown_size
from cachekit.values import by_value

State = Literal["added", "merged", "present", "kept"]


class _Taken(Struct):
    """What was read so far; without a workspace the bundle is only checked."""

    trust: Trust
    workspace: Path | None = None
    shared: list[Shared] = []
    signatures: dict[str, bytes] = {}  # by path
    besides: list[Beside] = []
    untrusted: dict[str, tuple[str, Helps]] = {}  # by key
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
        untrusted: Why records of it may not be used, and what helps, by their keys; only in a dry run.
    """

    records: tuple[tuple[Record, State], ...]
    size: int
    totals: BundleSum
    untrusted: Mapping[str, tuple[str, Helps]]

    __hash__ = by_value


class _Source:
    """The bundle's bytes; an error while reading them becomes a UsageError, so that it is not taken for the store's."""

    def __init__(self, source: IO[bytes], name: str) -> None:
        self._source, self._name = source, name

    def read(self, size: int) -> bytes:
        try:
            return self._source.read(size)
        except OSError as error:
            cause = cause_of(error)
            raise UsageError(f"{self._name} cannot be read", cause=cause, hint="name a bundle") from error


def read_bundle(
    store: Store, source: IO[bytes], name: str, trust: Trust | None = None, *, dry_run: bool = False
) -> TakenBundle:
    """Take the records of a bundle into the store.

    Read once, in order. Files wait in a private folder of the store until the last byte was compared; a killed import
    leaves nothing but that, which the next run sweeps.

    Args:
        store: Gets the records; its `using` is open.
        source: The bundle's bytes.
        name: For messages.
        trust: What is asked of its records: a signature, unless anybody's are used.
        dry_run: Only check the bundle, and say what would be taken.

    Raises:
        UntrustedError: A record of it may not be used. Nothing was taken.
        IntegrityError: It is not a bundle, or incomplete. Nothing was taken.
        UsageError: A later cachekit made it, or it cannot be read.
        StoreError: The store cannot be written, or has no room.
    """
    taken = _Taken(trust or Trust())
    try:
        reader = Reader(cast("IO[bytes]", _Source(source, name)), name)
        with nullcontext() if dry_run else store.workspace() as taken.workspace:
            size = _read(store, reader, taken, name)
            _publish(store, taken)
    except OSError as error:
        raise store_error(store.layout.home, error) from error
    assert reader.totals is not None  # it came to its end
    records = tuple((shared.record, state) for shared, state in zip(taken.shared, taken.states, strict=True))
    return TakenBundle(records, size, reader.totals, taken.untrusted)


def _read(store: Store, reader: Reader, taken: _Taken, name: str) -> int:
    """Read all of it; returns how many bytes the store lacks."""
    documents = [member for member in reader.members if member.path.startswith(f"{layout.RECORDS}/")]
    signed = [member for member in reader.members if member.path.startswith(f"{layout.SIGNATURES}/")]
    before = len(documents) + len(signed)  # members before the files
    size, counted = 0, counting(store, "import.progress", reader.members)
    for number, (member, raw) in enumerate(reader.each()):
        chunks = counted(raw)
        if number < len(documents):
            taken.shared.append(_document(reader, member, chunks))
        elif number < before:
            if member not in signed:
                raise reader.damaged(f"{member.path}: its records and its index differ")
            taken.signatures[member.path] = _whole(reader, member, chunks)
        elif taken.workspace and member.sha256 in taken.wanted and member.sha256 not in taken.finished:
            path = taken.workspace / member.sha256
            sha256, taken.pieces[member.sha256] = _received(path, chunks)
            if sha256 != member.sha256:
                raise reader.damaged(f"{member.path}: its digest does not match")
            taken.finished[sha256] = path
        elif files.digest_of(chunks)[0] != member.sha256:
            raise reader.damaged(f"{member.path}: its digest does not match")
        if number == before - 1:
            _compare(reader, before, taken)
            _judge(name, taken)
            size = _decide(store, taken)
    if not documents:
        raise reader.damaged("it has no record")
    return size


def _document(reader: Reader, member: Member, chunks: Iterator[bytes]) -> Shared:
    raw = _whole(reader, member, chunks)
    try:
        shared = document.read(raw)
    except DamagedRecordError as error:
        raise reader.damaged(f"{member.path}: {error}") from error
    if shared is None:
        raise UsageError(f"{member.path} was written by a later version of cachekit", hint="upgrade cachekit here")
    if layout.record_path(shared.record.place) != member.path:
        raise reader.damaged(f"{member.path}: it is the record of another key")
    return shared


def _whole(reader: Reader, member: Member, chunks: Iterator[bytes]) -> bytes:
    if member.size > LARGEST:
        raise reader.damaged(f"{member.path}: {member.size:,} bytes are too many for a record")
    raw = b"".join(chunks)
    if hashlib.sha256(raw).hexdigest() != member.sha256:
        raise reader.damaged(f"{member.path}: its digest does not match")
    return raw


def _judge(name: str, taken: _Taken) -> None:
    """Find out which records may be used, before a file of one is taken.

    Raises:
        UntrustedError: One may not, and this is not a dry run.
    """
    from cachekit.trust import envelope

    trust = taken.trust
    for shared in taken.shared:
        record = shared.record
        envelopes: tuple[envelope.Envelope, ...] = ()
        damage = ""
        raw, most = taken.signatures.get(layout.signatures_path(record.place), b""), envelope.largest(record)
        if len(raw) > most:  # without them nobody could revoke the record by a signer's key
            raise refusal(name, f"{named(record)} in it is {envelope.too_large(most)}", HINT_BUNDLE)
        try:
            envelopes = envelope.decode(raw) if raw else ()
        except envelope.MalformedError as error:
            damage = str(error)
        mode: Mode = "all" if trust.mode(name) == "all" else "signed"  # a file says nothing of who could write to it
        verdict = trust.policy.judge(record, envelopes, mode=mode)
        # Noted with its whole path: from another folder a part of it means another file.
        place = str(Path(name).absolute()) if Path(name).exists() else name
        taken.besides.append(beside_of(record, origin_of(place, verdict), envelopes))
        if not verdict.trusted:
            reason, helps = taken.untrusted[record.key] = unreadable(verdict, damage)
            if taken.workspace is not None:
                why = f"anybody can make a bundle, and {named(record)} in it is {reason}"
                raise refusal(name, why, advice(helps, otherwise=HINT_BUNDLE))


def _compare(reader: Reader, before: int, taken: _Taken) -> None:
    """A bundle holds what its records name, where they say, and nothing else."""
    shared = taken.shared
    known = {layout.signatures_path(one.record.place) for one in shared}
    if strange := sorted(taken.signatures.keys() - known):
        raise reader.damaged(f"{strange[0]}: its records and its index differ")
    needed: set[tuple[str, int, str]] = set()
    allowed: set[tuple[str, int, str]] = set()
    for one in shared:
        for own, file in paths_of(one.record.modules):
            allowed.add((own, file.size, file.sha256))
            needed.add((one.places.get(file.sha256) or own, file.size, file.sha256))
    files = {(member.path, member.size, member.sha256) for member in reader.members[before:]}
    if others := sorted((needed - files) | (files - needed - allowed)):
        raise reader.damaged(f"{others[0][0]}: its records and its index differ")


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
                cause=f"it lacks {shown_size(size)}, and {shown_size(free)} are free",
                hint="free some space, or set CACHEKIT_HOME to another disk",
            )
    return size


def _merged(store: Store, shared: Shared) -> tuple[Record, State]:
    """What the store should hold for a key, and what that makes of the bundle's record."""
    record = shared.record
    mine = store.lookup(record.place)
    if mine is None:
        return record, "added"
    merged = document.merge(shared, Shared(mine)).record
    if merged == mine:
        return mine, "present" if covers(mine, record) else "kept"
    return merged, "merged"


def _received(path: Path, chunks: Iterator[bytes]) -> tuple[str, tuple[str, ...]]:
    """Write a file and hash it meanwhile; the digests of the whole and of its pieces."""
    handle = opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
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
    for number, (shared, beside) in enumerate(zip(taken.shared, taken.besides, strict=True)):
        with store.changing(shared.record.key):
            record, state = _merged(store, shared)  # again: a warm may have come to its end meanwhile
            taken.states[number] = state
            if state in {"added", "merged"}:
                own = {file.sha256: left.pop(file.sha256) for file in record.files if file.sha256 in left}
                pieces = {sha256: taken.pieces[sha256] for sha256 in own}
                store.publish(record, own, pieces, beside=_beside(store, shared.record, record, beside))
                store.journal.emit("import.record", key=record.key, state=state)
            elif record == shared.record:
                _sign_more(store, record, beside)


def _sign_more(store: Store, record: Record, beside: Beside) -> None:
    """Keep the signatures over a record that was there already: it may have been signed since it was taken."""
    from cachekit.trust.envelope import union

    kept = store.origins.of(record)
    known, new = envelopes_of(kept), envelopes_of(beside)
    if kept.origin != HERE and any(one not in known for one in new):
        store.publish(record, {}, beside=beside_of(record, kept.origin, union(known, new)))


def _beside(store: Store, theirs: Record, record: Record, beside: Beside) -> Beside:
    """What belongs beside a record of a bundle, or beside what it and the store's own were merged to."""
    if record == theirs:
        return beside
    stayed = staying.reused(store.layout, record.modules)
    mine = store.origins.made(record, store.read(record.place), stayed).origin
    return Beside(Origin(reused=tuple(dict.fromkeys((*mine.reused, *chain(theirs, beside.origin))))))
