"""What the cache did: in one run, in the last one, since a day, since the beginning; and what that saved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from cachekit.errors import CachekitError, IntegrityError, UnknownNameError, UsageError
from cachekit.store.counting import BYPASS, ON, Cell, Counted
from cachekit.store.history import History, day_of, history, recount
from cachekit.store.layout import Layout
from cachekit.text import PERIODS, Period, count, cut, first_of, parse_days
from cachekit.values import Answer

if TYPE_CHECKING:
    from cachekit.recipe.price import Price

LAST = "last"


def _said(words: str) -> Meta:
    return Meta(description=words)


UPKEEP = frozenset({"gc", "rm", "verify"})  # verbs that write journals, and neither find nor compile
Number = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]


class Figures(Struct, frozen=True):
    """Sums. Each run's keys, graphs, bytes and seconds are counted where they happened, once."""

    runs: Annotated[Number, _said("Runs that wrote a journal")] = 0
    failed: Annotated[Number, _said("Of those: ended with an error")] = 0
    unfinished: Annotated[Number, _said("Of those: killed, or still running")] = 0
    hits: Annotated[Number, _said("Keys asked for that the cache had")] = 0
    misses: Annotated[Number, _said("Keys asked for that the cache did not have")] = 0
    unknown: Annotated[Number, _said("Keys asked for that may be on a remote that could not be asked")] = 0
    graphs_found: Annotated[Number, _said("Graphs that came out of the cache")] = 0
    graphs_reused: Annotated[Number, _said("Of those: from the record of another key")] = 0
    graphs_compiled: Annotated[Number, _said("Graphs that were compiled")] = 0
    waits: Annotated[Number, _said("Keys that another process or machine was compiling")] = 0
    waited_seconds: Annotated[float, _said("Time spent waiting for them")] = 0.0
    compile_seconds: Annotated[float, _said("Time spent compiling")] = 0.0
    bytes_restored: Annotated[Number, _said("Bytes put into compiler cache dirs from the store")] = 0
    fetches: Annotated[Number, _said("Times that something was fetched from a remote")] = 0
    bytes_fetched: Annotated[Number, _said("Bytes of those")] = 0
    fetch_seconds: Annotated[float, _said("Time of those")] = 0.0
    pushes: Annotated[Number, _said("Pushes to a remote that were completed")] = 0
    bytes_pushed: Annotated[Number, _said("Bytes of those")] = 0
    push_seconds: Annotated[float, _said("Time of those")] = 0.0
    push_failures: Annotated[Number, _said("Pushes that failed")] = 0
    ask_seconds: Annotated[float, _said("Time that questions to remotes took")] = 0.0
    lost_seconds: Annotated[float, _said("Of that: lost to questions that failed, and pauses after them")] = 0.0
    remote_failures: Annotated[Number, _said("Times that a remote was not used because it failed")] = 0
    damaged: Annotated[Number, _said("Damaged records that were found, in the store and on remotes")] = 0
    bypasses: Annotated[dict[str, int], _said("Times that a part of the cache was bypassed, by reason")] = {}
    recorded_seconds: Annotated[float, _said("What compiling took when the records that were hit were made")] = 0.0
    retrieval_seconds: Annotated[float, _said("What looking up, waiting, fetching, restoring and loading took")] = 0.0
    saved_seconds: Annotated[float, _said("The former less the latter; negative where the cache cost time")] = 0.0
    saved_dollars: Annotated[float | None, _said("Saved hours at the price of an hour; null without a price")] = None


class Rate(Struct, frozen=True):
    """What an hour costs."""

    per_hour: Annotated[float, Meta(ge=0)]
    currency: str
    instance: Annotated[str, _said("The machine's type; empty where a price alone was given")]
    source: Annotated[str, _said("Where the figure is from")]
    every: Annotated[bool, _said("For all runs, wherever they ran; else for those on a machine of that type")] = True


class Part(Struct, frozen=True):
    """The figures of a recipe, a remote or a day; an empty name where there is none."""

    name: str
    figures: Figures


class RunFigures(Struct, frozen=True):
    """One run."""

    run: Annotated[str, _said("Its name, as its journal's: the UTC time at which it began, and eight digits")]
    verb: Annotated[str, _said("Its command: warm, train, run, pull, push or import")]
    started: Annotated[str, _said("UTC, ISO 8601")]
    figures: Figures


class Scope(Struct, frozen=True):
    """Which runs were counted."""

    run: Annotated[str | None, _said("The one run that was asked for")]
    since: Annotated[str | None, _said("The first day that was asked for, UTC")]
    first: Annotated[str | None, _said("The first day on which a counted run began, UTC")]
    last: Annotated[str | None, _said("The last one")]


