"""Other tools' settings: what is known of them, and a document of them that is taken apart one by one.

What is known is `registry/conversions.yaml`, typed; each part names its source. What nobody takes of a `Tree` is what
could not be carried over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from msgspec import Struct

from cachekit.recipe import zoo
from cachekit.recipe.schema import TaskName


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    """One of Transformers' example scripts.

    Attributes:
        task: Which recipes stand for it.
        training: What it takes where nothing is said, and a recipe takes something else.
        data: Its arguments that name columns and splits, and the fields of `data` that stand for them.
        dynamic: It fills a batch up to its longest text where no length is said, which would be a graph a length.
        finds: How it finds the columns of a file that somebody brings; empty where a recipe finds the same.
        model: The model that it takes where none is named.
    """

    task: TaskName
    training: dict[str, Any] = {}
    data: dict[str, str] = {}
    dynamic: bool = False
    finds: str = ""
    model: str = ""


class Examples(Struct, frozen=True, forbid_unknown_fields=True):
    """Transformers' example scripts, and the launchers before them."""

    source: str
    scripts: dict[str, Script]
    training: dict[str, str]
    lora: dict[str, str]
    parallel: dict[str, str]
    workers: tuple[str, ...]
    meeting: tuple[str, ...]
    needless: frozenset[str]
    files: dict[str, tuple[str, ...]]
    reasons: dict[str, str]
    environment: tuple[str, ...]
    environment_ours: dict[str, str]


class DataSets(Struct, frozen=True, forbid_unknown_fields=True):
    """Splits, columns and labels of data sets on the Hub: fields of `data`."""

    source: str
    fields: dict[str, dict[str, Any]]


class Nxdt(Struct, frozen=True, forbid_unknown_fields=True):
    """NeuronX Distributed Training. `numbers`: fields of a recipe, and the paths that say them, the first one first."""

    source: str
    numbers: dict[str, tuple[str, ...]]
    config: dict[str, str]
    modules: dict[str, tuple[str, ...]]
    schedules: dict[str, str]
    reasons: dict[str, str]


class Metaflow(Struct, frozen=True, forbid_unknown_fields=True):
    """metaflow-trainium."""

    source: str
    names: dict[str, str]
    shapeless: frozenset[str]
    reasons: dict[str, str]


class Conversions(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    examples: Examples
    data_sets: DataSets
    nxdt: Nxdt
    metaflow: Metaflow


@cache
def tables() -> Conversions:
    """The file's contents, read once."""
    return zoo.registered("conversions.yaml", Conversions)


def data_fields(name: str, config: Any = None) -> dict[str, Any]:
    """Fields of `data` for a data set of the Hub; empty where nothing is known of it."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    known = tables().data_sets.fields
    return dict(known.get(f"{last}/{str(config).lower()}") or known.get(last, {}))


_REFERENCE = re.compile(r"\$\{(\.?[A-Za-z_][\w.]*)\}")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
LONGEST_NUMBER = 40  # digits
DEEPEST = 10  # references to references


class Tree:
    """A document of nested mappings, or the options of a command."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._leaves = dict(_leaves(document))

    def has(self, path: str) -> bool:
        """Whether something stands at a path, null too."""
        parent, _, name = path.rpartition(".")
        found = self._at(parent) if parent else self._document
        return isinstance(found, dict) and name in found

    def look(self, *paths: str) -> Any:
        """The value at the first of these paths that has one, references resolved; it stays there."""
        for path in paths:
            value = self._at(path)
            if value is not None:
                return self._resolved(value, path.rpartition(".")[0])
        return None

    def take(self, *paths: str) -> Any:
        """The same value, and all of these paths count as taken."""
        value = self.look(*paths)
        for path in paths:
            for leaf in [leaf for leaf in self._leaves if leaf == path or leaf.startswith(f"{path}.")]:
                del self._leaves[leaf]
        return value

    def number(self, *paths: str) -> int | float | None:
        """The same value, if it is a number; anything else stays untaken."""
        value = plain(self.look(*paths))
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        self.take(*paths)
        return value

    def flag(self, name: str) -> bool:
        """Whether a flag is given and on; it is taken."""
        return is_true(self.take(name))

    def left(self) -> list[tuple[str, Any]]:
        """What nobody took: paths and values; empty ones say nothing."""
        return [
            (path, value) for path, value in self._leaves.items() if value is not None and value not in ("", [], {})
        ]

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
            if whole := _REFERENCE.fullmatch(value):
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


def plain(value: Any) -> Any:
    """A word as the number, truth value or nothing that it spells; any other value as it is."""
    if not isinstance(value, str):
        return value
    words = {"true": True, "false": False, "none": None, "null": None}
    if value.lower() in words:
        return words[value.lower()]
    if len(value) > LONGEST_NUMBER or not _NUMBER.fullmatch(value):
        return value
    return int(value) if value.lstrip("+-").isdecimal() else float(value)


def is_true(value: Any) -> bool:
    """Whether a flag is on."""
    return value is True or str(value).lower() in {"true", "1", "yes", "y", "t"}
