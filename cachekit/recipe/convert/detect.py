"""Find out which dialect a file or a command is in, and have it read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from cachekit.errors import RecipeError
from cachekit.recipe import yaml_text
from cachekit.recipe.convert import command, examples, metaflow, nxdt
from cachekit.recipe.convert.draft import RecipeDraft, slug
from cachekit.recipe.load import read_text

LARGEST = 4 << 20  # bytes
KINDS = (
    "a call of Transformers' examples (run_glue.py ... as a command line, or as it stands in a shell script), "
    "a YAML of NeuronX Distributed Training, a YAML of metaflow-trainium"
)
OWN = "a script of your own runs without a recipe: cachekit run -- COMMAND"


def convert_command(words: Sequence[str]) -> RecipeDraft:
    """Make a draft of a recipe of a command line.

    Raises:
        RecipeError: It calls no example script, or cannot be turned into a recipe.
    """
    found = command.typed(words)
    if found is None:
        raise RecipeError(
            "the command is of no kind that can be turned into a recipe", cause=f"known are {KINDS}", hint=OWN
        )
    return examples.convert([found], slug(found.script.removeprefix("run_")), Path.cwd())


def convert(path: Path) -> RecipeDraft:
    """Make a draft of a recipe of what a file says.

    Args:
        path: A shell script, a text or a YAML file.

    Raises:
        RecipeError: It cannot be read, is in none of the dialects, or only running it would tell what it says.
    """
    text = read_text(path, LARGEST, "script or YAML")
    if program := _program(path, text):
        raise RecipeError(f"{path} is {program}, which is not read", cause="nothing is run", hint=command.PASTE)
    looks_like_yaml = path.suffix.lower() in {".yaml", ".yml"}
    if not looks_like_yaml and (calls := command.find(text)):
        return examples.convert(calls, slug(path.stem), path.parent)
    problem = ""
    try:
        document, _ = yaml_text.parse(text, path.name)
    except RecipeError as error:
        document, problem = None, error.message
    if nxdt.knows(document):
        return nxdt.convert(document, path.stem)
    if metaflow.knows(document):
        return metaflow.convert(document, path.stem)
    if isinstance(document, dict) and {"model", "task"} <= set(document):
        raise RecipeError(f"{path} is a recipe already", hint=f"cachekit plan {path}")
    raise RecipeError(
        f"{path} is of no kind that can be turned into a recipe",
        cause=problem if looks_like_yaml and problem else f"known are {KINDS}",
        hint=command.PASTE if re.search(r"\brun_[a-z0-9_]+\.py\b", text) else OWN,
    )


def _program(path: Path, text: str) -> str:
    """What a file is that only says what it means when it runs; empty for others."""
    if path.suffix.lower() == ".py":
        return "a Python program"
    try:
        is_notebook = text.lstrip().startswith("{") and "cells" in json.loads(text)
    except (ValueError, RecursionError):
        is_notebook = False
    return "a notebook" if is_notebook or path.suffix.lower() == ".ipynb" else ""
