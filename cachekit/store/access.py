"""Whose a store is, and whether this user may use it: told before anything compiles, with the command that helps.

A store belongs to one user, or to the members of a group. Others may look into it if the umask of its owner lets them.

Whose a file in it is, is another question: the folders say who can write there now, and a store may have been open to
everybody before. Nobody can give away a file, so it tells who wrote it. Where others can write to the store, they can
give a file of this user another name: a blob, of which a stranger chose the bytes, becomes a record or a note. There
a note counts only if this user's own folder, beside the settings, remembers its digest.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from cachekit import whose
from cachekit.config_files import user_file
from cachekit.errors import StoreError
from cachekit.private import private_folder
from cachekit.store.layout import Layout
from cachekit.text import cut
from cachekit.whose import Standing

OWN = "CACHEKIT_HOME to a folder of your own"
_EFFECTIVE = os.access in os.supports_effective_ids


def standing(layout: Layout) -> Standing:
    """Whose a store is: who can write records there, or what says where records came from and what is revoked."""
    depths = {layout.records: 2, layout.blobs: 0, layout.trust: 2, layout.staying: 1, layout.quarantine: 0}
    found = [whose.standing(folder, depth) for folder, depth in depths.items()]
    return max(found, key=lambda one: whose.ORDER.index(one.whose))


class Owners:
    """Those to whom a store belongs: this user and root, and the members of a group that shares it.

    Args:
        layout: The store's paths.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @cached_property
    def standing(self) -> Standing:
        """Whose the store is, as it was when that was asked first."""
        return standing(self._layout)

    @cached_property
    def open(self) -> bool:
        """Whether others can write to the store, or could when this user looked before: what they moved there stays.

        Also where they can write above the store alone: another folder of this user's takes its place, a clone say.
        """
        now, folder = self.standing.whose == "others", _own_folder()
        if folder is None:
            return now
        seen = [folder / f"{one}.open" for one in self._names()]
        if now and self._layout.records.exists():  # before that, the folder above it was looked at
            with suppress(OSError):
                private_folder(folder)
                for mark in seen:
                    mark.touch()
        return now or any(map(os.path.exists, seen))  # what cannot be looked at is not there

    def _names(self) -> Iterator[str]:
        """What the store is known again by: its path without links, and its folder, which keeps its number if moved."""
        yield hashlib.sha256(os.path.realpath(os.fsencode(self._layout.root))).hexdigest()
        with suppress(OSError):
            state = self._layout.root.stat()
            yield f"{state.st_dev:x}-{state.st_ino:x}"

    def remember(self, note: bytes) -> None:
        """See that a note counts which is about to be written, also where others can write to the store."""
        if self.open and (folder := _own_folder()) is not None:
            with suppress(OSError):  # then it does not count: what it is about is of unknown origin
                (private_folder(folder) / hashlib.sha256(note).hexdigest()).touch()

    def remembers(self, note: bytes) -> bool:
        """Whether a note counts, as far as its bytes go."""
        if not self.open:
            return True
        folder = _own_folder()
        return (
            folder is not None
            and whose.standing(folder).whose == "own"
            and os.path.exists(folder / hashlib.sha256(note).hexdigest())  # noqa: PTH110 - likewise
        )

    def stranger(self, path: Path, handle: int) -> str:
        """Why somebody else can have written a file of the store; empty where nobody can.

        Where others can write to the folders, they may put a link there to what this user fetched from them: none of
        theirs is followed.

        Args:
            path: The file.
            handle: Its descriptor, from which it is read: by now another file may have its name.

        Raises:
            OSError: It cannot be looked at.
        """
        if self.standing.whose != "others":
            return whose.outsider(handle, path, self.standing)
        ours = not whose.outsider(handle, path) and self._lies_there(path, handle)
        return "" if ours else self.standing.why

    def _lies_there(self, path: Path, opened: int) -> bool:
        """Whether a path in the store leads to an open file, and no link of others does."""
        with suppress(OSError), self._layout.inside.folder(path.parent) as folder:
            found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
            return stat.S_ISREG(found.st_mode) and os.path.samestat(found, os.fstat(opened))
        return False


