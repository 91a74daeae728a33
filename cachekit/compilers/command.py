"""From somebody's own command to a key: what can be known of it without running it.

The key only says which record is fetched. What is in it is found by the compiler's own keys, so an ingredient that is
missing here costs a compile at the worst, and never a wrong result.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cachekit.compilers import Compiler, registry
from cachekit.compilers.prepare import Prepared
from cachekit.errors import UsageError
from cachekit.key.canonical import Ingredients
from cachekit.recipe import Recipe
from cachekit.recipe import code as local_modules
from cachekit.recipe import command as command_line
from cachekit.recipe.architecture import Architecture
from cachekit.recipe.command import PYTHON, CommandLine
from cachekit.recipe.ingredients import Shapes, flat
from cachekit.recipe.schema import Model
from cachekit.store.layout import Place
from cachekit.store.record import COMMAND
from cachekit.text import hide_tokens, names_secret

SCHEMA = 1  # raise it when the meaning of an ingredient below changes
# Arguments that say where output goes or what a run is called, whatever else the user declares.
SOFT = frozenset({"logging_dir", "log_dir", "output_dir", "overwrite_output_dir", "report_to", "run_name"})
# Launchers' options that say where nodes meet and which one this is: each node's own, or another in each run.
_MEETING = frozenset(
    """
    local_addr log_dir machine_rank main_process_ip main_process_port master_addr master_port node_rank rdzv_conf
    rdzv_endpoint rdzv_id redirects tee
    """.split()  # noqa: SIM905
)
# Python's own options for how it prints and where it keeps bytecode.
_BUFFERS = frozenset({"-u", "-B"})
# Small files that an argument names are settings: their content counts.
_SETTINGS = frozenset({".args", ".cfg", ".conf", ".ini", ".json", ".toml", ".txt", ".yaml", ".yml"})
_LARGEST_SETTINGS = 1 << 20  # bytes; what is larger is data
HIDDEN = "<secret>"


def as_recipe(command: CommandLine) -> Recipe:
    """What compilers ask a recipe for, of a command: nothing but its name; everything else the command says itself."""
    return Recipe(name=command.name, model=Model(id=command.name))


def compiler_of(command: CommandLine, cwd: Path | None = None) -> str:
    """The compiler that a command's code is for, as far as its imports tell; `auto` where they do not.

    Args:
        command: The command.
        cwd: Where it will run.

    Raises:
        UsageError: The script is not there.
    """

    def imports() -> frozenset[str]:
        if command.code:
            return local_modules.top_level([command.code.encode("utf-8", "surrogateescape")])
        files = _files(command, cwd or Path.cwd()).values()
        of_files = local_modules.top_level(local_modules.read(path) for path in files)
        return of_files | {command.module.partition(".")[0]} - {""}  # which may be an installed one

    return registry.of_command(imports)


def prepare_command(
    command: CommandLine,
    compiler: Compiler,
    *,
    declared: Mapping[str, str] | None = None,
    soft: Sequence[str] = (),
    cwd: Path | None = None,
    source: str = "",
) -> Prepared:
    """Make the key of a command.

    Args:
        command: The command.
        compiler: Its fingerprint and what in the environment shapes its graphs are ingredients.
        declared: Further ingredients, by name.
        soft: Names of arguments that reach no graph; with their values they are left out.
        cwd: Where the command will run.
        source: For messages.

    Raises:
        UsageError: The script is not there; it runs by another Python than this one; a declared ingredient is a secret.
        CompilerUnavailableError: The compiler is not there.
    """
    cwd = cwd or Path.cwd()
    check_environment(command)
    files = _code(command, cwd)
    recipe = as_recipe(command)
    fingerprint = compiler.fingerprint(recipe, bare=True)
    given = compiler.ingredients(recipe)
    left = SOFT | {name.lstrip("-").replace("-", "_").lower() for name in soft}
    before, _ = _arguments(command.launchers, _MEETING, cwd)
    after, dropped = _arguments(command.arguments, left, cwd)
    hard: dict[str, Any] = {
        "task": COMMAND,
        "command.schema": SCHEMA,
        "command.launchers": [_program(word) for word in before if word not in _BUFFERS],
        "command.name": command.name,
        "command.arguments": after,
        **{f"command.code.{name}": value for name, value in files.items()},
        **{f"command.settings.{name}": value for name, value in _settings(command.words, cwd).items()},
        **{f"ingredient.{name}": value for name, value in _declared(declared or {}).items()},
        "compiler.name": fingerprint.compiler,
        **flat("compiler", given),
        **{f"toolchain.{name}": value for name, value in fingerprint.toolchain.items()},
        **{f"target.{name}": value for name, value in fingerprint.target.items()},
    }
    beside = {
        **{f"toolchain.{name}": value for name, value in fingerprint.soft.items()},
        "command.left_out": sorted(set(dropped)),
    }
    architecture = Architecture({"model_type": COMMAND}, "the command")
    made = Ingredients(hard, beside)
    return Prepared(
        recipe,
        source or command.name,
        Shapes(),
        architecture,
        fingerprint,
        made,
        Place(fingerprint.directory, COMMAND, made.key),
        compiler.foreign,
        compiler.growth,
    )


# Code


def _code(command: CommandLine, cwd: Path) -> dict[str, str]:
    """Digests of the code that will run, by name: the script's first, then of modules beside it."""
    if command.code:
        return {"-c": hashlib.sha256(command.code.encode("utf-8", "surrogateescape")).hexdigest()}
    return {name: local_modules.digest(path) for name, path in _files(command, cwd).items()}


