"""What does not fit the schema of a recipe, in the words of its file: place, field, what was expected, nearest name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct

from cachekit.errors import RecipeError
from cachekit.recipe.schema import Recipe
from cachekit.recipe.synonyms import SYNONYMS

_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `(?P<at>.*)`)?$", re.DOTALL)
_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?(?P<at>.*)`)?$", re.DOTALL)


class Places(Struct, frozen=True):
    """The places that the fields of one recipe were said in.

    Attributes:
        source: The file, or what it is called in errors.
        lines: The line of each field that the file has, by its path as it is spelt there.
        overridden: The paths that `--set` gave.
    """

    source: str
    lines: dict[Any, int]
    overridden: set[tuple[str, ...]]

    def where(self, path: tuple[str | int, ...]) -> str:
        """The place of a field, of an item of it, or else of the nearest that is around it; for a message's begin."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.overridden:
                return f"--set {dotted(path[:end])}"
            for given in _spellings(path[:end]):
                if given in self.lines:
                    return f"{self.source}, line {self.lines[given]}"
            below = [other for other in self.overridden if other[:end] == path[:end]]
            if below:
                return f"--set {dotted(below[0])}"
        return self.source


def dotted(path: Iterable[str | int]) -> str:
    """A path as people write it: `training.max_steps`."""
    return ".".join(str(part) for part in path)


def _spellings(path: tuple[str | int, ...]) -> Iterable[tuple[str | int, ...]]:
    """The path itself, and the ways it may have been written with synonyms."""
    yield path
    top = str(path[0])
    tops = [top, *(given for given, name in SYNONYMS[""].items() if name == top)]
    for first in tops:
        yield (first, *path[1:])
        if len(path) > 1:
            for given, name in SYNONYMS.get(top, {}).items():
                if name == path[1]:
                    yield (first, given, *path[2:])


def explained(message: str, document: dict[str, Any], places: Places) -> RecipeError:
    """Turn msgspec's sentence into file, line, field, what was expected, and the nearest valid name.

    Args:
        message: What msgspec said of the document.
        document: What did not fit the schema.
        places: Where its fields were said.
    """
    if match := _UNKNOWN.match(message):
        parent = _path_of(match["at"])
        name = match["name"]
        path: tuple[str | int, ...] = (*parent, name)
        valid = _fields_at(parent)
        synonyms = SYNONYMS.get(dotted(parent), {})
        near = get_close_matches(name, [*valid, *synonyms], n=1, cutoff=0.5)
        known = get_close_matches(name, valid, n=5, cutoff=0.0)
        meant = synonyms.get(near[0], near[0]) if near else ""
        dots = " ..." if len(valid) > len(known) else ""
        return RecipeError(
            f"{places.where(path)}: unknown field {dotted(path)}",
            cause=f"fields of {dotted(parent) or 'a recipe'} are {', '.join(known)}{dots}",
            hint=f"did you mean {dotted((*parent, meant))}?" if meant else "`cachekit zoo schema` lists all fields",
        )
    match = _AT.match(message)
    assert match is not None  # the pattern matches any text
    path = _path_of(match["at"])
    what = match["what"]
    if missing := re.match(r"Object missing required field `(.*?)`", what):
        path = (*path, missing[1])
        return RecipeError(
            f"{places.where(path[:-1])}: {dotted(path)} is missing",
            hint=f"add {dotted(path)}",
        )
    value: Any = document
    for part in path:
        value = value[part]
    if (match["at"] or "").endswith("[...]") and isinstance(value, dict):
        # msgspec does not say which item of a mapping is wrong.
        hint_of_all = get_type_hints(_struct_at(path[:-1])).get(str(path[-1]))
        for name, item in value.items():
            try:
                msgspec.convert({name: item}, hint_of_all)
            except msgspec.ValidationError:
                path, value = (*path, name), item
                break
    choices = _choices(path)
    near = get_close_matches(str(value), choices, n=1)
    expected = re.sub(r", got `.*?`$", "", what[:1].lower() + what[1:])
    hint = (
        f"did you mean {near[0]}?"
        if near
        else (f"one of {', '.join(choices)}" if choices else f"correct {dotted(path)}")
    )
    if path in {("model",), ("data",)} and isinstance(value, str):
        hint = f"say {path[0]}: {{id: {value}}}"
    return RecipeError(f"{places.where(path)}: {dotted(path)} is {value!r}", cause=expected, hint=hint)


def _path_of(at: str | None) -> tuple[str | int, ...]:
    """`$.training.x[0]` as `("training", "x", 0)`; msgspec writes `[...]` for a mapping's or list's unnamed item."""
    if not at:
        return ()
    parts = re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", at)
    return tuple(int(index) if index else name for name, index in parts)


def _struct_at(path: Iterable[str | int]) -> type[msgspec.Struct] | None:
    current: Any = Recipe
    for part in path:
        if isinstance(part, int):
            continue
        hint = get_type_hints(current, include_extras=True).get(part)
        args = [hint, *getattr(hint, "__args__", ())]
        current = next((a for a in args if isinstance(a, type) and issubclass(a, msgspec.Struct)), None)
        if current is None:
            return None
    return current  # type: ignore[no-any-return]


def _fields_at(path: Iterable[str | int]) -> list[str]:
    struct = _struct_at(path)
    return list(struct.__struct_fields__) if struct else []


def _choices(path: tuple[str | int, ...]) -> list[str]:
    struct = _struct_at(path[:-1]) if path else None
    if struct is None or not isinstance(path[-1], str):
        return []
    found: list[str] = []
    pending = [get_type_hints(struct).get(path[-1])]
    while pending:
        hint = pending.pop()
        for arg in getattr(hint, "__args__", ()):
            if isinstance(arg, str):
                found.append(arg)
            elif arg is bool:
                found += ["true", "false"]
            else:
                pending.append(arg)
    return found if any(word not in {"true", "false"} for word in found) else []
