"""Put a finished folder where a module belongs, while others may be working beside it.

A module is built in a hidden folder next to its place and renamed there in one step. The hidden folder is locked by
its owner, a lock that the kernel frees however the owner ends, so that what a killed process left can be swept.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.entries import OURS, CacheEntry, belongs, read_entry
from cachekit.files import hold
from cachekit.text import cause_of

_EXCHANGE = 2  # RENAME_EXCHANGE of linux/fs.h
_AT_FDCWD = -100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

Standing = Literal["absent", "present", "replaceable", "left"]


@contextlib.contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A hidden, locked folder inside `folder`, gone when the block is left.

    Raises:
        OSError: It cannot be made.
    """
    for _ in range(10):
        path = folder / f"{OURS}{uuid.uuid4().hex}"
        path.mkdir()
        try:
            handle = hold(path, _FOLDER)
        except FileNotFoundError:
            continue  # a sweeper came between the two steps
        except OSError:  # a file system without such locks: `sweep` cannot lock it either, and lets it lie
            handle = -1
        if handle is not None:
            break
    else:
        raise OSError(errno.EAGAIN, "another process removes what is created here", str(folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if handle >= 0:
            os.close(handle)


def sweep(root: Path) -> list[Path]:
    """Remove the hidden folders in a root's compiler folders whose owner is gone; returns which."""
    swept = []
    for folder in (root, *_folders(root)):
        for path in _folders(folder, hidden=True):
            try:
                handle = hold(path, _FOLDER)
            except OSError:
                continue  # gone, or a file system that cannot tell
            if handle is not None:
                shutil.rmtree(path, ignore_errors=True)
                swept.append(path)
                os.close(handle)
    return swept


def _folders(folder: Path, *, hidden: bool = False) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return [
                Path(item.path)
                for item in found
                if item.is_dir(follow_symlinks=False)
                and (item.name.startswith(OURS) if hidden else facts.COMPILER_DIRECTORY.fullmatch(item.name))
            ]
    except OSError:
        return []


def standing(target: Path) -> tuple[Standing, str]:
    """What stands at a module's place, and why it is left alone where it is."""
    if target.is_symlink():
        return "left", "there is a link in its place"
    try:
        entry = read_entry(str(target), target.parent.name, target.name)
    except FileNotFoundError:
        return "absent", ""
    except OSError as error:
        return "left", f"what is there cannot be read: {cause_of(error)}"
    return _judge(entry)


def _judge(entry: CacheEntry) -> tuple[Standing, str]:
    if entry.state == "success":
        return "present", ""
    if entry.locks:
        return "left", "it is locked: a compile is running, or was killed (`cachekit doctor`)"
    # Of what is not a file only dead links go: a folder of such a name may hold anything. Our own unfinished work goes.
    foreign = [name for name in entry.names if not _replaceable(name)]
    foreign += [name for name in entry.odd if not (_replaceable(name) and (entry.path / name).is_symlink())]
    foreign = [name for name in foreign if not name.startswith(OURS)]
    if foreign:
        return "left", f"{foreign[0]} is there, which is not part of Neuron's cache"
    return "replaceable", entry.state


def _replaceable(name: str) -> bool:
    """Whether a file may be lost with its module when that is replaced: nothing that only a person could make again."""
    return belongs(name) or name == facts.FAILURE_LOG


def put(built: Path, target: Path, *, over_finished: bool = False) -> tuple[Standing, str]:
    """Rename a built folder to its place, in one step; returns what stood there, as `standing` does.

    Nothing is moved where it says `present` or `left`. What was replaced then lies at `built`. With `over_finished` a
    finished module is `replaceable` too: the caller found it damaged.
    """
    for _ in range(3):
        try:
            built.rename(target)  # also over an empty folder
        except (FileExistsError, NotADirectoryError):
            pass
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
        else:
            return "absent", ""
        found, reason = standing(target)
        if found == "absent":
            continue
        if found == "left" or (found == "present" and not over_finished):
            return found, reason
        if _exchange(built, target):
            # The other may have begun to work between the look and the exchange: then it was there first.
            after, why = standing(built)
            if after not in {"replaceable", found} and _exchange(built, target):
                return after, why
            return "replaceable", reason
    return "left", "it changes all the time"


def _exchange(one: Path, two: Path) -> bool:
    """Let two folders change places in one step, so that nobody finds neither."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None:
        if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(two), _EXCHANGE) == 0:
            return True
        if ctypes.get_errno() == errno.ENOENT:
            return False
    # Not on this file system: two steps, with a moment in which the place is empty.
    aside = one.with_name(f"{one.name}.old")
    try:
        two.rename(aside)
    except FileNotFoundError:
        return False
    try:
        one.rename(two)
    except OSError:
        with contextlib.suppress(OSError):  # somebody made it anew meanwhile: theirs stays
            aside.rename(two)
        return False
    aside.rename(one)
    return True
