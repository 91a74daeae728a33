"""Bring a record from a shared cache into the store: only the files that are missing here, each of them checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cachekit.compilers import registry
from cachekit.errors import IntegrityError, InterruptedRunError, RemoteError
from cachekit.events import bypass
from cachekit.remotes.budget import Retry
from cachekit.remotes.port import Tier
from cachekit.remotes.remote import Found
from cachekit.store.durable import store_error
from cachekit.store.partial import Partial, receiving
from cachekit.store.partial import sweep as sweep_partials
from cachekit.store.record import File, Record
from cachekit.verbs.session import Session, holding

LANES = 8  # files at once
TRIES = 4  # without a single byte in between
RETRY = Retry(seconds=60.0, first=0.3, factor=2.0, most=5.0)
SLOW_SECONDS, SLOW_BYTES = 30.0, 64 << 10  # less than this in that time is no speed to wait for


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull did.

    Attributes:
        record: The record, now in the store.
        tier: Where it came from.
        files: Files that were fetched.
        size: Their bytes.
        present: Bytes that were here already.
        seconds: Wall time.
    """

    record: Record
    tier: str
    files: int
    size: int
    present: int
    seconds: float


@holding
def pull(session: Session, found: Found) -> Pulled:
    """Fetch what the store lacks of a record, and publish it there.

    Args:
        session: Collaborators.
        found: The record, and where it is.

    Raises:
        RemoteError, AuthError: It could not be fetched. What arrived is kept for the next try.
        IntegrityError: What is there is not what its record says. Nothing of it entered the store.
        StoreError: The store cannot be written.
    """
    start = time.monotonic()
    store, record = session.store, found.shared.record
    store.hold(record.files)  # what is here already is not fetched
    missing = store.missing(record)
    total = sum(file.size for file in missing)
    session.journal.emit("pull.start", key=record.key, tier=found.remote.name, files=len(missing), bytes=total)
    try:
        sweep_partials(store.layout)
        with store.workspace() as workspace, found.remote.call() as tier:
            finished = _inline(found, missing, workspace)
            places = {sha256: path for sha256, (_, path) in found.shared.paths().items()}
            wanted = [
                Wanted(places[file.sha256], file.size, file.sha256, file.sha256.__eq__)
                for file in missing
                if file.sha256 not in finished
            ]
            hashed = Fetch(session, tier, found.revision, found.remote.spoiled).all(wanted)
            finished |= {sha256: one.path for sha256, one in hashed.items()}
            _look_inside(found, finished, store.layout.blob)
            store.publish(record, finished, {sha256: one.pieces for sha256, one in hashed.items()})
    except IntegrityError as error:
        session.journal.emit("remote.damaged", tier=found.remote.name, key=record.key, reason=error.cause)
        bypass(session.journal, "tier-damaged", found.remote.name)
        raise
    except OSError as error:
        raise store_error(store.layout.home, error) from error
    seconds = time.monotonic() - start
    session.journal.emit(
        "pull.end",
        key=record.key,
        recipe=record.recipe,
        tier=found.remote.name,
        files=len(wanted),
        bytes=total,
        seconds=round(seconds, 3),
    )
    return Pulled(record, found.remote.name, len(wanted), total, record.size - total, seconds)


def _look_inside(found: Found, finished: Mapping[str, Path], blob: Callable[[str], Path]) -> None:
    """See that what was fetched is what it says inside, as far as its compiler can tell; what is not, is not kept.

    Raises:
        IntegrityError: A module is not.
    """
    record = found.shared.record
    adapter = registry.of_directory(record.directory)
    places = found.shared.paths()
    for module in record.modules:
        fetched = [file for file in module.files if file.sha256 in finished]
        if not fetched:
            continue
        if not (harm := adapter.judge(module, lambda file: finished.get(file.sha256) or blob(file.sha256)).harm):
            continue
        for file in fetched:
            finished[file.sha256].unlink(missing_ok=True)
            if file.sha256 in places:
                found.remote.spoiled.add(places[file.sha256][1])
        raise IntegrityError(
            f"{module.name} on {found.remote.name} is not to be used",
            cause=harm,
            hint="`cachekit warm` compiles it anew and puts that in its place",
        )


