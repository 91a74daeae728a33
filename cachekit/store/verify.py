"""Is a blob what its record says? Its SHA-256 is computed once; from then on checksums of its pieces are compared.

SHA-256 takes longer than copying the same bytes, and one digest over one file can only be computed in order. So when a
blob is found whole (it always is hashed on its way in) checksums of its pieces are noted, 128 bits of XXH3 each: they
cost next to nothing beside reading the bytes. Whoever uses the blob compares those, which tells any decay of the disk.
Who could forge a blob and its note could forge the record as well; `cachekit verify` computes the SHA-256 nevertheless.
The notes are a cache: a lost, torn or wrong one costs the whole digest once more.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from msgspec import Struct

from cachekit.errors import IntegrityError
from cachekit.ordinary import opened
from cachekit.store.layout import Layout
from cachekit.store.record import File

if TYPE_CHECKING:
    import xxhash

CHUNK = 256 << 10  # bytes read at once; they stay in the cache of the processor
PIECE = 8 << 20  # bytes of a piece
LANES = 4  # pieces read at once, at most; from about three on, memory is the limit
MISSING = "it is missing"

Sink = Callable[[int, memoryview], None]  # takes an offset in a file and the bytes there
# What to believe of a blob: a note about the file in its present state; the noted checksums of its pieces, compared
# with its bytes; nothing but its name.
Trust = Literal["state", "pieces", "nothing"]


class _Note(Struct, frozen=True):
    """What is known of a blob that was found whole: the file's state at that moment, and its pieces' checksums."""

    state: str
    pieces: tuple[str, ...]


class Verifier:
    """Compares blobs with their digests, and remembers what it found whole.

    Args:
        layout: The store's paths.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def damage(self, file: File, trust: Trust) -> str:
        """Why a blob is not what its record says; empty where it is.

        Args:
            file: What the record says.
            trust: Hashing gigabytes for every plan would be slow, and a change through the file system always moves
                ctime: so the file's "state" will do there. Silent decay of the disk does not move it, which is why
                whoever uses the bytes compares them with the checksums of its "pieces".
        """
        return self._examine(file, trust)[0]

    def damage_of(self, source: BinaryIO, file: File, trust: Trust) -> str:
        """As `damage`, of a blob that was opened before: another may lie in its place by now."""
        try:
            return self._judge(source.fileno(), file, trust)[0]
        except OSError as error:
            return reason_of(error)

    def _examine(self, file: File, trust: Trust) -> tuple[str, tuple[str, ...]]:
        """As `damage`; and the checksums of the pieces of what is whole and was read."""
        try:
            with opened(self._layout.blob(file.sha256), buffering=0) as source:
                return self._judge(source.fileno(), file, trust)
        except OSError as error:
            return reason_of(error), ()

    def _judge(self, handle: int, file: File, trust: Trust) -> tuple[str, tuple[str, ...]]:
        before = os.fstat(handle)
        if before.st_size != file.size:
            return f"{before.st_size:,} bytes instead of {file.size:,}", ()
        note = self._noted(file.sha256)
        if trust == "state" and note and note.state == _state(before):
            return "", note.pieces
        pieces = self._compare(handle, file, None if trust == "nothing" else note)
        if not pieces:
            return "its digest does not fit", ()
        after = os.fstat(handle)
        # Not ctime: a writer that replaces the file by an equal one moves that of the one we read.
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            return "it changed while it was read", ()
        found = _Note(_state(before), pieces)
        if found != note and _state(after) == _state(before):
            self._note(file.sha256, found)
        return "", pieces

    def pass_through(self, file: File, sink: Sink) -> str:
        """Give a blob's bytes to `sink`, checked as they pass; why they aren't what the record says, empty if they are.

        The checksums of the pieces have to be known: where they are not, or one is wrong, the blob is hashed whole
        first.
        """
        note = self._noted(file.sha256)
        pieces = note.pieces if note else ()
        for _ in range(2):
            try:
                source = opened(self._layout.blob(file.sha256), buffering=0)
            except OSError as error:  # the sink's own is the sink's
                return reason_of(error)
            with source:
                whole = os.fstat(source.fileno()).st_size == file.size
                if whole and _pieces_fit(source.fileno(), file.size, pieces, sink):
                    return ""
            reason, pieces = self._examine(file, "pieces")
            if reason:
                return reason
        return "it changes while it is read"

    def accept(self, path: Path, file: File) -> tuple[str, ...]:
        """Check a file that is about to become a blob.

        Returns:
            The checksums of its pieces, for `remember`.

        Raises:
            IntegrityError: Its size or digest is not the record's.
        """
        with opened(path, buffering=0) as source:
            whole, pieces = _digests(source.fileno())
            if whole != file.sha256 or os.fstat(source.fileno()).st_size != file.size:
                raise IntegrityError(f"{file.path} is not what its record says", cause="digest or size do not fit")
        return pieces

    def remember(self, sha256: str, pieces: tuple[str, ...]) -> None:
        """Note that a blob, in its present state, was found whole."""
        self._note(sha256, _Note(_state(self._layout.blob(sha256).stat()), pieces))

    def _compare(self, handle: int, file: File, note: _Note | None) -> tuple[str, ...]:
        """The checksums of the pieces of what is whole; nothing where it is not."""
        if note and _pieces_fit(handle, file.size, note.pieces):
            return note.pieces
        # No note, or one that does not fit: the whole digest has the last word.
        whole, pieces = _digests(handle)
        if whole == file.sha256:
            return pieces
        # A note that fits bytes which are wrong must not vouch for them any longer.
        with suppress(OSError):
            (self._layout.verified / file.sha256).unlink(missing_ok=True)
        return ()

    def _noted(self, sha256: str) -> _Note | None:
        try:
            name, state, *pieces = (self._layout.verified / sha256).read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):  # none, or no text, or too short
            return None
        return _Note(state, tuple(pieces)) if name == sha256 else None

    def _note(self, sha256: str, note: _Note) -> None:
        with suppress(OSError):  # a read-only store: hash again next time
            self._layout.verified.mkdir(parents=True, exist_ok=True)
            # In place: pieces that are torn off do not fit, and then the blob is hashed whole. The digest stands inside
            # as well, so that a note and a blob that changed places together do not vouch for each other.
            text = "\n".join((sha256, note.state, *note.pieces))
            (self._layout.verified / sha256).write_text(text, encoding="ascii")


