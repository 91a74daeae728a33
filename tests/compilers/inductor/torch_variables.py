"""The environment variables that the packages of PyTorch's compiler read, from their source."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

# What decides over a graph, its code or its key. Tests, other compilers' back ends and tools stand beside it.
PACKAGES = (
    *("_dynamo", "_functorch", "_higher_order_ops", "_inductor", "_library", "_logging", "_native", "_subclasses"),
    *("compiler", "fx", "_compile.py", "_guards.py", "_ops.py", "_utils_internal.py"),
)
READERS = ("environ.get", "getenv", "environ.setdefault")
# `Config(env_name_force="A", env_name_default=["B", "C"])` of torch.utils._config_module.
KEYWORDS = {"env_name_force", "env_name_default"}
WORDS = ("environ", "getenv", *KEYWORDS)  # a file without any of them reads no variable, and need not be parsed


def read_by_torch() -> dict[str, set[str]]:
    """Variable to the files that read it."""
    spec = importlib.util.find_spec("torch")
    assert spec
    assert spec.submodule_search_locations
    root = Path(spec.submodule_search_locations[0])
    found: dict[str, set[str]] = {}
    for package in PACKAGES:
        place = root / package
        for path in [place] if place.is_file() else place.rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            if not any(word in source for word in WORDS):
                continue
            for name in _names(ast.parse(source)):
                found.setdefault(name, set()).add(path.relative_to(root).as_posix())
    return found


def _names(tree: ast.Module) -> Iterator[str]:
    constants = {
        target.id: statement.value.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name) and isinstance(statement.value.value, str)
    }

    def texts(node: ast.expr) -> Iterator[str]:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
            yield node.value
        elif isinstance(node, ast.Name) and node.id in constants:
            yield constants[node.id]
        elif isinstance(node, ast.List | ast.Tuple):
            for element in node.elts:
                yield from texts(element)

    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if node.args and ast.unparse(node.func).endswith(READERS):
                yield from texts(node.args[0])
            for keyword in node.keywords:
                if keyword.arg in KEYWORDS:
                    yield from texts(keyword.value)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
            yield from texts(node.slice)
        elif isinstance(node, ast.Compare) and any(
            ast.unparse(right).endswith("environ") for right in node.comparators
        ):
            yield from texts(node.left)
