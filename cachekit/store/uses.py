"""When a record was used last: the time of an empty file of the key's name.

Beside the record, whose own time says when it was published: what is derived from records is not to change each time
that one of them is used.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cachekit import files
from cachekit.store.layout import Layout


def note(layout: Layout, key: str) -> None:
    """Note that a record is used now; never fails a run on a store that cannot be written."""
    path = layout.used / key
    with suppress(OSError):
        try:
            os.utime(path, follow_symlinks=False)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.touch(path)


def last(layout: Layout, key: str, published: float) -> float:
    """When a record was used last, in seconds since the epoch: when it was published, where it never was."""
    path = f"{layout.used}/{key}"
    with suppress(OSError):
        if os.access(path, os.F_OK):  # most records have none: to be told so takes a third of what an error does
            return max(os.stat(path).st_mtime, published)  # noqa: PTH116 - of many records
    return published


def noted(layout: Layout) -> dict[str, Path]:
    """Every note, by key."""
    try:
        return {path.name: path for path in layout.used.iterdir()}
    except OSError:
        return {}
