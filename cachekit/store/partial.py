"""A blob on its way in: what arrived stays when the process is killed, and the next one goes on from there.

The owner holds a lock on the file. Who finds it locked fetches into a file of its own: the bytes come twice then, which
is harmless.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cachekit.store.layout import Layout
from cachekit.store.scratch import hold
from cachekit.store.verify import Digester, read_into

OLDEST = 7 * 86_400.0  # seconds; what nobody went on with by then is removed


class Partial:
    """The file for a blob that is being fetched; made by `receiving`.

    Attributes:
        path: The file.
        digester: Of the bytes that are there.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self.digester = Digester()
        self._handle = handle
        read_into(self.digester, handle)

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return self.digester.size

    def write(self, data: bytes) -> None:
        """Append, and hash.

        Raises:
            OSError: It cannot be written: a full disk.
        """
        view = memoryview(data)
        offset = self.size
        while view:
            count = os.pwrite(self._handle, view, offset)
            self.digester.update(view[:count])
            offset, view = offset + count, view[count:]

    def restart(self) -> None:
        """Throw away what is there."""
        os.ftruncate(self._handle, 0)
        self.digester = Digester()


@contextmanager
def receiving(layout: Layout, sha256: str) -> Iterator[Partial]:
    """Open the file for a blob, with what is there already.

    Raises:
        OSError: It cannot be made.
    """
    path = layout.partial / sha256
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = hold(path, os.O_RDWR | os.O_CREAT)
    own = handle is None
    if handle is None:
        path = path.with_name(f"{sha256}.{uuid.uuid4().hex[:8]}")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        yield Partial(path, handle)
    except BaseException:
        if own:  # nobody would go on with it
            with suppress(OSError):
                path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def sweep(layout: Layout) -> None:
    """Remove what nobody went on with for a week."""
    with suppress(OSError):
        for path in list(layout.partial.iterdir()):
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - OLDEST:
                    path.unlink()
