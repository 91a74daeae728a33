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
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import IO

COPIED = 256 << 10  # bytes at once: they stay in the second-level cache between reading and writing
MAX_MEMBERS = 200_000


class UnsafeArchiveError(ValueError):
    """An archive that would write outside its folder, make links or devices, or is no archive."""


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


def pack(root: Path, names: Iterable[str], target: IO[bytes]) -> tuple[str, int]:
    """Write the named files of `root` as a tar.

    Owner, times and order do not depend on the machine: two equal trees give equal bytes.

    Args:
        root: The tree.
        names: Paths of regular files, relative to it, with `/`.
        target: Where the bytes go.

    Returns:
        SHA-256 in hex, and size in bytes.
    """
    out = _Digesting(target)
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(names):
            path = root / name
            with path.open("rb") as source:
                status = os.fstat(source.fileno())
                member = tarfile.TarInfo(name)
                member.size = status.st_size
                member.mode = 0o755 if status.st_mode & 0o100 else 0o644
                tar.addfile(member, source)
    return out.sha256.hexdigest(), out.size


def _check(member: tarfile.TarInfo) -> None:
    name = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()):
        raise UnsafeArchiveError(f"{member.name!r} is no regular file")
    if name.is_absolute() or ".." in name.parts or not name.parts or "\\" in member.name or "\0" in member.name:
        raise UnsafeArchiveError(f"{member.name!r} would lie outside")
    if member.size < 0:
        raise UnsafeArchiveError(f"{member.name!r} has a size of {member.size}")
    if member.issparse() or any(name.startswith("GNU.sparse") for name in member.pax_headers):
        raise UnsafeArchiveError(f"{member.name!r} is sparse")


def unpack(archive: Path, folder: Path) -> int:
    """Unpack a tar into an existing folder, refusing whatever could touch anything outside it.

    The contents are copied, never linked: the folder's new owner may write to them.

    Args:
        archive: A plain tar, whose bytes the caller checks against their digest (before or meanwhile).
        folder: Where the files go; nothing in it is overwritten.

    Returns:
        Bytes written.

    Raises:
        UnsafeArchiveError: A member is a link, a device, sparse, has a path that leaves the folder, stands twice, or
            the file is no tar. What was unpacked before it stays; the caller throws the folder away.
        OSError: Reading or writing failed.
    """
    written = 0
    buffer = bytearray(COPIED)
    made: set[Path] = {folder}
    try:
        with archive.open("rb") as raw, tarfile.open(fileobj=raw, mode="r:") as tar:
            size = os.fstat(raw.fileno()).st_size
            for count, member in enumerate(tar):
                _check(member)
                if count >= MAX_MEMBERS or member.offset_data + member.size > size:
                    raise UnsafeArchiveError(f"{member.name!r}: more than the archive holds")  # noqa: TRY301
                path = folder / member.name
                parent = path if member.isdir() else path.parent
                if parent not in made:
                    parent.mkdir(parents=True, exist_ok=True)
                    made.add(parent)
                if member.isreg():
                    _copy(raw.fileno(), member, path, buffer)
                    written += member.size
            _check_end(raw, tar.offset)
    except UnsafeArchiveError:
        raise
    except (tarfile.TarError, EOFError, FileExistsError, NotADirectoryError, ValueError, LookupError) as error:
        raise UnsafeArchiveError(f"{archive.name}: {error}") from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UnsafeArchiveError(f"{archive.name}: a name that no file system takes") from error
        raise
    return written


def _check_end(raw: IO[bytes], offset: int) -> None:
    # tarfile takes a header that it cannot read for the end: what follows the last member must be the zeros of one.
    raw.seek(offset)
    # Two blocks of zeros, and then as many as fill a record: one block more than a record at the most.
    longest = tarfile.RECORDSIZE + tarfile.BLOCKSIZE
    rest = raw.read(longest + 1)
    if not 2 * tarfile.BLOCKSIZE <= len(rest) <= longest or rest.strip(b"\0"):
        raise UnsafeArchiveError("the archive does not end where its members end")


def _copy(source: int, member: tarfile.TarInfo, path: Path, buffer: bytearray) -> None:
    # O_EXCL: never through a link that something put there, never twice.
    target = os.open(
        path,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0),
        0o755 if member.mode & 0o100 else 0o644,
    )
    # By hand: sendfile and copy_file_range were a quarter slower here (ext4, page by page), and fail on some systems.
    block = memoryview(buffer)
    try:
        offset, end = member.offset_data, member.offset_data + member.size
        while offset < end:
            count = os.preadv(source, [block[: min(end - offset, len(block))]], offset)
            if count == 0:
                raise EOFError("the archive ended early")
            offset += count
            part = block[:count]
            while part:
                part = part[os.write(target, part) :]
    finally:
        os.close(target)