def reason_of(error: OSError) -> str:
    """Why a blob cannot be read, in words for whoever needs it."""
    return MISSING if isinstance(error, FileNotFoundError) else error.strerror or str(error)


def _state(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _checksum() -> xxhash.xxh3_128:
    import xxhash

    return xxhash.xxh3_128()


class Digester:
    """SHA-256 of a file and the checksums of its pieces, while its bytes come by.

    Attributes:
        size: Bytes of the pieces so far.
    """

    def __init__(self) -> None:
        self._whole = hashlib.sha256()
        self._piece = _checksum()
        self._pieces: list[str] = []
        self.size = 0

    def update(self, data: memoryview | bytes) -> None:
        """Take the next bytes, as many as there are."""
        self.update_whole(data)
        self.update_pieces(data)

    def update_whole(self, data: memoryview | bytes) -> None:
        """As `update`, but for the pieces; those may be another thread's work."""
        self._whole.update(data)

    def update_pieces(self, data: memoryview | bytes) -> None:
        """As `update`, but for the whole."""
        view = memoryview(data)
        while view:
            part = view[: PIECE - self.size % PIECE]
            self._piece.update(part)
            self.size += len(part)
            view = view[len(part) :]
            if self.size % PIECE == 0:
                self._pieces.append(self._piece.hexdigest())
                self._piece = _checksum()

    def finish(self) -> tuple[str, tuple[str, ...]]:
        """The digest of it all, and the checksums of the pieces; no bytes have one piece of none."""
        last = (self._piece.hexdigest(),) if self.size % PIECE or not self.size else ()
        return self._whole.hexdigest(), (*self._pieces, *last)


def read_into(digester: Digester, handle: int) -> None:
    """Hash an open file from its beginning to its end."""
    # One buffer for all of it: a fresh one for each block would cost as much as hashing it.
    buffer, offset = memoryview(bytearray(CHUNK)), 0
    while count := os.preadv(handle, [buffer], offset):
        digester.update(buffer[:count])
        offset += count


def _digests(handle: int) -> tuple[str, tuple[str, ...]]:
    digester = Digester()
    read_into(digester, handle)
    return digester.finish()


def _pieces_fit(handle: int, size: int, pieces: tuple[str, ...], sink: Sink | None = None) -> bool:
    if len(pieces) != max(1, -(-size // PIECE)):
        return False

    def fits(number: int) -> bool:
        digest, buffer = _checksum(), memoryview(bytearray(CHUNK))
        offset, end = number * PIECE, min(size, (number + 1) * PIECE)
        while offset < end and (count := os.preadv(handle, [buffer[: end - offset]], offset)):
            digest.update(buffer[:count])
            if sink is not None:  # while the bytes are still in the processor's cache
                sink(offset, buffer[:count])
            offset += count
        return digest.hexdigest() == pieces[number]

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(LANES, os.cpu_count() or 1)) as lanes:
        return all(lanes.map(fits, range(len(pieces))))
