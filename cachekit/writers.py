"""Who can have written a file that says what runs here, given it its name, or put it where its name leads."""

from __future__ import annotations

import os
import shlex
import stat
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from cachekit import path_steps, whose
from cachekit.errors import UsageError

ELSEWHERE = "work elsewhere, or put a cachekit.toml of your own, which may be empty, where you work"


def check_writers(
    path: Path,
    handle: int,
    why: str,
    *,
    found: bool = False,
    settings: bool = False,
    own: bool = False,
    loaded: bool = False,
) -> None:
    """See that a file is of those who may say whose code runs: `/tmp` is above much.

    That is this user, root, whoever owns the folder that it lies in or one above, or a member of the group that shares
    this folder; the user's own settings may be of the first two alone. In a folder that nobody else can write to any
    other file was put by this user, too; settings and code, which their owner can change later, only where they are
    mounted into the folder, as into a container's. What lies on the way in a folder of everybody, and the file there,
    must be this user's or root's: see `planted_on`. Nor can anybody else have given another file of theirs this name.

    Args:
        path: Its name. It may be a link, which whoever owns it can have lead anywhere.
        handle: The descriptor of the file that is open: the name may lead elsewhere by now.
        why: It matters, for people.
        found: No person named it: it was looked for.
        settings: It says whose records are used; it was looked for, too.
        own: They are the user's own.
        loaded: See `check_name`.

    Raises:
        UsageError: It is somebody else's, somebody else can write to it, or can give it its name.
        OSError: It is gone.
    """
    folder, planted = path.parent, planted_on(path)
    step = path_steps.look_at(path, handle)
    state = step.state
    owners = {0, os.geteuid()} - {path_steps.nobody()}
    if not (own or _open_to_all(folder)):
        owners |= owners_of(folder)
        mounted = state.st_dev != folder.stat().st_dev  # whoever mounts it there chose it
        if (
            (mounted or not (settings or loaded))
            and os.path.samestat(path.lstat(), state)
            and whose.standing(folder).whose == "own"
        ):
            owners |= {state.st_uid} - {path_steps.nobody()}
    strangers = sorted({path.lstat().st_uid, state.st_uid} - owners)
    if planted:
        cause = planted.why
        hint = "check what the file says; then make a copy of your own, or work in the folder of somebody you trust"
        if settings and not own:
            hint = ELSEWHERE
    elif strangers and (own or not whose.shared_with(strangers, folder)):
        cause = f"it belongs to another user ({strangers[0]}), and should be of whoever owns {folder.absolute()}"
        hint = "check what the file says; then remove it, make a copy of your own, or work in another folder"
        if own:
            cause = f"it belongs to another user ({strangers[0]}), and should be this user's"
            hint = f"sudo chown -h {os.geteuid()} {shlex.quote(str(path))}, or set XDG_CONFIG_HOME to a folder of yours"
    elif step.to_strangers:
        told = whose.open_to_others(step)
        cause = told.why
        hint = f"check what the file says, then run: {told.mend or f'sudo chmod go-w {shlex.quote(str(path))}'}"
        if step.everybody and _open_to_all(folder) and not folder.stat().st_mode & stat.S_ISVTX:
            # A checkout with umask 0000.
            within = shlex.quote(str(folder))
            hint = f"if nobody else works on this machine, as in a container of CI: chmod -R o-w {within}"
    else:
        check_name(path, why, found=found or settings, loaded=loaded, followed=settings and not own)
        return
    raise UsageError(f"{path} is not read: {why}", cause=cause, hint=hint)


def check_name(path: Path, why: str, *, found: bool, loaded: bool = False, followed: bool = False) -> None:
    """See that nobody else can give a file its name, or exchange a folder or link on the way to it; see `exchanged_by`.

    Whose a file is says who wrote it, and neither where it lay nor who chose its bytes: whoever can write to its folder
    can move any file of this user's there from another such folder.

    Args:
        path: The file or folder, which need not be there yet.
        why: It matters, for people.
        found: No person named it.
        loaded: It holds code.
        followed: See `exchanged_by`.

    Raises:
        UsageError: Somebody else can.
        OSError: A folder cannot be looked at.
    """
    if told := exchanged_by(path, found=found, loaded=loaded, followed=followed):
        raise UsageError(
            f"{path} is not read: {why}",
            cause=f"{told.why}, so another user could have put the file there",
            hint=f"check that the file is yours, then run: {told.mend}"
            if told.mend
            else "keep the file in a folder of your own",
        )


