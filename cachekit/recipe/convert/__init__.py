"""Turn what people have into a recipe: a command line of Transformers' examples, or the YAML of two other trainers.

What no field of a recipe stands for is named in the `RecipeDraft`, with the reason. Nothing is run: a script that
decides what runs, a notebook, or a placeholder in the place of a value is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from cachekit.errors import RecipeError
from cachekit.recipe import yaml_text
from cachekit.recipe.convert import examples, trainers
from cachekit.recipe.convert.draft import RecipeDraft
from cachekit.recipe.load import read_text

__all__ = ["RecipeDraft", "convert", "convert_command"]

LARGEST = 4 << 20  # bytes
KINDS = (
    "a command line of Transformers' examples (torchrun ... run_glue.py ...), a shell script that has just that, "
    "a YAML of NeuronX Distributed Training, a YAML of metaflow-trainium"
)
_YAML = frozenset({".yaml", ".yml"})
_SHELL = frozenset({".sh", ".bash"})
_CALLS = re.compile(r"\brun_[a-z0-9_]+\.py\b")
OWN = "a script of your own runs without a recipe: cachekit run -- COMMAND"


def convert_command(words: Sequence[str]) -> RecipeDraft:
    """Make a draft of a recipe of a command line.

    Raises:
        RecipeError: The command calls no example script, or cannot be turned into a recipe.
    """
    if found := examples.read(words):
        return examples.convert(found)
    suffix = PurePath(words[0]).suffix if len(words) == 1 else ""
    if suffix == ".json":
        raise _arguments_alone(words[0])
    hint = shlex.join(["cachekit", "zoo", "new", "--from", words[0]]) if suffix in _YAML | _SHELL else OWN
    raise RecipeError("no recipe can be made from this command", cause=f"known: {KINDS}", hint=hint)


def convert(path: Path) -> RecipeDraft:
    """Make a draft of a recipe of another trainer's YAML file, or of the call in a shell script.

    Raises:
        RecipeError: The file cannot be read, or is in none of the dialects.
    """
    text = read_text(path, LARGEST, "file")
    if path.suffix.lower() in _SHELL:
        return convert_command(examples.in_script(text, path.name))
    if path.suffix.lower() == ".json":
        raise _arguments_alone(str(path))
    hint, cause = (examples.PASTE if _CALLS.search(text) else OWN), f"known: {KINDS}"
    document: Any = None
    if path.suffix.lower() in _YAML:
        try:
            document, _ = yaml_text.parse(text, path.name)
        except RecipeError as error:
            cause = error.message
    else:
        cause = f"cachekit runs no script to learn its settings; known: {KINDS}"
    if isinstance(document, dict):
        if draft := trainers.convert(document, path.stem):
            return draft
        if {"model", "task"} <= document.keys():
            raise RecipeError(f"{path} is a recipe already", hint=f"cachekit plan {path}")
    raise RecipeError(f"no recipe can be made from {path}", cause=cause, hint=hint)


def _arguments_alone(file: str) -> RecipeError:
    return RecipeError(
        f"no recipe can be made from {file} alone",
        cause="arguments in JSON do not say which script takes them",
        hint=f"put the script in front: cachekit zoo new -- run_glue.py {file}",
    )
