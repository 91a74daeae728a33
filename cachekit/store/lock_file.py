"""`cachekit.lock`: the exact artifacts of recipes, in a file that lies with the user's code.

    {"version": 1, "locked": [{"recipe": "bert", "set": [], "remote": "hf://team/cache", "revision": "…",
                               "digest": "…", "record": {…}}]}

The record is whole, with every ingredient and every file, so that the lock alone says what must come, whatever becomes
of the remotes, and a diff of it says what changed. Who made it, and on which host, is left out: such a file is often
public. `digest` is the SHA-256 of the record as it was found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from cachekit import files
from cachekit.decode import from_builtins
from cachekit.errors import UnknownNameError, UsageError
from cachekit.recipe import zoo
from cachekit.store.record import DamagedRecordError, Record, from_document, parse, sealed
from cachekit.text import cause_of, cut, typed
from cachekit.values import by_value
from cachekit.writers import check_writers

NAME = "cachekit.lock"
VERSION = 1
_WIDTH = 110  # what fits in here stands in one line
_ORDER = ("recipe", "set", "tiny", "toolchain", "instance", "remote", "revision", "digest", "record")


class Locked(Struct, frozen=True, rename={"overrides": "set"}):
    """One recipe's artifacts.

    Attributes:
        recipe: As it was named; a path is one from the lock file's folder.
        overrides: Fields that were changed.
        digest: SHA-256 of the record as it was found.
        record: The record, without user and host.
        remote: The remote that has them; `local` where only the store did.
        revision: That cache's state, where it has such.
        tiny: It is the recipe in small.
        toolchain: The release that it was planned for; empty is the host's own.
        instance: Likewise the instance type.
    """

    recipe: str
    overrides: tuple[str, ...]
    digest: str
    record: Record
    remote: str = ""
    revision: str = ""
    tiny: bool = False
    toolchain: str = ""
    instance: str = ""

    __hash__ = by_value

    @property
    def name(self) -> tuple[object, ...]:
        """What a later lock of the same replaces."""
        return self.recipe, self.overrides, self.record.compiler, self.instance, self.tiny

    @property
    def words(self) -> str:
        """The recipe with its changes, as somebody types them."""
        return words(self.recipe, self.overrides, tiny=self.tiny)


def words(recipe: str, overrides: Sequence[str], *, tiny: bool) -> str:
    """A recipe with its changes, as somebody types them."""
    return typed(recipe, overrides, {}, tiny=tiny)


def anonymous(record: Record) -> Record:
    """A record without who made it, and where."""
    return structs.replace(record, provenance=structs.replace(record.provenance, user="", host=""))


def nearest() -> Path:
    """The lock file of the working directory, else of the nearest folder above that has one, else a new one here."""
    here = Path.cwd()
    found = next((path for folder in here.parents if (path := folder / NAME).is_file()), None)
    return found if found and not Path(NAME).is_file() else Path(NAME)


def read(path: Path) -> list[Locked]:
    """Read a lock file.

    Raises:
        UsageError: It is not a lock file, was written by a newer cachekit, cannot be read, or another user of the
            machine can have written it.
    """
    try:
        with files.opened(path) as source:
            why = "a lock file says which artifacts run here"
            check_writers(path, source.fileno(), why, found=path == nearest())
            document = parse(source.read())
        if document.get("version") != VERSION:
            raise UsageError(
                f"{path} was written by a newer cachekit, or is not a lock file",
                cause=f"its version is {cut(str(document.get('version')), 20)}, this cachekit reads {VERSION}",
                hint="upgrade cachekit, or write a new one: cachekit store lock RECIPE",
            )
        return [_entry(item) for item in document["locked"]]
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read", cause=cause_of(error), hint="cachekit store lock RECIPE writes one"
        ) from error
    except (DamagedRecordError, KeyError, TypeError, AttributeError, ValueError, msgspec.ValidationError) as error:
        raise UsageError(
            f"{path} is not a lock file",
            cause=cut(str(error), 200),
            hint="restore the file from git, or delete it and run `cachekit store lock` again",
        ) from error


def _entry(item: dict[str, Any]) -> Locked:
    # Through the same door as a record of a stranger: names that leave a folder, a key that is another's.
    body = item["record"]
    record = from_document(sealed("record", body))
    if record is None:
        raise DamagedRecordError("a record in the file was made by a newer cachekit")
    return from_builtins({"set": [], "digest": "", **item, "record": msgspec.to_builtins(record)}, Locked)


def text(entries: Sequence[Locked]) -> str:
    """The file's text: sorted, one file of a module a line."""
    locked = []
    for entry in sorted(entries, key=lambda entry: (*map(str, entry.name), entry.record.key)):
        said = msgspec.to_builtins(entry) | {"record": _sorted(msgspec.to_builtins(entry.record))}
        only = {"tiny", "toolchain", "instance"}  # said where they are not what they mostly are
        locked.append({name: said[name] for name in _ORDER if said[name] or name not in only})
    return "\n".join(_lines({"version": VERSION, "locked": locked}, "")) + "\n"


