"""A bundle: one plain tar that carries records and their files to a machine without a network.

    cachekit/v1/bundle.json                             the index: every other member, its size and SHA-256
    cachekit/v1/records/<compiler dir>/<model type>/…   records, as on a remote
    cachekit/v1/signatures/…                            who signed them, where somebody did
    neuronxcc-…/MODULE_…/…, inductor-…/….tar            their files, where a remote has them

So `tar x` of it into an empty folder gives a remote. The index there says that it came so: like a file, such a folder
does not tell who made what lies in it. Equal contents give equal bytes (only a new signature says when it was
made): members are in order, and headers say nothing of times, owners or machines; they are made here, since what
`tarfile` writes differs between versions of Python.

Whoever reads a bundle knows from the index what must follow, to the byte: headers are compared with those that would
have been written. Links, devices, sparse files, other names and trailing bytes are no case to be judged, they differ.
It is read once and in order: a pipe will do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from cachekit.decode import from_builtins
from cachekit.errors import IntegrityError, UsageError
from cachekit.files import PIECE
from cachekit.store.record import (
    LARGEST,
    MOST_VALUES,
    DamagedRecordError,
    Digest,
    RelativePath,
    misfit,
    parse,
    sealed,
    serialise,
    unsealed,
    values_of,
)
from cachekit.text import cut

INDEX = "cachekit/v1/bundle.json"
SCHEMA = 1
BLOCK = 512
RECORD = 20 * BLOCK  # a tar is a multiple of this, by tradition
_OCTAL = 8**11  # the first size that a header has no room for
_NAME, _PREFIX = 100, 155  # bytes of a path's two parts in a header


def unpacked(folder: Path) -> str:
    """Why nobody knows who made what a folder holds, as a bundle was unpacked there; empty where none was.

    Raises:
        OSError: It cannot be looked at.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        (folder / INDEX).lstat()
        return f"{folder} is an unpacked bundle ({INDEX}), and who may write to one cannot be asked"
    return ""


