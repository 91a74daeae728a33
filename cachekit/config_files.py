"""The files that settings are read from: where they lie, and what they say."""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachekit import files, path_steps, whose
from cachekit.errors import UsageError
from cachekit.text import cause_of
from cachekit.writers import ELSEWHERE, check_name, check_writers

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
            check_writers(path, source.fileno(), _WHY, settings=True, own=path == user_file())
            return parse(_decoded(source.read(), path), path)
    except OSError as error:
        hint = "correct or remove the file"
        with suppress(OSError):
            hint = hint if path_steps.is_mine(path.lstat()) else ELSEWHERE
        cause = f"it leads to {path.readlink()}: {cause_of(error)}" if path.is_symlink() else cause_of(error)
        raise UsageError(f"{path} cannot be read", cause=cause, hint=hint) from error


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
    """Whether anything has the name, so that it is read, or refused: settings that cannot be read are not left out.

    Such are a pipe, a folder, as docker makes one for a file that it does not find, a link that leads nowhere, and all
    on a mount that has failed. In a folder that is closed to this user nothing is: after `sudo -u`, HOME may still be
    another's.
    """
    try:
        path.lstat()
    except OSError as error:
        return error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENAMETOOLONG}
    return True


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
    raise UsageError(f"cannot add to {path}", hint=f"edit it: {wanted}")


def write(path: Path, text: str) -> None:
    """Write a settings file, whole or not at all, where it says anything else so far; a link to one stays.

    Raises:
        UsageError: It cannot be written.
    """
    raw = text.encode("utf-8")
    try:
        if not path.exists() or files.read(path) != raw:
            make(path.parent)
            files.replace(path.resolve(), raw, mode=FILE)
    except OSError as error:
        raise UsageError(f"{path} cannot be written", cause=cause_of(error)) from error


def make(folder: Path, mode: int = FOLDER) -> None:
    """Make a folder, and what is missing above it, that others cannot write to: else what lies in it is refused."""
    if not folder.exists():
        make(folder.parent, mode)
        with suppress(FileExistsError):
            folder.mkdir(mode)


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
