"""Folders and files that only this user can look into, below folders that nobody else can change.

Whose a folder is, `cachekit.whose` finds out; what is found once stays so: only this user and root could change it.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cachekit.path_steps import PathStep, is_mine, walk
from cachekit.whose import Standing, of_another, open_to_others, standing

CLOSED = 0o700  # of a private folder
FILE = 0o600  # of a file in one


class NotPrivateError(PermissionError):
    """Somebody else can change what lies in a folder, or what its name leads to.

    Attributes:
        standing: Who, and the command that helps.
    """

    def __init__(self, path: Path, standing: Standing) -> None:
        super().__init__(errno.EPERM, standing.why, str(path))
        self.standing = standing


def private_folder(path: Path) -> Path:
    """Make a folder that only this user can look into, or close the one that is there; gives its path.

    What is missing above it is made as well, for others to look into where the umask lets them.

    Raises:
        NotPrivateError: Somebody else can change what lies there, or could: nothing was made below that.
        OSError: It cannot be made.
    """
    handle = walk(path, _closable, make=CLOSED)
    try:
        _close(handle, path, CLOSED)
    finally:
        os.close(handle)
    return path


def closed_folder(path: Path) -> None:
    """Make a folder that only this user can look into, or close the one that is there, whoever may write above it.

    Others who may write there see nothing of what lies in it, and can take it away: it is for what people read, and not
    for what is loaded. What is missing above it is made as `private_folder` does, and among others' as the umask lets.

    Raises:
        NotPrivateError: It is somebody else's.
        OSError: It cannot be made, or a link or a file lies in its place.
    """
    with suppress(NotPrivateError):
        private_folder(path)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(CLOSED)
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _close(handle, path, CLOSED)
    finally:
        os.close(handle)


def obstacle(path: Path) -> Standing | None:
    """What `private_folder` would refuse; None where it could make or close the folder, as far as others go."""
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            os.close(walk(path, _closable))
        except NotPrivateError as error:
            return error.standing
        except PermissionError:
            return standing(path)
    return None


def _closable(step: PathStep) -> None:
    """See that a step leads to a folder that can be private: those above as they are, the folder once it is closed."""
    owned = step.state.st_uid == os.geteuid() if step.last else is_mine(step.state) and not step.loose
    if not owned:
        raise NotPrivateError(step.place, of_another(step.place, step.state))
    if step.renamable and not step.last:
        raise NotPrivateError(step.place, open_to_others(step))


def check_temporary(variables: Mapping[str, str]) -> None:
    """See that nobody else can exchange what a process writes into its temporary folder.

    A C++ compiler writes assembly there, and reads it again: whoever can put another file in its place has code run.

    Args:
        variables: The process's, beside those of this one.

    Raises:
        NotPrivateError: Somebody else can.
    """
    names = ("TMPDIR", "TEMP", "TMP")  # which of them counts, programs differ in
    said = {one.get(name) for one in (os.environ, variables) for name in names}
    for place in (tempfile.gettempdir(), *sorted(filter(None, said))):
        if found := obstacle(_new_in(place)):
            raise NotPrivateError(Path(place), found)


def _new_in(place: str) -> Path:
    """A file that might be made in a folder."""
    return Path(place, f"cachekit-new-{os.getpid()}")


def new_folder(variable: str) -> str:
    """The command that makes a private folder and names it in a variable."""
    good = standing(_new_in(tempfile.gettempdir())).whose == "own"
    return f'export {variable}="$(mktemp -d{"" if good else " -p ~"})"'


def opened(path: Path | str, flags: int = os.O_WRONLY | os.O_APPEND | os.O_CREAT) -> int:
    """Open a file that only this user can read, made where it is missing; a link or a pipe in its place is refused.

    Raises:
        NotPrivateError: The file is somebody else's.
        OSError: It cannot be opened.
    """
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, FILE)
    try:
        _close(handle, Path(path), FILE)
    except BaseException:
        os.close(handle)
        raise
    return handle


def write(path: Path, data: bytes) -> None:
    """Write a file that only this user can read, in the place of what is there.

    Raises:
        OSError: It cannot be written, or is somebody else's.
    """
    with open(path, "wb", opener=opened) as target:
        target.write(data)


def _close(handle: int, path: Path, mode: int) -> None:
    """Give an open file or folder of this user's this mode."""
    state = os.fstat(handle)
    if not (stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if state.st_uid != os.geteuid():
        raise NotPrivateError(path, of_another(path, state))
    if stat.S_IMODE(state.st_mode) != mode:
        os.fchmod(handle, mode)
