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

What is found once stays so: only this user and root could change it.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

from cachekit.path_steps import PathStep, below, groups, is_mine, look_at, nobody, walk

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

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
    mine = groups()

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
    mine = groups()
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
    step = look_at(place, handle)
    if not (is_mine(step.state) or _member(step.state.st_uid, folder.groups)):
        return of_another(place, step.state, folder.groups).why
    within = groups() if folder.whose == "group" else set[int]()
    return open_to_others(step).why if step.everybody or step.users or step.groups - within else ""


def wrote(handle: int) -> bool:
    """Whether an open file or folder is this user's or root's, and nobody else can write to it."""
    with suppress(OSError):
        return not outsider(handle, Path())
    return False


def shared_with(users: Iterable[int], folder: Path) -> bool:
    """Whether a group of this user shares a folder, and all these users are in it."""
    groups = standing(folder).groups
    return all(_member(user, groups) for user in users)


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
