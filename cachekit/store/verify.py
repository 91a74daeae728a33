"""Is a blob what its record says? Hashed whole once; from then on its pieces are hashed side by side.

SHA-256 takes longer than copying the same bytes, and one digest over one file can only be computed in order. The first
time that a blob is found whole, the digests of its pieces are noted; whoever uses it later compares those, on several
processors. The notes are a cache: a lost, torn or wrong one costs the whole digest once more.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cachekit.errors import IntegrityError
from cachekit.record import File
from cachekit.store.layout import Layout
from cachekit.store.ordinary import opened

CHUNK = 256 << 10  # bytes read at once; they stay in the cache of the processor
PIECE = 8 << 20  # bytes of a piece
LANES = 4  # pieces hashed at once, at most; from about three on, memory is the limit
MISSING = "it is missing"

Sink = Callable[[int, memoryview], None]  # takes an offset in a file and the bytes there


@dataclass(frozen=True, slots=True)
class _Note:
    """What is known of a blob that was found whole: the file's state at that moment, and its pieces' digests."""

    state: str
    pieces: tuple[str, ...]


class Verifier:
    """Compares blobs with their digests, and remembers what it found whole.

    Args:
        layout: The store's paths.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def damage(self, file: File, *, memo: bool) -> str:
        """Why a blob is not what its record says; empty where it is.

        Args:
            file: What the record says.
            memo: Believe a note about the file in its present state. Hashing gigabytes for every plan would be slow,
                and a change through the file system always moves ctime. Silent decay of the disk does not, which is
                why whoever uses the bytes has them hashed again.
        """
        path = self._layout.blob(file.sha256)
        try:
            with opened(path, buffering=0) as source:
                before = os.fstat(source.fileno())
                if before.st_size != file.size:
                    return f"{before.st_size:,} bytes instead of {file.size:,}"
                note = self._noted(file.sha256)
                if memo and note and note.state == _state(before):
                    return ""
                pieces = self._compare(source.fileno(), file, note)
                if not pieces:
                    return "its digest does not fit"
                after = os.fstat(source.fileno())
                # Not ctime: a writer that replaces the file by an equal one moves that of the one we read.
                if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                    return "it changed while it was read"
        except FileNotFoundError:
            return MISSING
        except OSError as error:
            return error.strerror or str(error)
        found = _Note(_state(before), pieces)
        if found != note and _state(after) == _state(before):
            self._note(file.sha256, found)
        return ""

    def pass_through(self, file: File, sink: Sink) -> str:
        """Give a blob's bytes to `sink`, hashed as they pass; why they are not what the record says, empty if they are.

        The digests of the pieces have to be known: where they are not, or one is wrong, the blob is hashed whole first.
        """
        for _ in range(2):
            try:
                source = opened(self._layout.blob(file.sha256), buffering=0)
            except FileNotFoundError:  # the sink's own is the sink's
                return MISSING
            except OSError as error:
                return error.strerror or str(error)
            with source:
                note = self._noted(file.sha256)
                pieces = (file.sha256,) if file.size <= PIECE else note.pieces if note else ()
                whole = os.fstat(source.fileno()).st_size == file.size
                if whole and _pieces_fit(source.fileno(), file.size, pieces, sink):
                    return ""
            if reason := self.damage(file, memo=False):
                return reason
        return "it changes while it is read"

    def accept(self, path: Path, file: File) -> tuple[str, ...]:
        """Check a file that is about to become a blob.

        Returns:
            The digests of its pieces, for `remember`.

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
        """The digests of the pieces of what is whole; nothing where it is not."""
        if note and len(note.pieces) > 1 and _pieces_fit(handle, file.size, note.pieces):
            return note.pieces
        # No note, or one that does not fit: the whole digest has the last word.
        whole, pieces = _digests(handle)
        return pieces if whole == file.sha256 else ()

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


def _state(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


class Digester:
    """SHA-256 of a file and of each of its pieces, while its bytes come by.

    Attributes:
        size: Bytes of the pieces so far.
    """

    def __init__(self) -> None:
        self._whole = hashlib.sha256()
        self._piece = hashlib.sha256()
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
                self._piece = hashlib.sha256()

    def finish(self) -> tuple[str, tuple[str, ...]]:
        """The digest of it all, and those of the pieces; no bytes have one piece of none."""
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
        digest, buffer = hashlib.sha256(), memoryview(bytearray(CHUNK))
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
