"""One plain tar of a tree, the same bytes for the same files, and its safe unpacking.

A compiler's cache can be hundreds of tiny files; one archive a warm keeps stores, listings and pushes small. It is not
compressed: reading it back is on the way of every training run, and a copy is faster than any decompressor.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import tarfile
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

from cachekit.files import Opener, Sink, opened, pour

MAX_MEMBERS = 200_000
MAX_HEADER = 1 << 20  # bytes of a member's own header: a name that no file system takes is shorter
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


class Stored(NamedTuple):
    """A file in an archive: its name, and where its bytes are."""

    name: str
    offset: int
    size: int


class UnsafeArchiveError(ValueError):
    """An archive that would write outside its folder, make links or devices, or is not an archive."""


class _Digesting(io.RawIOBase):
    """A writer that hashes and counts what passes."""

    def __init__(self, inner: IO[bytes]) -> None:
        self._inner = inner
        self.sha256 = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.sha256.update(data)
        self.size += len(data)
        return self._inner.write(data)

    def tell(self) -> int:  # asked by tarfile, for its own count of blocks
        return self.size


def pack(root: Path, names: Iterable[str], target: IO[bytes], opener: Opener = os.open) -> tuple[str, int]:
    """Write the named files of `root` as a tar.

    Owner, times and order do not depend on the machine: two equal trees give equal bytes.

    Args:
        root: The tree.
        names: Paths of regular files, relative to it, with `/`.
        target: Where the bytes go.
        opener: Opens the files.

    Returns:
        SHA-256 in hex, and size in bytes.
    """
    out = _Digesting(target)
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(names):
            with opened(root / name, opener=opener) as source:
                status = os.fstat(source.fileno())
                member = tarfile.TarInfo(name)
                member.size = status.st_size
                member.mode = 0o755 if status.st_mode & 0o100 else 0o644
                tar.addfile(member, source)
    return out.sha256.hexdigest(), out.size


def _check(member: tarfile.TarInfo) -> None:
    name = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise UnsafeArchiveError(f"{member.name!r} is not a regular file")
    if name.is_absolute() or ".." in name.parts or not name.parts or "\\" in member.name or "\0" in member.name:
        raise UnsafeArchiveError(f"{member.name!r} would be written outside the folder")
    if member.size < 0:
        raise UnsafeArchiveError(f"{member.name!r} has a size of {member.size}")
    if member.issparse() or any(name.startswith("GNU.sparse") for name in member.pax_headers):
        raise UnsafeArchiveError(f"{member.name!r} is sparse")


def unpack(archive: Path, folder: Path, read: Callable[[Sink], None] | None = None, *, joins: bool = False) -> int:
    """Unpack a tar into an existing folder, refusing whatever could touch anything outside it.

    The contents are copied, never linked: the folder's new owner may write to them.

    Args:
        archive: A plain tar, whose bytes the caller checks against their digest (before or meanwhile).
        folder: Where the files go; nothing in it is overwritten.
        read: Gives all of the archive's bytes to a sink, in any order and from several threads at once, and checks
            them on the way; they are simply read by default.
        joins: Files that lay there before stay as they are, and are left out; without it they are an error.

    Returns:
        Bytes written.

    Raises:
        UnsafeArchiveError: A member is a link, a device, sparse, has a path that leaves the folder, stands twice, or
            the file is not a tar. Nothing was unpacked then, or only a part; the caller throws the folder away.
        OSError: Reading or writing failed.
    """
    try:
        contents = _Contents(_make(archive, folder, joins=joins))
        try:
            if read is None:
                _read(archive, contents.write)
            else:
                read(contents.write)
        finally:
            contents.close()
    except UnsafeArchiveError:
        raise
    except (tarfile.TarError, EOFError, FileExistsError, NotADirectoryError, ValueError, LookupError) as error:
        raise UnsafeArchiveError(f"{archive.name}: {error}") from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UnsafeArchiveError(f"{archive.name}: a name that no file system takes") from error
        raise
    return contents.size


def _make(archive: Path, folder: Path, *, joins: bool) -> list[_Place]:
    """Make all folders of an archive, and its empty files; returns where in it each file's bytes are, in order."""
    made: set[Path] = {folder}
    places: list[_Place] = []
    found = [*_members(archive)]  # all are looked at before anything is made
    names = [one.name for one in found if one.isreg()]
    if len({*names}) < len(names):
        raise UnsafeArchiveError(f"{archive.name}: a name stands twice")
    lay = {name for name in names if (folder / name).is_file()} if joins else set()
    for member in found:
        if member.name in lay:
            continue
        path = folder / member.name
        parent = path if member.isdir() else path.parent
        if parent not in made:
            parent.mkdir(parents=True, exist_ok=True)
            made.add(parent)
        if member.isreg():
            mode = 0o755 if member.mode & 0o100 else 0o644
            places.append(_Place(member.offset_data, member.offset_data + member.size, path, mode))
            if not member.size:
                os.close(_create(places[-1]))
    return places


def _create(place: _Place) -> int:
    # O_EXCL: never through a link that something put there, never twice.
    return os.open(place.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW, place.mode)


