"""The tar behind a NEFF's header, member by member, with a bound on everything that a hostile file could blow up.

tarfile reads the headers, through a reader that bounds them: by itself it holds a name of any length. What it takes for
the end is looked at, as that may be a header that it cannot read. Bodies are read in pieces or skipped.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator

from msgspec import Struct

from cachekit.compilers.neuron.neff.container import CHUNK, GZIP, NeffError, Payload, printable
from cachekit.files import PIECE
from cachekit.store.archive import Headers, headers

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

    def tell(self) -> int:
        """The bytes that were given out or passed over."""
        return self._given - (len(self._buffer) - self._at)

    def seek(self, place: int) -> None:
        """Pass over bytes up to a place that lies ahead.

        Raises:
            NeffError: There are not as many, or the gzip stream is broken.
            TooMuchError: The tar is larger than any real one.
        """
        count = place - self.tell()
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


class TarMember(Struct):
    """A regular file in the tar: its name without a leading "./", its size, and its body while it is the current one.

    `sound` is false for a name that leaves the folder when it is unpacked; such a member is passed over.
    """

    name: str
    size: int
    time: float
    owner: str
    group: str
    sound: bool
    _stream: Unpacked
    _left: int = 0  # bytes of the body

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


class Tally(Struct):
    """What passed by without being a regular file with an ordinary name."""

    members: int = 0
    links: int = 0
    unsound: int = 0


def members(stream: Unpacked, tally: Tally, limits: NeffLimits = DEFAULT) -> Iterator[TarMember]:
    """The regular files in their order. A body can be read until the next one is asked for.

    Links, folders and devices are passed over and counted, as are names that would leave a folder.

    Raises:
        NeffError: It is not a tar, broken, sparse, or says sizes that cannot be.
        TooMuchError: One of the limits.
    """
    source = Headers(stream, limits.extension)
    for info in _infos(source, tally):
        if tally.members >= limits.members:
            raise TooMuchError(f"its tar has more than {limits.members} members")
        tally.members += 1
        bodiless = info.type in tarfile.SUPPORTED_TYPES and not info.isreg()
        if info.issparse() or any(key.startswith("GNU.sparse") for key in info.pax_headers):
            raise NeffError(f"its member {printable(info.name)} is sparse, which no compiler writes", damaged=False)
        if info.size < 0 or (bodiless and info.size):
            raise NeffError(f"its member {printable(info.name)} has a size of {info.size}", damaged=False)
        if bodiless:
            tally.links += not info.isdir()
            continue
        name = info.name
        while name.startswith("./"):
            name = name[2:]
        sound = bool(name) and not name.startswith("/") and ".." not in name.split("/") and not {"\\", "\0"} & {*name}
        tally.unsound += not sound
        yield TarMember(name, info.size, info.mtime, info.uname, info.gname, sound, stream)
    if source.last.strip(b"\0"):
        raise NeffError(f"its tar is broken after {tally.members} members", damaged=False)
    if not tally.members:
        raise NeffError("its tar is empty", damaged=False)


def _infos(source: Headers, tally: Tally) -> Iterator[tarfile.TarInfo]:
    """What tarfile makes of the headers."""
    try:
        yield from headers(source, "backslashreplace")
    except NeffError:
        raise
    except (tarfile.TarError, ValueError, LookupError, RecursionError) as error:  # the last of headers to headers
        raise NeffError(f"its tar is broken after {tally.members} members: {error}", damaged=False) from error