def _inline(found: Found, missing: list[File], workspace: Path) -> dict[str, Path]:
    """Files that came inside of the record."""
    finished = {}
    for file in missing:
        if file.sha256 in found.shared.inline:
            path = workspace / file.sha256
            path.write_bytes(found.shared.inline[file.sha256])
            finished[file.sha256] = path
    return finished


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file to fetch.

    Attributes:
        path: On the tier.
        size: In bytes.
        name: Of what is kept of it until it is whole, and of the result: the SHA-256 where that is known. No path.
        fits: Whether it is what it should be, by the SHA-256 of what came.
    """

    path: str
    size: int
    name: str
    fits: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that came, among the store's unfinished ones; and the digests of the whole and of its pieces."""

    path: Path
    sha256: str
    pieces: tuple[str, ...]


class Fetch:
    """Fetches files side by side; what arrived stays when it fails, and the next one goes on from there.

    Args:
        session: Collaborators.
        tier: Where from.
        revision: The tier's state.
        spoiled: Gets the paths of files that are not what they should be.
    """

    def __init__(self, session: Session, tier: Tier, revision: str, spoiled: set[str] | None = None) -> None:
        self._session = session
        self._tier = tier
        self._revision = revision
        self._spoiled = set() if spoiled is None else spoiled
        self._total = 0
        self._lock = threading.Lock()
        self._done = 0
        self._window = (time.monotonic(), 0)
        self._stop = threading.Event()

    def all(self, files: Iterable[Wanted], *, sparing: bool = False) -> dict[str, Fetched]:
        """Fetch them, the largest first; by name.

        Args:
            files: Each name once.
            sparing: Leave out what is not what it should be, and fetch the rest all the same.

        Raises:
            RemoteError, AuthError: As the tier.
            IntegrityError: One is not what it should be.
            OSError: The store cannot be written.
        """
        wanted = sorted(files, key=lambda file: -file.size)
        if not wanted:
            return {}
        self._total = sum(file.size for file in wanted)
        found: dict[str, Fetched] = {}
        with lanes(min(LANES, len(wanted)), self._stop) as pool:
            futures: dict[Future[Fetched], str] = {pool.submit(self._one, file): file.name for file in wanted}
            pending = set(futures)
            while pending:  # a wait without end would not be interrupted by Ctrl-C everywhere
                done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
                with self._lock:
                    self._session.journal.show("pull.progress", bytes=self._done, total=self._total)
                for future in done:
                    try:
                        found[futures[future]] = future.result()
                    except IntegrityError:
                        if not sparing:
                            raise
        return found

    def _one(self, file: Wanted) -> Fetched:
        with receiving(self._session.store.layout, file.name) as part:
            resumed = part.size
            self._count(resumed)
            found = self._fetched(part, file)
            if found is None and resumed:  # what an earlier run left may be what is wrong
                self._count(-part.size)
                part.restart()
                found = self._fetched(part, file)
            if found is None:
                part.restart()
                self._spoiled.add(file.path)
                raise IntegrityError(
                    f"{file.path} on {self._tier.name} is not what its record says",
                    cause="its size or digest does not fit",
                    hint="`cachekit warm` compiles it anew and puts that in its place; so does `push --recheck`",
                )
            return found

    def _fetched(self, part: Partial, file: Wanted) -> Fetched | None:
        """Fetch the rest of a file; None where the whole is not what it should be."""
        tries = 0
        while part.size < file.size:
            before = part.size
            try:
                for data in self._tier.chunks(file.path, self._revision, part.size):
                    if self._stop.is_set():
                        raise InterruptedRunError("stopped")
                    if part.size + len(data) > file.size:
                        return None
                    part.write(data)
                    self._count(len(data))
                if part.size < file.size:
                    return None  # it is shorter
            except FileNotFoundError:
                return None
            except RemoteError as error:
                tries = tries + 1 if part.size == before else 0
                pause = RETRY.pause(error, tries + 1, 0.0)
                if tries >= TRIES or pause is None:
                    raise
                self._stop.wait(pause)
        sha256, pieces = part.finish()
        return Fetched(part.path, sha256, pieces) if file.fits(sha256) else None

    def _count(self, size: int) -> None:
        with self._lock:
            self._done += size
            since, then = self._window
            now = time.monotonic()
            if now - since < SLOW_SECONDS:
                return
            self._window = (now, self._done)
            if 0 <= self._done - then < SLOW_BYTES:
                raise RemoteError(
                    f"{self._tier.name} is too slow",
                    cause=f"{self._done - then} bytes in {now - since:.0f} s",
                    hint="try again later: what arrived is kept",
                )


@contextmanager
def lanes(count: int, stop: threading.Event | None = None) -> Iterator[ThreadPoolExecutor]:
    """Threads that do not outlive an error: what they fetch is left where it is."""
    pool = ThreadPoolExecutor(count, thread_name_prefix="pull")
    try:
        yield pool
    except BaseException:
        if stop is not None:
            stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
