"""Is a blob what its record says? Its SHA-256 is computed once; from then on checksums of its pieces are compared.

SHA-256 takes longer than copying the same bytes, and one digest over one file can only be computed in order. So when a
blob is found whole (it always is hashed on its way in) checksums of its pieces are noted, 128 bits of XXH3 each: they
cost next to nothing beside reading the bytes. Whoever uses the blob compares those, which tells any decay of the disk.
Who could forge a blob and its note could forge the record as well; `cachekit store verify` computes the SHA-256 all the
same. The notes lie in the index and are a cache: a lost or wrong one costs the whole digest once more.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from cachekit.errors import IntegrityError
from cachekit.files import CHUNK, Sink, digest_of, opened, pieces, pour, written
from cachekit.store.index import Index
from cachekit.store.index_rows import WholeBlob, state_of
from cachekit.store.layout import Layout
from cachekit.store.record import File
from cachekit.text import cause_of

if TYPE_CHECKING:
    import xxhash

PIECE = 8 << 20  # bytes of a piece
LANES = 4  # pieces read at once, at most; from about three on, memory is the limit
MISSING = "it is missing"

# How thoroughly to check a blob: its file and that file's size; that the file has not changed since it was found whole;
# the checksums of its pieces; its SHA-256.
Depth = Literal["there", "noted", "pieces", "digest"]


class Blobs:
    """The blobs of a store: compares them with their digests, and remembers which it found whole."""

    def __init__(self, layout: Layout, index: Index) -> None:
        self._layout = layout
        self._index = index

    def check(self, file: File, depth: Depth, *, since: int = 0) -> str:
        """Why a blob is not what its record says; empty where it is.

        Args:
            file: What the record says.
            depth: Hashing gigabytes for every plan would be slow, and a change through the file system always moves
                ctime: so what is "noted" of the file's state will do there. Silent decay of the disk does not move it,
                which is why whoever uses the bytes compares them with the checksums of the "pieces".
            since: When its record was written, ns since the epoch: a blob was found whole before that, so that a file
                that has not changed since needs no note.
        """
        path = self._layout.blob(file.sha256)
        try:
            if depth in {"there", "noted"}:
                status = path.stat()
                same = stat.S_ISREG(status.st_mode) and status.st_size == file.size
                if same and (depth == "there" or status.st_ctime_ns < since):
                    return ""
            with opened(path, buffering=0) as source:
                return self._judge(source.fileno(), file, depth)[0]
        except OSError as error:
            return reason_of(error)

    def check_open(self, source: BinaryIO, file: File, depth: Depth) -> str:
        """As `check`, of a blob that was opened before: another may lie in its place by now."""
        try:
            return self._judge(source.fileno(), file, depth)[0]
        except OSError as error:
            return reason_of(error)

    def _judge(self, handle: int, file: File, depth: Depth) -> tuple[str, tuple[str, ...]]:
        """As `check`; and the checksums of the pieces of what is whole."""
        before = os.fstat(handle)
        if before.st_size != file.size:
            return f"{before.st_size:,} bytes instead of {file.size:,}", ()
        if depth == "there":
            return "", ()
        note = self._index.whole(file.sha256)
        if depth == "noted" and note and note.state == state_of(before):
            return "", note.pieces
        pieces = self._compare(handle, file, None if depth == "digest" else note)
        if not pieces:
            return "its digest does not match", ()
        after = os.fstat(handle)
        # Not ctime: a writer that replaces the file by an equal one moves that of the one we read.
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            return "it changed while it was read", ()
        found = WholeBlob(state_of(before), pieces)
        if found != note and state_of(after) == state_of(before):
            self._index.note_whole({file.sha256: found})
        return "", pieces

    def through(self, file: File, sink: Sink) -> str:
        """Give a blob's bytes to `sink`, checked as they pass; why they aren't what the record says, empty if they are.

        The checksums of the pieces have to be known: where they are not, or one is wrong, the blob is hashed whole
        first.
        """
        note = self._index.whole(file.sha256)
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
                reason, pieces = self._judge(source.fileno(), file, "pieces")
            if reason:
                return reason
        return "it changes while it is read"

    def accept(self, path: Path, file: File) -> tuple[str, ...]:
        """Check a file that is about to become a blob; returns the checksums of its pieces.

        Raises:
            IntegrityError: Its size or digest is not the record's.
        """
        with opened(path, buffering=0) as source:
            whole, pieces = _digests(source.fileno())
            if whole != file.sha256 or os.fstat(source.fileno()).st_size != file.size:
                raise IntegrityError(f"{file.path} is not what its record says", cause="its size or its digest differs")
        return pieces

    def whole_now(self, sha256: str, pieces: tuple[str, ...]) -> WholeBlob:
        """What to note of a blob that is whole in its present state."""
        return WholeBlob(state_of(self._layout.blob(sha256).stat()), pieces)

    def _copy(self, file: File, target: Path) -> str:
        """Copy a blob; why the copy is not what the record says, empty where it is."""
        with opened(self._layout.blob(file.sha256), buffering=0) as source, target.open("xb") as copy:
            sha256, size = digest_of(written(pieces(source, file.size + 1), copy))
        if size != file.size:
            return f"{'more' if size > file.size else 'fewer'} bytes than {file.size:,}"
        return "" if sha256 == file.sha256 else "its digest does not match"

    def _compare(self, handle: int, file: File, note: WholeBlob | None) -> tuple[str, ...]:
        """The checksums of the pieces of what is whole; nothing where it is not."""
        if note and _pieces_fit(handle, file.size, note.pieces):
            return note.pieces
        # No note, or one that does not fit: the whole digest has the last word.
        whole, pieces = _digests(handle)
        if whole == file.sha256:
            return pieces
        # A note that fits bytes which are wrong must not vouch for them any longer.
        if self._index.whole(file.sha256) is not None:
            self._index.note_whole({file.sha256: None})
        return ()

    @contextmanager
    def reading(
        self, file: File, refuse: Callable[[File, str], Exception], folder: Path | None = None
    ) -> Iterator[Blob]:
        """Use a blob; leaving the block means that it was whole. What was made of it is to be thrown away if not.

        Args:
            file: What the record says.
            refuse: Makes the error for a blob that is not that.
            folder: Use a copy in this folder, which nobody else can change: it is hashed as it is made.
        """
        if folder is not None:
            try:
                reason = self._copy(file, folder / file.sha256)
            except OSError as error:
                reason = reason_of(error)
            if reason:
                raise refuse(file, reason)
            yield Blob(file, folder / file.sha256, None)
            return
        blob = Blob(file, self._layout.blob(file.sha256), self)
        try:
            yield blob
        except Exception as error:
            reason = blob.end()
            if reason:
                raise refuse(file, reason) from error
            raise
        if reason := blob.end():
            raise refuse(file, reason)


class Blob:
    """A file of the store in use: its digest is computed beside, or from the very bytes that its reader gets.

    A copy in a folder of this user alone was checked as it was made, and is nobody else's to change.

    Args:
        file: What the record says.
        path: The file.
        blobs: Checks it; None for such a copy.

    Attributes:
        location: The file, for whoever only looks at it before he calls `through`.
    """

    def __init__(self, file: File, path: Path, blobs: Blobs | None) -> None:
        self.location = path
        self._file = file
        self._blobs = blobs
        self._outcome: list[str] = []
        self._beside: threading.Thread | None = None
        self._source: BinaryIO | None = None  # the file as it was when it was named; another may take its place

    @property
    def path(self) -> Path:
        """The file, for whoever reads it by himself. From now on its digest is computed beside that."""
        if self._blobs is not None and self._source is None and not self._outcome:
            try:
                self._source = opened(self.location, buffering=0)
            except OSError as error:
                self._outcome.append(reason_of(error))
            else:
                self._beside = threading.Thread(target=self._look_at, args=(self._source,), daemon=True)
                self._beside.start()
        return self.location

    def through(self, sink: Sink) -> None:
        """Have every byte given to `sink`, read and hashed once, by several threads and in no order.

        Args:
            sink: Called with an offset and the bytes there. A place can come twice; the last time counts.

        Raises:
            OSError: Of the sink. What is wrong with the blob itself is told when its use ends.
        """
        if self._blobs is not None:
            self._outcome = [self._blobs.through(self._file, sink)]
            return
        with opened(self.location, buffering=0) as source:
            pour(source.fileno(), sink)

    def end(self) -> str:
        """What is wrong with the bytes that were used; empty where they are what the record says."""
        if self._beside is not None and self._source is not None:
            self._beside.join()
            with self._source:
                replaced = not self._lies_there(self._source)
            # The reader opened the one that was looked at, or one that came after: whoever publishes hashes it first.
            # The last of them is looked at here, for what else may have put it there.
            if replaced:
                self._look()
        if not self._outcome:
            self._look()
        return next(filter(None, self._outcome), "")

    def _lies_there(self, source: BinaryIO) -> bool:
        try:
            return os.path.samestat(os.fstat(source.fileno()), self.location.stat())
        except OSError:
            return False

    def _look(self) -> None:
        assert self._blobs is not None
        self._outcome.append(self._blobs.check(self._file, "pieces"))

    def _look_at(self, source: BinaryIO) -> None:
        assert self._blobs is not None
        self._outcome.append(self._blobs.check_open(source, self._file, "pieces"))


def reason_of(error: OSError) -> str:
    """Why a blob cannot be read, in words for whoever needs it."""
    return MISSING if isinstance(error, FileNotFoundError) else cause_of(error)


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
    pour(handle, lambda _, data: digester.update(data))


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
