"""NEFF files: whether one is whole. To be replaced by the whole reader."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from cachekit.compilers.neuron import facts

_SIZES = struct.Struct("<3Q")
_HASH = slice(172, 188)


def check(path: Path) -> str | None:
    """Why a NEFF is damaged; None where its size and the digest in its header fit its bytes.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as source:
        head = source.read(facts.NEFF_HEADER_SIZE)
        if len(head) < facts.NEFF_HEADER_SIZE:
            return f"{len(head)} bytes are too few for a header"
        _, header_size, data_size = _SIZES.unpack_from(head)
        if header_size != facts.NEFF_HEADER_SIZE:
            return f"its header says to have {header_size} bytes"
        digest, size = hashlib.md5(usedforsecurity=False), 0
        while block := source.read(1 << 20):
            digest.update(block)
            size += len(block)
    if size != data_size:
        return f"{size:,} bytes after the header instead of {data_size:,}"
    found = digest.digest()
    swapped = b"".join(found[start : start + 4][::-1] for start in range(0, 16, 4))
    return None if head[_HASH] in {found, swapped} else "its digest does not fit"