def exchanged_by(
    path: Path, *, found: bool = False, loaded: bool = False, followed: bool = False
) -> whose.Standing | None:
    """Who else can put something in the place of a file or folder, or of what its name leads through; None for nobody.

    Whoever can write to a folder can rename what lies there, unless it has the sticky bit; that bit keeps nobody from
    giving a name that is free. Those to whom another user, with whom this one works, opens a folder belong there; in a
    folder of this user's or root's only their groups do. Nobody changes what is mounted to be read, such as a ConfigMap
    of Kubernetes, of mode 0777.

    Args:
        path: It need not be there yet.
        found: Its name was looked for, so that also a file that was not there before counts.
        loaded: It holds code. So what lies above the working directory, which its user chose, is asked as well, and
            the folders must belong to those of `followed`.
        followed: Links there are followed. So each folder must belong to this user, root, a member of the group that
            shares it, or whoever owns the working directory, a folder above it, or a volume that is mounted on the way.

    Raises:
        OSError: A folder cannot be looked at.
    """
    steps, work, direct, missing = list[path_steps.PathStep](), list[Path](), None, [path]
    owners, device = {0}, -1
    with suppress(FileNotFoundError):  # the working directory may be gone
        work = [Path.cwd(), *Path.cwd().parents]
    with suppress(FileNotFoundError):
        direct = path.absolute().parent.stat()
    with suppress(FileNotFoundError):
        os.close(path_steps.walk(path, steps.append, file=not path.is_dir()))
        missing = []
    for step, entry in zip(steps, [*(one.place for one in steps[1:]), *missing]):  # noqa: B905 - the last is no folder
        if stat.S_ISLNK(step.state.st_mode):
            continue  # whose it may be, `planted_on` says
        if device not in {-1, step.state.st_dev} or step.place in work:
            owners |= {step.state.st_uid} - {path_steps.nobody()}
        device = step.state.st_dev
        if (loaded or followed) and not (
            path_steps.is_mine(step.state)
            or {step.state.st_uid} <= owners
            or whose.shared_with([step.state.st_uid], step.place)
        ):
            return whose.of_another(step.place, step.state)
        last = direct is not None and os.path.samestat(step.state, direct)
        sticky = bool(step.state.st_mode & stat.S_ISVTX)
        if not step.to_strangers or (sticky and path_steps.is_mine(step.state) and not (found and last)):
            continue
        if entry in work and not (last or loaded):
            continue
        if path_steps.is_mine(step.state) and os.statvfs(step.place).f_flag & os.ST_RDONLY:
            continue
        told = whose.open_to_others(step)
        # The sticky bit keeps others from renaming what lies in a folder, but for the folder's owner.
        helps = not sticky and (step.state.st_uid == os.geteuid() or (path_steps.is_mine(step.state) and not last))
        return told if helps else structs.replace(told, mend="")
    return None


def owners_of(folder: Path) -> set[int]:
    """Who owns a folder or one above, and so can exchange it; not where everybody can."""
    above = folder.absolute()
    found = {one.stat().st_uid for one in (above, *above.parents) if not _open_to_all(one)}
    return found - {path_steps.nobody()}


def planted_on(path: Path, *, file: bool = True) -> whose.Standing | None:
    """The first step on the way to a file that another user made in a folder that others can write to, and that user.

    It may be the file, a folder or a link. Where this user works was chosen, whoever made it.

    Args:
        path: The file.
        file: It is one; else a folder, which need not be there yet: then the steps that are there count.

    Raises:
        OSError: A step cannot be looked at.
    """
    chosen, above = set[Path](), False
    with suppress(FileNotFoundError):  # the working directory may be gone
        chosen = {Path.cwd(), *Path.cwd().parents}
    found: list[whose.Standing] = []

    def look(step: path_steps.PathStep) -> None:
        nonlocal above
        if above and not path_steps.is_mine(step.state) and step.place not in chosen and step.place.name != "..":
            found.append(whose.of_another(step.place, step.state))
        if not stat.S_ISLNK(step.state.st_mode):
            above = step.to_strangers

    try:
        os.close(path_steps.walk(path, look, file=file))
    except FileNotFoundError:
        if file:
            raise
    return found[0] if found else None


def _open_to_all(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IWOTH)
