"""Make a file appear whole or not at all, and stay: write, fsync, rename, fsync the folder."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, each durable in its own parent."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def publish(finished: Path, target: Path, *, mode: int = 0o444) -> None:
    """Move a finished file to its place, durably.

    The file's bytes and then its name reach the disk before this returns; a crash at any moment leaves the old state
    or the new one. Replaces what is there: concurrent writers of one name each leave a whole file.

    Args:
        finished: A closed file on the same file system; gone afterwards.
        target: Its final path.
        mode: Permission bits; read-only by default, so that nothing writes to a published file by mistake.
    """
    handle = os.open(finished, os.O_RDONLY)
    try:
        os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)
    make_folder(target.parent)
    finished.replace(target)
    sync_folder(target.parent)


def write_bytes(scratch: Path, target: Path, data: bytes, *, mode: int = 0o444) -> None:
    """Publish bytes under a name; `scratch` is an own folder on the same file system."""
    finished = scratch / f"{target.name}.new"
    finished.write_bytes(data)
    publish(finished, target, mode=mode)
