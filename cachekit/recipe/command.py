"""A command as somebody types it: the script or module that it runs, its launchers, arguments, and files of code.

The code is the script, and the modules beside it that it imports, as far as text tells. Nothing is run: what is not
understood stays as it is, and what is imported by a name that is only known at run time is not seen.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, structs

from cachekit import files
from cachekit.text import spelled

PYTHON = re.compile(r"^(python|pypy)[\d.]*$")
SHELLS = frozenset({"bash", "dash", "ksh", "sh", "zsh"})
# Modules that `python -m` runs and that run something themselves, and programs of the same kind.
LAUNCHERS = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torchrun": "torchrun",
    "accelerate": "accelerate",
    "accelerate.commands.launch": "accelerate",
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "neuron_parallel_compile": "neuron_parallel_compile",
    "torch_neuronx.parallel_compile.neuron_parallel_compile": "neuron_parallel_compile",
}
# Options of torchrun without a value, by their names in torch/distributed/run.py; every other has one.
_TORCHRUN_FLAGS = frozenset(
    {"standalone", "no-python", "run-path", "use-env", "virtual-local-rank", "signals-to-handle-none"}
)
# Python's options may stand in one word, the last one with its value in it or after it: `-um mod`, `-Ic code`.
_PYTHON_VALUES = re.compile(r"-[^-cmWX]*[WX]|--check-hash-based-pycs")
_JOINED = re.compile(r"(-[^-cmWX]*)([cm])(.*)", re.DOTALL)
_MODULE = frozenset({"-m", "--module"})


class CommandLine(Struct, frozen=True):
    """What is known of a command.

    Attributes:
        words: As they were given.
        launchers: The words before what is run: programs and their options.
        python: The word that names the Python which runs it, or a program with one in its first line; empty if unknown.
        script: The script; empty where a module, a program or code is run.
        module: The module of `-m`.
        code: The code of `-c`.
        arguments: The words after it.
    """

    words: tuple[str, ...]
    launchers: tuple[str, ...]
    python: str = ""
    script: str = ""
    module: str = ""
    code: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What a person would call it: the script's file, the module, or the program; in words that JSON can hold."""
        if self.script:
            return spelled(Path(self.script).name or self.script)
        return spelled(self.module or Path(self.words[0]).name)


def read(words: Sequence[str]) -> CommandLine:
    """Find out what a command runs."""
    return structs.replace(_read(tuple(words)), words=tuple(words))


def _read(given: tuple[str, ...], position: int = 0, python: str = "") -> CommandLine:
    while position < len(given):
        name = Path(given[position]).name
        if PYTHON.match(name):
            return _python(given, position + 1, python or given[position])
        kind = LAUNCHERS.get(name) or LAUNCHERS.get(given[position])
        if kind is not None:
            python = python or given[position]
            if kind == "torchrun":
                return _torchrun(given, position + 1, python)
        elif name in SHELLS:
            return _shell(given, position + 1)
        elif _is_script(given[position]):
            return _script(given, position, python)
        elif position == 0 and "/" in given[0] and Path(given[0]).is_file():
            return _script(given, 0, given[0])
        position += 1
    return CommandLine(given, given[:1], arguments=given[1:])


def _is_script(word: str) -> bool:
    return word.endswith(".py") and not word.startswith("-") and "=" not in word


def _script(words: tuple[str, ...], at: int, python: str) -> CommandLine:
    return CommandLine(words, words[:at], python, script=words[at], arguments=words[at + 1 :])


