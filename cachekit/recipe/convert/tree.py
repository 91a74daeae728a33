"""A YAML document that is taken apart field by field: what nobody takes is what could not be carried over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_REFERENCE = re.compile(r"\$\{(\.?[A-Za-z_][\w.]*)\}")
_WHOLE = re.compile(r"^\$\{(\.?[A-Za-z_][\w.]*)\}$")
DEEPEST = 10  # references to references


class Tree:
    """A document of nested mappings.

    Args:
        document: Plain values.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._leaves = dict(_leaves(document))

    def has(self, path: str) -> bool:
        """Whether something stands at a path, null too."""
        found: Any = self._document
        for part in path.split("."):
            if not isinstance(found, dict) or part not in found:
                return False
            found = found[part]
        return True

    def look(self, *paths: str) -> Any:
        """The value at the first of these paths that has one, references resolved; it stays there."""
        for path in paths:
            value = self._at(path)
            if value is not None:
                return self._resolved(value, path.rpartition(".")[0])
        return None

    def take(self, *paths: str) -> Any:
        """The same, and none of them is left."""
        value = self.look(*paths)
        for path in paths:
            self._leaves.pop(path, None)
            for leaf in [leaf for leaf in self._leaves if leaf.startswith(f"{path}.")]:
                del self._leaves[leaf]
        return value

    def number(self, *paths: str) -> int | float | None:
        """The same, if it is a number; what is none stays there."""
        value = self.look(*paths)
        if isinstance(value, str):
            try:
                value = float(value) if re.search(r"[.eE]", value) else int(value)
            except ValueError:
                return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        self.take(*paths)
        return value

    def left(self) -> Iterator[tuple[str, Any]]:
        """What nobody took: paths and values; empty ones say nothing."""
        for path, value in self._leaves.items():
            if value is not None and value not in ("", [], {}):
                yield path, value

    def _at(self, path: str) -> Any:
        found: Any = self._document
        for part in path.split("."):
            if not isinstance(found, dict):
                return None
            found = found.get(part)
        return found

    def _resolved(self, value: Any, here: str) -> Any:
        """References of OmegaConf, `${trainer.max_steps}` or `${.beside}`; its functions stay as they are written."""

        def target(name: str) -> Any:
            return self._at(f"{here}{name}".lstrip(".") if name.startswith(".") else name)

        for _ in range(DEEPEST):
            if not isinstance(value, str) or "${" not in value:
                return value
            if whole := _WHOLE.match(value):
                value = target(whole[1])
                continue
            filled = _REFERENCE.sub(lambda match: str(target(match[1])), value)
            if filled == value:
                return value
            value = filled
        return value


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, value
