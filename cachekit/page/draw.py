"""Small parts that pages are made of. Every word goes through `word`: names of recipes and caches may hold anything."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from cachekit import text as wording

WIDE, NARROW = 960, 330  # of drawings, in their own units: pixels on a laptop and on a phone
PAIRED = 460  # of two beside each other
LETTER = 7.2  # width of a letter of 12 pixels, generously


def word(words: object) -> str:
    """Text for a page, in an element or in an attribute's quotes."""
    return html.escape(wording.plain(str(words)).replace("\n", " "), quote=True)


def cut(words: str, width: float) -> str:
    """Words that fit into that many pixels."""
    words, room = wording.plain(words), max(int(width / LETTER), 1)
    return words if len(words) <= room else words[: room - 1] + "…"


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Words in a drawing."""
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{word(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    """A bar; its title shows under a pointer."""
    said = f"<title>{word(title)}</title>" if title else ""
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" rx="2"'
    return f'<rect {shape} class="{kind}">{said}</rect>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def svg(width: float, height: float, said: str, parts: Iterable[str]) -> str:
    """A drawing, and what it says in words to whom cannot see it."""
    inside = "\n".join(parts)
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{word(said)}">\n{inside}\n</svg>'


def both(wide: str, narrow: str) -> str:
    """A drawing for a laptop and one for a phone, of which one is shown: letters keep their size."""
    return f'<div class="wide">\n{wide}\n</div>\n<div class="narrow">\n{narrow}\n</div>'


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """What colours mean: classes and words."""
    items = "".join(f'<li><i class="{kind}"></i>{word(said)}</li>' for kind, said in entries)
    return f'<ul class="legend">{items}</ul>'


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], summary: str, words: frozenset[int] = frozenset()
) -> str:
    """The figures of a drawing, folded away.

    Args:
        header: Of the columns.
        rows: Cells; the first of each names the row.
        summary: What to click.
        words: Columns that hold words.
    """
    head = "".join(f'<th scope="col">{word(name)}</th>' for name in header)
    body = "\n".join(
        "<tr>"
        f'<th scope="row">{word(row[0])}</th>'
        + "".join(_cell(cell, words=number in words) for number, cell in enumerate(row[1:], 1))
        + "</tr>"
        for row in rows
    )
    return (
        f'<details><summary>{word(summary)}</summary><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{word(summary)}"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div></details>'
    )


def section(name: str, heading: str, lead: str, *parts: str, kind: str = "") -> str:
    """A part of the page with a heading and a sentence that says it all."""
    inside = "\n".join(part for part in parts if part)
    attribute = f' class="{kind}"' if kind else ""
    return (
        f'<section id="{name}" aria-labelledby="{name}-h"{attribute}>\n<h2 id="{name}-h">{word(heading)}</h2>\n'
        f'<p class="lead">{word(lead)}</p>\n{inside}\n</section>'
    )


def nice(limit: float, steps: int, units: Sequence[float] = (1, 2, 5)) -> list[float]:
    """Round numbers from 0 to a little above the limit, about so many."""
    if limit <= 0:
        return [0.0, 1.0]
    factor = 1.0
    while factor * units[-1] * steps < limit:
        factor *= 10
    while factor / 10 * units[0] * steps >= limit and factor > 1e-6:  # noqa: PLR2004
        factor /= 10
    step = next(factor * unit for unit in (*units, 10 * units[0], 10 * units[-1]) if factor * unit * steps >= limit)
    count = int(-(-limit // step))
    return [step * number for number in range(count + 1)]


def _cell(cell: str, *, words: bool) -> str:
    return f'<td class="words">{word(cell)}</td>' if words else f"<td>{word(cell)}</td>"
