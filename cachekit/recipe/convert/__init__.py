"""Turn what people have into a recipe: example command lines of Transformers, YAMLs of two other trainers.

One module a dialect. Each reads text and fills a `RecipeDraft`; what no field of a recipe stands for is named, with the
reason. Nothing is run: a notebook, a program, or a placeholder in the place of a value is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import msgspec

from cachekit.errors import RecipeError
from cachekit.recipe import yaml_text
from cachekit.recipe.convert import command, examples, metaflow, nxdt
from cachekit.recipe.convert.draft import RecipeDraft, slug
from cachekit.recipe.load import read_text

__all__ = ["RecipeDraft", "convert", "convert_command"]

LARGEST = 4 << 20  # bytes
KINDS = (
    "a call of Transformers' examples (run_glue.py ..., typed or as a line of a shell script), "
    "a YAML of NeuronX Distributed Training, a YAML of metaflow-trainium"
)
_FILES = {".sh", ".ipynb", ".yaml", ".yml", ".txt", ".md"}  # a single word that ends so is no command
OWN = "a script of your own runs without a recipe: cachekit run -- COMMAND"


def convert_command(words: Sequence[str]) -> RecipeDraft:
    """Make a draft of a recipe of a command line.

    Raises:
        RecipeError: The command calls no example script, or cannot be turned into a recipe.
    """
    found = command.typed(words)
    if found is None and len(words) == 1 and words[0].endswith(".json"):
        raise _arguments_alone(words[0])
    if found is None:
        is_file = len(words) == 1 and PurePath(words[0]).suffix in _FILES
        hint = shlex.join(["cachekit", "zoo", "new", "--from", words[0]]) if is_file else OWN
        raise RecipeError("no recipe can be made of this command", cause=f"known: {KINDS}", hint=hint)
    return examples.convert([found], slug(found.script.removeprefix("run_")), Path.cwd())


def convert(path: Path) -> RecipeDraft:
    """Make a draft of a recipe of what a shell script, a text or a YAML file says.

    Raises:
        RecipeError: The file cannot be read, is in none of the dialects, or only running it would tell what it says.
    """
    text = read_text(path, LARGEST, "script or YAML file")
    if program := _program(path, text):
        raise RecipeError(
            f"no recipe can be made of {path}: it is {program}",
            cause="cachekit would have to run it to learn its settings",
            hint=command.PASTE,
        )
    looks_like_yaml = path.suffix.lower() in {".yaml", ".yml"}
    if not looks_like_yaml and (calls := command.find(text)):
        return examples.convert(calls, slug(path.stem), path.parent)
    problem = f"known: {KINDS}"
    document: Any = None
    try:
        document, _ = yaml_text.parse(text, path.name)
    except RecipeError as error:
        problem = error.message if looks_like_yaml else problem
    if path.suffix.lower() == ".json":
        raise _arguments_alone(str(path))
    if not isinstance(document, dict):
        document = {}
    if nxdt.knows(document):
        return nxdt.convert(document, path.stem)
    if metaflow.knows(document):
        return metaflow.convert(document, path.stem)
    if {"model", "task"} <= document.keys():
        raise RecipeError(f"{path} is a recipe already", hint=f"cachekit plan {path}")
    raise RecipeError(
        f"no recipe can be made of {path}",
        cause=problem,
        hint=command.PASTE if re.search(r"\brun_[a-z0-9_]+\.py\b", text) else OWN,
    )


def _arguments_alone(file: str) -> RecipeError:
    return RecipeError(
        f"no recipe can be made of {file} alone",
        cause="arguments in JSON do not say which script takes them",
        hint=f"put the script in front: cachekit zoo new -- run_glue.py {file}",
    )


def _program(path: Path, text: str) -> str:
    """What a file is that only says what it means when it runs; empty for others."""
    if path.suffix.lower() == ".py":
        return "a Python program"
    try:
        is_notebook = text.lstrip().startswith("{") and "cells" in msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        is_notebook = False
    return "a notebook" if is_notebook or path.suffix.lower() == ".ipynb" else ""