def _files(command: CommandLine, cwd: Path) -> dict[str, Path]:
    """The files of a command's code, by name; none where it runs a program."""
    roots = [cwd / place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if command.module:
        roots = [cwd, *roots]
        found = _module_files(command.module, roots)
    elif command.script:
        script = cwd / command.script
        if not script.is_file():
            if command.python or command.script.endswith(".py"):
                raise UsageError(
                    f"{command.script} is not there",
                    cause=f"the command would run it in {cwd}",
                    hint="check the path, and the working directory",
                )
            return {}
        roots = [script.resolve().parent, *roots]
        found = {script.name: script}
    else:
        return {}
    scripts = list(found.values())
    if command.script and not command.script.endswith(".py"):
        inner = local_modules.named_in_shell(scripts[0], cwd)
        found |= inner
        scripts = [path for path in inner.values() if path.suffix == ".py"]
        roots = [*dict.fromkeys([*(path.resolve().parent for path in scripts), *roots])]
    return found | {f"import/{name}": path for name, path in local_modules.imported(scripts, roots).items()}


def _module_files(module: str, roots: Sequence[Path]) -> dict[str, Path]:
    """The files of `-m`: the module's, or its package's `__main__`; none where it is no local one."""
    for root in roots:
        place = root.joinpath(*module.split("."))
        for path in (place / "__main__.py", place.with_name(f"{place.name}.py")):
            if path.is_file():
                return {path.relative_to(root).as_posix(): path}
    return {}


# Arguments


def _arguments(words: Sequence[str], left: frozenset[str], cwd: Path) -> tuple[list[str], list[str]]:
    """The words that count, in order, and the names of those that were left out."""
    kept: list[str] = []
    dropped: list[str] = []
    for name, group in command_line.split_options(words):
        if name in left or name.rpartition(".")[2] in left:
            dropped.append(name)
            # A flag takes no value: what follows `--overwrite_output_dir` may be the data.
            kept += [_plain(word, cwd) for word in group[1:]] if name.startswith("overwrite") else []
        elif names_secret(name):
            kept.append(f"{group[0].partition('=')[0]}={HIDDEN}")
        else:
            kept += [_plain(word, cwd) for word in group]
    return kept, dropped


def _plain(word: str, cwd: Path) -> str:
    """A word without secrets, and without where this checkout lies."""
    word = hide_tokens(word, HIDDEN)
    for folder in dict.fromkeys((str(cwd), str(cwd.resolve()))):
        if folder.count("/") > 1:
            word = re.sub(rf"(^|[=:,]){re.escape(folder)}(?=/|$|[,:])", r"\1.", word)
    # Bytes that are no text have no JSON form.
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _program(word: str) -> str:
    """A launcher's word: a program is the same wherever it lies."""
    name = Path(word).name
    if PYTHON.match(name):
        return "python"
    return name if name in command_line.LAUNCHERS or name in command_line.SHELLS else word


def shown(command: CommandLine) -> list[str]:
    """A command's words for screens and logs: no secrets."""
    words, _ = _arguments([*command.launchers], frozenset(), Path("/"))
    middle = (["-m", command.module] if command.module else []) + ([command.script] if command.script else [])
    middle = middle or (["-c", "<code>"] if command.code else [])
    after, _ = _arguments(command.arguments, frozenset(), Path("/"))
    if command.module and words and words[-1] in {"-m", "--module"}:
        words = words[:-1]
    return [*words, *middle, *after]


def _settings(words: Sequence[str], cwd: Path) -> dict[str, str]:
    """Digests of the small files that arguments name."""
    found = {}
    for word in words:
        for text in {word, word.partition("=")[2], word.removeprefix("@")} - {""}:
            path = cwd / text
            try:
                settings = path.suffix in _SETTINGS and path.is_file() and path.stat().st_size <= _LARGEST_SETTINGS
            except (OSError, ValueError):
                continue
            if settings:
                found[_plain(text, cwd)] = local_modules.digest(path)
    return found


def _declared(ingredients: Mapping[str, str]) -> dict[str, str]:
    for name, value in ingredients.items():
        if names_secret(name) or hide_tokens(str(value)) != str(value):
            raise UsageError(
                f"--ingredient {name}: this looks like a secret",
                cause="ingredients are written into records, which are shared",
                hint="leave it out; a token reaches no graph",
            )
    return {name: str(value) for name, value in ingredients.items()}


# The Python that runs it


def check_environment(command: CommandLine) -> None:
    """See to it that the command runs in the environment whose versions go into the key.

    Raises:
        UsageError: It runs by a Python of another one.
    """
    prefix = _prefix(command.python) if command.python else None
    if prefix is None or prefix.resolve() == Path(sys.prefix).resolve():
        return
    raise UsageError(
        f"{command.python} is the Python of {prefix}, and cachekit runs in {sys.prefix}",
        cause="the versions there are not those that would go into the key",
        hint=f"install cachekit there, and run {prefix / 'bin' / 'python'} -m cachekit run -- ...",
    )


def _prefix(word: str) -> Path | None:
    """The environment of a Python, or of a script that names one in its first line; None where it cannot be told."""
    found = shutil.which(word)
    if found is None:
        return None
    program = found
    if not PYTHON.match(Path(found).name):
        try:
            with Path(found).open("rb") as stream:
                first = stream.readline(400).decode("utf-8", "replace").strip()
        except OSError:
            return None
        words = first.removeprefix("#!").split()
        if not first.startswith("#!") or not words:
            return None
        program = words[-1] if Path(words[0]).name == "env" else words[0]
        program = shutil.which(program) or ""
        if not PYTHON.match(Path(program).name):
            return None
    if Path(program).parent == Path(sys.executable).parent:
        return Path(sys.prefix)
    try:
        run = subprocess.run(
            [program, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return Path(run.stdout.strip())
