"""The bytes of an upload in parts, and the ETag that S3 gives to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from cachekit.remotes.port import Upload

PART = 8 << 20  # bytes of a part of a large upload; the ETag depends on it


def pieces_of(file: Upload) -> Iterator[bytes]:
    """The file's bytes, in parts; OSError where they are not as many as they were."""
    size = 0
    if isinstance(file.source, bytes):
        size = len(file.source)
        yield from (file.source[at : at + PART] for at in range(0, size, PART))
    else:
        with Path(file.source).open("rb") as opened:
            while piece := opened.read(PART):
                size += len(piece)
                yield piece
    if size != file.size:
        raise OSError(f"{file.path} has {size} bytes, and had {file.size}")


def e_tag_of(file: Upload, like: str) -> str:
    """The ETag that these bytes have by MD5, in one piece or in parts of ours."""
    parts = [hashlib.md5(piece, usedforsecurity=False) for piece in pieces_of(file)] if "-" in like else []
    if parts:
        return (
            f"{hashlib.md5(b''.join(part.digest() for part in parts), usedforsecurity=False).hexdigest()}-{len(parts)}"
        )
    whole = hashlib.md5(usedforsecurity=False)
    for piece in pieces_of(file):
        whole.update(piece)
    return whole.hexdigest()
