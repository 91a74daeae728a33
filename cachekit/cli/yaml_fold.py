"""A recipe's text in lines that fit a terminal: what is wider is comments, and a few sentences."""

from __future__ import annotations

import re
import textwrap

from cachekit.errors import RecipeError
from cachekit.recipe import yaml_text

_COMMENT = re.compile(r"( *# ?)( *)(.*)")
_TRAILING = re.compile(r"( *)(\S.*?) +# (.*)")  # no value of the zoo has this in quotes; the end makes sure of it
_VALUE = re.compile(r"( *)(- )?([A-Za-z_]+: )(.*)")
_WORDS = re.compile(r"( *)(.*)")  # of a text that began further up
LEAST = 40  # columns: below that a terminal's own breaks are no worse


def folded(text: str, columns: int | None) -> list[str]:
    """Lines of at most `columns` where that is possible; read as YAML, the text says what it said.

    Args:
        text: A recipe.
        columns: Of the terminal; None leaves the text as it is.
    """
    lines = text.rstrip("\n").split("\n")
    if columns is None or columns < LEAST:
        return lines
    shown = [part for line in lines for part in ([line] if len(line) <= columns else _fold(line, columns))]
    try:
        same = yaml_text.parse("\n".join(shown), "")[0] == yaml_text.parse(text, "")[0]
    except RecipeError:
        same = False
    return shown if same else lines


def _fold(line: str, columns: int) -> list[str]:
    if comment := _COMMENT.fullmatch(line):
        return _wrap(comment[1] + comment[2], comment[3], columns)
    if trailing := _TRAILING.fullmatch(line):  # above its line, where there is room
        return [*_wrap(f"{trailing[1]}# ", trailing[3], columns), f"{trailing[1]}{trailing[2]}"]
    if value := _VALUE.fullmatch(line):
        start = f"{value[1]}{value[2] or ''}{value[3]}"
        deeper = " " * (len(value[1]) + len(value[2] or "") + 2)
        return _wrap(start, value[4], columns, after=deeper)
    words = _WORDS.fullmatch(line)
    return _wrap(words[1], words[2], columns) if words else [line]


def _wrap(start: str, words: str, columns: int, after: str | None = None) -> list[str]:
    return textwrap.wrap(
        words, columns, initial_indent=start, subsequent_indent=start if after is None else after,
        break_long_words=False, break_on_hyphens=False,
    ) or [start.rstrip()]  # fmt: skip
