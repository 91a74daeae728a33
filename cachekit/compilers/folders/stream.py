"""The bytes of a packed entry: one stream of zlib or Zstandard."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

ZSTANDARD = b"\x28\xb5\x2f\xfd"  # how a frame begins: RFC 8878, 3.1.1
PIECE = 1 << 16  # bytes read at once: zlib makes at most 64 MiB of them


class BrokenStreamError(ValueError):
    """The stream is damaged or ends too early, or nothing is installed that unpacks it."""


def unpack(source: IO[bytes], size: int) -> Iterator[bytes]:
    """The unpacked bytes of a stream of that size, in pieces.

    Raises:
        BrokenStreamError: The stream is not whole.
        OSError: The source cannot be read.
    """
    data = source.read(min(size, PIECE))
    unpacking, broken = _unpacker(data)
    left = size - len(data)
    try:
        while data:
            if piece := unpacking.decompress(data):
                yield piece
            if unpacking.eof:
                return
            data = source.read(min(left, PIECE))
            left -= len(data)
    except broken as error:
        raise BrokenStreamError(str(error)) from error
    raise BrokenStreamError("it ends in the middle")


def _unpacker(data: bytes) -> tuple[Any, type[Exception]]:
    """What unpacks a stream that begins so, and what it raises if the stream is damaged."""
    if not data.startswith(ZSTANDARD):
        return zlib.decompressobj(), zlib.error
    try:
        import zstandard  # whoever wrote the entry has it in this environment
    except ImportError as error:
        raise BrokenStreamError("Zstandard packed it, and the package zstandard is not installed") from error
    return zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError


def seconds(path: Path, width: int) -> int:
    """What compiling an entry took, as its first bytes say, which are so many; 0 if they cannot be read."""
    try:
        with path.open("rb") as source:
            head = next(unpack(source, path.stat().st_size), b"")[:width]
    except (BrokenStreamError, OSError):
        return 0
    return int.from_bytes(head, "big") if len(head) == width else 0


def whole(path: Path) -> bool:
    """Whether an entry comes to its end; False if it cannot be read."""
    try:
        with path.open("rb") as source:
            for _ in unpack(source, path.stat().st_size):
                pass
    except (BrokenStreamError, OSError):
        return False
    return True
