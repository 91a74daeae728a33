"""An error or a warning on as many lines as a terminal's width asks for."""

from __future__ import annotations

import os
import re
import sys
import textwrap

HINT = "  hint: "
INDENT = " " * len("  cause: ")  # of what goes on
NARROWEST = 40  # columns; on fewer the terminal folds
# A command, a name or a path in a sentence; an apostrophe ends none.
QUOTED = r"`[^`]*`|\"[^\"]*\"|(?<!\S)'[^']*'(?=[\s,;:.)]|$)"
# A command in a hint, which often stands there without quotes: up to the next comma.
COMMAND = r"(?<!\S)(?:cachekit|chmod|export|git|hf|mkdir|pip|python|rm|ssh-keygen|sudo|unset) [^,;]*"
GLUE = "\0"  # in no line that is printed


def folded(line: str) -> list[str]:
    """A line folded to the width of stderr's terminal; words, what is quoted and what somebody copies stay whole."""
    columns = _columns()
    if not columns or len(line) <= columns:
        return [line]
    whole = f"{QUOTED}|{COMMAND}" if line.startswith(HINT) else QUOTED
    indent = line[: len(line) - len(line.lstrip())]
    words = re.sub(whole, lambda found: found[0].replace(" ", GLUE), line.lstrip())
    found = textwrap.wrap(
        words.replace(": ", f":{GLUE}", 1),  # a label is on the line of what follows
        max(columns, NARROWEST),
        initial_indent=indent,
        subsequent_indent=INDENT,
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
