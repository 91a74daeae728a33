"""Settings, each with its origin: flag > environment > project file > user file > default.

The project file is `cachekit.toml`, or `[tool.cachekit]` in `pyproject.toml`, in the working directory or the nearest
parent that has one. The user file is `config.toml` in the platform's configuration folder (`~/.config/cachekit`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import Struct

from cachekit import secrecy
from cachekit.errors import UsageError
from cachekit.settings import SETTINGS, by_default

PREFIX = "CACHEKIT_"
# What a pyproject.toml with `[tool.cachekit]` has somewhere, in any of TOML's spellings of it; others may have it too.
_OURS = r"""tool["']?\s*(\.\s*["']?cachekit|\]|=)"""
TRUE_WORDS = {"1", "true", "yes", "on"}
FALSE_WORDS = {"0", "false", "no", "off", ""}


class Setting(Struct, frozen=True):
    """A value and where it came from.

    Attributes:
        name: Its name in a file; `CACHEKIT_<NAME>` in the environment.
        value: The checked value.
        origin: `flag`, `environment CACHEKIT_…`, a file's path, or `default`.
        help: One line for people.
    """

    name: str
    value: Any
    origin: str
    help: str

    def __repr__(self) -> str:
        return f"Setting({self.name!r}, {secrecy.shown(self.value)!r}, {self.origin!r})"


class Config(Struct, frozen=True):
    """All settings of one run.

    Attributes:
        home: The store's folder.
        live_dir: Where live roots are made; they are host-local and short-lived.
        compiler: `auto`, or the compiler's name.
        wait_seconds: How long to wait for another process that compiles the same key.
        keep_logs: How many days run logs and journals are kept.
        cache: The chain of caches, `NAME[:r|w|rw]` each, the local store first; see `tiers.chain`.
        tiers: What names in it stand for: `url`, and options of the adapter.
        lease_seconds: How long a silent machine may hold the right to compile a key for the fleet; 0 chooses.
        push_seconds: How long a push may take, with waiting for a busy cache.
        neighbour_bytes: The largest record of another key that a warm starts from; 0 is none.
        gc_max_size: Bytes that `gc` leaves in the store, where nothing else is said; None is no limit.
        gc_max_age: Seconds after which `gc` removes a record that was not used; None is no limit.
        settings: The same values with their origins.
        trust_all: Use what anybody may have made. Only a command says so: no file, and no variable.
    """

    home: Path
    live_dir: Path
    compiler: str
    wait_seconds: float
    keep_logs: int
    cache: tuple[str, ...]
    tiers: Mapping[str, Mapping[str, str]]
    lease_seconds: float
    push_seconds: float
    neighbour_bytes: int
    gc_max_size: int | None
    gc_max_age: float | None
    settings: tuple[Setting, ...]
    trust_all: bool = False

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{one.name}={secrecy.shown(one.value)!r}' for one in self.settings)})"


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


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return parse(path.read_text(encoding="utf-8"), path)
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
        if _is_file(own):
            return own, _read_toml(own)
        shared = folder / "pyproject.toml"
        # Reading every pyproject.toml as TOML costs; most don't have a table of ours, however it is written.
        if _is_file(shared) and re.search(_OURS, _glance(shared)):
            tool = _read_toml(shared).get("tool")
            table = tool.get("cachekit") if isinstance(tool, dict) else None
            if isinstance(table, dict):
                return shared, table
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # in a folder that is closed to this user: after `sudo -u`, HOME may still be another's
        return False


def _glance(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # somebody else's, and most likely about other things
        return ""


def user_file() -> Path:
    """The path of the user's own settings file."""
    import platformdirs

    return platformdirs.user_config_path("cachekit") / "config.toml"


def _from_file(path: Path, table: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    for name in table:
        if name not in SETTINGS:
            near = get_close_matches(name, SETTINGS, n=1)
            raise UsageError(
                f"{path}: unknown setting {name!r}",
                cause="settings are: " + ", ".join(SETTINGS),
                hint=f"did you mean {near[0]!r}?" if near else "remove the line",
            )
    found = {name: (value, str(path)) for name, value in table.items()}
    for name in ("home", "live_dir"):
        # A relative folder starts at the file: it must mean the same from every working directory.
        value = table.get(name)
        if isinstance(value, str) and value and not value.startswith(("~", "$")):
            found[name] = (str(path.parent / value), str(path))
    tables = table.get("tiers")
    if isinstance(tables, dict):
        found["tiers"] = ({name: _anchored(one, path.parent) for name, one in tables.items()}, str(path))
    return found


def _anchored(table: Any, folder: Path) -> Any:
    url = table.get("url") if isinstance(table, dict) else None
    if not isinstance(url, str) or not url or "://" in url or url.startswith(("/", "~", "$")):
        return table
    if secrecy.has_secret(url):  # a mistyped address, which is refused as it is, and would be shown as a folder
        return table
    return {**table, "url": str(folder / url)}


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Config:
    """Collect the settings from all their sources.

    Args:
        flags: What the command line said; None values are "not said".
        environ: The environment; the process's own by default.
        cwd: Where the search for a project file starts.

    Raises:
        UsageError: A file is no TOML, names an unknown setting, or a value is of the wrong kind.
    """
    environ = os.environ if environ is None else environ
    found: dict[str, tuple[Any, str]] = {name: (value, "default") for name, value in by_default().items()}
    if _is_file(own := user_file()):
        found |= _from_file(own, _read_toml(own))
    if project := project_file(cwd or Path.cwd()):
        found |= _from_file(*project)
    for name in SETTINGS:
        variable = PREFIX + name.upper()
        if environ.get(variable):
            found[name] = (environ[variable], f"environment {variable}")
    found |= {name: (value, "flag") for name, value in (flags or {}).items() if value is not None}
    return _made(found)


def defaults() -> Config:
    """The settings of somebody who has none: what is left where files cannot be read."""
    return _made({name: (value, "default") for name, value in by_default().items()})


def _made(found: Mapping[str, tuple[Any, str]]) -> Config:
    values: dict[str, Any] = {}
    settings = []
    for name, (read, text) in SETTINGS.items():
        raw, origin = found[name]
        if name == "live_dir" and raw is None:
            raw = values["home"] / "v1" / "live"
        try:
            values[name] = read(raw)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            flag = name.removeprefix("gc_").replace("_", "-") if name.startswith("gc_") else name.partition("_")[0]
            raw = secrecy.shown(raw)
            said = f"--{flag} {raw}" if origin == "flag" else f"setting {name} = {raw!r}"
            wanted = str(error) if "or more" in str(error) else f"{error}; wanted is {text}"
            raise UsageError(
                f"{said} is not usable",
                cause=f"from {origin}: {secrecy.address(wanted)}",
                hint="give another value" if origin == "flag" else f"correct {origin.removeprefix('environment ')}",
            ) from error
        settings.append(Setting(name, values[name], origin, text))
    return Config(**values, settings=tuple(settings))


def flag_from_environment(name: str, environ: Mapping[str, str] | None = None) -> bool:
    """Read a yes/no variable.

    Raises:
        UsageError: It is set to something that is neither yes nor no.
    """
    text = (os.environ if environ is None else environ).get(name, "").strip().lower()
    if text in TRUE_WORDS:
        return True
    if text in FALSE_WORDS:
        return False
    raise UsageError(f"{name}={text} is neither yes nor no", hint=f"unset {name}, or set it to 1 or 0")
