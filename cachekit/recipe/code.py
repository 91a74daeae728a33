"""The files that a script reads as code: itself, and the modules beside it that it imports, as far as text tells.

Nothing is run. What is imported by a name that is only known at run time is not seen.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from cachekit import files

MOST = 2000  # files of one command
LARGEST = 8 << 20  # bytes of one
_PY_WORD = re.compile(r"(?:[\w./${}-]+/)?[\w-]+\.(?:py|sh)\b")
_NAME = re.compile(r"\$\{?\w+\}?")


def digest(path: Path) -> str:
    """The SHA-256 of a file; empty where it cannot be read, or is larger than source code is."""
    try:
        return hashlib.sha256(files.read(path, LARGEST)).hexdigest()
    except OSError:
        return ""


def read(path: Path) -> bytes:
    """A file's content; empty where it cannot be read, or is larger than source code is."""
    try:
        return files.read(path, LARGEST)
    except OSError:
        return b""


def imported(start: Iterable[Path], roots: Sequence[Path]) -> dict[str, Path]:
    """The local modules that these files import, and that those import.

    Args:
        start: Python files.
        roots: Folders that Python looks for modules in, in its order.

    Returns:
        File by name relative to its root, without those of `start`.
    """
    pending = [path.resolve() for path in start]
    seen = set(pending)
    found: dict[str, Path] = {}
    while pending and len(found) < MOST:
        path = pending.pop()
        for name in _imports(path, _package(path, roots)):
            for file, label in _files(name, roots):
                if file.resolve() not in seen:
                    seen.add(file.resolve())
                    found[label] = file
                    pending.append(file.resolve())
    return dict(sorted(found.items()))


def top_level(sources: Iterable[bytes]) -> frozenset[str]:
    """The modules that Python code imports, local or not: `jax` of `import jax.numpy`."""
    found: set[str] = set()
    for source in sources:
        for node in _nodes(source):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return frozenset(found)


def _nodes(source: bytes) -> Iterator[ast.AST]:
    """The parts of Python code; none of what is not Python."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        yield from ast.walk(ast.parse(source))


def _package(path: Path, roots: Sequence[Path]) -> tuple[str, ...]:
    """The package that a file belongs to, for its relative imports."""
    inside = (root.resolve() for root in roots if path.is_relative_to(root.resolve()))
    return next((path.relative_to(root).parent.parts for root in inside), ())


def _imports(path: Path, package: tuple[str, ...]) -> Iterator[str]:
    """The dotted names that a file imports; of `from a import b` both `a` and `a.b`, which may be a module."""
    for node in _nodes(read(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            if node.level > len(package) + 1:
                continue
            parent = ".".join([*base, *filter(None, [node.module])])
            if parent:
                yield parent
            yield from (f"{parent}.{alias.name}".lstrip(".") for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
                yield node.args[0].value.lstrip(".")


def _files(name: str, roots: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """The file of a module in the first root that has it, and those of the packages around it."""
    parts = name.split(".")
    for root in roots:
        hits = []
        for end in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:end])
            for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
                if file.is_file():
                    hits.append((file, file.relative_to(root).as_posix()))
                    break
        if hits or root.joinpath(parts[0]).is_dir():
            yield from hits
            return


def named_in_shell(path: Path, cwd: Path) -> dict[str, Path]:
    """The scripts that a shell script names in its text, as far as they are there: beside it, or in `cwd`."""
    text = read(path).decode("utf-8", "replace")
    found: dict[str, Path] = {}
    for word in _PY_WORD.findall(text):
        bare = _NAME.sub("", word).lstrip("/") if "$" in word else word
        for base in (cwd, path.parent):
            file = base / bare
            if file.is_file() and file.resolve() != path.resolve():
                found.setdefault(Path(bare).as_posix(), file)
                break
    return dict(sorted(found.items()))
