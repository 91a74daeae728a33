"""What is damaged: moved out of the way, told once, and never served."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from cachekit import files
from cachekit.errors import IntegrityError
from cachekit.events import Journal
from cachekit.store.blobs import MISSING, Blobs
from cachekit.store.layout import Layout
from cachekit.store.record import File


class Quarantine:
    """Where damaged files of a store go."""

    def __init__(self, layout: Layout, blobs: Blobs, journal: Journal) -> None:
        self._layout = layout
        self._blobs = blobs
        self._journal = journal
        self._told: set[Path] = set()

    def tell_once(self, path: Path) -> bool:
        """Whether nothing was told about a file yet; from now on it was."""
        first = path not in self._told
        self._told.add(path)
        return first

    def blob(self, file: File, reason: str) -> bool:
        """Set a blob aside that is not what its name says; returns whether it is not what its record says.

        Another process may just have put a whole one in its place; and a stranger's record may say another size.
        """
        path = self._layout.blob(file.sha256)

        def is_bad() -> bool:
            return self._blobs.check(structs.replace(file, size=path.stat().st_size), "digest") != ""

        return self.file(path, reason, is_bad) or self._blobs.check(file, "noted") != ""

    def document(self, path: Path, reason: str, raw: bytes, *, quiet: bool = False) -> None:
        """Set a record aside that was read, where these are still its bytes; see `file`."""
        self.file(path, reason, lambda: files.read(path) == raw, quiet=quiet)

    def file(self, path: Path, reason: str, is_bad: Callable[[], bool], *, quiet: bool = False) -> bool:
        """Move a damaged file out of the way, and say so once; returns False where it is found whole by now.

        Args:
            path: The file.
            reason: What is wrong with it.
            is_bad: Looks again: since it was read, it may have been replaced.
            quiet: Say nothing.
        """
        place = self._layout.quarantine / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{path.name}"
        inside = self._layout.inside
        kept, moved = False, False
        try:
            judged = path.stat()
            if not is_bad():
                return False
            with inside.folder(path.parent) as here, inside.folder(place.parent, make=True) as there:
                os.rename(path.name, place.name, src_dir_fd=here, dst_dir_fd=there)
                moved = True
                if not os.path.samestat(os.stat(place.name, dir_fd=there), judged):
                    # Replaced between the look and the rename: what came is judged for itself. Linked, so that nothing
                    # is overwritten that has come since.
                    with suppress(FileExistsError):
                        os.link(place.name, path.name, src_dir_fd=there, dst_dir_fd=here)
                    os.unlink(place.name, dir_fd=there)
                    return is_bad()
        except FileNotFoundError:
            pass  # it is missing, or another process was quicker
        except OSError:
            kept = True  # a read-only store; it stays, and stays a miss
        # Once set aside, a blob is missing where its record still names it: the same damage, told already.
        if not quiet and not (path in self._told and reason == MISSING):
            where = str(place) if moved else ""
            self._journal.emit("store.damaged", path=str(path), reason=reason, kept=kept, quarantine=where)
        self._told.add(path)
        return True

    def refuse(self, file: File, reason: str) -> IntegrityError:
        """Set a blob aside that was to be used; returns the error to raise."""
        self.blob(file, reason)
        if reason == MISSING:
            return IntegrityError(
                f"{file.sha256[:16]} is missing in the store",
                cause=file.path,
                hint="run `cachekit warm` again, which compiles it",
            )
        return IntegrityError(
            f"{file.sha256[:16]} in the store is damaged",
            cause=reason,
            hint="it was moved to quarantine; run `cachekit warm` again, which compiles it",
        )
