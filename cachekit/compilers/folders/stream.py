"""The bytes of a packed entry: one stream of zlib or Zstandard."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

ZSTANDARD = b"\x28\xb5\x2f\xfd"  # how a frame begins: RFC 8878, 3.1.1
PIECE = 1 << 20  # bytes read, and given, at once


class BrokenStreamError(ValueError):
    """The stream is damaged, or does not come to its end; or nothing is installed that unpacks it."""


def unpack(source: IO[bytes], size: int) -> Iterator[bytes]:
    """The unpacked bytes, in pieces.

    Args:
        source: Read from where it stands.
        size: Bytes of the stream.

    Raises:
        BrokenStreamError: It is not whole.
        OSError: It cannot be read.
    """
    first = source.read(min(size, PIECE))
    if first.startswith(ZSTANDARD):
        return _zstandard(first, source, size)
    return _zlib(first, source, size)


def seconds(path: Path, width: int) -> int:
    """What compiling an entry took, as its first bytes tell; 0 where they cannot be read.

    Args:
        path: The entry.
        width: How many bytes.
    """
    try:
        with path.open("rb") as source:
            head = next(unpack(source, path.stat().st_size), b"")[:width]
    except (BrokenStreamError, OSError):
        return 0
    return int.from_bytes(head, "big") if len(head) == width else 0


def whole(path: Path) -> bool:
    """Whether an entry comes to its end; False where it cannot be read."""
    try:
        with path.open("rb") as source:
            for _ in unpack(source, path.stat().st_size):
                pass
    except (BrokenStreamError, OSError):
        return False
    return True


def _zlib(data: bytes, source: IO[bytes], size: int) -> Iterator[bytes]:
    unpacking, left = zlib.decompressobj(), size - len(data)
    try:
        while not unpacking.eof:
            # A little that unpacks to much comes in pieces, too.
            if piece := unpacking.decompress(data, PIECE):
                yield piece
            data = unpacking.unconsumed_tail
            if not data and not unpacking.eof:
                data = source.read(min(left, PIECE))
                left -= len(data)
                if not data:
                    raise BrokenStreamError("it ends in the middle")
    except zlib.error as error:
        raise BrokenStreamError(str(error)) from error


def _zstandard(data: bytes, source: IO[bytes], size: int) -> Iterator[bytes]:
    try:
        import zstandard  # whoever wrote the entry has it in this environment
    except ImportError as error:
        raise BrokenStreamError("it is packed by Zstandard, and the package zstandard is not installed") from error
    unpacking, left = zstandard.ZstdDecompressor().decompressobj(), size - len(data)
    try:
        while data:
            if piece := unpacking.decompress(data):
                yield piece
            if unpacking.eof:
                return
            data = source.read(min(left, PIECE))
            left -= len(data)
    except zstandard.ZstdError as error:
        raise BrokenStreamError(str(error)) from error
    raise BrokenStreamError("it ends in the middle")
