"""Where each field of a recipe was said: in which line of which file, or by which override."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from cachekit.recipe.synonyms import SYNONYMS


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
