"""Recipes made out of other tools' files, and what is said of them."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path

from cachekit.verbs.zoo_check import new_recipe


def called(line: str):
    """What a command line becomes."""
    return new_recipe(shlex.split(line))


def made(tmp_path: Path, text: str, name: str = "config.yaml"):
    """What a file becomes."""
    path = tmp_path / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return new_recipe(path)


def at(recipe, path: str):
    section, _, name = path.partition(".")
    part = getattr(recipe, section)
    return getattr(part, name) if name else part


def whats(found, *, todo: bool = False) -> str:
    return "\n".join(str(note) for note in found.notes if note.todo is todo)
