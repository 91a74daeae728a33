"""The drawings of a report, and what they say in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from cachekit import wording
from cachekit.page.draw import LETTER, NARROW, PAIRED, both, box, cut, legend, line, nice, section, svg, table, text
from cachekit.verbs.report import Sizes
from cachekit.verbs.stats import Figures, Part

COLOURS = 6  # of compilers
MOST = 14  # recipes in the drawing of sizes
BARS = 45  # at most: then weeks, then months


@dataclass(frozen=True, slots=True)
class Bin:
    """A stretch of time: its first day, its name, and its sums."""

    day: date
    name: str
    hits: int
    misses: int
    saved: float
    runs: int


def bins(days: Sequence[Part]) -> list[Bin]:
    """Days without a gap, or weeks, or months, so that there are not too many."""
    known = {date.fromisoformat(part.name): part.figures for part in days if part.figures.runs}
    if not known:
        return []
    first, last = min(known), max(known)
    span = (last - first).days + 1
    sums: dict[date, list[Figures]] = {}
    for number in range(span):
        day = first + timedelta(days=number)
        if span > BARS * 7:
            start = day.replace(day=1)
        elif span > BARS:
            start = day - timedelta(days=day.weekday())
        else:
            start = day
        found = sums.setdefault(start, [])
        if day in known:
            found.append(known[day])
    form = "%Y-%m" if span > BARS * 7 else "week of %Y-%m-%d" if span > BARS else "%Y-%m-%d"
    return [
        Bin(
            start,
            start.strftime(form),
            sum(one.hits for one in found),
            sum(one.misses for one in found),
            sum(one.saved_seconds for one in found),
            sum(one.runs for one in found),
        )
        for start, found in sums.items()
    ]


def hits(found: list[Bin]) -> str:
    """Hits and misses over time."""
    hit, miss = sum(one.hits for one in found), sum(one.misses for one in found)
    if not hit + miss:
        return section("hits", "Hits over time", "No key was asked for yet.")
    lead = f"{hit:,} of {hit + miss:,} keys that were asked for were there: {hit * 100 // (hit + miss)} %."

    def draw(width: float) -> str:
        left, height, foot = 34.0, 190.0, 22.0
        ticks = nice(max(one.hits + one.misses for one in found), 4)
        ticks = [tick for tick in ticks if tick == int(tick)]
        scale = (height - foot - 10) / ticks[-1]
        base = height - foot
        step = (width - left - 4) / len(found)
        parts = [line(left, base - tick * scale, width, base - tick * scale, "grid") for tick in ticks]
        parts += [text(left - 6, base - tick * scale + 4, f"{tick:,.0f}", "dim", "end") for tick in ticks]
        for number, one in enumerate(found):
            x, bar = left + 2 + number * step, min(max(step * 0.78, 1.5), 48)
            said = f"{one.name}: {wording.count(one.hits, 'hit')}, {wording.count(one.misses, 'miss', 'misses')}"
            up = base - one.hits * scale
            if one.hits:
                parts.append(box(x, up, bar, one.hits * scale, "hit", said))
            if one.misses:
                parts.append(box(x, up - one.misses * scale, bar, one.misses * scale, "miss", said))
        return svg(width, height, lead, [*parts, *_dates(found, left, step, base + 16, width)])

    return section(
        "hits",
        "Hits over time",
        lead,
        f"<figure>\n{both(draw(PAIRED), draw(NARROW))}\n</figure>",
        legend([("hit", "hits"), ("miss", "misses")]),
        table(
            ["", "runs", "hits", "misses"],
            [[one.name, str(one.runs), str(one.hits), str(one.misses)] for one in reversed(found) if one.runs],
            "The figures",
        ),
    )


def savings(found: list[Bin], total: Figures) -> str:
    """What was saved up to each day."""
    lead = (
        f"{wording.duration(total.recorded_seconds)} of compiling avoided, "
        f"{wording.duration(total.retrieval_seconds)} spent getting it: {wording.duration(total.saved_seconds)} saved."
    )
    if not found:
        return section("saved", "Time saved", "No run yet.")
    sums, so_far = [], 0.0
    for one in found:
        so_far += one.saved
        sums.append(so_far)
    low, high = min(0.0, *sums), max(0.0, *sums)
    unit, name = (3600.0, "h") if max(high, -low) >= 7200 else (60.0, "min") if max(high, -low) >= 120 else (1.0, "s")  # noqa: PLR2004

    def draw(width: float) -> str:
        left, height, foot = 44.0, 190.0, 22.0
        ticks = nice(max(high, -low) / unit, 4)
        ticks = [*(-tick for tick in reversed(ticks[1:]) if -low / unit > tick - ticks[1]), *ticks]
        ticks = [tick for tick in ticks if tick <= 0 or high / unit > tick - ticks[-1] + ticks[-2]] or [0.0, 1.0]
        ticks = ticks if len(ticks) > 1 else [*ticks, 1.0] if high >= -low else [-1.0, *ticks]
        scale = (height - foot - 12) / (ticks[-1] - ticks[0])

        def y(value: float) -> float:
            return height - foot - (value / unit - ticks[0]) * scale

        step = (width - left - 8) / max(len(sums) - 1, 1)
        points = [(left + 2 + number * step, y(value)) for number, value in enumerate(sums)]
        if len(points) == 1:
            points = [(left + 2, y(0.0)), (width - 6, points[0][1])]
        curve = " ".join(f"{x:.1f},{at:.1f}" for x, at in points)
        zero = f"{y(0.0):.1f}"
        parts = [line(left, y(tick * unit), width, y(tick * unit), "grid") for tick in ticks]
        parts += [text(left - 6, y(tick * unit) + 4, f"{tick:g} {name}", "dim", "end") for tick in ticks]
        parts += [
            f'<polygon class="area" points="{points[0][0]:.1f},{zero} {curve} {points[-1][0]:.1f},{zero}"/>',
            f'<polyline class="curve" points="{curve}"/>',
            f'<circle class="dot" cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="4"/>',
        ]
        return svg(width, height, lead, [*parts, *_dates(found, left, step, height - foot + 16, width)])

    rows = [
        [one.name, wording.duration(one.saved), wording.duration(value)] for one, value in zip(found, sums, strict=True)
    ]
    return section(
        "saved",
        "Time saved",
        lead,
        f"<figure>\n{both(draw(PAIRED), draw(NARROW))}\n</figure>",
        table(["", "saved then", "so far"], rows[::-1], "The figures"),
    )


def _dates(found: list[Bin], left: float, step: float, y: float, width: float) -> list[str]:
    """Names of days under a drawing, as many as there is room for."""
    room = 10 * LETTER + 14
    every = max(int(-(-room // max(step, 0.01))), 1)
    parts = []
    for number in range(0, len(found), every):
        x = left + 2 + number * step
        if x + 10 * LETTER <= width or number == 0:
            parts.append(text(x, y, found[number].day.isoformat(), "dim"))
    return parts


def sizes(found: Sizes) -> str:
    """Bytes by recipe and compiler."""
    if not found.records:
        return section("sizes", "Size of the store", "The store has no records yet.")
    whole = sum(map(sum, found.recipes.values()))
    lead = (
        f"{wording.count(found.records, 'record')} of {wording.count(len(found.recipes), 'recipe')} and "
        f"{wording.count(len(found.compilers), 'compiler version')}: {wording.size(whole)}. "
        "Files that records share lie there once."
    )
    shown = list(found.recipes.items())[:MOST]
    rest = list(found.recipes.items())[MOST:]
    largest = max(sum(each) for _, each in shown) or 1

    def draw(width: float, left: float) -> str:
        above = 0 if left else 17
        row, parts = 26 + above, []
        room = width - left - 78
        for number, (name, each) in enumerate(shown):
            y = number * row + above
            if left:
                parts.append(text(left - 10, y + 14, cut(name or "(no recipe)", left - 12), "", "end"))
            else:
                parts.append(text(0, y - 4, cut(name or "(no recipe)", width)))
            x = left
            for place, size in enumerate(each):
                if size:
                    long = size / largest * room
                    said = f"{name}, {found.compilers[place]}: {wording.size(size)}"
                    parts.append(box(x, y, max(long, 1.5), 18, f"c{place % COLOURS}", said))
                    x += long
            parts.append(text(max(x, left + 1.5) + 6, y + 14, wording.size(sum(each)), "dim"))
        if rest:
            several = sum(sum(each) for _, each in rest)
            parts.append(text(left, len(shown) * row + 14, f"and {len(rest)} more: {wording.size(several)}", "dim"))
        return svg(width, (len(shown) + bool(rest)) * row, lead, parts)

    return section(
        "sizes",
        "Size of the store",
        lead,
        f"<figure>\n{both(draw(960, 200), draw(NARROW, 0))}\n</figure>",
        legend([(f"c{number % COLOURS}", name) for number, name in enumerate(found.compilers)]),
        table(
            ["", *found.compilers],
            [
                [name or "(no recipe)", *(wording.size(size) if size else "" for size in each)]
                for name, each in found.recipes.items()
            ],
            "The figures",
        ),
    )