class Stats(Answer, frozen=True, tag="cachekit/stats/1"):
    """The answer of `cachekit stats --format json`."""

    home: Annotated[str, _said("The store")]
    scope: Scope
    total: Figures
    last_run: Annotated[RunFigures | None, _said("The latest run; null where there is none")]
    recipes: Annotated[list[Part], _said("By recipe, what saved most first")]
    remotes: Annotated[list[Part], _said("By cache: `local`, and the names of shared ones")]
    by: Annotated[Period, _said("What the periods are")]
    periods: Annotated[
        list[Part],
        _said(
            "By the UTC day on which the runs began, as 2026-11-21; or its week, ISO 8601: 2026-W47; or month: 2026-11"
        ),
    ]
    price: Annotated[Rate | None, _said("The price that dollars were computed with")]
    problems: Annotated[list[str], _said("Files that could not be read, and were not counted")]


def stats(
    layout: Layout,
    *,
    run: str = "",
    since: str = "",
    by: str = "day",
    price: Price | None = None,
    every: bool = True,
    today: datetime | None = None,
) -> Stats:
    """Count a store's runs.

    Args:
        layout: Of the store.
        run: Count one only: `last`, or its name or how that begins.
        since: Count those that began on this day or later: `2026-11-01`, or an age of whole days: `7d` for the last
            seven, `2w`.
        by: What the table of periods is by: one of `PERIODS`.
        price: What an hour costs.
        every: It is the price of all runs, wherever they ran; else of those on a machine of its type alone.
        today: UTC.

    Raises:
        UnknownNameError: There is no such run.
        UsageError: That is not a day or a period; or both a run and a day were given.
    """
    if by not in PERIODS:
        raise UsageError(f"--by {cut(by, 40)} is not a period", hint=f"one of {', '.join(PERIODS)}")
    if run and since:
        raise UsageError("--run and --since are both given", hint="leave out --since: one run needs no period")
    known = history(layout)
    first = since_day(since, today or datetime.now(timezone.utc)) if since else ""
    youngest = _last(known)
    paid = None if price is None else Rate(price.per_hour, price.currency, price.instance, price.source, every)
    if run:
        name = run_named(known, run)
        chosen = _cells({name: known.runs[name]})
    else:
        name = None
        chosen = [(day, cell) for day, cell in _cells(known.runs) if day >= first]
    days = [day for day, cell in chosen if cell.figures.get("runs")]
    return Stats(
        home=str(layout.home),
        scope=Scope(name, first or None, min(days, default=None), max(days, default=None)),
        total=figures((cell for _, cell in chosen), paid),
        last_run=None if youngest is None else _run(youngest, known.runs[youngest], paid),
        recipes=sorted(
            _parts(((cell.recipe, cell) for _, cell in chosen), paid),
            key=lambda part: (-part.figures.saved_seconds, part.name),
        ),
        remotes=_parts(((cell.remote, cell) for _, cell in chosen if cell.remote), paid),
        by=by,
        periods=_parts(((_period(day, by), cell) for day, cell in chosen), paid),
        price=paid,
        problems=list(known.problems),
    )


class CheckedStats(Answer, frozen=True, tag="cachekit/stats-check/1"):
    """The stored figures, against the journals.

    Attributes:
        runs: All runs that are known.
        recounted: Those whose journal is still there, and was counted again.
        differ: Those whose stored figures differ.
        problems: Files that could not be read.
    """

    runs: int
    recounted: int
    differ: tuple[str, ...]
    problems: tuple[str, ...]

    def error(self) -> CachekitError | None:
        """What to raise where figures differ; None where all agree."""
        if not self.differ:
            return None
        return IntegrityError(
            f"the stored figures of {count(len(self.differ), 'run')} are not those of the journals",
            cause=", ".join(self.differ[:3]),
            hint="a journal, or the file of figures beside it, was changed outside cachekit",
        )


def check(layout: Layout) -> CheckedStats:
    """Count every journal anew, and compare with the figures that `stats` shows."""
    known, anew = history(layout), recount(layout)
    differ = tuple(run for run, counted in sorted(anew.items()) if known.runs.get(run) != counted)
    # A command line that was refused has a journal, and is no run.
    runs, recounted = (sum(bool(one.cells) for one in found.values()) for found in (known.runs, anew))
    return CheckedStats(runs, recounted, differ, known.problems)


def _period(day: str, by: str) -> str:
    return week_of(day) if by == "week" else day[:7] if by == "month" else day


