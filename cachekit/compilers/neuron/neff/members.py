"""The tar behind a NEFF's header, member by member, with a bound on everything that a hostile file could blow up.

tarfile's own stream reads a pax header or a long name of any size into memory, and takes a header that it cannot read
for the end; so only its parser of one header is used here. Nothing is unpacked: bodies are read in pieces or skipped.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import Struct

from cachekit.compilers.neuron.neff.container import CHUNK, GZIP, NeffError, Payload, printable

BLOCK = tarfile.BLOCKSIZE
PIECE = 1 << 20  # bytes given out at once
MTIME_AT = 4  # of a gzip header
GZIP_ANY = 31  # zlib's word for: a gzip header, a window of any size


class NeffLimits(Struct, frozen=True):
    """How far a file is followed; real ones stay far below."""

    inflated: int = 16 << 30  # bytes of tar
    inflated_base: int = 256 << 20  # bytes of tar that even a tiny file may have
    inflated_ratio: int = 20  # and for each byte in the file: 11 is the most in real files
    members: int = 100_000
    extension: int = 64 << 10  # bytes of one pax header or long name
    document: int = 8 << 20  # bytes of one JSON member
    documents: int = 64 << 20  # of all of them, and of the one that says the chip

    def tar(self, size: int) -> int:
        """Bytes of tar that a payload of `size` may become."""
        return min(self.inflated, self.inflated_base + self.inflated_ratio * size)


DEFAULT = NeffLimits()


class TooMuchError(NeffError):
    """A limit of ours was reached; what was read until then stands."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, damaged=False)


class Unpacked:
    """A payload's tar as a stream: inflated where it is gzip, as it is otherwise."""

    def __init__(self, payload: Payload, limits: NeffLimits = DEFAULT) -> None:
        self._payload = payload
        self._limit = limits.tar(payload.header.data_size)
        self._given = 0
        self._buffer = b""
        self._at = 0  # what of it was given out
        self._input = payload.read()
        self.compressed = self._input.startswith(GZIP)
        self._inflater = zlib.decompressobj(GZIP_ANY) if self.compressed else None
        # When gzip was run; 0 where it did not say.
        self.time = int.from_bytes(self._input[MTIME_AT : MTIME_AT + 4], "little") if self.compressed else 0

    def read(self, count: int) -> bytes:
        """Up to `count` bytes: fewer only at the end.

        Raises:
            NeffError: The gzip stream is broken.
            TooMuchError: The tar is larger than any real one.
        """
        held = len(self._buffer) - self._at
        if held < count:
            parts = [self._buffer[self._at :]]
            while held < count and (more := self._more()):
                parts.append(more)
                held += len(more)
            self._buffer, self._at = b"".join(parts), 0
        start, self._at = self._at, min(self._at + count, len(self._buffer))
        return self._buffer[start : self._at]

    def skip(self, count: int) -> None:
        """Pass over bytes.

        Raises:
            NeffError: There are not as many, or the gzip stream is broken.
            TooMuchError: The tar is larger than any real one.
        """
        while count > len(self._buffer) - self._at:
            count -= len(self._buffer) - self._at
            self._buffer, self._at = self._more(), 0
            if not self._buffer:
                raise NeffError("its tar ends within a member", damaged=False)
        self._at += count

    def _more(self) -> bytes:
        piece = self._next()
        self._given += len(piece)
        if self._given > self._limit:
            raise TooMuchError(f"it unpacks to more than {self._limit} bytes")
        return piece

    def _next(self) -> bytes:
        if self._inflater is None:
            piece, self._input = self._input or self._payload.read(), b""
            return piece
        while True:
            if self._inflater.eof:
                # gzip files may be several in a row; zeros after the last one are padding.
                rest = self._inflater.unused_data or self._payload.read()
                if not rest.startswith(GZIP):
                    return b""
                self._inflater, self._input = zlib.decompressobj(GZIP_ANY), rest
            source = self._input or self._payload.read()
            if not source:
                raise NeffError("its gzip stream ends early", damaged=False)
            try:
                piece = self._inflater.decompress(source, PIECE)
            except zlib.error as error:
                raise NeffError(f"its gzip stream is broken: {error}", damaged=False) from error
            self._input = self._inflater.unconsumed_tail
            if piece:
                return piece


