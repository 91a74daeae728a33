"""`cachekit fleet`: what was submitted to an engine, and what became of it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from cachekit.cli import out
from cachekit.cli.verb import Shown, group, verb
from cachekit.errors import EngineError, UsageError
from cachekit.text import dollars, moment

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import FleetPlan, FleetRow, FleetState, UnitOutcome

app = group(
    "Follow commands that run on the machines of an engine (`cachekit warm --on`).\n\nExample:  cachekit fleet wait"
)
Name = Annotated[
    str,
    typer.Argument(
        metavar="[FLEET]",
        help="A fleet's name, or the beginning of its name; by default the newest fleet.",
        show_default=False,
    ),
]
Number = Annotated[int, typer.Argument(metavar="[NUMBER]", help="The number of a command of the fleet, from 0.", min=0)]
BAD = ("failed", "lost", "timed-out", "cancelled")


@app.command("ls")
@verb("home", answers="list[FleetRow]")
def ls(cache: Cache) -> Shown:
    """List your fleets, newest first; no engine is asked.

    Example:  cachekit fleet ls
    """
    return Shown(list(cache.fleet_list()), _listed, lambda rows: "\n".join(row.id for row in rows))


@app.command("show")
@verb("home", answers="FleetState")
def show(cache: Cache, name: Name = "") -> Shown:
    """Show the state of each command of a fleet.

    Example:  cachekit fleet show
    """
    return Shown(cache.fleet_show(name), human, _keys)


@app.command("wait")
@verb("home", answers="FleetState")
def wait(cache: Cache, name: Name = "") -> Shown:
    """Wait until all commands of a fleet have ended.

    Ctrl-C ends the wait, and the commands go on. Exits 1 if a command failed, was lost or cancelled, or ran out of
    time.

    Example:  cachekit fleet wait
    """
    return waited(cache.fleet_wait(name))


@app.command("cancel")
@verb("home", answers="FleetState")
def cancel(cache: Cache, name: Name = "") -> Shown:
    """Cancel a fleet's running and waiting commands.

    Example:  cachekit fleet cancel
    """
    ended = ""
    with suppress(EngineError):  # an engine that tells nothing may obey all the same
        before = cache.fleet_show(name)
        name, ended = before.id, before.id if before.ended else ""
    notes = (f"nothing is left to cancel: {ended} has ended",) if ended else ()
    return Shown(cache.fleet_cancel(name), human, _keys, notes=notes)


@app.command("logs")
@verb("home", answers="FleetLog")
def logs(cache: Cache, name: Name = "", number: Number = 0) -> Shown:
    """Print a fleet command's output, and what the engine says about it.

    Example:  cachekit fleet logs 261124-101500 3
    """
    return Shown(
        cache.fleet_logs(name, number),
        lambda answer: [folded for line in answer.lines for folded in _folded(line)] or ["nothing yet"],
        lambda answer: "\n".join(answer.files),
    )


def _folded(line: str) -> list[str]:
    words = line.lstrip()
    return out.labelled(line[: len(line) - len(words)], words)


def check_here(cache: Cache, *, jobs: int = 1, spot: bool, max_dollars: float | None, price: list[str] | None) -> None:
    """See that nothing is said of machines of an engine where this machine is meant.

    Raises:
        UsageError: Something is.
    """
    said = {
        "--toolchain": cache.toolchain,
        "--target": cache.target,
        "--instance": cache.instance,
        "--jobs": jobs > 1,
        "--price": price,
        "--spot": spot,
        "--max-dollars": max_dollars is not None,
    }
    if typed := [option for option, given in said.items() if given]:
        are = "is" if len(typed) == 1 else "are"
        raise UsageError(
            f"{' and '.join(typed)} {are} for the machines of an engine",
            hint="--on ENGINE; or `cachekit plan`, for a machine that is not this one",
        )


def _listed(rows: list[FleetRow]) -> list[str]:
    if not rows:
        return ["no fleet was submitted from this store", "next: cachekit warm RECIPE --on ENGINE"]
    cells = [[row.id, _engine(row), moment(row.created), f"{row.ended} of {row.commands}"] for row in rows]
    return out.table(cells, ["fleet", "engine", "submitted", "ended"])


def _keys(answer: FleetState) -> str:
    return "\n".join(unit.key for unit in answer.units if unit.key)


def waited(answer: FleetState) -> Shown:
    """What became of a fleet that has ended; what failed of it is an error."""
    return Shown(answer, human, _keys, error=answer.failure())


def answered(answer: FleetState | FleetPlan) -> Shown:
    """What `--on` answers: what became of a fleet, or what it would do."""
    from cachekit.api.answers import FleetState

    if isinstance(answer, FleetState):
        return waited(answer)
    return Shown(answer, plan, lambda found: found.request, error=answer.forecast.unplanned())


def human(answer: FleetState) -> list[str]:
    """What became of a fleet, for people."""
    lines = [f"{answer.id}: {out.count(len(answer.units), 'command')} on {_engine(answer)}, {moment(answer.created)}"]
    cells = [
        [
            str(unit.number),
            unit.status or unit.state,
            unit.key[:16],
            unit.machine,
            out.duration(unit.seconds) if unit.seconds is not None else "",
            unit.name,
        ]
        for unit in answer.units
    ]
    lines += out.table(cells, ["", "state", "key", "machine", "took", "command"], right={0, 4}, shrink={3, 5})
    for unit in answer.units:
        why = ", ".join(filter(None, [_code(unit), unit.error or unit.reason]))
        if (unit.state in BAD or unit.error) and why:
            lines += out.labelled(f"  {unit.number} {unit.state}: ", why)
    waiting = Counter(unit.reason for unit in answer.units if unit.state == "waiting" and unit.reason)
    lines += [f"  {number} waiting: {reason}" for reason, number in waiting.items()]
    counts = ", ".join(f"{number} {state}" for state, number in answer.counts.items())
    return [*lines, f"{counts}; compiled {out.count(answer.compiled, 'graph')}"]


def plan(answer: FleetPlan) -> list[str]:
    """What a fleet would do, for people."""
    totals = answer.forecast.totals
    rows = answer.forecast.plans
    same = sum(row.same_as is not None for row in rows)
    lines = [
        f"{out.count(len(rows), 'command')} on {_engine(answer)}, {answer.machines} at once"
        + (f", on {answer.nodes} machines each" if answer.nodes > 1 else ""),
        f"  {totals.hit} will be found, {totals.miss - same} will compile"
        + (f", {same} will find what another command compiles" if same else ""),
    ]
    if totals.miss and answer.seconds:
        known = f"about {out.duration(answer.seconds)} with {out.count(answer.machines * answer.nodes, 'machine')}"
        lines += out.labelled("  compiling takes ", known)
    if totals.unknown_seconds:
        which = out.count(totals.unknown_seconds, "command")
        lines.append(f"  how long {which} will compile is not known")
    if answer.price is not None:
        # The machine that compiles may be another one than the one that is compiled for.
        per_hour = answer.price.per_hour * answer.nodes
        an_hour = f"{dollars(answer.price.per_hour)} an hour per machine ({answer.price.source})"
        lines += out.labelled("  costs ", f"{_range(answer, per_hour)} for compiling, at {an_hour}")
    elif answer.lacks:
        lines += out.labelled(
            "  costs ", "unknown: the registry has no price for such a machine; give --price DOLLARS, per hour"
        )
    lines += _elsewhere(answer)
    if answer.max_seconds is not None:
        lines.append(f"  each command is stopped after {out.duration(answer.max_seconds)}, within the budget")
    lines += ["", *(f"  {row.status:<8}{row.key[:16]:<18}{row.name}" for row in rows if not row.error)]
    lines += [f"  failed  {row.name}: {row.error.said}" for row in rows if row.error]
    if answer.lacks:
        lines += [
            "",
            *(line for what in answer.lacks for line in out.labelled("would not be submitted as it is: ", what)),
        ]
    request = ["", "would submit", *(f"  {line}" for line in answer.request.splitlines())] if answer.request else []
    return [*lines, *request]


def _range(answer: FleetPlan, per_hour: float) -> str:
    """What compiling costs at so many dollars an hour, as far as somebody knows how long it takes."""
    totals = answer.forecast.totals
    low, high = (dollars(seconds * per_hour / 3600) for seconds in totals.seconds_range)
    if not totals.unknown_seconds or not per_hour:
        return f"{low} to {high}"
    return f"at least {low}" if totals.seconds_range[1] else "an unknown amount"


def _elsewhere(answer: FleetPlan) -> list[str]:
    """Compiling where it is cheap, for where it is dear: what the same hours cost there, and what is in doubt."""
    if not answer.compile_for:
        return []
    here, there, lines = answer.price, answer.price_there, []
    if there is None:
        said = f"the registry has no price for it; give --price {answer.compile_for}=DOLLARS, per hour"
    else:
        said = f"there it costs {_range(answer, there.per_hour)}, at {dollars(there.per_hour)} an hour ({there.source})"
        if here is not None and here.per_hour:
            ratio = there.per_hour / here.per_hour
            said += f"; it is cheaper on these machines if it takes less than {ratio:.3g} times as long"
    lines += out.labelled(f"  for {answer.compile_for}: ", said)
    return [*lines, *out.labelled("  in doubt: ", answer.doubt)]


def _engine(one: FleetRow | FleetState | FleetPlan) -> str:
    return f"{one.engine}:{one.queue}" if one.queue else one.engine


def _code(unit: UnitOutcome) -> str:
    return f"exit code {unit.code}" if unit.code else ""
