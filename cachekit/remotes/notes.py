"""What a store remembers of remotes from run to run: small files, each of which may be missing, spoilt or old.

Nothing depends on them: where the store cannot be written, or somebody removed or damaged a note, the remote is asked.
Others may write to a store that is shared. So each user has notes of their own, and believes no note of others: it
could say that a repo is this user's, or that nothing newer was signed. For the same reason no link of others leads to
them: it could name a file of this user's that says so.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from cachekit import files, path_steps, whose

T = TypeVar("T")
LARGEST_COPY = 2 << 20  # bytes of a document of which a copy is kept


def short(name: str) -> str:
    """A short file name for notes about a remote or a folder with any name."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Copy(Struct, frozen=True):
    """What lay at a path, and the token of that state; an empty one where that was not told."""

    data: bytes
    token: str = ""


class Copies:
    """The documents of one remote as this store last read or wrote them: one that is still the same is not read again.

    Args:
        folder: In the store; None keeps nothing.

    Attributes:
        kept: Whether there is a folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._notes = Notes(folder) if folder else None
        self.kept = folder is not None

    def get(self, path: str) -> bytes | None:
        """What lay at a path; whoever uses it compares it with what the remote says of it now, or with a digest."""
        copy = self.seen(path)
        return copy.data if copy else None

    def seen(self, path: str) -> Copy | None:
        """The same with its token, for who writes in its place and hears where it has changed."""
        return self._notes.read(short(path), Copy) if self._notes else None

    def keep(self, path: str, data: bytes | None, token: str = "") -> None:
        """Note what lies at a path now; None is nothing. Without a token, that of the same bytes stays."""
        if not self._notes or data is None or len(data) > LARGEST_COPY:
            return
        if token or self.get(path) != data:
            self._notes.write(short(path), Copy(data, token))


class Notes:
    """The notes in one folder, which is made with the first of them.

    Args:
        folder: In the store.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str, kind: type[T]) -> T | None:
        """A note; None where there is none, or none of this kind."""

        def opened(path: Path, flags: int) -> int:
            with self._own() as folder:
                return os.open(path.name, flags | os.O_NOFOLLOW, dir_fd=folder)

        return files.noted(self.folder / name, kind, whose.wrote, opened)

    def write(self, name: str, value: object) -> bool:
        """Keep a note, in the place of an earlier one; whether that worked."""
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._own():
                return files.note(self.folder / name, msgspec.json.encode(value), mode=0o644)
        return False

    def touch(self, name: str) -> None:
        """Keep an empty note: its name and its time are what counts."""
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._own():
                files.touch(self.folder / name)

    def age(self, name: str) -> float | None:
        """Seconds since a note was made; None where there is none, or one from the future."""
        try:
            with self._own() as folder:
                state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None
        age = time.time() - state.st_mtime
        return age if age >= 0 and path_steps.is_mine(state) else None

    def remove(self, name: str) -> None:
        """Forget a note, if there is one."""
        with suppress(OSError), self._own() as folder:
            os.unlink(name, dir_fd=folder)

    def names(self) -> list[str]:
        """Of all notes, the oldest first."""
        with suppress(OSError), self._own():
            found = [(path.lstat(), path.name) for path in self.folder.iterdir()]
            return [name for _, name in sorted((one.st_mtime, name) for one, name in found if path_steps.is_mine(one))]
        return []

    @contextmanager
    def _own(self) -> Iterator[int]:
        """Open the folder; yields its descriptor.

        Raises:
            PermissionError: It is another user's, others can write to it, or a link of another user's leads there.
            OSError: It is not there, or cannot be opened.
        """
        steps: list[path_steps.PathStep] = []
        folder = path_steps.walk(self.folder, steps.append)
        try:
            for step in steps:
                if stat.S_ISLNK(step.state.st_mode) and not path_steps.is_mine(step.state):
                    raise PermissionError(errno.EPERM, whose.of_another(step.place, step.state).why, str(step.place))
            # In a folder that others can write to, a file of this user may be one that they moved there.
            if why := whose.outsider(folder, self.folder):
                raise PermissionError(errno.EPERM, why, str(self.folder))
            yield folder
        finally:
            os.close(folder)
