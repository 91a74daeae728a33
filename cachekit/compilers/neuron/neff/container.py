"""A NEFF from outside: its header, its size, and the digest of what follows the header."""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from msgspec import Struct

from cachekit import files
from cachekit.compilers.neuron import facts
from cachekit.text import cut, one_line

CHUNK = 1 << 18  # bytes read at once
GZIP = b"\x1f\x8b"
LFS_POINTER = b"version https://git-lfs"


class NeffError(ValueError):
    """A file that is not a NEFF, a damaged one, or one of a kind that nobody here knows.

    `reason` is one line for people, safe to print; `damaged`: its bytes are not those that were written.
    """

    def __init__(self, reason: str, *, damaged: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.damaged = damaged


class Header(Struct, frozen=True):
    """The first 1,024 bytes. Only package version, sizes and digest are covered by a check; the rest is as found.

    The digest does not cover the header's own name, UUID, version, feature bits and LNC: a change of these is only seen
    by whoever has the SHA-256 of the whole file.
    """

    package_version: int
    data_size: int  # bytes after the header
    major: int
    minor: int
    build: str  # a version of the packager; empty in all real files seen
    cores: int  # logical cores that a load takes
    digest: bytes
    uuid: str  # random: two compiles of one graph differ
    name: str  # what the compiler was given as --output: a file name, or an absolute path on the host that compiled
    name_is_cut: bool  # it fills the field, so its end may be missing
    feature_bits: int
    lnc: int  # physical cores that make one logical core

    @property
    def version(self) -> str:
        """Of the format, as the runtime names it: 2.0."""
        return f"{self.major}.{self.minor}"

    @property
    def algorithm(self) -> str:
        """What the digest was made with, as hashlib names it."""
        return facts.NEFF_DIGESTS[self.package_version]


def printable(words: str, longest: int = 512) -> str:
    """Words of a file on one line: what does not print is spelled out, and what is too long is cut."""
    return one_line(cut(words, longest))


def _text(field: bytes) -> str:
    return printable(field.split(b"\0", 1)[0].decode("utf-8", "backslashreplace"))


def parse_header(block: bytes, size: int) -> Header:
    """Read a header: a file's first 1,024 bytes, or all of a shorter one, and the size of the whole file.

    Raises:
        NeffError: These are not the header and the size of a NEFF.
    """
    if not block:
        raise NeffError("it is empty")
    if block.startswith(LFS_POINTER):
        raise NeffError("it is a Git LFS pointer, not the file itself: git lfs pull", damaged=False)
    if len(block) < facts.NEFF_HEADER_SIZE:
        raise NeffError(f"{len(block)} bytes, fewer than a NEFF's header")
    fields = struct.unpack(facts.NEFF_HEADER, block)
    package, header_size, data_size, major, minor, build, _, digest, uuid, name, cores, _, features, lnc = fields
    if header_size != facts.NEFF_HEADER_SIZE:
        instead = "gzip" if block.startswith(GZIP) else "something else"
        raise NeffError(f"it does not begin with a NEFF's header, but with {instead}", damaged=False)
    if package not in facts.NEFF_DIGESTS:
        known = " and ".join(map(str, facts.NEFF_DIGESTS))
        raise NeffError(f"package version {package}: only {known} are known, nothing can be checked", damaged=False)
    if major > facts.NEFF_MAJOR:
        raise NeffError(f"NEFF version {major}.{minor}: newer than {facts.NEFF_MAJOR}.x, not understood", damaged=False)
    held = size - facts.NEFF_HEADER_SIZE
    if data_size == 0:
        raise NeffError("its header says that nothing follows")
    if held < data_size:
        raise NeffError(f"cut short: {held} of {data_size} bytes follow the header")
    if held > data_size:
        raise NeffError(f"too long: {held} bytes follow the header, which says {data_size}")
    return Header(
        package_version=package,
        data_size=data_size,
        major=major,
        minor=minor,
        build=_text(build),
        cores=cores,
        digest=digest,
        uuid=str(UUID(bytes=uuid)),
        name=_text(name),
        name_is_cut=b"\0" not in name[:-1],
        feature_bits=features,
        lnc=lnc,
    )


def digest_form(header: Header, found: bytes) -> str | None:
    """How the header spells this digest: "plain", "words reversed", or None where it is another one.

    Both are the digest of the same bytes: compilers from about 2.18 on store each 4-byte word in reverse.
    """
    stored = header.digest[: len(found)]
    if stored == found:
        return "plain"
    word = facts.NEFF_DIGEST_WORD
    if stored == b"".join(found[at : at + word][::-1] for at in range(0, len(found), word)):
        return "words reversed"
    return None


class Payload:
    """The bytes after the header, read once and digested on the way."""

    def __init__(self, handle: int, header: Header) -> None:
        self.header = header
        self._handle = handle
        self._left = header.data_size
        self._digest = hashlib.new(header.algorithm, usedforsecurity=False)

    def read(self) -> bytes:
        """The next piece; empty at the end.

        Raises:
            NeffError: The file ended before its size.
        """
        if not self._left:
            return b""
        piece = os.read(self._handle, min(CHUNK, self._left))
        if not piece:
            raise NeffError(f"cut short while it was read: {self._left} bytes are missing")
        self._left -= len(piece)
        self._digest.update(piece)
        return piece

    def finish(self) -> str:
        """Read what is left and compare; returns how the digest is spelled (see `digest_form`).

        Raises:
            NeffError: The bytes are not those that the header was made for.
        """
        while self.read():
            pass
        form = digest_form(self.header, self._digest.digest())
        if form is None:
            name = self.header.algorithm.upper()
            if not any(self.header.digest):
                raise NeffError(f"its header has no {name}, so nothing says whether the file is complete")
            raise NeffError(f"the {name} of its contents is not the one in its header")
        return form


class Slice(Struct, frozen=True):
    """The bytes of a file that are a NEFF, where it lies in an archive."""

    offset: int
    size: int


@contextmanager
def opened(path: Path, part: Slice | None = None) -> Iterator[tuple[int, bytes, int]]:
    """A regular file, whatever else may stand there: its descriptor, its first 1,024 bytes and its size.

    Raises:
        NeffError: It has no such part.
        OSError: It is not there, is a folder, a pipe or a device, or cannot be read.
    """
    with files.opened(path, buffering=0) as source:
        handle = source.fileno()
        size = os.fstat(handle).st_size
        if part is not None:
            if part.offset + part.size > size:
                raise NeffError(f"the archive ends within it: {part.offset + part.size - size} bytes are missing")
            os.lseek(handle, part.offset, os.SEEK_SET)
            size = part.size
        block, wanted = b"", min(facts.NEFF_HEADER_SIZE, size)
        while len(block) < wanted and (more := os.read(handle, wanted - len(block))):
            block += more
        yield handle, block, size


@contextmanager
def payload_of(path: Path, part: Slice | None = None) -> Iterator[Payload]:
    """Open a NEFF, or one in an archive, at the end of its header.

    Raises:
        NeffError: The file is no NEFF.
        OSError: The file cannot be read.
    """
    with opened(path, part) as (handle, block, size):
        yield Payload(handle, parse_header(block, size))


def read_header(path: Path) -> Header:
    """The header alone, whose sizes fit the file; the contents are not looked at.

    Raises:
        NeffError: It is not a NEFF, cut short, too long, or of an unknown kind.
        OSError: It cannot be read.
    """
    with opened(path) as (_, block, size):
        return parse_header(block, size)


def module_in(name: str, *, cut: bool = False) -> str:
    """The cache's name for the module, out of the path that the compiler wrote to; empty where it is not in there.

    Where the name's end may be missing (`cut`), a module at its very end is not trusted.
    """
    found: list[re.Match[str]] = [
        match for match in facts.NEFF_MODULE.finditer(name) if not (cut and match.end() == len(name))
    ]
    found.sort(key=lambda match: "+" not in match.group())  # one with its flags names the entry exactly
    return found[0].group() if found else ""
