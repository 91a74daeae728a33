"""Set up a remote: make it or look at it, and name it in the project's settings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cachekit import config
from cachekit.errors import AuthError, UsageError
from cachekit.remotes import layout
from cachekit.remotes.address import setup
from cachekit.remotes.port import Repo, Storage
from cachekit.remotes.remotes import Remotes
from cachekit.text import redact

NAME = "hub"  # of the remote in the settings
FILE = "cachekit.toml"
ADDRESS = "hf://"  # of the kind that is set up here


@dataclass(frozen=True, slots=True)
class Used:
    """A cache repo that the project uses from now on.

    Attributes:
        place: The repo.
        file: The settings that name it.
        may: What this project does there: `r` or `rw`.
    """

    place: Repo
    file: Path
    may: str

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "repo": self.place.repo,
            "kind": self.place.kind,
            "url": self.place.url,
            "private": self.place.private,
            "new": self.place.new,
            "file": str(self.file),
            "cache": f"local:rw,{NAME}:{self.may}",
        }


def make(repo: str, *, kind: str, public: bool, endpoint: str = "") -> Repo:
    """Make a cache repo, private unless said otherwise; one that is there is used as it is.

    Raises:
        UsageError: No repo can be called that, or it is there and not as private as asked for.
        RemoteError, AuthError: The Hub cannot be asked, or refuses.
    """
    place = setup(ADDRESS).create(repo, kind=kind, private=not public, endpoint=endpoint or None)
    if not place.private and not public:
        raise UsageError(
            f"{repo} is there already, and anybody can read it",
            hint=f"make it private at {place.url}, choose another name, or say --public",
        )
    return place


def create(repo: str, folder: Path, *, kind: str, public: bool) -> Used:
    """Make a cache repo, and name it in `cachekit.toml` of a folder.

    Raises:
        UsageError: As `make` and `check_settings`; the latter before there is a repo that nobody uses.
        RemoteError, AuthError: The Hub cannot be asked, or refuses.
    """
    check_settings(folder / FILE, repo, kind=kind, may="rw")
    place = make(repo, kind=kind, public=public)
    return Used(place, write_settings(folder / FILE, place, "rw"), "rw")


def use(repo: str, folder: Path, *, kind: str, may: str, endpoint: str = "") -> Used:
    """Name a cache repo in `cachekit.toml` of a folder.

    Raises:
        UsageError: The file names another one, or cannot be written.
        RemoteError, AuthError: The Hub cannot be asked, or has no such repo for this token.
    """
    place = setup(ADDRESS).look(repo, kind=kind, endpoint=endpoint or None)
    if place is None:
        raise AuthError(
            f"there is no repo {repo}, or this token may not see it",
            hint=f"make it with `cachekit hub create {repo}`, or log in with `hf auth login`",
        )
    return Used(place, write_settings(folder / FILE, place, may), may)


def check_settings(path: Path, repo: str, *, kind: str, may: str) -> str:
    """What a settings file says with this cache named in it: its other lines stay. Nothing is written.

    Raises:
        UsageError: It has a `cache` or a remote of that name already, is no TOML, or would hide a project's settings.
    """
    address = f"hf://{'datasets/' if kind == 'dataset' else ''}{repo}"
    wanted = f'cache = "local:rw,{NAME}:{may}", and [remotes.{NAME}] with url = "{redact(address)}"'
    project = config.project_file(path.parent)
    there = project[1] if project and project[0] == path else {}
    if project and project[0] != path:
        raise UsageError(
            f"this project's settings are in {project[0]}",
            cause=f"{path} would hide all of them",
            hint=f"add under [tool.cachekit] there: {wanted}"
            if project[0].parent == path.parent
            else f"run it in {project[0].parent}",
        )
    remotes = there.get("remotes", {})
    table = remotes.get(NAME) if isinstance(remotes, dict) else None
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
    except OSError as error:
        raise UsageError(f"{path} cannot be read", cause=error.strerror or str(error)) from error
    if there.get("cache") in (f"local:rw,{NAME}:{may}", ["local:rw", f"{NAME}:{may}"]) and table == {"url": address}:
        return text
    if "cache" in there or table is not None:
        raise UsageError(f"{path} names a cache already", hint=f"edit it: {wanted}")
    # A key after a table would belong to it: ours goes first.
    made = f'cache = "local:rw,{NAME}:{may}"\n{text}\n[remotes.{NAME}]\nurl = "{address}"\n'
    try:
        config.parse(made, path)
    except UsageError:  # an inline table of remotes, which no line can be added to
        raise UsageError(f"{path} cannot be added to", hint=f"edit it: {wanted}") from None
    return made


def write_settings(path: Path, place: Repo, may: str) -> Path:
    """Add the cache to a settings file, whose other lines stay.

    Raises:
        UsageError: As `check_settings`; or it cannot be written.
    """
    text = check_settings(path, place.repo, kind=place.kind, may=may)
    try:
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written", cause=error.strerror or str(error)) from error
    return path


def every_content(remotes: Remotes) -> list[dict[str, Any]]:
    """What each remote holds that may be read.

    Raises:
        RemoteError, AuthError: One cannot be asked.
    """
    found = []
    for remote in remotes.readable:
        remote.retry()
        with remote.call() as storage:
            found.append({"remote": remote.name, "records": contents(storage)})
    return found


def contents(storage: Storage) -> list[dict[str, Any]]:
    """What a remote holds: records by compiler and model type.

    Raises:
        RemoteError, AuthError: It cannot be asked.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for entry in storage.list(layout.RECORDS, storage.revision()):
        parts = entry.path.removeprefix(f"{layout.RECORDS}/").split("/")
        if len(parts) == 3 and parts[2].endswith(".json"):  # noqa: PLR2004 - compiler, model type, key
            counts[parts[0], parts[1]] += 1
    return [
        {"directory": directory, "model_type": model, "records": count}
        for (directory, model), count in sorted(counts.items())
    ]