@dataclass(slots=True)
class TarMember:
    """A regular file in the tar: its name without a leading "./", its size, and its body while it is the current one.

    `sound` is false for a name that leaves the folder when it is unpacked; such a member is passed over.
    """

    name: str
    size: int
    time: int
    owner: str
    group: str
    sound: bool
    _stream: Unpacked
    _left: int = field(init=False)

    def __post_init__(self) -> None:
        self._left = self.size

    def pieces(self, longest: int = CHUNK) -> Iterator[bytes]:
        """The body's next bytes, in pieces of at most `longest`; whoever stops early leaves the rest.

        Raises:
            NeffError: The tar ends within it, or see `Unpacked.read`.
        """
        while self._left:
            piece = self._stream.read(min(self._left, longest))
            if not piece:
                raise NeffError("its tar ends within a member", damaged=False)
            self._left -= len(piece)
            yield piece

    def leave(self) -> None:
        """Pass over what is left, and over the padding to a full block."""
        self._stream.skip(self._left + -self.size % BLOCK)
        self._left = 0


@dataclass(slots=True)
class Tally:
    """What passed by without being a regular file with an ordinary name."""

    members: int = 0
    links: int = 0
    unsound: int = 0


def members(stream: Unpacked, tally: Tally, limits: NeffLimits = DEFAULT) -> Iterator[TarMember]:
    """The regular files in their order. A body can be read until the next one is asked for.

    Links, folders and devices are passed over and counted, as are names that would leave a folder.

    Raises:
        NeffError: It is no tar, broken, sparse, or says sizes that cannot be.
        TooMuchError: One of the limits.
    """
    headers = 0
    extended: dict[str, str] = {}
    while block := stream.read(BLOCK):
        if not block.strip(b"\0"):
            break  # a tar's end is two blocks of zeros; what follows belongs to nobody
        headers += 1
        if headers > limits.members:
            raise TooMuchError(f"its tar has more than {limits.members} members")
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "backslashreplace")
        except tarfile.HeaderError as error:
            raise NeffError(f"its tar is broken after {tally.members} members: {error}", damaged=False) from error
        if info.type in {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}:
            records = _records(_extension(stream, info.size, limits))
            if info.type != tarfile.XGLTYPE:
                extended |= records
            continue
        if info.type in {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}:
            text = _extension(stream, info.size, limits).split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
            if info.type == tarfile.GNUTYPE_LONGNAME:
                extended["path"] = text
            continue
        tally.members += 1
        found = _member(stream, info, extended)
        extended = {}
        if found is None:
            tally.links += not info.isdir()
            continue
        tally.unsound += not found.sound
        yield found
        found.leave()
    if not tally.members:
        raise NeffError("its tar is empty", damaged=False)


def _member(stream: Unpacked, info: tarfile.TarInfo, extended: dict[str, str]) -> TarMember | None:
    """A regular file, or None for what has no body."""
    name = extended.get("path", info.name)
    if info.issparse() or info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse") for key in extended):
        raise NeffError(f"its member {printable(name)} is sparse, which no compiler writes", damaged=False)
    size = info.size
    if "size" in extended:
        # Only digits: int() takes more, such as "1_0" and " 10".
        if not extended["size"].isascii() or not extended["size"].isdigit() or len(extended["size"]) > 19:  # noqa: PLR2004
            raise NeffError(
                f"its member {printable(name)} has a size of {printable(extended['size'], 40)}", damaged=False
            )
        size = int(extended["size"])
    bodiless = info.type in tarfile.SUPPORTED_TYPES and not info.isreg()
    if size < 0 or (bodiless and size):
        raise NeffError(f"its member {printable(name)} has a size of {size}", damaged=False)
    if bodiless:
        return None
    while name.startswith("./"):
        name = name[2:]
    parts = name.split("/")
    sound = bool(name) and not name.startswith("/") and ".." not in parts and "\\" not in name and "\0" not in name
    return TarMember(
        name=name,
        size=size,
        time=int(info.mtime),
        owner=extended.get("uname", info.uname),
        group=extended.get("gname", info.gname),
        sound=sound,
        _stream=stream,
    )


def _extension(stream: Unpacked, size: int, limits: NeffLimits) -> bytes:
    if not 0 <= size <= limits.extension:
        raise NeffError(f"its tar has an extended header of {size} bytes", damaged=False)
    padded = size + -size % BLOCK
    body = stream.read(padded)
    if len(body) < padded:
        raise NeffError("its tar ends within an extended header", damaged=False)
    return body[:size]


def _records(body: bytes) -> dict[str, str]:
    """The `length key=value` lines of a pax header.

    Raises:
        NeffError: They are none.
    """
    found: dict[str, str] = {}
    at = 0
    while at < len(body) and body[at]:
        space = body.find(b" ", at, at + 20)
        length = body[at:space]
        end = at + int(length) if space > 0 and length.isdigit() else 0
        key, equals, value = body[space + 1 : end - 1].partition(b"=")
        if end <= space or end > len(body) or not equals:
            raise NeffError("its tar has a broken extended header", damaged=False)
        found[key.decode("utf-8", "backslashreplace")] = value.decode("utf-8", "backslashreplace")
        at = end
    return found
