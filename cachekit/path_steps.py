"""The folders and links on the way to a file or folder, and which users may write to each of them.

Every step is looked at through a descriptor. Access lists are read where they can matter (POSIX.1e, acl(5)). Those of
NFSv4 are not.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

_LINKS = 40  # that are followed, as many as Linux follows
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
# linux/posix_acl_xattr.h and posix_acl.h: a version, and then entries of a tag, permissions and an id.
_ACL, _VERSION, _HEADER, _ENTRY = "system.posix_acl_access", 2, struct.Struct("<I"), struct.Struct("<HHI")
_USER, _GROUP_OBJ, _GROUP, _WRITE = 0x02, 0x04, 0x08, 0x2


class PathStep(NamedTuple):
    """A folder on the way, or a link.

    Attributes:
        name: What it is called, from the root on. A path is made of it when somebody asks: few steps are told of.
        state: Its own; a link's is the link's.
        users: Who may write there by an access list, beside its owner.
        groups: Whose members may; not this user's own group.
        last: It is the folder itself.
        loose: It is a link that everybody can replace, or one of too many.
    """

    name: str
    state: os.stat_result
    users: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()
    last: bool = False
    loose: bool = False

    @property
    def place(self) -> Path:
        """Its path."""
        return Path(self.name)

    @property
    def everybody(self) -> bool:
        """Every user of this machine may make files there."""
        return bool(self.state.st_mode & stat.S_IWOTH) and not stat.S_ISLNK(self.state.st_mode)

    @property
    def open(self) -> bool:
        """Others may make files there."""
        return bool(self.everybody or self.users or self.groups)

    @property
    def to_strangers(self) -> bool:
        """Others than this user's groups may make files there, and those to whom another user opens an own folder."""
        return self.everybody or (is_mine(self.state) and bool(self.users or self.groups - groups()))

    @property
    def renamable(self) -> bool:
        """Others may put something else in the place of what lies there."""
        return self.open and (self.last or not self.state.st_mode & stat.S_ISVTX)

    @property
    def sharing(self) -> frozenset[int]:
        """The groups whose members may own folders on the way: not one that only another user's access list names."""
        if stat.S_ISLNK(self.state.st_mode):
            return frozenset()
        return self.groups if is_mine(self.state) else self.groups & {self.state.st_gid}


def walk(
    path: Path, look: Callable[[PathStep], None], *, make: int | None = None, file: bool = False, follow: bool = True
) -> int:
    """Open a folder step by step; gives its descriptor.

    Args:
        path: The folder.
        look: Called with each folder and link on the way, from the root on; raising ends the walk.
        make: Make what is missing, the last folder with this mode, and give a descriptor for reading.
        file: What lies at the end is a file, and is opened to be read.
        follow: What lies at the end may be a link.

    Raises:
        OSError: It cannot be opened; or there are more links than are followed, as where one leads to itself.
    """
    left = deque(path.absolute().parts[1:])
    place, links = "", 0
    handle = os.open("/", _LOOK)
    try:
        step = look_at("/", handle, last=not left)
        look(step)
        while left:
            name = left.popleft()
            state = _state(name, handle, make=0o755 if left and make is not None else make)
            if stat.S_ISLNK(state.st_mode) and (left or follow):
                links += 1
                loose = step.everybody or links > _LINKS
                look(PathStep(f"{place}/{name}", state, step.users, step.groups, loose=loose))
                if links > _LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))  # noqa: TRY301 - as all that may
                # Whoever could replace it meanwhile is not a stranger, or the walk has ended.
                target = Path(os.readlink(name, dir_fd=handle))
                left.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
                if not target.is_absolute():
                    continue
                name, place = "/", ""
            end = _READ if file else _LOOK if make is None else _OPEN
            below = os.open(name, _LOOK if left else end, dir_fd=handle)
            os.close(handle)
            handle, place = below, "" if name == "/" else f"{place}/{name}"
            step = look_at(place or "/", handle, last=not left)
            look(step)
    except BaseException:
        os.close(handle)
        raise
    return handle


def below(folder: Path, depth: int, *, files: bool = False) -> Iterator[PathStep]:
    """The folders below one, so many deep; links are none of them.

    Args:
        folder: It.
        depth: How deep.
        files: Everything else that lies there as well.
    """
    try:
        with os.scandir(folder) as found:
            entries = [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in found]
    except OSError:
        return
    for path, is_folder in entries:
        with suppress(OSError):
            if is_folder:
                handle = os.open(path, _LOOK)
                try:
                    yield look_at(path, handle, last=True)
                finally:
                    os.close(handle)
            elif files:
                yield PathStep(str(path), path.lstat())
        if is_folder and depth > 1:
            yield from below(path, depth - 1, files=files)