class Member(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a bundle: its path, its bytes and their SHA-256."""

    path: RelativePath
    size: int
    sha256: Digest


class BundleSum(Struct, frozen=True):
    """What was read or written: bytes of the whole bundle, and their SHA-256."""

    size: int
    sha256: str


class Writer:
    """Writes a bundle; every member in the order of the index.

    Raises:
        UsageError: They are too many for one index.
    """

    def __init__(self, target: IO[bytes], members: Sequence[Member]) -> None:
        self._target = target
        self._sha256 = hashlib.sha256()
        self._size = 0
        raw = index(members)
        self._put(header(INDEX, len(raw)) + raw + _padding(len(raw)))

    def add(self, member: Member, chunks: Iterator[bytes]) -> None:
        """Write the next member.

        Raises:
            IntegrityError: It has not as many bytes as the index says.
            OSError: It cannot be written.
        """
        self._put(header(member.path, member.size))
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > member.size:
                break
            self._put(chunk)
        if size != member.size:
            raise IntegrityError(f"{member.path} changed while it was read", hint="run the same command again")
        self._put(_padding(size))

    def finish(self) -> BundleSum:
        """Write the end."""
        self._put(_end(self._size))
        return BundleSum(self._size, self._sha256.hexdigest())

    def _put(self, data: bytes) -> None:
        self._sha256.update(data)
        self._size += len(data)
        self._target.write(data)


class Reader:
    """Reads a bundle, which anybody may have made.

    Args:
        source: Its bytes; only `read` is called.
        name: For messages.

    Attributes:
        members: What the index says; `each` gives their bytes.

    Raises:
        IntegrityError: It is not a bundle, or its index is damaged.
        UsageError: A later cachekit made it.
        OSError: It cannot be read.
    """

    def __init__(self, source: IO[bytes], name: str) -> None:
        self._source = source
        self._name = name
        self._sha256 = hashlib.sha256()
        self._size = 0
        self.members = self._index()
        self.totals: BundleSum | None = None

    def each(self) -> Iterator[tuple[Member, Iterator[bytes]]]:
        """Members with their bytes, to be taken in this order; digests are the caller's business.

        `totals` is set at the end.

        Raises:
            IntegrityError: Something else is there than the index says.
            OSError: It cannot be read.
        """
        for member in self.members:
            if self._take(len(expected := header(member.path, member.size))) != expected:
                raise self.damaged(f"{member.path} is not where it must be, or is not a regular file")
            chunks = self._chunks(member)
            yield member, chunks
            for _ in chunks:
                pass
            if any(self._take(len(_padding(member.size)))):
                raise self.damaged(f"{member.path} is longer than the index says")
        end = _end(self._size)
        if self._take(len(end)) != end or self._source.read(1):
            raise self.damaged("it does not end where its members end")
        self.totals = BundleSum(self._size, self._sha256.hexdigest())

    def damaged(self, reason: str) -> IntegrityError:
        """The error for something that is not as it must be."""
        return IntegrityError(
            f"{self._name} is not a complete bundle",
            cause=reason,
            hint="nothing was imported; copy or export the bundle again",
        )

    def _index(self) -> tuple[Member, ...]:
        head = self._take(BLOCK)
        try:
            size = int(head[124:135], 8)
        except ValueError:
            size = -1
        if not 0 < size <= LARGEST or head != header(INDEX, size):
            raise self.damaged("it does not begin with the index of one")
        raw = self._take(size)
        if any(self._take(len(_padding(size)))):
            raise self.damaged("its index is longer than it says")
        try:
            body = unsealed("bundle", parse(raw))
            if body["schema"] != SCHEMA:
                raise UsageError(
                    f"{self._name} was made by a newer cachekit",
                    cause=f"its format is {cut(str(body['schema']), 20)}, this version reads {SCHEMA}",
                    hint="upgrade cachekit here",
                )
            members = from_builtins(body["members"], tuple[Member, ...])
            if index(members) != raw:
                raise DamagedRecordError("its index is not in canonical form")  # noqa: TRY301
        except (DamagedRecordError, msgspec.ValidationError, ValueError, KeyError, TypeError) as error:
            raise self.damaged(misfit(error)) from error
        paths = {INDEX, *(member.path for member in members)}
        if len(paths) <= len(members) or any(member.size < 0 for member in members):
            raise self.damaged("its index contradicts itself")
        return members

    def _chunks(self, member: Member) -> Iterator[bytes]:
        left = member.size
        while left:
            chunk = self._take(min(left, PIECE))
            left -= len(chunk)
            yield chunk

    def _take(self, size: int) -> bytes:
        """Exactly so many bytes."""
        parts, left = [], size
        while left:
            part = self._source.read(left)
            if not part:
                raise self.damaged(f"it ends after {self._size + size - left:,} bytes")
            parts.append(part)
            left -= len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._sha256.update(data)
        self._size += size
        return data


def index(members: Sequence[Member]) -> bytes:
    """The index of a bundle with these members.

    Raises:
        UsageError: They are too many.
    """
    body: dict[str, Any] = {"schema": SCHEMA, "members": msgspec.to_builtins(members)}
    raw = serialise(sealed("bundle", body))
    if len(raw) > LARGEST or values_of(raw) > MOST_VALUES:
        raise UsageError(f"{len(members):,} files are too many for one bundle", hint="export fewer records at a time")
    return raw


def header(path: str, size: int) -> bytes:
    """What stands before a regular file in a tar: POSIX ustar, with a pax header where that has no room.

    Source of the format: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header".
    """
    raw = path.encode("utf-8")
    parts = _parts(raw) if path.isascii() else None
    extended = b""
    if parts is None or size >= _OCTAL:
        extended = (_pax("path", raw) if parts is None else b"") + (
            _pax("size", str(size).encode()) if size >= _OCTAL else b""
        )
        extended = _block(b"PaxHeader", b"", len(extended), b"x") + extended + _padding(len(extended))
    # What stands in the header then is for readers that do not know pax.
    name, prefix = parts or (b"cachekit-" + hashlib.sha256(raw).hexdigest().encode(), b"")
    return extended + _block(name, prefix, size if size < _OCTAL else 0, b"0")


def _parts(raw: bytes) -> tuple[bytes, bytes] | None:
    """A path as a header's name and prefix; None where it has no room."""
    if len(raw) <= _NAME:
        return raw, b""
    cut = raw.find(b"/", len(raw) - _NAME - 1)  # the first one that leaves a name that fits
    return (raw[cut + 1 :], raw[:cut]) if 0 < cut <= _PREFIX else None


def _pax(name: str, value: bytes) -> bytes:
    rest = b" %s=%s\n" % (name.encode(), value)
    length = len(rest)
    while len(str(length)) + len(rest) != length:  # it counts its own digits
        length = len(str(length)) + len(rest)
    return str(length).encode() + rest


def _block(name: bytes, prefix: bytes, size: int, kind: bytes) -> bytes:
    fields = (
        name.ljust(_NAME, b"\0"),
        b"0000644\0" + b"0000000\0" * 2,  # mode, owner, group
        b"%011o\0" % size,
        b"%011o\0" % 0,  # time
        b" " * 8,  # the checksum's place
        kind + b"\0" * 100 + b"ustar\x0000" + b"\0" * 64 + b"0000000\0" * 2 + prefix.ljust(_PREFIX, b"\0"),
    )
    block = b"".join(fields).ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _padding(size: int) -> bytes:
    return b"\0" * (-size % BLOCK)


def _end(size: int) -> bytes:
    """Two blocks of zeros, and as many as fill a record."""
    return b"\0" * (2 * BLOCK + -(size + 2 * BLOCK) % RECORD)
