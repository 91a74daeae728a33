"""Run commands on the machines of an engine, and tell what became of them: `--on`, and `cachekit fleet`."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from msgspec import Struct

from cachekit.config import Config
from cachekit.decode import from_json
from cachekit.errors import CachekitError, EngineError, InterruptedRunError, UsageError
from cachekit.executors import fleet as fleets
from cachekit.executors import registry
from cachekit.executors.fleet import UnitState
from cachekit.executors.port import ENDED, Engine, Fleet, FleetUnit
from cachekit.recipe import zoo
from cachekit.recipe.price import Price
from cachekit.remotes import doctor
from cachekit.store.layout import Layout
from cachekit.text import count, dollars, duration
from cachekit.values import Answer
from cachekit.verbs.forecast import Forecast, Row

POLL = (0.2, 5.0)  # seconds between two questions to an engine: the first, and where nothing changes the longest
EACH = 0.5  # seconds of that longest one for each command that has not ended: some engines are asked about each
SILENT = 600.0  # seconds that an engine may not answer before a wait ends
DRAFT = "dry-run"  # the name of a fleet that is only shown
Tell = Callable[..., object]  # is told of an event: its name, and fields
UNSHARED = frozenset({"push-failed", "remote-offline"})  # why a run's compiles stay on its machine; see `events`
LONGEST = 1 << 20  # bytes of a log that are shown


class FleetPlan(Answer, frozen=True, kw_only=True, tag="cachekit/fleet-plan/1"):
    """What a fleet would do, before anything is submitted.

    Attributes:
        forecast: What each command will find and compile, and what that comes to.
        order: The commands' names in the order in which they would begin: the longest first, and after all others
            those that find what an earlier one compiles.
        machines: How many commands work at once, at most.
        nodes: On how many machines each of them runs.
        seconds: From the first command's begin to the last one's end, as far as compiling goes; of commands whose time
            nobody knows (`forecast.totals.unknown_seconds`) nothing is in it.
        max_seconds: After which a command would be ended, so that all cost no more than was allowed; None for never.
        price: What an hour of a machine costs, where somebody says so.
        compile_for: The instance type that will train, where the machines are others; else empty.
        price_there: What an hour of that one costs.
        doubt: What nobody has shown of compiling for it on another machine.
        request: What would be submitted, to the letter; empty where the engine cannot be asked what it takes.
        lacks: What nothing is submitted without, and how to say it: a budget, a shared cache, the engine itself.
    """

    engine: str
    queue: str
    forecast: Forecast
    order: tuple[str, ...]
    machines: int
    nodes: int = 1
    seconds: float
    max_seconds: float | None = None
    price: Price | None = None
    compile_for: str = ""
    price_there: Price | None = None
    doubt: str = ""
    request: str
    lacks: tuple[str, ...] = ()


class UnitOutcome(UnitState, frozen=True, kw_only=True):
    """What became of a command, with what it answered.

    Attributes:
        key: Of the record that it made or found.
        status: `compiled` or `hit`, of a warm that succeeded.
        compiled: Graphs.
        error: What it said when it failed; or that what it compiled reached no remote, and so is found by nobody.
    """

    key: str = ""
    status: str = ""
    compiled: int | None = None
    error: str = ""


class FleetState(Answer, frozen=True, kw_only=True, tag="cachekit/fleet/1"):
    """What became of a fleet, so far.

    Attributes:
        id: By which `cachekit fleet` knows it.
        created: When it was submitted.
        counts: How many of its commands are in which state.
        compiled: Graphs that they compiled.
        ended: All of them have ended.
    """

    id: str
    engine: str
    queue: str
    created: str
    counts: Mapping[str, int]
    compiled: int
    ended: bool
    units: tuple[UnitOutcome, ...]

    def failure(self) -> CachekitError | None:
        """What to raise where a command ended in another way than it should; None otherwise."""
        wrong = [unit for unit in self.units if unit.error or (unit.state in ENDED and unit.state != "done")]
        if not wrong:
            return None
        first = wrong[0]
        return EngineError(
            f"{len(wrong)} of {count(len(self.units), 'command')} did not succeed",
            cause=": ".join(
                [
                    f"{first.name} on {first.machine}" if first.machine else first.name,
                    first.error or first.reason or first.state,
                ]
            ),
            hint=f"cachekit fleet logs {self.id} {first.number}",
        )


class FleetRow(Answer, frozen=True, kw_only=True, tag="cachekit/fleet-row/1"):
    """A fleet in a list: it is not asked about."""

    id: str
    engine: str
    queue: str
    created: str
    commands: int
    ended: int


class FleetLog(Answer, frozen=True, tag="cachekit/fleet-log/1"):
    """What a command printed, and what its engine told of it.

    Attributes:
        name: The command's.
        files: Where it stands: the engine's words, then what the command told, then what it answered.
        lines: All of it; of a long file the end, and of an answer in JSON what it comes to.
    """

    id: str
    number: int
    name: str
    files: tuple[str, ...]
    lines: tuple[str, ...]


class _Warmed(Struct, frozen=True):
    """What is read of what `cachekit warm --format json` printed."""

    key: str = ""
    status: str = ""
    compiled: int | None = None
    bypassed: Mapping[str, int] = {}


def check_shared(config: Config, engine: Engine, name: str) -> None:
    """See that what compiles elsewhere will be found from here.

    Raises:
        UsageError: No remote is there that machines could write to.
        EngineError: None of them can be written.
    """
    if not engine.rents:
        return
    found = doctor.written(config)
    if not found:
        raise UsageError(
            f"what commands on {name} compile would be lost: no shared cache can be written",
            cause="what a machine compiles goes away with it, unless the cache names a remote to push to",
            hint="--cache local:rw,NAME:rw, or `cachekit hub use OWNER/NAME`",
        )
    if all(trouble is not None for trouble in found.values()):
        remote, trouble = next(iter(found.items()))
        assert trouble is not None
        raise EngineError(
            f"what commands on {name} compile would be lost: {remote} cannot be written",
            cause=trouble.said,
            hint=trouble.run or trouble.repair,
        )


def order(rows: Sequence[Row]) -> list[int]:
    """The order in which commands should begin; see `FleetPlan`."""
    own = [number for number, row in enumerate(rows) if row.same_as is None]
    # Of what nobody knows the length, the worst is taken: were it last, all others would wait for it.
    seconds = [rows[number].expected_seconds for number in own]
    ranked = longest_first([float("inf") if one is None else one for one in seconds])
    return [own[number] for number in ranked] + [number for number, row in enumerate(rows) if row.same_as is not None]


def longest_first(seconds: Sequence[float]) -> list[int]:
    """The numbers of commands of these lengths, so that machines which each take the next one end nearly together."""
    return sorted(range(len(seconds)), key=lambda number: -seconds[number])


def makespan(seconds: Sequence[float], machines: int) -> float:
    """How long machines take for commands of these lengths, each of which goes to the first machine that is free."""
    busy = [0.0] * max(1, min(machines, len(seconds)))
    for one in seconds:
        heapq.heappush(busy, heapq.heappop(busy) + one)
    return max(busy)


def limit(
    forecast: Forecast,
    price: Price | None,
    engine: Engine,
    name: str,
    most: float | None,
    *,
    nodes: int = 1,
    least: float = 1.0,
) -> float | None:
    """After how many seconds a command is ended, so that all of them cost no more than `most` dollars; None for never.

    Each runs on so many `nodes`. An engine ends none after less than `least` seconds, and takes 0 for no limit.

    Raises:
        UsageError: An engine's machines cost money, and nobody says how much may be spent, or what an hour costs; or
            that is not enough, or no amount.
    """
    if most is not None and not 0 <= most < float("inf"):
        raise UsageError(f"--max-dollars {most}: not an amount of money", hint="--max-dollars 20")
    if not engine.rents or (price is not None and not price.per_hour):
        return None
    if most is None:
        high = price.cost(forecast.totals.seconds_range[1]) * nodes if price else 0.0
        about = f"; compiling is expected to cost up to {dollars(high)}" if high else ""
        raise UsageError(f"machines of {name} cost money{about}", hint="--max-dollars N, or --price 0")
    if price is None:
        raise UsageError(
            "the hourly price of such a machine is unknown", hint="--price DOLLARS per hour, or --instance TYPE"
        )
    each = most / price.per_hour * 3600 / len(forecast.plans) / nodes
    for row in forecast.plans:
        if row.expected is not None and row.expected.high > each:
            raise UsageError(
                f"{dollars(most)} is not enough: {row.name} may compile for {duration(row.expected.high)}",
                cause=f"at {dollars(price.per_hour)} an hour, each of {len(forecast.plans)} gets {duration(each)}",
                hint="raise --max-dollars, or shorten the list",
            )
    if each < least:
        raise UsageError(
            f"{dollars(most)} is not enough for {duration(least)} of each command",
            cause=f"{count(len(forecast.plans), 'command')}, at {dollars(price.per_hour)} an hour for each machine",
            hint="raise --max-dollars, or shorten the list",
        )
    return each


def compiled_for(machine: str) -> str:
    """A machine's type where it has a chip to compile for; empty for another one, or none."""
    known = zoo.instances().get(machine)
    return machine if known and known.target else ""


