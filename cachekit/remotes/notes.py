"""What a store remembers of remotes from run to run: small files, each of which may be missing, spoilt or old.

Nothing depends on them: where the store cannot be written, or somebody removed or damaged a note, the remote is asked.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from cachekit import files

T = TypeVar("T")


def short(name: str) -> str:
    """A short file name for notes about a remote or a folder with any name."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Notes:
    """The notes in one folder, which is made with the first of them.

    Args:
        folder: In the store.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str, kind: type[T]) -> T | None:
        """A note; None where there is none, or none of this kind."""
        return files.noted(self.folder / name, kind)

    def write(self, name: str, value: object) -> bool:
        """Keep a note, in the place of an earlier one; whether that worked."""
        return files.note(self.folder / name, msgspec.json.encode(value))

    def touch(self, name: str) -> None:
        """Keep an empty note: its name and its time are what counts."""
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / name).touch()

    def age(self, name: str) -> float | None:
        """Seconds since a note was made; None where there is none, or one from the future."""
        try:
            age = time.time() - (self.folder / name).stat().st_mtime
        except OSError:
            return None
        return age if age >= 0 else None

    def remove(self, name: str) -> None:
        """Forget a note, if there is one."""
        with suppress(OSError):
            (self.folder / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Of all notes, the oldest first."""
        with suppress(OSError):
            found = [(path.stat().st_mtime, path.name) for path in self.folder.iterdir()]
            return [name for _, name in sorted(found)]
        return []
