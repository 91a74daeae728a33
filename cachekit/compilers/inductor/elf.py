"""Whether a file of machine code is whole: a linker that is killed leaves a part of one under the final name.

Linkers write the header last, or the file's whole length first; the table of sections stands at the end (System V ABI,
"ELF Header"). Measured with GNU ld 2.40: of a `.so` whose link was killed the header is zeros, or the file is empty.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

_MAGIC = b"\x7fELF"
_HEADER = 64  # bytes, of 64 bits
_FIELDS = struct.Struct("<40xQ10xHH2x")  # offset, entry size and number of the table of sections


def torn(path: Path) -> bool:
    """Whether this is a `.so` that is not whole; False for every other file, and where there is no ELF."""
    if path.suffix != ".so" or sys.platform != "linux":
        return False
    try:
        with path.open("rb") as stream:
            header = stream.read(_HEADER)
        size = path.stat().st_size
    except OSError:
        return True
    if not header.startswith(_MAGIC):
        return not header.strip(b"\0")
    if len(header) < _HEADER:
        return True
    offset, entry, number = _FIELDS.unpack(header)
    return bool(offset == 0 or offset + entry * number > size)
