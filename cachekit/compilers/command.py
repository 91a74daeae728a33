"""From somebody's own command to a key: what can be known of it without running it.

The key only says which record is fetched. What is in it is found by the compiler's own keys, so an ingredient that is
missing here costs a compile at the worst, and never a wrong result.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachekit import process, redact
from cachekit.compilers import Compiler, registry
from cachekit.compilers.prepare import Prepared, salted
from cachekit.errors import UsageError
from cachekit.files import opened
from cachekit.key.canonical import Ingredients, hashed
from cachekit.recipe import Recipe
from cachekit.recipe import command as command_line
from cachekit.recipe.architecture import Architecture
from cachekit.recipe.command import PYTHON, CommandLine
from cachekit.recipe.ingredients import Shapes, of_compiler
from cachekit.recipe.schema import Model
from cachekit.redact.forms import without_taken
from cachekit.redact.names import SHORTEST, is_secret, names_secret, names_tokens, surely_secret
from cachekit.store.layout import Place
from cachekit.store.record import COMMAND
from cachekit.text import spelled

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
# Options whose value may be a name and a password.
_LOGINS = frozenset({"u", "user", "userpwd", "login"})
_PAIR = re.compile(r"[^/:\s]+:(?!\d+$)[^/\s]+")


def as_recipe(command: CommandLine) -> Recipe:
    """A command as the recipe that compilers ask for: only its name, as the command itself says everything else."""
    return Recipe(name=command.name, model=Model(id=command.name))


def compiler_of(command: CommandLine, cwd: Path | None = None) -> str:
    """The compiler that a command's code is for, as far as its imports tell; `auto` if they do not.

    Raises:
        UsageError: The script is not there.
    """

    def imports() -> frozenset[str]:
        if command.code:
            return command_line.top_level([command.code.encode("utf-8", "surrogateescape")])
        files = _files(command, cwd or Path.cwd()).values()
        of_files = command_line.top_level(command_line.content(path) for path in files)
        return of_files | {command.module.partition(".")[0]} - {""}  # which may be an installed one

    return registry.of_command(imports)


def prepare_command(
    command: CommandLine,
    compiler: Compiler,
    *,
    declared: Mapping[str, str] | None = None,
    soft: Sequence[str] = (),
    cwd: Path | None = None,
    salt: str = "",
) -> Prepared:
    """Make the key of a command.

    Args:
        command: The command.
        compiler: Its fingerprint is an ingredient, and so is what shapes its graphs in the environment.
        declared: Further ingredients, by name.
        soft: Names of arguments that affect no graph: they and their values are left out.
        cwd: Where the command will run.
        salt: Of the settings; see `prepare.salted`.

    Raises:
        UsageError: The script is not there; another Python would run it; a declared ingredient is a secret.
        CompilerUnavailableError: The compiler is not there.
    """
    cwd = cwd or Path.cwd()
    _check_environment(command)
    code = command.code.encode("utf-8", "surrogateescape")
    files = {"-c": hashlib.sha256(code).hexdigest()} if code else _digests(_files(command, cwd))
    recipe = as_recipe(command)
    fingerprint = compiler.fingerprint(recipe, bare=True)
    given = compiler.ingredients(recipe)
    for name, value in (declared or {}).items():
        if names_secret(name) or redact.holds(name) or redact.holds(str(value)):
            raise UsageError(
                f"--ingredient {name}: that looks like a secret",
                cause="ingredients are written into records, which are shared",
                hint="leave the ingredient out, and pass the secret in the environment: it does not affect any graph",
            )
    left = SOFT | {name.lstrip("-").replace("-", "_").lower() for name in soft}
    before, _ = _arguments(command.launchers, _MEETING, cwd)
    after, dropped = _arguments(command.arguments, left, cwd, command.name)
    hard: dict[str, Any] = {
        "task": COMMAND,
        "command.schema": SCHEMA,
        "command.launchers": [_program(word) for word in before if word not in _BUFFERS],
        "command.name": command.name,
        "command.arguments": after,
        **{spelled(f"command.code.{name}"): value for name, value in files.items()},
        **{f"command.settings.{name}": value for name, value in _settings(command.words, cwd).items()},
        **{spelled(f"ingredient.{name}"): spelled(str(value)) for name, value in (declared or {}).items()},
        **of_compiler(fingerprint, given),
    }
    beside = {
        **{f"toolchain.{name}": value for name, value in fingerprint.soft.items()},
        "command.left_out": sorted(set(dropped)),
    }
    architecture = Architecture({"model_type": COMMAND}, "the command")
    made = salted(Ingredients(hard, beside), salt)
    return Prepared(
        recipe,
        command.name,
        compiler,
        Shapes(),
        architecture,
        fingerprint,
        made,
        Place(fingerprint.directory, COMMAND, made.key),
    )


# Code


def _digests(files: Mapping[str, Path]) -> dict[str, str]:
    return {name: command_line.digest(path) for name, path in files.items()}


def _files(command: CommandLine, cwd: Path) -> dict[str, Path]:
    """The files of a command's code, by name: the script, then the modules beside it; none of a program."""
    roots = [cwd / place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if command.module:
        roots = [cwd, *roots]
        found = _module_files(command.module, roots)
    elif command.script:
        script = cwd / command.script
        if command.python and (script / "__main__.py").is_file():  # Python runs a folder by that
            script /= "__main__.py"
        if not script.is_file():
            if command.python or command.script.endswith(".py"):
                there = os.path.lexists(script)
                raise UsageError(
                    f"the script {command.script} {'is not a regular file' if there else 'does not exist'}",
                    cause=f"the command would run in {cwd}",
                    hint="check the script's path, and the working directory",
                )
            return {}
        roots = [script.resolve().parent, *roots]
        found = {script.name: script}
    else:
        return {}
    scripts = list(found.values())
    if command.script and not scripts[0].name.endswith(".py"):
        inner = command_line.named_in_shell(scripts[0], cwd)
        found |= inner
        scripts = [path for path in inner.values() if path.suffix == ".py"]
        roots = [*dict.fromkeys([*(path.resolve().parent for path in scripts), *roots])]
    return found | {f"import/{name}": path for name, path in command_line.imported(scripts, roots).items()}


def _module_files(module: str, roots: Sequence[Path]) -> dict[str, Path]:
    """The files of `-m`: the module's, or its package's `__main__`; none if the module is not a local one."""
    for root in roots:
        place = root.joinpath(*module.split("."))
        for path in (place / "__main__.py", place.with_name(f"{place.name}.py")):
            if path.is_file():
                return {path.relative_to(root).as_posix(): path}
    return {}


# Arguments


def _arguments(words: Sequence[str], left: frozenset[str], cwd: Path, program: str = "") -> tuple[list[str], list[str]]:
    """The words that count, in order and without secrets, and the names of those that were left out."""
    words = without_taken([program, *words], HIDDEN)[1:]
    kept: list[str] = []
    dropped: list[str] = []
    secret = ""  # the name whose value, or further values, may come: `--api_keys A B`, `--set hub_token A`
    awaited = False  # a value that begins with a dash or has `=` in it is a group of its own
    for name, group in command_line.split_options(words):
        option, equals, value = group[0].partition("=")
        dashed = option[:1] == "-"
        if awaited and not option.startswith("--") and (not dashed or len(group[0]) >= SHORTEST):
            kept += [_hidden(secret, word, cwd) for word in (group if not surely_secret(secret) else group[1:])]
            awaited = False
            continue
        if secret and not dashed and not equals:
            kept += [_hidden(secret, word, cwd) for word in group]
            secret = secret if secret.startswith("-") else ""
            continue
        secret, awaited = "", False
        if name in left or name.rpartition(".")[2] in left:
            dropped.append(name)
            # A flag takes no value: what follows `--overwrite_output_dir` may be the data.
            kept += [_plain(word, cwd) for word in group[1:]] if name.startswith("overwrite") else []
        elif not dashed and not equals and _names_secret(option):
            kept.append(option)
            secret = option
        elif surely_secret(option) or (name in _LOGINS and _PAIR.fullmatch(group[-1].removeprefix(f"{option}="))):
            kept.append(f"{option}={HIDDEN}")
            secret, awaited = option, len(group) == 1 and not equals
        elif names_secret(option) or is_secret(option, value or group[-1]):
            kept.append(
                option if len(group) == 1 and not equals else f"{option}={_hidden(option, value or group[-1], cwd)}"
            )
            secret, awaited = option, len(group) == 1 and not equals
        else:
            kept += [_plain(word, cwd) for word in group]
            named = option if name in _LOGINS else ""  # `--login ann X`
            secret = group[1] if len(group) > 1 and _names_secret(group[1]) else named
    return kept, dropped


def _names_secret(word: str) -> bool:
    """Whether a word is the name of a secret, which the next one is: `--set hub_token X`."""
    named = names_secret(word) or names_tokens(word)
    return named and re.fullmatch(r"[A-Za-z][\w.-]*", word) is not None


def _hidden(name: str, word: str, cwd: Path) -> str:
    """What a key has of a value that may be a secret and may be none: other values are other keys."""
    secret = names_secret(name) or is_secret(name, word)
    return f"<secret {hashed(name, _plain(word, cwd))}>" if secret else _plain(word, cwd)


def _plain(word: str, cwd: Path) -> str:
    """A word without secrets, and without where this checkout lies."""
    word = redact.printed(word, hidden=HIDDEN)
    for folder in dict.fromkeys((str(cwd), str(cwd.resolve()))):
        if folder.count("/") > 1:
            word = re.sub(rf"(^|[=:,]){re.escape(folder)}(?=/|$|[,:])", r"\1.", word)
    return spelled(word)


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
    after, _ = _arguments(command.arguments, frozenset(), Path("/"), command.name)
    if command.module and words and words[-1] in {"-m", "--module"}:
        words = words[:-1]
    return [*words, *map(spelled, middle), *after]


def _settings(words: Sequence[str], cwd: Path) -> dict[str, str]:
    """Digests of the small files that arguments name."""
    texts = {text for word in words for text in (word, word.partition("=")[2], word.removeprefix("@")) if text}
    found = {}
    for text in sorted(texts):
        path = cwd / text
        with suppress(OSError, ValueError):
            if path.suffix in _SETTINGS and path.is_file() and path.stat().st_size <= _LARGEST_SETTINGS:
                found[_plain(text, cwd)] = path
    return _digests(found)


# The Python that runs it


def _check_environment(command: CommandLine) -> None:
    """Make sure that the command runs in the environment whose versions go into the key.

    Raises:
        UsageError: The Python of another environment would run the command.
    """
    program = _python(command.python) if command.python else ""
    if not program or Path(program).parent == Path(sys.executable).parent:
        return
    try:
        prefix = Path(process.answer([program, "-c", "import sys; print(sys.prefix)"]).strip())
    except OSError:
        return
    if prefix.resolve() != Path(sys.prefix).resolve():
        raise UsageError(
            f"{command.python} is the Python of {prefix}, and cachekit runs in {sys.prefix}",
            cause="the versions in that environment are not those that would go into the key",
            hint=f"install cachekit there, and run {prefix / 'bin' / 'python'} -m cachekit run -- ...",
        )


def _python(word: str) -> str:
    """The path of a Python, or of the one that a script names in its first line; empty if there is none."""
    program = shutil.which(word) or ""
    if program and not PYTHON.match(Path(program).name):
        first = ""
        with suppress(OSError), opened(program) as stream:
            first = stream.readline(400).decode("utf-8", "replace")
        words = first.removeprefix("#!").split() if first.startswith("#!") else []
        # `#!/usr/bin/env python` names a program, and `#!/usr/bin/python -E` a path.
        named = words[-1] if words and Path(words[0]).name == "env" else "".join(words[:1])
        program = shutil.which(named) or ""
    return program if PYTHON.match(Path(program).name) else ""
