"""Which files of a tree a run read, whoever read them: by their times of access, where the file system keeps these.

Code that is no Python's opens files unseen by it, so nothing inside of a run can be asked. All files get an access time
long past; the kernel moves it at the next read, also under `relatime`. Where it does not (`noatime`, some networks'),
a file of our own shows that, and nobody knows.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


class Reads:
    """Notes the files of a tree that are read from now on.

    Args:
        tree: The folder.
        names: The files, relative to it.
    """

    def __init__(self, tree: Path, names: Iterable[str]) -> None:
        self._tree = tree
        self._names = frozenset(names)
        self._told = bool(self._names) and _tells(tree)
        for name in self._names if self._told else ():
            with suppress(OSError):
                _forget(tree / name)

    def read(self) -> frozenset[str] | None:
        """The files that were read; None where nobody knows."""
        if not self._told:
            return None if self._names else frozenset()
        found = set()
        for name in self._names:
            with suppress(OSError):  # it is gone
                if (self._tree / name).stat().st_atime_ns:
                    found.add(name)
        return frozenset(found)


def _forget(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns))


def _tells(folder: Path) -> bool:
    probe = folder / f".cachekit-{uuid.uuid4().hex}"
    try:
        probe.write_bytes(b"read me")
        _forget(probe)
        before = probe.stat().st_atime_ns
        probe.read_bytes()
        return before == 0 and probe.stat().st_atime_ns != 0
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