def look_at(place: Path | str, handle: int | Path, *, last: bool = True) -> PathStep:
    """What there is to know of a step.

    Args:
        place: What it is called.
        handle: Its descriptor; or itself, of which a link is not followed.
        last: It is the folder itself.

    Raises:
        OSError: It cannot be looked at.
    """
    state = os.fstat(handle) if isinstance(handle, int) else handle.lstat()
    if not state.st_mode & stat.S_IWGRP:  # which an access list has for its mask: without it nobody in it may write
        return PathStep(str(place), state, last=last)
    users, groups = set[int](), set[int]()
    for tag, permissions, who in _entries(handle) or [(_GROUP_OBJ, _WRITE, 0)]:
        if permissions & _WRITE and tag == _USER:
            users.add(who)
        elif permissions & _WRITE and tag in {_GROUP_OBJ, _GROUP}:
            groups.add(state.st_gid if tag == _GROUP_OBJ else who)
    me = os.geteuid()
    others = frozenset(gid for gid in groups if not _alone(gid, me))
    return PathStep(str(place), state, frozenset(users - {0, me}), others, last)


def _state(name: str, above: int, *, make: int | None) -> os.stat_result:
    """The state of what lies in an open folder; a folder of mode `make` is made where nothing does."""
    try:
        return os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        if make is None:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, make, dir_fd=above)
    return os.stat(name, dir_fd=above, follow_symlinks=False)


def _entries(handle: int | Path) -> list[tuple[int, int, int]]:
    """The entries of an access list: tag, permissions, and user or group; empty where there is none."""
    raw = b""
    if sys.platform == "linux":
        # A descriptor that only looks cannot be asked itself.
        where = f"/proc/self/fd/{handle}" if isinstance(handle, int) else handle
        with suppress(OSError):
            raw = os.getxattr(where, _ACL, follow_symlinks=isinstance(handle, int))
    if len(raw) < _HEADER.size or _HEADER.unpack_from(raw)[0] != _VERSION:
        return []
    return list(_ENTRY.iter_unpack(raw[_HEADER.size : len(raw) - (len(raw) - _HEADER.size) % _ENTRY.size]))


def is_mine(state: os.stat_result) -> bool:
    """Whether something belongs to this user or root, or to whoever can exchange the Python that runs here.

    The last counts in a user namespace that has no number for root, where all who have none look alike.
    """
    if state.st_uid == nobody():
        return (state.st_dev, state.st_ino) in _above_python()
    return state.st_uid in {0, os.geteuid()}


@cache
def nobody(kind: Literal["uid", "gid"] = "uid") -> int:
    """The user or group that all seem to be who have no number in this user namespace; -1 where it may be one."""
    with suppress(OSError, ValueError):
        seen = int(Path(f"/proc/sys/kernel/overflow{kind}").read_text())
        for line in Path(f"/proc/self/{kind}_map").read_text().splitlines():
            first, _, count = map(int, line.split())
            if first <= seen < first + count:
                return -1
        return seen
    return -1


@cache
def _above_python() -> frozenset[tuple[int, int]]:
    """The folders and links on the way to the Python that runs here, and to this user's home: see `is_mine`."""
    steps: list[PathStep] = []
    ends = [Path(sys.executable), Path(os.__file__)]
    with suppress(KeyError):
        ends.append(Path(pwd.getpwuid(os.geteuid()).pw_dir, "x"))
    for end in ends:
        with suppress(OSError):
            os.close(walk(end, steps.append, file=True))
    return frozenset((step.state.st_dev, step.state.st_ino) for step in steps)


def groups() -> set[int]:
    """The groups that this user is in."""
    return {os.getegid(), *os.getgroups()} - {nobody("gid")}


@cache
def _alone(gid: int, user: int) -> bool:
    """Whether nobody else is in a group: it is the user's own, of the same name, or root's.

    Somebody is in it as a member, or as a user whose first group it is. A user database that is not listed (SSSD, LDAP)
    tells the second of nobody; a group of a user's own name is taken for that user's own there.
    """
    try:
        group, account = grp.getgrgid(gid), pwd.getpwuid(user)
    except KeyError:
        return False
    if gid and (gid != account.pw_gid or group.gr_name != account.pw_name):
        return False
    if set(group.gr_mem) - {account.pw_name, "root"}:
        return False
    return all(one.pw_uid in {0, user} for one in pwd.getpwall() if one.pw_gid == gid)
