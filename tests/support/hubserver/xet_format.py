"""The binary formats of Xet, as far as a server must read them: shards, xorbs, and LZ4 for clients without Xet.

Source: the open xet-core crates and their protocol documents. A *shard* describes files as runs of chunks in xorbs; a
*xorb* is a row of chunks, each with a header of 8 bytes. Hashes print as four little-endian 64-bit numbers. Chunk and
file hashes are BLAKE3, which the standard library lacks, so that they are taken as given; a file's SHA-256 is checked
whenever its bytes are put together here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BOOKEND = b"\xff" * 32
HEADER = ENTRY = 48
WITH_VERIFICATION, WITH_METADATA = 1 << 31, 1 << 30


def hash_text(raw: bytes) -> str:
    """32 bytes as Xet prints them."""
    return "".join(f"{number:016x}" for number in struct.unpack("<4Q", raw))


@dataclass(frozen=True)
class Term:
    """A run of chunks `start` to `end` (exclusive) of a xorb; `size` unpacked bytes."""

    xorb: str
    size: int
    start: int
    end: int


@dataclass(frozen=True)
class XetFile:
    """A file by its Xet hash; `sha256` is empty where the client did not say (buckets)."""

    hash: str
    sha256: str
    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        return sum(term.size for term in self.terms)


def read_shard(data: bytes) -> list[XetFile]:
    """The files of a shard; ValueError where it is damaged."""
    files, at = [], HEADER

    def take() -> bytes:
        nonlocal at
        at += ENTRY
        if at > len(data):
            raise ValueError("the shard ends early")
        return data[at - ENTRY : at]

    while (head := take())[:32] != BOOKEND:
        flags, count = struct.unpack_from("<II", head, 32)
        terms, sha256 = [], ""
        for _ in range(count):
            entry = take()
            _flags, size, start, end = struct.unpack_from("<4I", entry, 32)
            terms.append(Term(hash_text(entry[:32]), size, start, end))
        if flags & WITH_VERIFICATION:
            for _ in range(count):
                take()
        if flags & WITH_METADATA:
            sha256 = hash_text(take()[:32])
        files.append(XetFile(hash_text(head[:32]), sha256, tuple(terms)))
    return files


@dataclass(frozen=True)
class Chunk:
    """One chunk of a xorb: where it lies with its header, and its size unpacked."""

    at: int
    packed: int
    scheme: int
    size: int

    @property
    def end(self) -> int:
        return self.at + 8 + self.packed


def read_xorb(path: Path) -> list[Chunk]:
    """The chunks of a xorb file; a footer, where there is one, begins with another version than a chunk."""
    chunks, at, size = [], 0, path.stat().st_size
    with path.open("rb") as file:
        while at + 8 <= size:
            file.seek(at)
            head = file.read(8)
            if head[0] != 0:
                break
            packed, unpacked = int.from_bytes(head[1:4], "little"), int.from_bytes(head[5:8], "little")
            chunks.append(Chunk(at, packed, head[4], unpacked))
            at = chunks[-1].end
    if not chunks or chunks[-1].end > size:
        raise ValueError("not a whole xorb")
    return chunks


def unpack(path: Path, chunks: list[Chunk]) -> Iterator[bytes]:
    """The bytes of some chunks of a xorb."""
    with path.open("rb") as file:
        for chunk in chunks:
            file.seek(chunk.at + 8)
            data = file.read(chunk.packed)
            if chunk.scheme:
                data = lz4_frame(data)
            if chunk.scheme == 2:
                data = _regroup(data)
            if len(data) != chunk.size or chunk.scheme > 2:
                raise ValueError("a chunk does not unpack to its size")
            yield data


def _regroup(data: bytes) -> bytes:
    """Undo the grouping of every fourth byte that comes before LZ4 in scheme 2."""
    out, at = bytearray(len(data)), 0
    for lane in range(4):
        size = len(range(lane, len(data), 4))
        out[lane::4] = data[at : at + size]
        at += size
    return bytes(out)


def lz4_frame(data: bytes) -> bytes:
    """Unpack a frame of LZ4 (its public format description); checksums are not checked."""
    if data[:4] != b"\x04\x22\x4d\x18":
        raise ValueError("not an LZ4 frame")
    flags = data[4]
    at = 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    out = bytearray()
    while size := int.from_bytes(data[at : at + 4], "little"):
        raw, size = size >> 31, size & 0x7FFFFFFF
        block = data[at + 4 : at + 4 + size]
        if raw:
            out += block
        else:
            _lz4_block(block, out)
        at += 4 + size + (4 if flags & 16 else 0)
    return bytes(out)


def _lz4_block(block: bytes, out: bytearray) -> None:
    at = 0

    def length(start: int) -> int:
        nonlocal at
        if start == 15:
            while True:
                start += block[at]
                at += 1
                if block[at - 1] != 255:
                    break
        return start

    while at < len(block):
        token = block[at]
        at += 1
        literal = length(token >> 4)
        out += block[at : at + literal]
        at += literal
        if at >= len(block):
            return
        offset = block[at] | block[at + 1] << 8
        at += 2
        match = length(token & 15) + 4
        start = len(out) - offset
        if start < 0 or not offset:
            raise ValueError("a match before the data")
        piece = out[start : start + match]
        out += (piece * (match // len(piece) + 1))[:match]  # a match may run into itself
