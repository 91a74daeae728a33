"""Whose a folder is: whether somebody else can change what lies there, or what its name leads to.

A compiler cache is code, so what a compiler loads must lie where nobody else can put anything in its place. That is a
question about each folder on the way, not about the last one alone: who may write to a folder may rename what is in it.

A folder is this user's own if every folder on the way to it belongs to this user or root, and nobody else may write to
one of them. A folder with the sticky bit (`/tmp`) may be on the way: nobody can rename there what belongs to somebody
else. A link is followed only where it belongs to this user or root and lies in a folder that others cannot write to. A
group that consists of this user alone, as most distributions make one for each user, is nobody else: it has no other
member, and is not another user's first group.

A folder is a group's that this user is in, too, if its members can write there, and nobody else can. Each folder on the
way then belongs to this user, root or a member: a group of this user's on somebody else's folder makes its owner no
member, as anybody may name any group in an access list. Members are those whom this machine's user database knows.

Every step is looked at through a descriptor. What is found once stays so: only this user and root could change it.

Access lists are read where they can matter (POSIX.1e, acl(5)). Those of NFSv4 are not.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shlex
import stat
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct

_LINKS = 40  # that are followed, as many as Linux follows
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
# linux/posix_acl_xattr.h and posix_acl.h: a version, and then entries of a tag, permissions and an id.
_ACL, _VERSION, _HEADER, _ENTRY = "system.posix_acl_access", 2, struct.Struct("<I"), struct.Struct("<HHI")
_USER, _GROUP_OBJ, _GROUP, _WRITE = 0x02, 0x04, 0x08, 0x2

Whose = Literal["own", "group", "others"]
ORDER: tuple[Whose, ...] = ("own", "group", "others")


class Standing(Struct, frozen=True):
    """Whose a folder is.

    Attributes:
        whose: `own`: only this user and root can change what lies there; `group`: the members of a group of this user
            can, too; `others`: somebody else can.
        why: Who else, and where: a sentence without a full stop; empty for `own`.
        mend: The command that makes it this user's own; empty where none of this user's does.
        groups: Of this user, through which it is shared: their members may own what lies there.
    """

    whose: Whose
    why: str = ""
    mend: str = ""
    groups: frozenset[int] = frozenset()


OWN = Standing("own")


class PathStep(NamedTuple):
    """A folder on the way, or a link.

    Attributes:
        state: Its own; a link's is the link's.
        users: Who may write there by an access list, beside its owner.
        groups: Whose members may; not this user's own group.
        last: It is the folder itself.
        loose: It is a link that everybody can replace, or one of too many.
    """

    place: Path
    state: os.stat_result
    users: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()
    last: bool = False
    loose: bool = False

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
        return self.everybody or (is_mine(self.state) and bool(self.users or self.groups - _groups()))

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


def standing(path: Path, depth: int = 0) -> Standing:
    """Whose a folder is; of one that is not there, whose it would be if this user made it.

    One that cannot be looked at is another's.

    Args:
        path: The folder.
        depth: Look as far down into the folders below as well.
    """
    steps: list[PathStep] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        try:
            os.close(walk(path, steps.append))
        except PermissionError:
            return Standing("others", f"this user may not look into {steps[-1].place}")
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return Standing("others", f"{steps[-1].place} leads through more links than are followed")
    if steps[-1].last and depth:
        steps += below(steps[-1].place, depth)
    return _judged(steps)


def open_judged(path: Path, flags: int = 0) -> tuple[int, Standing]:
    """Open a file to be read; gives its descriptor, and whose it is: who can have written it, or put it where it lies.

    Args:
        path: The file; links to it are followed, and judged as every step is.
        flags: `os.O_NOFOLLOW` follows none in its own place.

    Raises:
        OSError: It cannot be opened.
    """
    steps: list[PathStep] = []
    handle = walk(path, steps.append, file=True, follow=not flags & os.O_NOFOLLOW)
    return handle, _judged(steps)


class StrangersLinkError(PermissionError):
    """A link on the way to a folder belongs to another user, or another user can replace it."""


def open_to_write(path: Path) -> int:
    """Open a folder to make files there, and follow no link that leads where another user wants; gives its descriptor.

    A link may belong to this user, to root, or to a member of a group of this user that shares a folder above it. A
    link where others can replace it, or a folder above it, is none of these: they could move one of this user's there.

    Raises:
        StrangersLinkError: There is such a link.
        OSError: The folder cannot be opened.
    """
    above: list[PathStep] = []
    mine = _groups()

    def look(step: PathStep) -> None:
        if not stat.S_ISLNK(step.state.st_mode):
            above.append(step)
            return
        shared = frozenset[int]().union(*(one.sharing for one in above)) & mine
        replaced = any(one.to_strangers and not one.state.st_mode & stat.S_ISVTX for one in above)
        if replaced or not (is_mine(step.state) or _member(step.state.st_uid, shared)):
            raise StrangersLinkError(errno.EPERM, of_another(step.place, step.state).why, str(path))

    looks = walk(path, look)
    try:
        return os.open(".", _OPEN, dir_fd=looks)
    finally:
        os.close(looks)


def _judged(steps: Sequence[PathStep]) -> Standing:
    """Whose what lies at the end of these steps is."""
    mine = _groups()
    shared = frozenset[int]().union(*(step.sharing for step in steps)) & mine
    found = OWN
    for step in steps:
        if step.loose or not (is_mine(step.state) or _member(step.state.st_uid, shared)):
            return of_another(step.place, step.state, shared)
        if step.renamable and (step.everybody or step.users or step.groups - mine):
            return open_to_others(step)
        if step.renamable or not is_mine(step.state):
            why = open_to_others(step).why if step.open else of_another(step.place, step.state).why
            found = Standing("group", why, groups=shared)
    return found


def outsider(handle: int | Path, place: Path, folder: Standing = OWN) -> str:
    """Why a file or folder is not of those to whom the folder belongs that it lies in; empty where it is.

    Args:
        handle: Its descriptor; or itself, of which a link is not followed.
        place: What it is called.
        folder: What `standing` found of the folder; whoever may write there can have made it.

    Raises:
        OSError: It cannot be looked at.
    """
    step = _step(place, handle, last=True)
    if not (is_mine(step.state) or _member(step.state.st_uid, folder.groups)):
        return of_another(place, step.state, folder.groups).why
    within = _groups() if folder.whose == "group" else set[int]()
    return open_to_others(step).why if step.everybody or step.users or step.groups - within else ""


def look_at(handle: int, place: Path) -> PathStep:
    """What there is to know of an open file, by its descriptor."""
    return _step(place, handle, last=True)


def wrote(handle: int) -> bool:
    """Whether an open file or folder is this user's or root's, and nobody else can write to it."""
    with suppress(OSError):
        return not outsider(handle, Path())
    return False


def shared_with(users: Iterable[int], folder: Path) -> bool:
    """Whether a group of this user shares a folder, and all these users are in it."""
    groups = standing(folder).groups
    return all(_member(user, groups) for user in users)


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
                    yield _step(path, handle, last=True)
                finally:
                    os.close(handle)
            elif files:
                yield PathStep(path, path.lstat())
        if is_folder and depth > 1:
            yield from below(path, depth - 1, files=files)


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
    place, links = Path("/"), 0
    handle = os.open("/", _LOOK)
    try:
        step = _step(place, handle, last=not left)
        look(step)
        while left:
            name = left.popleft()
            state = _state(name, handle, make=0o755 if left and make is not None else make)
            if stat.S_ISLNK(state.st_mode) and (left or follow):
                links += 1
                loose = step.everybody or links > _LINKS
                look(PathStep(place / name, state, step.users, step.groups, loose=loose))
                if links > _LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))  # noqa: TRY301 - as all that may
                # Whoever could replace it meanwhile is not a stranger, or the walk has ended.
                target = Path(os.readlink(name, dir_fd=handle))
                left.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
                if not target.is_absolute():
                    continue
                name, place = "/", Path("/")
            end = _READ if file else _LOOK if make is None else _OPEN
            below = os.open(name, _LOOK if left else end, dir_fd=handle)
            os.close(handle)
            handle, place = below, place / name
            step = _step(place, handle, last=not left)
            look(step)
    except BaseException:
        os.close(handle)
        raise
    return handle


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


def _step(place: Path, handle: int | Path, *, last: bool) -> PathStep:
    state = os.fstat(handle) if isinstance(handle, int) else handle.lstat()
    if not state.st_mode & stat.S_IWGRP:  # which an access list has for its mask: without it nobody in it may write
        return PathStep(place, state, last=last)
    users, groups = set[int](), set[int]()
    for tag, permissions, who in _entries(handle) or [(_GROUP_OBJ, _WRITE, 0)]:
        if permissions & _WRITE and tag == _USER:
            users.add(who)
        elif permissions & _WRITE and tag in {_GROUP_OBJ, _GROUP}:
            groups.add(state.st_gid if tag == _GROUP_OBJ else who)
    me = os.geteuid()
    others = frozenset(gid for gid in groups if not _alone(gid, me))
    return PathStep(place, state, frozenset(users - {0, me}), others, last)


def _entries(handle: int | Path) -> list[tuple[int, int, int]]:
    """The entries of an access list: tag, permissions, and user or group; empty where there is none."""
    raw = b""
    if sys.platform == "linux":
        # A descriptor that only looks cannot be asked itself.
        where = Path(f"/proc/self/fd/{handle}") if isinstance(handle, int) else handle
        with suppress(OSError):
            raw = os.getxattr(where, _ACL, follow_symlinks=isinstance(handle, int))
    if len(raw) < _HEADER.size or _HEADER.unpack_from(raw)[0] != _VERSION:
        return []
    return list(_ENTRY.iter_unpack(raw[_HEADER.size : len(raw) - (len(raw) - _HEADER.size) % _ENTRY.size]))


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


def _groups() -> set[int]:
    return {os.getegid(), *os.getgroups()} - {nobody("gid")}


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


@cache
def _member(user: int, groups: frozenset[int]) -> bool:
    """Whether a user is in one of these groups; one whom nobody knows here is in none."""
    if not groups or user == nobody():
        return False
    try:
        account = pwd.getpwuid(user)
        return not groups.isdisjoint(os.getgrouplist(account.pw_name, account.pw_gid))
    except (KeyError, OSError):
        return False


def of_another(place: Path, state: os.stat_result, groups: frozenset[int] = frozenset()) -> Standing:
    """What is said of a folder, file or link that belongs to another user, who is not in these groups."""
    if stat.S_ISLNK(state.st_mode):
        return Standing("others", f"{place} is a link that another user made or can replace")
    if state.st_uid == nobody():
        return Standing(
            "others", f"{place} belongs to a user who has no number in this user namespace, perhaps to root"
        )
    apart = f", who is not in the group {_group(min(groups))}" if groups else ""
    return Standing("others", f"{place} belongs to another user ({_name(state.st_uid)}){apart}")


def open_to_others(step: PathStep) -> Standing:
    """What is said of a folder that others can write to, and the command that closes it.

    There is none for what others share, and this user does not own: it would be closed to them, too.
    """
    if stat.S_ISLNK(step.state.st_mode):
        return of_another(step.place, step.state)
    mode = f"mode {stat.S_IMODE(step.state.st_mode):o}"
    if step.everybody:
        who = "every user of this machine"
    elif step.users:
        who = f"the user {_name(min(step.users))}"
    else:
        who = f"the group {_group(min(step.groups))}"
    place = shlex.quote(str(step.place))
    said = f"{who} can write to {step.place} ({mode})"
    if step.state.st_uid == os.geteuid():
        return Standing("others", said, f"chmod go-w {place}")
    if not step.everybody:
        return Standing("others", said)
    # A folder for everybody, such as /tmp, stays one.
    return Standing("others", said, f"sudo chmod {'go-w' if step.last else '+t'} {place}")


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