def week_of(day: str) -> str:
    """The week of a day, ISO 8601: 2026-W47 for 2026-11-21, 2026-W53 for 2027-01-03; empty for what is not a day."""
    try:
        year, week, _ = date.fromisoformat(day).isocalendar()
    except ValueError:  # a journal may be called anything
        return ""
    return f"{year:04}-W{week:02}"


def since_day(words: str, today: datetime) -> str:
    """The day that `--since` means, as 2026-11-21.

    Raises:
        UsageError: It means none.
    """
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", words):
            return date.fromisoformat(words).isoformat()
        days = parse_days(words)
        # A number alone may be meant as a day, 20261101, and 3m as months.
        if days.is_integer() and words[-1:].isalpha():
            return (today - timedelta(days=max(days - 1, 0))).date().isoformat()
    except ValueError:
        pass
    raise UsageError(
        f"--since {cut(words, 40)} is not a day",
        hint="give a day in UTC, 2026-11-01, or a number of days or weeks: 7d, 12w",
    )


def run_named(known: History, wanted: str) -> str:
    """The name of the one run that `last`, a name, or the beginning of a name means.

    Raises:
        UnknownNameError: There is no such run, or there are several.
    """
    if wanted != LAST:
        return one_run([*known.runs], wanted)
    if name := _last(known):
        return name
    raise UnknownNameError("there is no last run: the store has none that is counted", hint="cachekit warm RECIPE")


def one_run(names: Sequence[str], wanted: str) -> str:
    """The one run whose name begins so.

    Args:
        names: Of all runs, the oldest first.
        wanted: What somebody says.

    Raises:
        UnknownNameError: No run does, or several runs do.
    """
    found = [name for name in names if name.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownNameError(
            f"{len(found)} runs begin with {wanted}", cause=first_of(found, 2), hint="give more of the name"
        )
    recent = ", ".join(names[:-4:-1])
    raise UnknownNameError(
        f"there is no run named {cut(wanted, 80)!r}",
        cause=f"the last ones are {recent}" if recent else "the store has no journal",
        hint="give the whole name, or --run last",
    )


def _last(known: History) -> str | None:
    """The latest run that is counted and used the cache: what looks after the store hides none."""
    runs = known.runs
    return next((name for name in reversed(runs) if runs[name].cells and runs[name].verb not in UPKEEP), None)


def _run(name: str, counted: Counted, price: Rate | None) -> RunFigures:
    return RunFigures(name, counted.verb, started(name), figures(counted.cells, price))


def started(name: str) -> str:
    """When a run began, by its name: UTC, ISO 8601."""
    return f"{day_of(name)}T{name[9:11]}:{name[11:13]}:{name[13:15]}Z"


def _cells(runs: Mapping[str, Counted]) -> list[tuple[str, Cell]]:
    """The cells of runs, each with the day on which its run began."""
    return [(day_of(run), cell) for run, counted in runs.items() for cell in counted.cells]


def _parts(named: Iterable[tuple[str, Cell]], price: Rate | None) -> list[Part]:
    cells: dict[str, list[Cell]] = {}
    for name, cell in named:
        cells.setdefault(name, []).append(cell)
    return [Part(name, figures(found, price)) for name, found in sorted(cells.items())]


_NAMES = frozenset(Figures.__struct_fields__) - {"bypasses", "saved_seconds", "saved_dollars"}
_SECONDS = frozenset(name for name in _NAMES if name.endswith("_seconds"))


def figures(cells: Iterable[Cell], price: Rate | None = None) -> Figures:
    """The sums of cells."""
    sums: dict[str, float] = dict.fromkeys(_NAMES, 0)
    bypasses: dict[str, int] = {}
    there = 0.0  # saved on machines of the price's type
    for cell in cells:
        for name, value in cell.figures.items():
            if name in sums:
                sums[name] += value
            elif name.startswith(BYPASS):
                reason = name.removeprefix(BYPASS)
                bypasses[reason] = bypasses.get(reason, 0) + int(value)
            elif price is not None and name == ON + price.instance:
                there += value
    saved = sums["recorded_seconds"] - sums["retrieval_seconds"]
    known: dict[str, Any] = {
        name: round(value, 3) if name in _SECONDS else max(int(value), 0) for name, value in sums.items()
    }
    return Figures(
        **known,
        bypasses=dict(sorted(bypasses.items())),
        saved_seconds=round(saved, 3),
        saved_dollars=None
        if price is None
        else round(price.per_hour * (saved if price.every else there) / 3600, 2) + 0.0,  # no minus before a zero
    )
