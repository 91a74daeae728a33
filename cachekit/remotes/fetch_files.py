"""Fetch files from a remote side by side and check each; a fetch that was cut is resumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, wait
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from cachekit import text
from cachekit.errors import IntegrityError, InterruptedRunError, RemoteError
from cachekit.files import create, is_digest
from cachekit.remotes.budget import lanes
from cachekit.remotes.layout import blob_path
from cachekit.remotes.port import Entry, Storage
from cachekit.remotes.ranges import RANGE, Chunks, in_order
from cachekit.store import Store
from cachekit.store.partial import Partial, receiving

LANES = 8  # files at once
LOOK_SECONDS = 10.0  # from one look at the speed to the next
_KEPT = "what arrived is kept: cachekit pull continues from there"


class WantedFile(Struct, frozen=True):
    """A file to fetch.

    Attributes:
        path: On the remote.
        size: In bytes.
        name: Of what is kept of it until it is whole, and of the result: the SHA-256 where that is known. No path.
        fits: Whether it is what it should be, by the SHA-256 of what came.
    """

    path: str
    size: int
    name: str
    fits: Callable[[str], bool]


class Fetched(Struct, frozen=True):
    """A file's bytes, on this machine.

    Attributes:
        path: Where they are.
        size: In bytes.
        sha256: Of the whole.
        pieces: Digests of the pieces, where it was hashed while it came; else `Store.publish` hashes it.
        stored: They are the store's own, and not among its unfinished files.
    """

    path: Path
    size: int
    sha256: str
    pieces: tuple[str, ...] = ()
    stored: bool = False


def inline_files(inline: Mapping[str, bytes], folder: Path) -> dict[str, Fetched]:
    """Files whose bytes, by SHA-256, a record had inside; in a private folder, as others may share unfinished files.

    Raises:
        OSError: The folder cannot be written.
    """
    found = {}
    for sha256, raw in inline.items():
        path = folder / sha256
        create(path, raw)
        found[sha256] = Fetched(path, len(raw), sha256)
    return found


class Fetch:
    """Fetches files side by side; after a failure, the next fetch resumes from what arrived.

    Args:
        store: Gets what arrives.
        storage: Where from.
        revision: The remote's state.
        workspace: A private folder in the store, for files that cannot be kept until the next fetch.
        spoiled: Gets the paths of files that are not what they should be.
        worth: Seconds that all of it may take: those of the compile that it spares. None is as long as it takes.
    """

    def __init__(
        self,
        store: Store,
        storage: Storage,
        revision: str,
        workspace: Path,
        *,
        spoiled: set[str] | None = None,
        worth: float | None = None,
    ) -> None:
        self._store = store
        self._storage = storage
        self._revision = revision
        self._workspace = workspace
        self._spoiled = set() if spoiled is None else spoiled
        self._total, self._lines = 0, 1
        self._lock = threading.Lock()
        self._done = 0
        self._worth = worth
        self._began = time.monotonic()
        self._window = (self._began, 0)
        self._stop = threading.Event()

    def all(self, files: Iterable[WantedFile], *, sparing: bool = False) -> dict[str, Fetched]:
        """Fetch them, the first ones first; by name.

        Args:
            files: Each name once.
            sparing: Leave out what is not what it should be, and fetch the rest all the same.

        Raises:
            RemoteError, AuthError: As the remote.
            IntegrityError: One is not what it should be.
            OSError: The store cannot be written.
        """
        wanted = list(files)
        if not wanted:
            return {}
        self._total, self._done = sum(file.size for file in wanted), 0
        self._window = (time.monotonic(), 0)
        large = sum(file.size >= 2 * RANGE for file in wanted)
        self._lines = min(self._storage.lines, LANES // max(1, large))  # many files fill the line by themselves
        known = [Entry(file.path, file.size, {"sha256": file.name}) for file in wanted if is_digest(file.name)]
        self._storage.expect(known, self._revision)
        found: dict[str, Fetched] = {}
        with lanes([partial(self._one, file) for file in wanted], LANES, self._stop) as futures:
            names = {future: file.name for future, file in zip(futures, wanted, strict=True)}
            pending = set(futures)
            while pending:  # a wait without end would not be interrupted by Ctrl-C everywhere
                done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
                with self._lock:
                    self._store.journal.show("pull.progress", bytes=self._done, total=self._total)
                for future in done:
                    try:
                        found[names[future]] = future.result()
                    except IntegrityError:
                        if not sparing:
                            raise
                    except RemoteError as error:
                        if self._done and not error.lasting:
                            error.hint = "; ".join(filter(None, [error.hint, _KEPT]))
                        raise
        return found

    def _one(self, file: WantedFile) -> Fetched:
        with receiving(self._store.layout, file.name, self._workspace) as part:
            found = self._fetched(part, file)
            if found is None:  # on its way, or by what an earlier run left
                part.restart()
                found = self._fetched(part, file, again=True)
            if found is None and is_digest(file.name) and not self._storage.compares:
                # Where nothing compares, another build may have been sent to its path; below its digest lies this one.
                part.restart()
                found = self._fetched(part, structs.replace(file, path=blob_path(file.name)))
            if found is None:
                part.restart()
                self._spoiled.add(file.path)
                raise IntegrityError(
                    f"{file.path} on {self._storage.name} does not match its record",
                    cause="its size or digest differs",
                    hint="`cachekit warm` compiles it again and replaces it there; so does `push --recheck`",
                )
            return found

    def _fetched(self, part: Partial, file: WantedFile, *, again: bool = False) -> Fetched | None:
        """Fetch the rest of a file; None where size or digest are wrong."""
        came, found = [part.size], None
        self._arrived(part.size)
        try:
            for data in self._rest(part.size, file, came, again=again):
                if self._stop.is_set():
                    raise InterruptedRunError("stopped")
                if part.size + len(data) > file.size:
                    break
                part.write(data)
                self._look()
            else:
                if part.size == file.size:
                    sha256, pieces = part.finish()
                    found = Fetched(part.path, file.size, sha256, pieces) if file.fits(sha256) else None
        except FileNotFoundError:
            pass
        if found is None:
            self._arrived(-sum(came))
        return found

    def _rest(self, start: int, file: WantedFile, came: list[int], *, again: bool) -> Iterable[bytes]:
        if start == file.size:  # a server answers a range of nothing with an error
            return ()

        def counted(pieces: Iterable[bytes]) -> Iterator[bytes]:
            for piece in pieces:
                came.append(len(piece))
                self._arrived(len(piece))
                yield piece

        if again:
            return counted(self._storage.otherwise(file.path, self._revision, file.size))
        chunks: Chunks = partial(self._storage.chunks, file.path, self._revision)
        return in_order(lambda at, end: counted(chunks(at, end)), start, file.size, self._lines)

    def _arrived(self, size: int) -> None:
        """Count what came over the line, also in ranges that come before it is their turn; or what came in vain."""
        with self._lock:
            self._done += size
            if size < 0:
                self._window = (time.monotonic(), self._done)

    def _look(self) -> None:
        """See whether the rest would come in time.

        Raises:
            RemoteError: It would take longer than compiling.
        """
        with self._lock:
            since, then = self._window
            now = time.monotonic()
            if self._worth is None or now - since < LOOK_SECONDS:
                return
            self._window = (now, self._done)
            came = max(1, self._done - then)
            more = (self._total - self._done) * (now - since) / came
            if now - self._began + more > self._worth:
                raise RemoteError(
                    f"{self._storage.name} is slower than compiling",
                    cause=f"{text.size(came)} in {now - since:.0f} s: the rest would take {text.duration(more)},"
                    f" compiling takes {text.duration(self._worth)}",
                    hint="cachekit pull fetches it all the same: what arrived is kept",
                    lasting=True,
                )
