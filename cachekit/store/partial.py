"""A blob on its way in: what arrived stays when the process is killed, and the next one goes on from there.

The owner holds a lock on the file. Who finds it locked fetches into a file of its own: the bytes come twice then, which
is harmless.

Bytes are written and hashed behind the back of whoever receives them, in two threads, as each of that takes about as
long as receiving: the file with the digests of its pieces, and the digest of the whole.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue

from cachekit.store.blobs import Digester, read_into
from cachekit.store.layout import Layout
from cachekit.store.scratch import hold

OLDEST = 7 * 86_400.0  # seconds; what nobody went on with by then is removed
BLOCK = 512 << 10  # bytes that are handed over at once: each time costs a change of threads
AHEAD = 8  # blocks that may wait, for each thread
ALONE = 8 << 20  # bytes up to which no threads are started: there are other files beside


class Partial:
    """The file for a blob that is being fetched; made by `receiving`.

    Attributes:
        path: The file.
        size: Bytes that were taken; the last of them may not be in the file yet.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle
        self._digester = Digester()
        self._lanes: tuple[_Lane, ...] = ()
        self._block: list[bytes] = []
        self._waiting = 0  # bytes of the block
        self._taken = 0  # bytes since it was opened
        read_into(self._digester, handle)
        self.size = self._digester.size

    def write(self, data: bytes) -> None:
        """Append, and hash.

        Raises:
            OSError: It cannot be written: a full disk. That may also be said by the next call.
        """
        self._block.append(data)
        self._waiting += len(data)
        self._taken += len(data)
        self.size += len(data)
        if self._waiting >= BLOCK:
            self._hand_over()

    def finish(self) -> tuple[str, tuple[str, ...]]:
        """The digest of it all, and those of its pieces; all of it is in the file then.

        Raises:
            OSError: It cannot be written.
        """
        self._settle()
        return self._digester.finish()

    def restart(self) -> None:
        """Throw away what is there.

        Raises:
            OSError: It cannot be written.
        """
        self._settle()
        os.ftruncate(self._handle, 0)
        self._digester = Digester()
        self.size = 0

    def close(self) -> None:
        """Put what was taken into the file, as far as that works, and end the threads."""
        with suppress(OSError):
            self._settle()
        for lane in self._lanes:
            lane.end()

    def _hand_over(self) -> None:
        data, self._block, self._waiting = b"".join(self._block), [], 0
        if self._taken > ALONE and not self._lanes:
            self._lanes = _Lane(self._append), _Lane(self._hash)
        if self._lanes:
            for lane in self._lanes:
                lane.put(data)
        else:
            self._append(data)
            self._hash(data)

    def _hash(self, data: bytes) -> None:
        self._digester.update_whole(data)

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            count = os.pwrite(self._handle, view, self._digester.size)
            self._digester.update_pieces(view[:count])
            view = view[count:]

    def _settle(self) -> None:
        if self._block:
            self._hand_over()
        for lane in self._lanes:
            lane.settle()


class _Lane:
    """A thread that does one thing with each block, in order; after an error with none, so that no file has a hole."""

    def __init__(self, work: Callable[[bytes], None]) -> None:
        self._work = work
        self._blocks: Queue[bytes | None] = Queue(AHEAD)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pull-blocks", daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        self._check()
        self._blocks.put(data)

    def settle(self) -> None:
        self._blocks.join()
        self._check()

    def end(self) -> None:
        self._blocks.put(None)
        self._thread.join()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (data := self._blocks.get()) is not None:
            try:
                if self._error is None:
                    self._work(data)
            except BaseException as error:  # noqa: BLE001 - raised where the next block is given
                self._error = error
            finally:
                self._blocks.task_done()


@contextmanager
def receiving(layout: Layout, sha256: str) -> Iterator[Partial]:
    """Open the file for a blob, with what is there already.

    Raises:
        OSError: It cannot be made.
    """
    path = layout.partial / sha256
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = _held(path)
    own = handle is None
    if handle is None:
        path = path.with_name(f"{sha256}.{uuid.uuid4().hex[:8]}")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        part = Partial(path, handle)
        try:
            yield part
        finally:
            part.close()
    except BaseException:
        if own:  # nobody would go on with it
            with suppress(OSError):
                path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def _held(path: Path) -> int | None:
    """The file, locked; None where it is another's."""
    try:
        return hold(path, os.O_RDWR | os.O_CREAT)
    except PermissionError:
        # Whole and read-only, and whoever was about to publish it died; or another user's.
        try:
            path.chmod(0o644)
            return hold(path, os.O_RDWR)
        except OSError:
            return None


def sweep(layout: Layout) -> None:
    """Remove what nobody went on with for a week."""
    with suppress(OSError):
        for path in list(layout.partial.iterdir()):
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - OLDEST:
                    path.unlink()
