"""The drawing of a time line: one lane a run, one row a thing that went on at the same time."""

from __future__ import annotations

import time

from cachekit import wording
from cachekit.page.draw import (
    LETTER,
    NARROW,
    WIDE,
    both,
    box,
    cut,
    legend,
    line,
    nice,
    section,
    svg,
    table,
    text,
    word,
)
from cachekit.verbs.timeline import Lane, Span, Timeline

KINDS = {
    "wait": "waiting for another",
    "fetch": "fetching",
    "prepare": "starting, data, model",
    "compile": "compiling",
    "restore": "restoring",
    "train": "running",
    "push": "pushing",
}
BAR, GAP, HEAD, FOOT = 18.0, 4.0, 20.0, 26.0
ROWS = 24  # of one lane
LISTED = 400  # rows of the table
TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)


def timeline(found: Timeline | None) -> str:
    """Who did what, when, and how parallel."""
    name, heading = "timeline", "Who compiled what, when"
    if found is None:
        return section(name, heading, "Nothing was compiled by a run whose journal is still there.")
    began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(found.start))
    machines = {lane.host for lane in found.lanes}
    one = min(machines) if len(machines) == 1 else ""
    who = one or wording.count(len(machines), "machine")
    lead = f"{began}, {wording.duration(found.seconds)}: {wording.count(len(found.lanes), 'run')} on {who}. "
    if found.compiling:
        each = found.compiling / found.busy if found.busy else 1.0
        lead += f"{wording.duration(found.compiling)} of compiling in {wording.duration(found.busy)}, "
        lead += f"{each:.1f} at once on average and {found.at_once} at most."
    else:
        lead += "Nothing was compiled."
    if found.left_out:
        lead += (
            f" {wording.count(found.left_out, 'run')} beside these {'is' if found.left_out == 1 else 'are'} not shown."
        )
    used = {span.kind for lane in found.lanes for row in lane.rows for span in row}
    listed = [
        [
            lane.name,
            lane.who,
            KINDS[span.kind],
            span.label,
            wording.duration(span.start),
            wording.duration(span.end - span.start),
        ]
        for lane in found.lanes
        for span in sorted((span for row in lane.rows for span in row), key=lambda one: one.start)
    ]
    return section(
        name,
        heading,
        lead,
        f"<figure>\n{both(_draw(found, WIDE, lead), _draw(found, NARROW, lead))}\n</figure>",
        legend([(kind, said) for kind, said in KINDS.items() if kind in used]),
        table(
            ["run", "who", "what", "in words", "after", "took"],
            listed[:LISTED],
            "The figures" if len(listed) <= LISTED else f"The first {LISTED} of {len(listed)} figures",
            frozenset({1, 2, 3}),
        ),
    )


def _draw(found: Timeline, width: float, said: str) -> str:
    left = 6.0
    room = width - left - 6
    length = max(found.seconds, 0.001)
    most = 8 if width > 600 else 3  # noqa: PLR2004
    ticks = nice(length, most) if length < 1 else _ticks(length, most)
    scale = room / length
    parts: list[str] = []
    y = 4.0
    for lane in found.lanes:
        y = _lane(parts, lane, left, y, width, scale)
    grid = [line(left + tick * scale, 0, left + tick * scale, y, "grid") for tick in ticks]
    for tick in ticks:
        x = left + tick * scale
        anchor = "start" if tick == 0 else "end" if x > width - 30 else "middle"
        grid.append(text(x, y + 16, _time(tick), "dim", anchor))
    return svg(width, y + FOOT, said, [*grid, *parts])


def _ticks(length: float, most: int) -> list[float]:
    step = next((one for one in TIMES if length / one <= most), TIMES[-1])
    return [float(step * number) for number in range(int(length // step) + 1)]


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds:g} s"
    if seconds < 120:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    if seconds < 7200:  # noqa: PLR2004
        return f"{seconds / 60:g} min"
    return f"{seconds / 3600:g} h"


def _lane(parts: list[str], lane: Lane, left: float, y: float, width: float, scale: float) -> float:
    """Draw a lane; returns where the next one begins."""
    name = cut(lane.name, width * 0.62)
    who = cut(lane.who, width - len(name) * LETTER - 20)
    parts.append(
        f'<text x="{left:.1f}" y="{y + 14:.1f}"><tspan class="strong">{word(name)}</tspan>'
        f'<tspan class="dim" dx="10">{word(who)}</tspan></text>'
    )
    y += HEAD
    for row in lane.rows[:ROWS]:
        for span in row:
            _span(parts, span, left, y, scale)
        y += BAR + GAP
    if len(lane.rows) > ROWS:
        parts.append(text(left, y + 12, f"and {len(lane.rows) - ROWS} more rows", "dim"))
        y += BAR
    return y + 8


def _span(parts: list[str], span: Span, left: float, y: float, scale: float) -> None:
    x, long = left + span.start * scale, max((span.end - span.start) * scale, 1.5)
    said = f"{span.label}: {wording.duration(span.end - span.start)}"
    parts.append(box(x, y, max(long - 1, 1.0), BAR, span.kind, said))  # neighbours stay apart
    words = span.label
    for prefix in ("trial run: ", "preparing: ", "MODULE_"):
        words = words.removeprefix(prefix)
    if long > 5 * LETTER:
        kind = "" if span.kind == "wait" else "on"
        parts.append(text(x + 5, y + 13, cut(words, long - 18), kind))