def planned(
    fleet: Fleet, request: str, forecast: Forecast, price: Price | None, lacks: tuple[str, ...] = ()
) -> FleetPlan:
    """A fleet that is not submitted, with what it would take."""
    rows = forecast.plans
    ranked = [rows[number] for number in order(rows)]
    seconds = [row.expected_seconds or 0.0 for row in ranked if row.compiles and not row.same_as]
    machines = min(fleet.jobs, len(rows))
    return FleetPlan(
        engine=fleet.engine,
        queue=fleet.queue,
        forecast=forecast,
        order=tuple(unit.name for unit in fleet.units),
        machines=machines,
        nodes=fleet.options.get("nodes", 1),
        seconds=round(makespan(seconds, machines), 3) if seconds else 0.0,
        max_seconds=None if fleet.seconds is None else round(fleet.seconds, 3),
        price=price,
        request=request,
        lacks=lacks,
    )


def submit(layout: Layout, draft: Fleet, engine: Engine, tell: Tell, *, keep: int) -> Fleet:
    """Note a fleet in the store, and submit it; fleets of which nothing was heard for `keep` days are removed.

    Raises:
        EngineError: The engine refuses.
        UsageError: The engine has no such command.
        InterruptedRunError: As for `wait`.
    """
    engine.request(draft)  # what cannot be asked for is refused before anything is noted
    fields = msgspec.structs.asdict(draft)
    fleets.retire(layout, keep)
    made = fleets.create(layout, **{name: fields[name] for name in fields if name not in {"id", "created", "folder"}})
    with _going_on(made):  # the first commands may run before the last ones are submitted
        try:
            engine.submit(made)
        except EngineError:
            with suppress(EngineError):
                if not engine.look(made):  # it took none of them
                    fleets.forget(made)
            raise
        tell("fleet.submitted", fleet=made.id, engine=made.engine, commands=len(made.units))
    return made