def members(archive: Path) -> Iterator[Stored]:
    """Where the files of an archive lie in it, one after the other; nothing is unpacked, and memory does not grow.

    Raises:
        UnsafeArchiveError: As for `unpack`, but for names that stand twice. It comes with the member, or at the end.
        OSError: Reading failed.
    """
    try:
        for member in _members(archive):
            if member.isreg():
                yield Stored(member.name, member.offset_data, member.size)
    except UnsafeArchiveError:
        raise
    except (tarfile.TarError, EOFError, ValueError, LookupError) as error:
        raise UnsafeArchiveError(f"{archive.name}: {error}") from error


def _members(archive: Path) -> Iterator[tarfile.TarInfo]:
    """All members of an archive, each of them harmless."""
    with archive.open("rb") as raw:
        size = os.fstat(raw.fileno()).st_size
        read = Headers(raw)
        for count, member in enumerate(headers(read)):
            _check(member)
            if count >= MAX_MEMBERS or member.offset_data + member.size > size:
                raise UnsafeArchiveError(f"{member.name!r}: more than the archive holds")
            yield member
        _check_end(raw, raw.tell() - len(read.last))


class Headers:
    """What tarfile reads of an archive: headers. Names in them may have any length, and it would hold all of one.

    Args:
        raw: The archive's bytes: they are read, told of, and passed over.
        longest: Bytes of one header.

    Attributes:
        last: What was read last: in the end the block that tarfile takes for an archive's end, which may be a header
            that it cannot read.
    """

    def __init__(self, raw: Any, longest: int = MAX_HEADER) -> None:
        self._raw, self._longest = raw, longest
        self.seek, self.tell = raw.seek, raw.tell
        self.last = b""

    def read(self, count: int) -> bytes:
        """Up to so many bytes.

        Raises:
            UnsafeArchiveError: No header is as long.
        """
        if not 0 <= count <= self._longest:
            raise UnsafeArchiveError(f"an extended header of {count} bytes")
        self.last = self._raw.read(count)
        return self.last


def headers(source: Headers, errors: str = "surrogateescape") -> Iterator[tarfile.TarInfo]:
    """The headers of an archive's members in their order; memory does not grow with their number.

    Args:
        source: The archive.
        errors: What becomes of names that are not UTF-8.

    Raises:
        tarfile.TarError: It is not a tar, or broken; and what else tarfile raises: ValueError, LookupError, EOFError.
    """
    with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r:", encoding="utf-8", errors=errors) as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # it would keep them all
            yield member


class _Place(NamedTuple):
    start: int
    end: int
    path: Path
    mode: int


class _Contents:
    """Files that take their bytes out of an archive's, as those come by.

    Each is made when the first of its bytes come: that can take longer than to write them, and so threads share it.
    """

    def __init__(self, places: list[_Place]) -> None:
        self._places = [place for place in places if place.end > place.start]
        self._starts = [place.start for place in self._places]
        self._open: dict[int, tuple[int, int]] = {}  # by thread: the file that it writes, and that one's handle
        self._making: dict[int, threading.Lock] = {}
        self._made: set[int] = set()
        self.size = sum(place.end - place.start for place in places)

    def write(self, offset: int, block: memoryview) -> None:
        """Take the archive's bytes from `offset` on."""
        end = offset + len(block)
        number = max(bisect_right(self._starts, offset) - 1, 0)
        while number < len(self._places) and self._places[number].start < end:
            place = self._places[number]
            first, last = max(offset, place.start), min(end, place.end)
            if first < last:
                handle, at = self._handle(number), first - place.start
                part = block[first - offset : last - offset]
                while part:
                    written = os.pwrite(handle, part, at)
                    part, at = part[written:], at + written
            number += 1

    def _handle(self, number: int) -> int:
        thread = threading.get_ident()
        standing = self._open.get(thread)
        if standing is not None and standing[0] == number:
            return standing[1]
        with self._making.setdefault(number, threading.Lock()):
            if number in self._made:
                handle = os.open(self._places[number].path, os.O_WRONLY | _NOFOLLOW)
            else:
                handle = _create(self._places[number])
                self._made.add(number)
        self._open[thread] = number, handle
        if standing is not None:
            os.close(standing[1])
        return handle

    def close(self) -> None:
        for _, handle in self._open.values():
            os.close(handle)


def _read(archive: Path, sink: Sink) -> None:
    with archive.open("rb", buffering=0) as source:
        pour(source.fileno(), sink)


def _check_end(raw: IO[bytes], offset: int) -> None:
    # tarfile takes a header that it cannot read for the end: what follows the last member must be the zeros of one.
    raw.seek(offset)
    # Two blocks of zeros, and then as many as fill a record: one block more than a record at the most.
    longest = tarfile.RECORDSIZE + tarfile.BLOCKSIZE
    rest = raw.read(longest + 1)
    if not 2 * tarfile.BLOCKSIZE <= len(rest) <= longest or rest.strip(b"\0"):
        raise UnsafeArchiveError("the archive does not end where its members end")