def _own_folder() -> Path | None:
    settings = user_file()
    return settings and settings.parent / "noted"


def _check_open(layout: Layout) -> None:
    """Find out whether the store can be looked into; one that is not there can.

    Raises:
        StoreError: It is closed to this user.
    """
    for folder in (layout.home, layout.root, layout.records, layout.blobs):
        try:
            there = folder.is_dir()
        except OSError:
            return  # what is above was told, or is not ours to judge
        if there and not _may(folder, os.R_OK | os.X_OK):
            raise StoreError(
                f"the store at {layout.home} is closed to this user",
                cause=f"{folder} belongs to {_owner(folder)}, and others may not look into it",
                hint=f"sudo chmod -R a+rX {shlex.quote(str(layout.home))}, or set {OWN}",
            )


def check(layout: Layout, record: Path | None) -> None:
    """Find out whether blobs, and this record, can be put where they belong.

    Raises:
        StoreError: Something else lies there, or a folder on the way is closed to this user.
    """
    for folder in _ways(layout, record):
        if not _is_folder(folder):
            raise StoreError(
                f"{folder} is not a folder, so compiled files cannot be stored",
                hint=f"remove it: rm {shlex.quote(str(folder))}",
            )
        if not _may(folder, os.W_OK | os.X_OK):
            home = shlex.quote(str(layout.home))
            repair = f"chmod -R u+rwX {home}" if _is_ours(folder) else repossess(layout)
            raise StoreError(
                f"the store at {layout.home} cannot be written",
                cause=f"{folder} belongs to {_owner(folder)}, and this user may not write there",
                hint=f"{repair}, or set {OWN}" if repair else f"set {OWN}",
            )
    if record is not None and _is_folder(record):
        raise StoreError(
            f"{record} is a folder, where a record should be",
            hint=f"remove it: rm -r {shlex.quote(str(record))}",
        )


def repossess(layout: Layout) -> str:
    """The command that gives this user back what root made in this user's own store.

    Empty where anybody else can have put something there: who takes a stranger's records makes them one's own, and
    nothing asks for a signature any more.
    """
    if not _is_ours(layout.home) or standing(layout).whose != "own":
        return ""
    return f"sudo chown -R {os.geteuid()}:{os.getegid()} {shlex.quote(str(layout.home))}"


def _ways(layout: Layout, record: Path | None) -> Iterator[Path]:
    """What is there of the folders that are written to."""
    folders = [layout.blobs, layout.locks]
    with suppress(OSError):
        folders += [path for path in layout.blobs.iterdir() if len(path.name) == 2]  # noqa: PLR2004
    if record is not None:
        folders += [path for path in record.parents if layout.records in (path, *path.parents)]
    for folder in folders:
        with suppress(OSError):
            folder.lstat()
            yield folder


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # it is behind a folder that is told itself
        return False


def _may(folder: Path, what: int) -> bool:
    if what & os.W_OK and os.statvfs(folder).f_flag & os.ST_RDONLY:
        return True  # nobody may: whoever tries is told so
    return os.access(folder, what, effective_ids=_EFFECTIVE)


def check_home(layout: Layout) -> None:
    """See that a store can be at its home, which need not be there yet.

    Raises:
        StoreError: Its place is taken by something else, or closed to this user.
    """
    problem = ""
    try:
        if not stat.S_ISDIR(layout.home.stat().st_mode):
            problem = "it is not a folder"
    except FileNotFoundError:
        pass  # made by what writes first
    except NotADirectoryError:
        problem = "it is not a folder"  # nor is a folder above
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", "") or str(error)
    if problem:
        raise StoreError(
            f"{cut(str(layout.home), 200)} cannot hold a store",
            cause=problem,
            hint="set CACHEKIT_HOME or --home to a folder",
        )
    _check_open(layout)


def _is_ours(folder: Path) -> bool:
    try:
        return folder.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _owner(folder: Path) -> str:
    try:
        return folder.owner()
    except (KeyError, OSError):
        with suppress(OSError):
            return f"user {folder.stat().st_uid}"
    return "another user"
