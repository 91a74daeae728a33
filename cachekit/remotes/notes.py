"""What a store remembers of remotes from run to run: small files, each of which may be missing, spoilt or old.

Nothing depends on them: where the store cannot be written, or somebody removed or damaged a note, the remote is asked.
Others may write to a store that is shared. So each user has notes of their own, and believes no note of others: it
could say that a repo is this user's, or that nothing newer was signed.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from cachekit import files, whose

T = TypeVar("T")
LARGEST_COPY = 2 << 20  # bytes of a document of which a copy is kept


def short(name: str) -> str:
    """A short file name for notes about a remote or a folder with any name."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Copies:
    """The documents of one remote as this store last read or wrote them: one that is still the same is not read again.

    Args:
        folder: In the store; None keeps nothing.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._notes = Notes(folder) if folder else None

    def get(self, path: str) -> bytes | None:
        """What lay at a path; whoever uses it compares it with what the remote says of it now, or with a digest."""
        return self._notes.read(short(path), bytes) if self._notes else None

    def keep(self, path: str, data: bytes | None) -> None:
        """Note what lies at a path now; None is nothing."""
        if self._notes and data is not None and len(data) <= LARGEST_COPY:
            self._notes.write(short(path), data)


class Notes:
    """The notes in one folder, which is made with the first of them.

    Args:
        folder: In the store.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str, kind: type[T]) -> T | None:
        """A note; None where there is none, or none of this kind."""
        return files.noted(self.folder / name, kind, whose.wrote)

    def write(self, name: str, value: object) -> bool:
        """Keep a note, in the place of an earlier one; whether that worked."""
        return files.note(self.folder / name, msgspec.json.encode(value), mode=0o644)

    def touch(self, name: str) -> None:
        """Keep an empty note: its name and its time are what counts."""
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            files.touch(self.folder / name)

    def age(self, name: str) -> float | None:
        """Seconds since a note was made; None where there is none, or one from the future."""
        try:
            state = (self.folder / name).lstat()
        except OSError:
            return None
        age = time.time() - state.st_mtime
        return age if age >= 0 and whose.is_mine(state) else None

    def remove(self, name: str) -> None:
        """Forget a note, if there is one."""
        with suppress(OSError):
            (self.folder / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """Of all notes, the oldest first."""
        with suppress(OSError):
            found = [(path.lstat(), path.name) for path in self.folder.iterdir()]
            return [name for _, name in sorted((one.st_mtime, name) for one, name in found if whose.is_mine(one))]
        return []
