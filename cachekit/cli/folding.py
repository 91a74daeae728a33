"""The cause of an error on as many lines as a terminal's width asks for."""

from __future__ import annotations

import os
import re
import sys
import textwrap

CAUSE = "  cause: "
NARROWEST = 40  # columns; on fewer the terminal folds
# A command, a name or a path in a sentence; an apostrophe ends none.
QUOTED = r"`[^`]*`|\"[^\"]*\"|(?<!\S)'[^']*'(?=[\s,;:.)]|$)"
GLUE = "\0"  # in no line that is printed


def folded(line: str) -> list[str]:
    """A line of an error: a cause folded to the width of stderr's terminal, what is quoted and each word whole.

    Others stay as they are: messages name files, and hints have commands that one copies.
    """
    columns = _columns()
    if not line.startswith(CAUSE) or not columns or len(line) <= columns:
        return [line]
    words = re.sub(QUOTED, lambda found: found[0].replace(" ", GLUE), line.removeprefix(CAUSE))
    found = textwrap.wrap(
        words,
        max(columns, NARROWEST),
        initial_indent=CAUSE,
        subsequent_indent=" " * len(CAUSE),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [each.replace(GLUE, " ") for each in found]


def _columns() -> int:
    """As the user says, or as the terminal is; 0 is unknown."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        return 0
