"""What lies below a folder that others may write to: opened step by step, so that nobody's link leads out of it.

Whoever may write to a folder of a store that is shared may put a link in the place of another one. What is removed,
renamed or made below the store's home is therefore named by the open folder that it lies in, and never by its path. A
link is followed only where this user or root made it, and nobody else can change one of the folders above it: then it
is this user's own arrangement.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from cachekit import files, path_steps, whose

_TOP = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _TOP | os.O_NOFOLLOW


class Inside:
    """The folders below one.

    Args:
        top: That one, which whoever named it stands for: links to it are followed.
    """

    def __init__(self, top: Path) -> None:
        self._top = top

    @cached_property
    def _shared(self) -> bool:
        """Others can put another folder of this user's in the place of the top: its links may be others' words."""
        return whose.standing(self._top).whose == "others"

    @contextmanager
    def folder(self, path: Path, *, make: bool = False) -> Iterator[int]:
        """Open a folder; yields its descriptor.

        Args:
            path: The top, or a folder below.
            make: Make what is missing, for others as the umask lets them.

        Raises:
            PermissionError: Somebody else's link lies on the way.
            OSError: It is not there, or cannot be opened.
        """
        if make:
            self._top.mkdir(parents=True, exist_ok=True)
        place, handle = str(self._top), os.open(self._top, _TOP)
        shared = self._shared  # whether others can change one of the folders on the way
        try:
            for name in path.relative_to(self._top).parts:
                shared = shared or not whose.wrote(handle)
                place = f"{place}/{name}"
                below = _below(name, handle, place, shared=shared, make=make)
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)

    def check(self, path: Path) -> None:
        """See that no link of somebody else's lies on the way to a folder below, as far as that is there.

        Raises:
            PermissionError: One does.
            OSError: It cannot be looked at.
        """
        with suppress(FileNotFoundError), self.folder(path):
            pass

    def names(self, folder: Path) -> list[str]:
        """The names of the files in a folder, sorted; links are none. Empty where it cannot be opened."""
        with suppress(OSError), self.folder(folder) as handle, os.scandir(handle) as found:
            return sorted(one.name for one in found if one.is_file(follow_symlinks=False))
        return []

    def unlink(self, path: Path) -> None:
        """Remove a file, or a link.

        Raises:
            OSError: It is not there, or cannot be removed.
        """
        with self.folder(path.parent) as folder:
            os.unlink(path.name, dir_fd=folder)

    def note(self, path: Path, data: bytes) -> bool:
        """Keep something small for later runs in a file, whose folder is made where needed; see `files.replace`.

        Returns:
            Whether that worked: a note that cannot be kept is no reason to fail.
        """
        with suppress(OSError), self.folder(path.parent, make=True) as folder:
            files.replace(Path(path.name), data, above=folder)
            return True
        return False


def remove_tree(name: str, above: int) -> bool:
    """Remove a folder in an open one with all that lies in it, as far as that works; whether nothing is left of it.

    Links in it are removed, and not followed.
    """
    with suppress(OSError):
        for _, folders, names, handle in os.fwalk(name, topdown=False, dir_fd=above):
            for one in (*names, *folders):
                with suppress(OSError):
                    _remove(one, handle)
    with suppress(OSError):
        os.rmdir(name, dir_fd=above)
    try:
        os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return True
    return False


def _remove(name: str, above: int) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
        os.rmdir(name, dir_fd=above)
    else:
        os.unlink(name, dir_fd=above)


def _below(name: str, above: int, place: str, *, shared: bool, make: bool) -> int:
    """Open a folder in an open one; where others can change one on the way, no link."""
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=above)
        return os.open(name, _FOLDER, dir_fd=above)
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
            raise
        state = os.stat(name, dir_fd=above, follow_symlinks=False)
        path = Path(place)
        if not stat.S_ISLNK(state.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None
        if shared or not path_steps.is_mine(state):
            raise PermissionError(errno.EPERM, whose.of_another(path, state).why, str(path)) from None
        return os.open(name, _TOP, dir_fd=above)
