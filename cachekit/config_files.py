"""The files that settings are read from: where they lie, and what they say."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from cachekit import files
from cachekit.errors import UsageError

# What a pyproject.toml with `[tool.cachekit]` has somewhere, in any of TOML's spellings of it; others may have it too.
_OURS = r"""tool["']?\s*(\.\s*["']?cachekit|\]|=)"""


def parse(text: str, path: Path) -> dict[str, Any]:
    """The settings in a file's text.

    Raises:
        UsageError: It is no TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:  # pragma: no cover
        import tomli as tomllib

    try:
        document: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML", cause=str(error), hint="mend or remove the file") from error
    return document


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a file.

    Raises:
        UsageError: It is no TOML, or cannot be read.
    """
    try:
        return parse(files.read(path).decode("utf-8"), path)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid TOML", cause=str(error), hint="mend or remove the file") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read", cause=error.strerror or str(error)) from error


def project_file(start: Path) -> tuple[Path, dict[str, Any]] | None:
    """The project's settings file for a folder, and what it says; None where there is none.

    Raises:
        UsageError: It is no TOML, or cannot be read.
    """
    for folder in (start, *start.parents):
        own = folder / "cachekit.toml"
        if is_there(own):
            return own, read_toml(own)
        shared = folder / "pyproject.toml"
        # Reading every pyproject.toml as TOML costs; most don't have a table of ours, however it is written.
        if is_there(shared) and re.search(_OURS, _glance(shared)):
            tool = read_toml(shared).get("tool")
            table = tool.get("cachekit") if isinstance(tool, dict) else None
            if isinstance(table, dict):
                return shared, table
    return None


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
