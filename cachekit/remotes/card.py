"""The README of a remote: what is cached, made by what and whom; for people who look at the repo on the Hub.

The rows of the table are read from the page itself, so that a push adds its own without reading every record. The page
shows the newest ones and says how many there are. What people wrote outside of our part stays as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from cachekit.store.record import Record
from cachekit.text import size as shown_size

BEGIN, END = "<!-- cachekit:begin -->", "<!-- cachekit:end -->"
SHOWN = 200  # rows; the Hub renders a page of more slowly
LONGEST = 4000  # characters of a row
LONGEST_CELL = 200  # as it stands in the page, with what escapes its characters: ten of them are well below LONGEST
MARKUP = r"\`*_[]|~"
FRONT = """\
---
library_name: cachekit
tags:
- cachekit
- compilation-cache
- aws-neuron
- trainium
---

"""
HEAD = """\
# Compilation cache

Compiled graphs of fine-tunes, kept by [cachekit](https://pypi.org/project/cachekit-neuron/): a run that finds its
graphs here compiles nothing.

    pip install cachekit-neuron
    cachekit train RECIPE --cache local:rw,hf://OWNER/NAME:r

"""
COLUMNS = ("recipe", "model", "compiler", "graphs", "size", "compiled in", "on", "when", "by", "key")
WHEN, KEY = COLUMNS.index("when"), COLUMNS.index("key")


def update(present: bytes, records: Iterable[Record], count: int) -> bytes:
    """The page with the rows of some records added or renewed; the same bytes where nothing is new.

    Args:
        present: The page as it is; nothing where there is none.
        records: What is new.
        count: How many records there are with them.
    """
    text = present.decode("utf-8", errors="replace")
    before, begin, rest = text.partition(BEGIN)
    part, end, after = rest.partition(END)
    known = {row[KEY]: row for line in part.splitlines() if (row := _cells(line))}
    fresh = {row[KEY]: row for row in map(_row, records)}
    rows = {key: row for key, row in fresh.items() if key not in known} | known | fresh
    newest = sorted(rows.values(), key=lambda row: row[WHEN], reverse=True)[:SHOWN]
    count = max(count, len(newest))
    shown = f"; the newest {len(newest)} are shown" if len(newest) < count else ""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *newest]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    part = f"{BEGIN}\n{count} record{'' if count == 1 else 's'}{shown}.\n\n{table}\n{END}"
    if begin and end:
        return (before + part + after).encode()
    if text.strip():
        return f"{text.rstrip()}\n\n{part}\n".encode()
    return f"{FRONT}{HEAD}{part}\n".encode()


def _row(record: Record) -> tuple[str, ...]:
    made = record.provenance
    cells = (
        record.recipe, record.model_type, record.directory, str(record.graphs), shown_size(record.size),
        f"{record.compile_seconds:.0f} s", made.instance or made.platform, made.created[:10], made.user,
        record.key[:16],
    )  # fmt: skip
    return tuple(_cell(cell) for cell in cells)


def _cells(line: str) -> tuple[str, ...]:
    """The cells of a row; none where the line is not a row of records."""
    cells = tuple(line[2:-2].split(" | ")) if line.startswith("| ") and len(line) <= LONGEST else ()
    is_record = len(cells) == len(COLUMNS) and re.fullmatch("[0-9a-f]{16}", cells[KEY])
    return cells if is_record else ()


def _cell(text: str) -> str:
    """Text without markup, column separators and line breaks; cut between characters, never inside an escape."""
    cell = ""
    for character in " ".join(text.split()):
        escaped = f"\\{character}" if character in MARKUP else html.escape(character, quote=False)
        if len(cell) + len(escaped) > LONGEST_CELL:
            break
        cell += escaped
    return cell
