"""The names of Inductor's options, read from the source of `torch._inductor.config`, which importing takes seconds."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from cachekit.errors import RecipeError

SOURCE = ("_inductor", "config.py")


def check(names: Iterable[str]) -> None:
    """Refuse options that the installed Inductor does not have; the worker checks again, and their values too.

    Raises:
        RecipeError: It has no option of that name.
    """
    for name in names:
        known = installed()
        if known and name not in known:
            raise unknown(name, known)


def unknown(name: str, known: Iterable[str], cause: str = "") -> RecipeError:
    """What to say of an option that Inductor does not have."""
    near = get_close_matches(name, known, n=1)
    return RecipeError(
        f"compiler.options.{name} (flag --{name.replace('_', '-')}): Inductor has no such option",
        cause=cause,
        hint=f"did you mean {near[0]}?" if near else "see torch._inductor.config",
    )


@cache
def installed() -> frozenset[str]:
    """The options of the installed torch; empty where its source cannot be read (30 ms)."""
    try:
        spec = importlib.util.find_spec("torch")
        places = spec.submodule_search_locations if spec else None
        source = Path(next(iter(places or ())), *SOURCE).read_text(encoding="utf-8")
        return frozenset(_names(ast.parse(source).body, ""))
    except (ImportError, OSError, ValueError, SyntaxError, StopIteration):
        return frozenset()


def _names(body: Iterable[ast.stmt], prefix: str) -> Iterator[str]:
    """Values of a module and of the classes in it, as `name` and `class.name`: what torch makes a config of."""
    classes: dict[str, list[ast.stmt]] = {}
    for statement in body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None and not _alias(statement.value):
            targets = [statement.target]
        elif isinstance(statement, ast.ClassDef):
            # `class cuda(cutlass)`, `@inherit_fields_from(cutlass)`: with the fields of a class before it.
            named = [node.id for part in _heads(statement) for node in ast.walk(part) if isinstance(node, ast.Name)]
            classes[statement.name] = [*statement.body, *(line for name in named for line in classes.get(name, ()))]
            yield from _names(classes[statement.name], f"{prefix}{statement.name}.")
        elif isinstance(statement, ast.If):
            yield from _names([*statement.body, *statement.orelse], prefix)
        elif isinstance(statement, ast.Try):
            yield from _names([*statement.body, *statement.orelse, *statement.finalbody], prefix)
        yield from (
            f"{prefix}{target.id}"
            for target in targets
            if isinstance(target, ast.Name) and not target.id.startswith("__")
        )


def _heads(statement: ast.ClassDef) -> list[ast.expr]:
    return [*statement.bases, *statement.decorator_list]


def _alias(value: ast.expr) -> bool:
    """`Config(alias=...)`: another name of an option of another module."""
    return isinstance(value, ast.Call) and any(keyword.arg == "alias" for keyword in value.keywords)
