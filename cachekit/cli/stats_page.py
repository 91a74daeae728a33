"""`cachekit stats --html`: the figures and small charts as one page, which loads nothing and runs nothing."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.bar import Bar
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from cachekit.cli import out
from cachekit.errors import UsageError
from cachekit.files import opened, replace
from cachekit.text import cause_of

if TYPE_CHECKING:
    from cachekit.api.answers import Part, Stats

# A file that is there is replaced only where it begins like this: a typing error must not cost somebody's script.
PAGE = '<!doctype html>\n<meta name="generator" content="cachekit">'
TRACE = '{"otherData": {"maker": "cachekit"'

WIDTH = 124  # characters
BAR = 18  # characters
ROWS = 45  # of a chart
GOOD, BAD = "#2da44e", "#cf5b56"  # readable on white and on black

# For `Console.export_html`, hence the doubled braces.
_FORM = (
    PAGE
    + """
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>TITLE</title>
<style>
{stylesheet}
:root {{color-scheme: light dark}}
body {{margin: 2rem auto; padding: 0 1rem; width: fit-content; max-width: 100%; box-sizing: border-box}}
pre {{overflow-x: auto; line-height: 1.3; font: 14px/1.3 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace}}
</style>
<pre>{code}</pre>
</html>
"""
)


def page(answer: Stats, summary: Sequence[str], tables: Sequence[str]) -> str:
    """The whole page, as HTML 5.

    Args:
        answer: What `stats` answered.
        summary: Its lines for people; the charts follow.
        tables: Its tables for people.
    """
    console = Console(
        record=True, file=io.StringIO(), width=WIDTH, color_system="truecolor", force_terminal=True, highlight=False
    )
    console.print(Text(f"The store at {out.plain(answer.home)}", style="bold"), soft_wrap=True)
    console.print()
    for line in summary:
        console.print(Text(out.plain(line)), soft_wrap=True)
    for heading, parts in ((answer.by, answer.periods[-ROWS:]), ("recipe", answer.recipes[:ROWS])):
        if parts:
            console.print()
            console.print(_chart(heading, parts))
    for line in tables:
        console.print(Text(out.plain(line)), soft_wrap=True)
    title = html.escape(f"cachekit stats of {out.plain(answer.home)}").replace("{", "{{").replace("}", "}}")
    return console.export_html(code_format=_FORM.replace("TITLE", title))


def _chart(heading: str, parts: list[Part]) -> Table:
    """Bars of the keys that were there, of those that were missed, and of the time that was saved."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(heading, max_width=28, overflow="fold")
    for column in ("hits", "misses", "saved"):
        table.add_column(column, justify="right")
        table.add_column("", width=BAR)
    figures = [part.figures for part in parts]
    keys = max(max(one.hits, one.misses) for one in figures) or 1
    seconds = max(abs(one.saved_seconds) for one in figures) or 1
    for part, one in zip(parts, figures, strict=True):
        saved = one.saved_seconds
        table.add_row(
            Text(out.plain(part.name) or "-"),
            str(one.hits),
            _bar(one.hits, keys, GOOD),
            str(one.misses),
            _bar(one.misses, keys, BAD),
            out.duration(saved),
            _bar(abs(saved), seconds, GOOD if saved > 0 else BAD),
        )
    return table


def _bar(size: float, largest: float, colour: str) -> Bar:
    bar = Bar(largest, 0, size, width=BAR)
    bar.style = Style.parse(colour)  # a bar of rich's has a ground of its own; the page's may be black or white
    return bar


def write(path: Path, text: str, beginning: str) -> None:
    """Write a file whole, or not at all.

    Args:
        path: The file. One that is there is replaced where it begins as `text` does, or is empty.
        text: All of it.
        beginning: How such a file begins.

    Raises:
        UsageError: The file cannot be written, or something else lies there.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        if path.exists():
            with opened(path) as source:
                head = source.read(len(beginning.encode()))
            if head and head != beginning.encode():
                raise UsageError(
                    f"{path} exists, and this command did not write it",
                    hint="name another file, or remove it",
                )
        replace(path, text.encode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be written", cause=cause_of(error), hint="name another file") from error
