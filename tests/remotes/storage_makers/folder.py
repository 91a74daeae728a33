"""Shared folders: the real thing is a folder of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from cachekit.remotes.folder import FolderStorage


@contextmanager
def serve(folder: Path) -> Iterator[Callable[[], FolderStorage]]:
    """Yield a function that opens the folder once more."""
    shared = folder / "shared"
    shared.mkdir(parents=True, exist_ok=True)
    yield partial(FolderStorage, shared)  # which can travel to a fresh process
