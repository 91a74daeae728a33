"""The files that settings are read from: where they lie, and what they say."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachekit import files, whose
from cachekit.errors import UsageError
from cachekit.text import cause_of

# What a pyproject.toml with `[tool.cachekit]` has somewhere, in any of TOML's spellings of it; others may have it too.
FILE, FOLDER = 0o644, 0o755  # of settings: what others can write to is refused
_OURS = r"""tool["']?\s*(\.\s*["']?cachekit|\]|=)"""
_WHY = "settings say whose code runs here"


def parse(text: str, path: Path) -> dict[str, Any]:
    """The settings in a file's text.

    Raises:
        UsageError: It is not TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pragma: no cover
        import tomli as tomllib

    try:
        document: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML", cause=str(error), hint="correct or remove the file") from error
    return document


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a file.

    Raises:
        UsageError: It is not TOML, cannot be read, or another user of the machine can have written it.
    """
    try:
        with files.opened(path) as source:
            check_writers(path, os.fstat(source.fileno()), _WHY, settings=True)
            return parse(_decoded(source.read(), path), path)
    except OSError as error:
        hint = "correct or remove the file"
        raise UsageError(f"{path} cannot be read", cause=cause_of(error), hint=hint) from error


def _decoded(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid TOML", cause=str(error), hint="correct or remove the file") from error


def project_file(start: Path) -> tuple[Path, dict[str, Any]] | None:
    """The project's settings file for a folder, and what it says; None where there is none.

    Raises:
        UsageError: It is not TOML, cannot be read, or another user of the machine can have put it there.
    """
    for folder in (start, *start.parents):
        own = folder / "cachekit.toml"
        if is_there(own):
            _check_place(own)
            return own, read_toml(own)
        shared = folder / "pyproject.toml"
        # Reading every pyproject.toml as TOML costs; most don't have a table of ours, however it is written.
        if is_there(shared) and re.search(_OURS, _glance(shared)):
            tool = read_toml(shared).get("tool")
            table = tool.get("cachekit") if isinstance(tool, dict) else None
            if isinstance(table, dict):
                _check_place(shared)
                return shared, table
    return None


def check_writers(path: Path, state: os.stat_result, why: str, *, found: bool = False, settings: bool = False) -> None:
    """See that a file is of those who may say whose code runs: `/tmp` is above much.

    That is this user, root, whoever owns the folder that it lies in or one above, or a member of the group that shares
    this folder; the user's own settings may be of the first two alone. In a folder that nobody else can write to any
    other file was put by this user, too; settings, which their owner can add to later, only where they are mounted into
    the folder, as into a container's. What lies on the way in a folder of everybody, and the file there, must be this
    user's or root's: see `planted_on`. Nor can anybody else have given another file of theirs this name.

    Args:
        path: Its name. It may be a link, which whoever owns it can have lead anywhere.
        state: Of the file that is open: the name may lead elsewhere by now.
        why: It matters, for people.
        found: No person named it: it was looked for.
        settings: It says whose records are used; it was looked for, too.

    Raises:
        UsageError: It is somebody else's, everybody can write to it, or somebody else can give it its name.
        OSError: It is gone.
    """
    folder, own = path.parent, path == user_file()
    planted = planted_on(path)
    owners = {0, os.geteuid()}
    if not (own or _open_to_all(folder)):
        above = folder.absolute()
        # Whoever owns one above can exchange it.
        owners |= {one.stat().st_uid for one in (above, *above.parents) if not _open_to_all(one)}
        chosen = not settings or state.st_dev != folder.stat().st_dev  # else whoever mounts it there chose it
        if chosen and os.path.samestat(path.lstat(), state) and whose.standing(folder).whose == "own":
            owners.add(state.st_uid)
    strangers = sorted({path.lstat().st_uid, state.st_uid} - owners)
    if planted:
        where, owner = planted
        cause = f"another user ({owner}) made {where} where everybody can"
        hint = "look at what it says; then take a copy of your own, or work in the folder of whoever you trust"
    elif strangers and (own or not whose.shared_with(strangers, folder)):
        cause = f"it belongs to another user ({strangers[0]}), and should be of whoever owns {folder.absolute()}"
        hint = "look at what it says; then remove it, take a copy of your own, or work in another folder"
        if own:
            cause = f"it belongs to another user ({strangers[0]}), and should be this user's"
            hint = f"sudo chown -h {os.geteuid()} {shlex.quote(str(path))}, or set XDG_CONFIG_HOME to a folder of yours"
    elif state.st_mode & stat.S_IWOTH:
        cause = f"every user of this machine can write to it (mode {stat.S_IMODE(state.st_mode):o})"
        hint = f"look at what it says, and then: chmod o-w {shlex.quote(str(path))}"
        if _open_to_all(folder) and not folder.stat().st_mode & stat.S_ISVTX:  # a checkout with umask 0000
            within = shlex.quote(str(folder))
            hint = f"if nobody else works on this machine, as in a container of CI: chmod -R o-w {within}"
    else:
        check_name(path, why, found=found or settings)
        return
    raise UsageError(f"{path} is not read: {why}", cause=cause, hint=hint)


def check_name(path: Path, why: str, *, found: bool) -> None:
    """See that nobody else can give a file its name, in its folder or in that of a link to it.

    Whoever can write to the folder can move any file of this user's there from another such folder: whose a file is
    says who wrote it, and neither where it lay nor who chose its bytes. The sticky bit keeps what is there; it keeps
    nobody from giving a name that is free. Those to whom another user, with whom this one works, opens a folder belong
    there; in a folder of this user's or root's only their groups do.

    Args:
        path: The file, which need not be there yet.
        why: It matters, for people.
        found: No person named it.

    Raises:
        UsageError: Somebody else can.
        OSError: A folder cannot be looked at.
    """
    mine, place = {os.getegid(), *os.getgroups()}, path.absolute().parent
    for folder in dict.fromkeys((place, path.resolve().parent)):
        steps: list[whose.PathStep] = []
        os.close(whose.walk(folder, steps.append))
        step, owned = steps[-1], whose.is_mine(steps[-1].state)
        sticky = bool(step.state.st_mode & stat.S_ISVTX)
        others = step.everybody or (owned and bool(step.users or step.groups - mine))
        if owned and os.statvfs(folder).f_flag & os.ST_RDONLY:  # as a ConfigMap of Kubernetes is mounted, of mode 0777
            continue
        if not others or (sticky and owned and not (found and folder == place)):
            continue
        told, own = whose.open_to_others(step), step.state.st_uid == os.geteuid() and not sticky
        raise UsageError(
            f"{path} is not read: {why}",
            cause=f"{told.why}, and so can give any file this name",
            hint=f"look at what it says, and then: {told.mend}" if own else "keep it in a folder of your own",
        )


def planted_on(path: Path, *, file: bool = True) -> tuple[Path, int] | None:
    """The first step on the way to a file that another user made where everybody can, and that user.

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
    found: list[tuple[Path, int]] = []

    def look(step: whose.PathStep) -> None:
        nonlocal above
        if above and not whose.is_mine(step.state) and step.place not in chosen and step.place.name != "..":
            found.append((step.place, step.state.st_uid))
        if not stat.S_ISLNK(step.state.st_mode):
            above = step.everybody

    try:
        os.close(whose.walk(path, look, file=file))
    except FileNotFoundError:
        if file:
            raise
    return found[0] if found else None


def _open_to_all(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IWOTH)


def _check_place(path: Path) -> None:
    """See that a project's file does not lie in a cache, where records of others come from: so may the file.

    A store that is this user's alone may be kept in the project's folder: nobody else puts a file there.
    """
    folder = path.parent
    if any(_is_remote(above, folder) for above in (folder, *folder.parents)):
        cache = "a remote, or lies in one"
    elif (folder / "v1" / "records").is_dir() and whose.standing(folder).whose != "own":
        cache = "a store that others can write to"
    else:
        return
    raise UsageError(
        f"{path} is not read: {_WHY}",
        cause=f"{folder} is {cache}, so anybody who can write there may have put the file there",
        hint="work in another folder; if the file is yours, move it or the cache to a folder of its own",
    )


def _is_remote(above: Path, folder: Path) -> bool:
    """Whether a folder is a remote, of which another one is a part: of one that was cloned, every folder is."""
    if not (above / "cachekit" / "v1").is_dir():
        return False
    return above == folder or folder.is_relative_to(above / "cachekit") or (above / ".git").exists()


def is_there(path: Path) -> bool:
    """Whether a file has the name, or a pipe, which is refused when it is read; a folder is passed over."""
    try:
        return path.exists() and not path.is_dir()
    except OSError:  # in a folder that is closed to this user: after `sudo -u`, HOME may still be another's
        return False


def _glance(path: Path) -> str:
    try:
        return files.read(path).decode("utf-8", "replace")
    except OSError:  # somebody else's, and most likely about other things
        return ""


def user_file() -> Path | None:
    """The path of the user's own settings file; None for a user without a home."""
    import platformdirs

    try:
        return platformdirs.user_config_path("cachekit") / "config.toml"
    except RuntimeError:
        return None


# Adding to a settings file that somebody wrote by hand: its other lines stay.

Value = str | list[str]


def editable(path: Path, wanted: str) -> tuple[str, dict[str, Any]]:
    """The text of a project's settings file that is to be added to, and what it says; nothing where there is none yet.

    Args:
        path: `cachekit.toml` of a folder.
        wanted: What is to be added, for people.

    Raises:
        UsageError: The project has its settings elsewhere, which the file would hide; or it cannot be read.
    """
    project = project_file(path.parent)
    if project and project[0] != path:
        raise UsageError(
            f"this project's settings are in {project[0]}",
            cause=f"{path} would hide all of them",
            hint=f"add under [tool.cachekit] there: {wanted}"
            if project[0].parent == path.parent
            else f"run it in {project[0].parent}",
        )
    if not project:
        try:
            check_name(path, _WHY, found=True)
        except OSError as error:
            raise UsageError(f"{path} cannot be written", cause=cause_of(error)) from error
    return text_of(path), project[1] if project else {}


def text_of(path: Path) -> str:
    """The text of a settings file; nothing where there is none.

    Raises:
        UsageError: It cannot be read, or is not text.
    """
    try:
        return _decoded(files.read(path), path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"{path} cannot be read", cause=cause_of(error)) from error


def edited(text: str, path: Path, table: Sequence[str], values: Mapping[str, Value], wanted: str) -> str:
    """A file's text with values set in one of its tables, which is made where it is missing.

    What comes out is read again: where it does not say exactly what was meant, the file is left to its writer.

    Args:
        text: The text.
        path: The file, for people.
        table: The names of the table: `("trust", "revoked")`; none for what stands above all tables.
        values: What to set.
        wanted: The same for people.

    Raises:
        UsageError: It is not TOML, or is written in a way that this cannot add to.
    """
    text = f"{text}\n" if text and not text.endswith("\n") else text
    meant: dict[str, Any] = parse(text, path)
    inside: Any = meant
    for name in table:
        inside = inside.setdefault(name, {}) if isinstance(inside, dict) else {}
    if isinstance(inside, dict):
        inside.update(values)
    start, end = _section(text, table)
    if start is None:
        head = f"{text.rstrip()}\n\n" if text.strip() else ""
        made = f"{head}[{'.'.join(map(_name, table))}]\n" + "".join(_assigned(*one) for one in values.items())
    else:
        section = text[start:end]
        for name, value in values.items():
            line = rf"^[ \t]*{re.escape(_name(name))}[ \t]*=[ \t]*(?:\[[^\]]*\])?[^\n]*\n"
            there = re.search(line, section, re.MULTILINE)
            before, after = (section[: there.start()], section[there.end() :]) if there else ("", section)
            section = f"{before}{_assigned(name, value)}{after}"
        made = f"{text[:start]}{section}{text[end:]}"
    try:
        if parse(made, path) == meant:
            return made
    except UsageError:
        pass
    raise UsageError(f"{path} cannot be added to", hint=f"edit it: {wanted}")


def write(path: Path, text: str) -> None:
    """Write a settings file, whole or not at all, where it says anything else so far; a link to one stays.

    Raises:
        UsageError: It cannot be written.
    """
    raw = text.encode("utf-8")
    try:
        if not path.exists() or files.read(path) != raw:
            _make(path.parent)
            files.replace(path.resolve(), raw, mode=FILE)
    except OSError as error:
        raise UsageError(f"{path} cannot be written", cause=cause_of(error)) from error


def _make(folder: Path) -> None:
    """Make a folder, and what is missing above it, that others cannot write to: else what lies in it is refused."""
    if not folder.exists():
        _make(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(FOLDER)


def _section(text: str, table: Sequence[str]) -> tuple[int | None, int]:
    """Where the lines of a table begin and end."""
    start = 0
    if table:
        names = (f"(?:{re.escape(one)}|\"{re.escape(one)}\"|'{re.escape(one)}')" for one in table)
        dotted = r"[ \t]*\.[ \t]*".join(names)
        found = re.search(rf"^[ \t]*\[[ \t]*{dotted}[ \t]*\][ \t]*(?:#[^\n]*)?\n", text, re.MULTILINE)
        if found is None:
            return None, 0
        start = found.end()
    after = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, start)
    return start, after.start() if after else len(text)


def _assigned(name: str, value: Value) -> str:
    said = ", ".join(map(_text, value)) if isinstance(value, list) else _text(value)
    return f"{_name(name)} = {f'[{said}]' if isinstance(value, list) else said}\n"


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: str) -> str:
    """A text as TOML writes it, which is how JSON writes it, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
