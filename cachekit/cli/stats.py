"""`cachekit stats`: what the cache did, and what that saved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError
from cachekit.text import PERIODS, cut, dollars

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import CheckedStats, Part, Stats

SHOWN = 8  # rows of a table, for people
LONGEST = 30  # characters of a name in it

RunName = Annotated[
    str, typer.Option("--run", metavar="last|RUN", help="Only one run: its name, or the beginning of its name.")
]
Since = Annotated[
    str, typer.Option("--since", metavar="DAY|7d", help="Only runs that began on that day or later, in UTC.")
]
By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="day|week|month",
        help="The period that a row of the last table covers.",
        autocompletion=lambda incomplete: [one for one in PERIODS if one.startswith(incomplete)],
    ),
]
Cost = Annotated[bool, typer.Option("--cost", help="Add dollars, at this machine's price.")]
Check = Annotated[bool, typer.Option("--check", help="Count all journals again, and compare with the stored figures.")]
Html = Annotated[
    Optional[Path],
    typer.Option(
        "--html", metavar="FILE", parser=options.file_to_write, help="Also write an HTML page with small charts."
    ),
]
Trace = Annotated[
    Optional[Path],
    typer.Option(
        "--trace",
        metavar="FILE",
        parser=options.file_to_write,
        help="Write what --run did, and when, as a Chrome trace for ui.perfetto.dev.",
    ),
]


@verb("home", answers="Stats, CheckedStats")
def command(
    cache: Cache,
    run: RunName = "",
    since: Since = "",
    by: By = "day",
    cost: Cost = False,
    price: options.Price = None,
    html: Html = None,
    trace: Trace = None,
    check: Check = False,
) -> Shown:
    """Show what the cache did and saved, in all runs and in the last one.

    Seconds saved are the compile time of the graphs that were found, minus the time it took to get them; if the
    difference is negative, the cache cost time. A run counts for the UTC day on which it began. --cost adds dollars at
    this machine's price for runs on machines of its type; --price adds dollars for all runs. --check counts all
    journals again, and exits 5 if figures differ.

    Example:  cachekit stats --since 7d --cost

    Example:  cachekit stats --since 12w --by week

    Example:  cachekit stats --run last --format json

    Example:  cachekit stats --html stats.html

    Example:  cachekit stats --run last --trace trace.json
    """
    if trace and not run:
        raise UsageError("--trace needs --run", hint="--run last, or the beginning of a run's name")
    if check:
        return Shown(cache.check_stats(), checked, lambda said: str(len(said.differ)))
    found = cache.stats(run=run, since=since, by=by, price=price or (), cost=cost)
    notes = []
    if html or trace:
        from cachekit.cli import stats_page

        if html:
            out.write_file(html, stats_page.page(found), stats_page.PAGE)
            notes.append(f"wrote {html}: {html.absolute().as_uri()}")
        if trace:
            out.write_file(trace, json.dumps(cache.trace(run)), stats_page.TRACE)
            notes.append(f"wrote {trace}; open it at https://ui.perfetto.dev")
    whole = out.wants_more()
    return Shown(
        found,
        lambda said: [*summary(said), *tables(said, whole=whole)],
        lambda said: str(said.total.saved_seconds),
        notes=tuple(notes),
        warnings=tuple(f"not counted: {problem}" for problem in found.problems),
    )


def checked(answer: CheckedStats) -> list[str]:
    """What counting anew came to, for people."""
    gone = answer.runs - answer.recounted
    lines = [f"{out.count(answer.recounted, 'journal')} counted again; {len(answer.differ)} differ"]
    lines += [f"  {run}" for run in answer.differ]
    if gone:
        why = "the journal was removed, or has no end: the run was killed, or is still running"
        lines += out.labelled("", f"{out.count(gone, 'run')} cannot be counted again: {why}")
    return lines


def summary(answer: Stats) -> list[str]:
    """The figures of all runs and of the last one, for people.

    Args:
        answer: What `stats` answered.
    """
    header, rows = figures(answer)
    table = out.table(rows, header, right=range(1, len(header)))
    if answer.scope.run:
        table = table[1:]  # one column needs no heading
    before, price = about(answer), price_words(answer)
    between = [] if answer.scope.run else [""]
    return [*before, *([*between, *table] if answer.total.runs else []), *(out.labelled("", price) if price else [])]


def about(answer: Stats) -> list[str]:
    """Which runs were counted, in words."""
    total, last, scope = answer.total, answer.last_run, answer.scope
    if not total.runs and scope.run:
        return [f"run {scope.run} is not counted: it ended before it looked for anything"]
    if not total.runs:
        when = f" since {scope.since}" if scope.since else ""
        return [f"the store at {answer.home} has no runs{when}", "next: cachekit warm RECIPE"]
    if scope.run:
        return [f"{last.verb if last and last.run == scope.run else 'run'} {scope.run}"]
    days = scope.first if scope.first == scope.last else f"{scope.first} to {scope.last}"
    return [f"{out.count(total.runs, 'run')}, {days}", *([f"last run: {last.verb} {last.run}"] if last else [])]


def price_words(answer: Stats) -> str:
    """The price that dollars were computed with; empty without a price, or without runs."""
    price = answer.price
    if not price or not answer.total.runs:
        return ""
    what = f"an hour of {price.instance}" if price.instance else "an hour"
    which = "wherever they ran" if price.every else f"those on a {price.instance}"
    return f"at {dollars(price.per_hour)} {what} ({price.source}), for {'all runs, ' if price.every else ''}{which}"


def tables(answer: Stats, *, whole: bool) -> list[str]:
    """The figures by recipe, place and period, for people; of one run, and of no run, there are none.

    Args:
        answer: What `stats` answered.
        whole: Leave no row of a table out.
    """
    if answer.scope.run or not answer.total.runs:
        return []
    lines = []
    headed = {"recipe": answer.recipes, "place": answer.remotes, answer.by: answer.periods}
    for heading, parts in headed.items():
        if parts:
            lines += ["", *_parts(heading, parts, whole=whole)]
    return lines


# Each line: what it says, and how it is made of the figures; a line that is nothing everywhere is left out.
_LINES: list[tuple[str, Any]] = [
    ("keys found", lambda f: (f.hits or f.misses or f.unknown) and _share(f.hits, f.hits + f.misses + f.unknown)),
    ("keys missed", lambda f: f.misses and str(f.misses)),
    ("keys unknown", lambda f: f.unknown and str(f.unknown)),
    ("graphs found", lambda f: f.graphs_found and str(f.graphs_found)),
    ("of these reused", lambda f: f.graphs_reused and str(f.graphs_reused)),
    ("graphs compiled", lambda f: f.graphs_compiled and str(f.graphs_compiled)),
    ("compiling took", lambda f: f.graphs_compiled and out.duration(f.compile_seconds)),
    ("waits for others", lambda f: f.waits and f"{f.waits}, {out.duration(f.waited_seconds)}"),
    ("bytes restored", lambda f: f.bytes_restored and out.size(f.bytes_restored)),
    ("bytes fetched", lambda f: f.bytes_fetched and out.size(f.bytes_fetched)),
    ("bytes pushed", lambda f: f.bytes_pushed and out.size(f.bytes_pushed)),
    ("runs failed", lambda f: f.failed and str(f.failed)),
    ("runs without an end", lambda f: f.unfinished and str(f.unfinished)),
    ("records damaged", lambda f: f.damaged and str(f.damaged)),
    ("pushes failed", lambda f: f.push_failures and str(f.push_failures)),
    ("remotes that failed", lambda f: f.remote_failures and str(f.remote_failures)),
    ("time lost to them", lambda f: f.lost_seconds and out.duration(f.lost_seconds)),
    ("compiles avoided", lambda f: f.recorded_seconds and out.duration(f.recorded_seconds)),
    ("fetching them took", lambda f: f.retrieval_seconds and out.duration(f.retrieval_seconds)),
]


def _share(part: int, whole: int) -> str:
    # Rounded down: 999 of 1,000 is not all of them.
    return f"{part} of {whole}, {part * 100 // whole} %"


def figures(answer: Stats) -> tuple[list[str], list[list[str]]]:
    """The heading and the rows of the table with the last run beside all of them."""
    scope, last = answer.scope, answer.last_run
    columns = [("last run", last.figures)] if last and not scope.run else []
    columns.append(("" if scope.run else f"since {scope.since}" if scope.since else "all runs", answer.total))
    rows = [[label, *(str(make(found) or "-") for _, found in columns)] for label, make in _LINES]
    rows = [row for row in rows if set(row[1:]) != {"-"}]
    for reason in sorted({reason for _, found in columns for reason in found.bypasses}):
        rows.append([f"bypassed: {reason}", *(str(found.bypasses.get(reason, "-")) for _, found in columns)])
    rows.append(["saved", *(out.duration(found.saved_seconds) for _, found in columns)])
    if columns[0][1].saved_dollars is not None:
        rows.append(["money saved", *(dollars(found.saved_dollars) for _, found in columns)])
    return ["", *(name for name, _ in columns)], rows


def _parts(heading: str, parts: list[Part], *, whole: bool) -> list[str]:
    timed = heading in PERIODS
    shown = parts if whole else parts[-SHOWN:] if timed else parts[:SHOWN]
    header, rows = part_rows(heading, shown)
    short = [[cut(name, LONGEST), *cells] for name, *cells in rows]
    lines = out.table(short, header, right=range(1, len(header)))
    left = len(parts) - len(shown)
    return [*lines, *([f"  ... and {left} {'earlier' if timed else 'more'} (-v)"] if left else [])]


def part_rows(heading: str, parts: Sequence[Part]) -> tuple[list[str], list[list[str]]]:
    """The heading and the rows of a table by recipe, place (the store, a remote) or period."""
    columns: list[tuple[str, Any]] = [("runs", lambda f: f.runs), ("hits", lambda f: f.hits)]
    if heading == "place":
        columns = [("hits", lambda f: f.hits), ("graphs", lambda f: f.graphs_found)]
        columns += [
            ("fetched", lambda f: out.size(f.bytes_fetched)),
            ("pushed", lambda f: out.size(f.bytes_pushed)),
        ]
    else:
        columns += [("misses", lambda f: f.misses), ("found", lambda f: f.graphs_found)]
        columns += [("compiled", lambda f: f.graphs_compiled)]
    columns.append(("saved", lambda f: out.duration(f.saved_seconds)))
    if any(part.figures.saved_dollars is not None for part in parts):
        columns.append(("money", lambda f: dollars(f.saved_dollars)))
    named = [part.name or f"(no {heading})" for part in parts]
    rows = [[name, *(str(make(part.figures)) for _, make in columns)] for name, part in zip(named, parts, strict=True)]
    return [heading, *(name for name, _ in columns)], rows