@contextmanager
def _going_on(fleet: Fleet) -> Iterator[None]:
    """Say how to find a fleet again whose commands somebody stops waiting for."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptedRunError(
            "stopped waiting; the commands go on",
            cause=str(error) or "Ctrl-C",
            hint=f"cachekit fleet wait {fleet.id}, or cachekit fleet cancel {fleet.id}",
        ) from error


def wait(fleet: Fleet, tell: Tell) -> FleetState:
    """Ask until every command has ended.

    Args:
        fleet: The fleet.
        tell: Is told of each command whose state changes.

    Raises:
        EngineError: The engine did not answer for ten minutes.
        InterruptedRunError: Somebody asked this process to end; the commands go on.
    """
    before: dict[int, str] = {}
    with _going_on(fleet):
        engine = registry.engine(fleet.engine)
        pause, answered = POLL[0], time.monotonic()
        while True:
            try:
                found = state(fleet, engine)
            except EngineError as error:
                if time.monotonic() - answered > SILENT:
                    raise
                tell("fleet.silent", fleet=fleet.id, reason=error.said)
                found = None
            else:
                answered = time.monotonic()
            units = found.units if found else ()
            pause = min(pause * 1.5, max(POLL[1], EACH * sum(unit.state not in ENDED for unit in units)))
            for unit in units:
                if before.get(unit.number) != unit.state:
                    before[unit.number], pause = unit.state, POLL[0]
                    tell("fleet.unit", fleet=fleet.id, of=len(fleet.units), **msgspec.structs.asdict(unit))
            if found is not None and found.ended:
                return found
            time.sleep(pause)


def state(fleet: Fleet, engine: Engine | None = None) -> FleetState:
    """What became of a fleet so far; see `Cache.fleet_show`."""
    found = fleets.states(fleet, engine or registry.engine(fleet.engine))
    units = tuple(_outcome(fleet, one) for one in found)
    return FleetState(
        id=fleet.id,
        engine=fleet.engine,
        queue=fleet.queue,
        created=fleet.created,
        counts=dict(Counter(unit.state for unit in units)),
        compiled=sum(unit.compiled or 0 for unit in units),
        ended=all(unit.state in ENDED for unit in units),
        units=units,
    )


def _outcome(fleet: Fleet, one: UnitState) -> UnitOutcome:
    said = {}
    if one.state == "done":
        if answer := _answered(fleet, one.number):
            said = msgspec.structs.asdict(answer)
            lost = UNSHARED & said.pop("bypassed").keys()
            if lost and said["compiled"] and registry.engine(fleet.engine).rents:
                said["error"] = f"what it compiled was not pushed ({', '.join(sorted(lost))})"
    elif one.state in ENDED:
        said = {"error": fleets.error(fleet, one.number, failed=one.state == "failed")}
    return UnitOutcome(**msgspec.structs.asdict(one), **said)


def _answered(fleet: Fleet, number: int) -> _Warmed | None:
    """What a command answered in JSON; None where it has printed something else, or nothing yet."""
    with suppress(msgspec.DecodeError, msgspec.ValidationError):
        return from_json(fleets.printed(fleet, number), _Warmed)
    return None


def listed(layout: Layout) -> tuple[FleetRow, ...]:
    """All fleets of this user, newest first; no engine is asked."""
    return tuple(
        FleetRow(
            id=one.id,
            engine=one.engine,
            queue=one.queue,
            created=one.created,
            commands=len(one.units),
            ended=sum((one.path / f"{number}.ended").exists() for number in range(len(one.units))),
        )
        for one in fleets.every(layout)
    )


def cancel(fleet: Fleet) -> None:
    """Cancel the commands of a fleet, running and waiting."""
    fleets.cancel(fleet, registry.engine(fleet.engine))


def logs(fleet: Fleet, number: int) -> FleetLog:
    """What a command of a fleet printed; see `Cache.fleet_logs`."""
    if number >= len(fleet.units):
        raise UsageError(
            f"{fleet.id} has no command {number}", hint=f"cachekit fleet show {fleet.id} lists its commands, from 0"
        )
    with suppress(EngineError):  # else what was fetched before
        registry.engine(fleet.engine).fetch(fleet, number)
    found = fleets.log(fleet, number)
    lines: list[str] = []
    for path in found:
        said = _answered(fleet, number) if path.suffix == ".out" else None
        if said is not None and not said.key and lines:  # an error, which the log has as well
            lines.append(f"the same as JSON is in {path}")
        elif said is None or not said.key:
            lines += fleets.tail(path, LONGEST).decode(errors="replace").splitlines()
        else:
            graphs = "" if said.compiled is None else f", compiled {count(said.compiled, 'graph')}"
            lines.append(f"{said.status or 'done'}: key {said.key[:16]}{graphs}; the whole answer is in {path}")
    return FleetLog(fleet.id, number, fleet.units[number].name, tuple(map(str, found)), tuple(lines))


def draft(
    engine: str,
    queue: str,
    *,
    units: Sequence[FleetUnit],
    jobs: int,
    cwd: str,
    options: Mapping[str, Any],
    files: Mapping[str, str],
    seconds: float | None,
    layout: Layout,
) -> Fleet:
    """A fleet that is not in the store yet."""
    return Fleet(
        id=DRAFT,
        engine=engine,
        queue=queue,
        created="",
        folder=str(layout.fleets / DRAFT),
        cwd=cwd,
        jobs=jobs,
        seconds=seconds,
        options=options,
        files=files,
        units=tuple(units),
    )