def _python(words: tuple[str, ...], at: int, python: str) -> CommandLine:
    """After the word `python`: its own options, then a script, a module, code or a launcher.

    Activated or not, a launcher is a script for Python, too: `python bin/torchrun train.py`.
    """
    while at < len(words):
        word = words[at]
        joined = _JOINED.fullmatch(word)
        if joined and word not in {"-c", "-m"}:
            parts = (joined[1].rstrip("-"), f"-{joined[2]}", joined[3])
            return _python((*words[:at], *filter(None, parts), *words[at + 1 :]), at, python)
        if word == "-c" and at + 1 < len(words):
            return CommandLine(words, words[:at], python, code=words[at + 1], arguments=words[at + 2 :])
        if word == "-m" and at + 1 < len(words):
            if words[at + 1] in LAUNCHERS:
                return _read(words, at + 1, python)
            return CommandLine(words, words[:at], python, module=words[at + 1], arguments=words[at + 2 :])
        if word == "-":
            break
        if not word.startswith("-"):
            return (_read if Path(word).name in LAUNCHERS else _script)(words, at, python)
        at += 2 if _PYTHON_VALUES.fullmatch(word) else 1
    return CommandLine(words, words[:at], python, arguments=words[at:])


def _torchrun(words: tuple[str, ...], at: int, python: str) -> CommandLine:
    as_module = as_program = False
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        name = word.lstrip("-").replace("_", "-")
        as_module |= word in _MODULE
        as_program |= name == "no-python"
        at += 1 if word in _MODULE or "=" in word or name in _TORCHRUN_FLAGS else 2
    if at >= len(words):
        return CommandLine(words, words, python)
    if as_module:
        return CommandLine(words, words[:at], python, module=words[at], arguments=words[at + 1 :])
    if as_program:
        inner = read(words[at:])
        launchers = (*words[:at], *inner.launchers)
        return structs.replace(inner, words=words, launchers=launchers, python=inner.python or python)
    return _script(words, at, python)


def _shell(words: tuple[str, ...], at: int) -> CommandLine:
    while at < len(words) and words[at].startswith("-"):
        if "c" in words[at].lstrip("-") and not words[at].startswith("--") and at + 1 < len(words):
            return CommandLine(words, words[:at], code=words[at + 1], arguments=words[at + 2 :])
        at += 1
    if at >= len(words):
        return CommandLine(words, words)
    return CommandLine(words, words[:at], script=words[at], arguments=words[at + 1 :])


# What may be said of arguments


def option_name(word: str) -> str:
    """`--Output-Dir=x` as `output_dir`; empty where a word is not an option. Hydra's `a.b=x` is one, too."""
    if word.startswith("-") and not re.match(r"^-\d", word):
        return word.lstrip("-").partition("=")[0].replace("-", "_").lower()
    name, equals, _ = word.partition("=")
    return (
        name.lstrip("+~").replace("-", "_").lower() if equals and re.match(r"^[+~]*[A-Za-z_][\w.@/-]*$", name) else ""
    )


def split_options(words: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Words in groups: an option with the value that follows it, and every other word alone; with the option's name."""
    groups: list[tuple[str, tuple[str, ...]]] = []
    position = 0
    while position < len(words):
        word = words[position]
        name, following = option_name(word), words[position + 1 : position + 2]
        takes = word.startswith("-") and name and "=" not in word and following
        if takes and not option_name(following[0]).strip() and not following[0].startswith("--"):
            groups.append((name, (word, following[0])))
            position += 2
        else:
            groups.append((name, (word,)))
            position += 1
    return groups


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


def content(path: Path) -> bytes:
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
    seen, names = set(pending), set[str]()
    found: dict[str, Path] = {}
    while pending and len(found) < MOST:
        path = pending.pop()
        for name in (name for name in _imports(path, _package(path, roots)) if name not in names):
            names.add(name)  # each is looked up once, however many files import it
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
    for node in _nodes(content(path)):
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
    text = content(path).decode("utf-8", "replace")
    found: dict[str, Path] = {}
    for word in _PY_WORD.findall(text):
        bare = _NAME.sub("", word).lstrip("/") if "$" in word else word
        for base in (cwd, path.parent):
            file = base / bare
            if file.is_file() and file.resolve() != path.resolve():
                found.setdefault(Path(bare).as_posix(), file)
                break
    return dict(sorted(found.items()))
