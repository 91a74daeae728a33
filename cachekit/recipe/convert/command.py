"""Calls of example scripts in a text: a shell script, a README or a notebook."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from cachekit.errors import RecipeError
from cachekit.recipe.convert.shell import ShellCommand, commands

_SCRIPT = re.compile(r"^(run_[a-z0-9_]+?)(_no_trainer|_flax|_tf)?\.py$")
DEEPEST = 3  # shells in shells
LARGEST = 1 << 20  # bytes of a file of arguments
_NUMBER = re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$")


@dataclass(slots=True)
class Call:
    """One call of a script.

    Attributes:
        script: `run_glue`.
        launch: The words before it.
        arguments: Name to value; True for a flag without one.
        file: Of JSON, which holds the arguments where it stands in their place.
    """

    script: str
    launch: list[str]
    arguments: dict[str, Any]
    command: ShellCommand
    doubles: list[str] = field(default_factory=list)
    file: str = ""

    @property
    def extracts(self) -> bool:
        """It only compiles: `neuron_parallel_compile` stands before it."""
        return any(PurePosixPath(word).name == "neuron_parallel_compile" for word in self.launch)


def calls(text: str) -> list[Call]:
    """The calls of example scripts in a text, those of scripts that no task stands for as well."""
    return list(_calls(commands(text)))


def _calls(found: Iterable[ShellCommand], depth: int = 0) -> Iterator[Call]:
    for command in found:
        for position, word in enumerate(command.words):
            match = _SCRIPT.match(PurePosixPath(word).name)
            after = command.words[position + 1 :] if match else []
            file = after[0] if len(after) == 1 and after[0].endswith(".json") else ""
            arguments, doubles = options_of(after) if not file else ({}, [])
            # Prose and links name scripts as well: a call says how.
            if match and "://" not in word and (file or any(value is not ... for value in arguments.values())):
                yield Call(match[1], command.words[:position], arguments, command, doubles, file)
                break
            if depth < DEEPEST and "run_" in word and re.search(r"\.py\s", word):  # bash -c '…'
                for inner in _calls(commands(word), depth + 1):
                    inner.command.variables = {**command.variables, **inner.command.variables}
                    yield inner


def options_of(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Options and their values, and the names that stand twice; a word of no option is kept, as `...`."""
    found: dict[str, Any] = {}
    doubles: list[str] = []
    name: str | None = None
    for word in words:
        if word.startswith("--") or (re.match(r"^-[a-z]", word) and not _NUMBER.match(word)):
            text, equals, value = word.lstrip("-").partition("=")
            name = text.replace("-", "_")
            if name in found:
                doubles.append(name)
            found[name] = value if equals else True
            name = None if equals else name
        elif name is None:
            found[word] = ...
        elif found[name] is True:
            found[name] = word
        else:  # of a list
            found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), word]
    return found, doubles


def options_in(file: Path) -> dict[str, Any]:
    """The same from a file of JSON, as `HfArgumentParser.parse_json_file` takes it: names and values.

    Raises:
        RecipeError: It cannot be read, or holds something else.
    """
    document = None
    try:
        if not os.path.isfile(file) or file.stat().st_size > LARGEST:  # noqa: PTH113 - no error for any name
            raise RecipeError(
                f"the script takes its arguments from {file}",
                cause="there is no such file, or none that small",
                hint="put it there: a name that is no whole path is looked for beside the file that has the call",
            )
        document = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        cause = getattr(error, "strerror", "") or str(error)
        raise RecipeError(f"{file} cannot be read as JSON", cause=cause, hint="mend it") from error
    if not isinstance(document, dict):
        raise RecipeError(f"{file} holds no arguments", cause="expected names and values, {...}", hint="mend it")
    return {str(name).replace("-", "_"): _word(value) for name, value in document.items() if value is not None}


def _word(value: Any) -> Any:
    """A value as options have it: words, or True."""
    if value is True or isinstance(value, str):
        return value
    if isinstance(value, list):
        return [str(_word(one)) for one in value]
    return json.dumps(value)


def plain_value(value: Any) -> Any:
    """A word as the number or truth value that it spells."""
    if not isinstance(value, str):
        return value
    if value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if value.lower() in {"none", "null"}:
        return None
    if _NUMBER.match(value) and len(value) < 40:  # noqa: PLR2004 - no number of an argument is longer
        return int(value) if re.fullmatch(r"[-+]?\d+", value) else float(value)
    return value


def take(left: dict[str, Any], *names: str) -> Any:
    """The value of the first of these arguments that is given; all of them are used up."""
    values = [left.pop(name) for name in names if name in left]
    return values[0] if values else None


def is_true(value: Any) -> bool:
    """Whether a flag is on."""
    return value is True or str(value).lower() in {"true", "1", "yes", "y", "t"}
