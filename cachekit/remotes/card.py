"""The README of a remote: what is cached, made by what and whom; for people who look at the repo on the Hub.

Our part of it is made of the index, and shows the newest records. What people wrote outside of our part stays as it is.
"""

from __future__ import annotations

import heapq
import html
from collections.abc import Iterable

from cachekit.remotes.index import Known
from cachekit.text import size as shown_size

BEGIN, END = "<!-- cachekit:begin -->", "<!-- cachekit:end -->"
SHOWN = 200  # rows; the Hub renders a page of more slowly
LONGEST_CELL = 200  # as it stands in the page, with what escapes its characters
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


def update(present: bytes, records: Iterable[Known], count: int) -> bytes:
    """The page with its table made anew; the same bytes where nothing is new.

    Args:
        present: The page as it is; nothing where there is none.
        records: All that are known.
        count: How many records there are.
    """
    text = present.decode("utf-8", errors="replace")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    newest = list(map(_row, heapq.nlargest(SHOWN, records, key=lambda record: record.created)))
    shown = f"; the newest {len(newest)} are shown" if len(newest) < count else ""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *newest]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    part = f"{BEGIN}\n{count} record{'' if count == 1 else 's'}{shown}.\n\n{table}\n{END}"
    if begin and end:
        return (before + part + after).encode()
    if text.strip():
        return f"{text.rstrip()}\n\n{part}\n".encode()
    return f"{FRONT}{HEAD}{part}\n".encode()


def _row(record: Known) -> tuple[str, ...]:
    cells = (
        record.recipe, record.model_type, record.directory, str(record.graphs), shown_size(record.size),
        f"{record.compile_seconds:.0f} s", record.instance, record.created[:10], record.by.partition("@")[0],
        record.key[:16],
    )  # fmt: skip
    return tuple(_cell(cell) for cell in cells)


def _cell(text: str) -> str:
    """Text without markup, column separators and line breaks; cut between characters, never inside an escape."""
    cell = ""
    for character in " ".join(text.split()):
        escaped = f"\\{character}" if character in MARKUP else html.escape(character, quote=False)
        if len(cell) + len(escaped) > LONGEST_CELL:
            break
        cell += escaped
    return cell
