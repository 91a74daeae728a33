"""Which of the restored files a run read: what it took over from another key's record belongs into its own.

Inside the worker Python itself tells of each file that is opened and each library that is loaded (`sys.addaudithook`),
which holds on every file system; access times do not. Files with one stem go together: Inductor asks for a kernel's
source by its existence only, and writes it anew where it is not there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachekit.files import replace

# Of the event's arguments, the one that is a path. `import` is what loading a compiled extension is called.
_PATH_AT = {"open": 0, "ctypes.dlopen": 0, "import": 1}


class Reads:
    """Notes the files below a folder that this process opens, from now on.

    Args:
        root: The folder.
    """

    def __init__(self, root: str) -> None:
        self._beginnings = tuple({os.path.join(place, "") for place in (root, os.path.realpath(root))})  # noqa: PTH118
        self._seen: set[str] = set()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        at = _PATH_AT.get(event)
        if at is None or len(arguments) <= at:
            return
        path = arguments[at]
        if type(path) is str and path.startswith(self._beginnings):
            self._seen.add(path)

    def write(self, path: Path) -> None:
        """Leave them in a file, a line each."""
        names = set()
        for seen in set(self._seen):
            for beginning in self._beginnings:
                names.add(seen.removeprefix(beginning))
        replace(path, b"".join(os.fsencode(name) + b"\n" for name in sorted(names)))


def read(path: Path, restored: Iterable[str]) -> frozenset[str] | None:
    """Of the files that were restored, those that a run read, and what goes with them.

    Args:
        path: What `Reads.write` left.
        restored: Relative paths.

    Returns:
        None where the run left nothing.
    """
    names: set[str] | None = None
    with suppress(OSError):
        names = set(map(os.fsdecode, path.read_bytes().splitlines()))
    if names is None:
        return None
    stems = {_stem(name) for name in names}
    # What another process loads is looked for under a lock of its name: the trial of the vector instructions.
    locked = {_last(name) for name in names if name.startswith("locks/")}
    return frozenset(name for name in restored if name in names or _stem(name) in stems or _last(name) in locked)


def _stem(name: str) -> str:
    return f"{name.rpartition('/')[0]}/{_last(name)}"


def _last(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]