def write(path: Path, entries: Sequence[Locked]) -> bool:
    """Write a lock file, whole or not at all; returns whether it changed.

    Raises:
        UsageError: It cannot be written.
    """
    fresh = text(entries)
    try:
        if path.exists() and files.read(path) == fresh.encode():
            return False
        files.replace(path, fresh.encode())
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written", cause=cause_of(error), hint="choose another file with --lock-file"
        ) from error
    return True


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value


def _lines(value: Any, indent: str) -> list[str]:
    """JSON as people read it: what is flat and short stands in one line."""
    whole = json.dumps(value, ensure_ascii=False)
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    flat = not any(isinstance(item, dict | list) and item for item in inner)
    if not inner or (flat and len(indent) + len(whole) <= _WIDTH) or _is_file(value):
        return [whole]
    names = [f"{json.dumps(name, ensure_ascii=False)}: " for name in value] if isinstance(value, dict) else []
    lines = []
    for number, item in enumerate(inner):
        first, *rest = _lines(item, f"{indent}  ")
        lines += [f"  {names[number] if names else ''}{first}", *(f"  {line}" for line in rest)]
        lines[-1] += "," if number < len(inner) - 1 else ""
    start, end = "{}" if names else "[]"
    return [start, *lines, end]


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"path", "sha256", "size"}


# Recipes as a lock file names them


def in_file(name: str, path: Path) -> str:
    """A recipe as it stands in a lock file: a path is one from the file's folder, wherever it is named."""
    given = Path(name)
    try:
        if given.is_absolute() or name.startswith("~") or zoo.recipe_path(name) != given:
            return name
    except UnknownNameError:  # told by whoever wants to read it
        return name
    return os.path.relpath(given.absolute(), path.absolute().parent)


def from_here(name: str, path: Path) -> str:
    """A recipe of a lock file as it is named in the working directory."""
    there = path.parent / name
    inside = there.exists() or (Path(name).suffix in {".yaml", ".yml"} and Path(name).parts[:1] != ("recipes",))
    return os.path.relpath(there) if inside and path.absolute().parent != Path.cwd() else name


def chosen(held: Sequence[Locked], recipes: Sequence[str], path: Path) -> list[Locked]:
    """The entries of these recipes; without any all of them.

    Raises:
        UsageError: The file locks nothing.
        UnknownNameError: It does not lock one of them.
    """
    if not held:
        raise UsageError(f"{path} locks nothing yet", hint="cachekit store lock RECIPE")
    recipes = [in_file(name, path) for name in recipes]
    known = {entry.recipe for entry in held}
    if unknown := [name for name in recipes if name not in known]:
        raise UnknownNameError(
            f"{unknown[0]} is not in {path}",
            cause=f"it locks {', '.join(sorted(known))}",
            hint="cachekit store lock RECIPE",
        )
    return [entry for entry in held if not recipes or entry.recipe in recipes]
