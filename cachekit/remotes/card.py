"""The README of a remote: what is cached, made by what and whom; for people who look at the repo on the Hub.

The table's rows stand in the page as data too, in a comment, so that a push adds its own without reading every record.
The page shows the newest ones and says how many there are.
What people wrote outside of our part stays as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from cachekit.remotes import layout
from cachekit.store.record import Record

BEGIN, END = "<!-- cachekit:begin -->", "<!-- cachekit:end -->"
TOTAL = re.compile(r"^([0-9]{1,9}) records?(?:; the newest [0-9]+ are shown)?\.$", re.MULTILINE)
ROWS = re.compile(r"<!-- cachekit:rows\n(.*?)\n-->", re.DOTALL)
SHOWN = 200  # rows; the Hub renders a page of more slowly
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
Text = Annotated[str, Meta(max_length=1000)]
COLUMNS = ("recipe", "model", "compiler", "graphs", "size", "compiled in", "on", "when", "by", "key")


class CardRow(Struct, frozen=True):
    """A record on the page: what its line shows. Anybody may have written it.

    Attributes:
        bytes: Of its files.
        seconds: That it compiled.
    """

    bytes: Annotated[int, Meta(ge=0, le=1 << 60)]
    created: Text
    graphs: Annotated[int, Meta(ge=0, le=1 << 60)]
    instance: Text
    key: Text
    model: Text
    compiler: Text
    path: Text
    recipe: Text
    seconds: Annotated[float, Meta(ge=0, le=1e18)]
    user: Text


def total(present: bytes) -> int | None:
    """How many records a page says that there are; None where it says nothing."""
    _, _, part = present.decode("utf-8", errors="replace").partition(BEGIN)
    found = TOTAL.search(part.partition(END)[0].replace("\r\n", "\n"))
    return int(found[1]) if found else None


def update(present: bytes, records: Iterable[Record], count: int) -> bytes:
    """The page with the rows of some records added or renewed; the same bytes where nothing is new.

    Args:
        present: The page as it is; nothing where there is none.
        records: What is new.
        count: How many records there are with them.
    """
    text = present.decode("utf-8", errors="replace")
    rows = {row.path: row for row in _rows(text)}
    rows |= {layout.path_of(record): _row(record) for record in records}
    newest = sorted(rows.values(), key=lambda row: (row.created, row.path), reverse=True)[:SHOWN]
    count = max(count, len(newest))
    shown = f"; the newest {len(newest)} are shown" if len(newest) < count else ""
    said = f"{count} record{'' if count == 1 else 's'}{shown}."
    part = f"{BEGIN}\n{said}\n\n{_table(newest)}\n{_data(newest)}\n{END}"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        return (before + part + after).encode()
    if text.strip():
        return f"{text.rstrip()}\n\n{part}\n".encode()
    return f"{FRONT}{HEAD}{part}\n".encode()


def _row(record: Record) -> CardRow:
    made = record.provenance
    return CardRow(
        path=layout.path_of(record),
        recipe=record.recipe,
        model=record.model_type,
        compiler=record.directory,
        graphs=record.graphs,
        bytes=record.size,
        seconds=round(record.compile_seconds, 1),
        instance=made.instance or made.platform,
        created=made.created,
        user=made.user,
        key=record.key,
    )


def _rows(text: str) -> list[CardRow]:
    """The rows that a page holds; those that nobody can read are left out."""
    found = ROWS.search(text.replace("\r\n", "\n"))  # which the Hub's own editor may write
    rows = []
    for line in found[1].split("\n") if found else ():
        with suppress(msgspec.MsgspecError, ValueError, RecursionError):
            rows.append(msgspec.json.decode(line, type=CardRow))
    return rows


def _data(rows: Sequence[CardRow]) -> str:
    # Two hyphens would end the comment.
    texts = [msgspec.json.encode(row).decode() for row in rows]
    lines = [text.replace("--", "-\\u002d").replace(">", "\\u003e") for text in texts]
    return "<!-- cachekit:rows\n" + "\n".join(lines) + "\n-->"


def _table(rows: Sequence[CardRow]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        cells = (
            row.recipe, row.model, row.compiler, str(row.graphs), _size(row.bytes),
            f"{row.seconds:.0f} s", row.instance, row.created[:10], row.user, row.key[:16],
        )  # fmt: skip
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Text that stays text: no markup, no new column, no new line."""
    plain = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", plain)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
