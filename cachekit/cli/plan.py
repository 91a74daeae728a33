"""`cachekit plan`: what will hit and what will compile, how long that takes and costs, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from cachekit import api
from cachekit.api import Variant
from cachekit.cli import instances as on_instances
from cachekit.cli import options, out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import IntegrityError, UsageError
from cachekit.text import a, cut, dollars, first_of, named, not_asked, span

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import (
        Change,
        Expected,
        Forecast,
        Planned,
        Preview,
        Row,
        SplitPreview,
        Told,
        Unanswered,
    )

LOCAL = "local"  # the store, among places
COMMAND = "command"  # what a command of somebody's own has in the place of a model's type
CHANGES = 12  # of one difference
VALUE = 40  # characters of a value in one
CAUSE = 160  # characters of one that is worth reading in a list
METHODS = {"measured": "measured:", "scaled": "scaled from", "published": "published:"}  # before the source of a figure
DIFFERENCES = 6  # from the job that a figure was published of
LABELS = 10
IGNORED = 5
LONGEST = 14  # characters of a remote's name in the table; a longer one stands below it
Instances = Annotated[
    bool,
    typer.Option(
        "--instances", help="Compare the registry's instance types: which one trains the recipe most cheaply."
    ),
]
RequireWarm = Annotated[bool, typer.Option("--require-warm", help="Exit 3 on a miss, or 7 if a remote did not answer.")]
NoData = Annotated[bool, typer.Option("--no-data", help="Do not look at the recipe's local rows.")]


@verb(
    "home",
    "compiler",
    "cache",
    "trust",
    "machine",
    answers="Planned, Forecast, InstancePlan",
    tells=["remote.untrusted"],
)
def command(
    cache: Cache,
    recipes: options.Recipes = None,
    every: options.EveryRecipe = False,
    task: options.Task = "",
    model: options.ModelName = "",
    max_price: options.MaxPrice = None,
    overrides: options.Overrides = None,
    tiny: options.Tiny = False,
    require_warm: RequireWarm = False,
    price: options.Price = None,
    no_data: NoData = False,
    instances: Instances = False,
) -> Shown:
    """Show what will be found and what must compile; run nothing.

    Needs no accelerator, does not import PyTorch, and uses the network only for remotes. With --require-warm, exits 3
    on a miss, and 7 if a remote did not answer. The compile time of a miss is estimated from records of the same
    compiler, and its cost from the price of the machine. For local data, the plan shows rows, classes, examples and
    anything that looks wrong, from the first 10,000 rows of each file; --no-data skips that. --all, --task, --model and
    --max-price choose among the recipes of the zoo. --instances compares instance types, by the training times
    published for the recipe and by the registry's prices, or yours.

    Example:  cachekit plan bert --set training.per_device_train_batch_size=8

    Example:  cachekit plan bert --toolchain neuron-2.31 --instance trn1.2xlarge

    Example:  cachekit plan bert gpt2-clm roberta-mlm --price 0.40

    Example:  cachekit plan --all --toolchain neuron-2.31

    Example:  cachekit plan bert-amazon-polarity --instances
    """
    names, paid = recipes or [], price or ()
    chosen = every or bool(task or model or max_price is not None)
    if chosen:
        if names:
            raise UsageError(
                "recipes and options that choose from the zoo were both given",
                hint="cachekit plan RECIPE..., or cachekit plan --all",
            )
        own = [one for one in paid if "=" in one]
        names = [row.name for row in api.zoo_rows(task=task, model=model, max_price=max_price, price=own)]
        if not names:
            raise UsageError("no recipe of the zoo matches these options", hint="`cachekit zoo ls` lists them")
    if not names:
        raise UsageError("no recipe was named", hint="cachekit plan RECIPE..., or --all for every recipe of the zoo")
    if instances:
        if chosen or len(names) > 1 or require_warm:
            raise UsageError(
                "--instances compares instance types for one recipe", hint="cachekit plan RECIPE --instances"
            )
        compared = cache.plan_instances(Variant(names[0], overrides or (), tiny), price=paid)
        return Shown(compared, on_instances.human, lambda answer: answer.cheapest)
    if chosen or len(names) > 1:
        found = cache.plan_all(options.variants(names, overrides, tiny=tiny), price=paid)
        missed = found.miss() if require_warm else None
        # Of the zoo not every recipe is for this machine's compiler, which is in the table and not the user's mistake;
        # where none is, the compiler is.
        some = any(row.status != "failed" for row in found.plans)
        failed = None if chosen and some and not require_warm else found.unplanned()
        return Shown(found, several, _each, error=failed or missed)
    found_one = cache.plan(Variant(names[0], overrides or (), tiny), price=paid, data=not no_data)
    return shown(found_one, require_warm=require_warm)


def _each(answer: Forecast) -> str:
    return "\n".join(f"{row.status} {row.name}" for row in answer.plans)


def shown(planned: Planned, *, require_warm: bool) -> Shown:
    """A plan, for `--dry-run` as well."""
    modules = out.wants_more()
    return Shown(
        planned,
        partial(one, modules=modules),
        lambda answer: str(answer.status),
        error=planned.miss() if require_warm else None,
    )


# What people read


def one(answer: Planned, *, modules: bool = False) -> list[str]:
    """A plan.

    Args:
        answer: The plan.
        modules: Each of them as well, with the remote that it comes from.
    """
    head = f"{answer.recipe}: {answer.status}  {answer.directory}  key {answer.key[:16]}"
    layout = _layout(answer)
    if answer.status == "hit":
        count = out.count(len(answer.modules), "module")
        graphs = out.count(answer.graphs or 0, "graph")
        where = "in the local store"
        if answer.remote != LOCAL:
            where = f"on {answer.remote}; {out.size(answer.fetch_bytes)} to fetch"
        took = f"compiling its graphs took {out.duration(answer.saved_seconds or 0)}"
        return [
            head,
            f"  {graphs} in {count}, {out.size(answer.bytes)}, {where}",
            f"  {answer.flaw}; {took}" if answer.flaw else f"  nothing will compile; {took}",
            *layout,
            *_data(answer.data),
            *(_modules(answer) if modules else ()),
        ]
    lines = [head]
    near = answer.nearest
    if answer.flaw:
        lines.append(f"  {answer.flaw}")
    for sentence in answer.untrusted:
        lines += out.labelled("", sentence, 2)
    for silent in answer.unanswered:
        lines += out.labelled("", unanswered(silent), 2)
    if answer.unasked:
        lines += out.labelled("", f"not asked, because no connection may be opened: {', '.join(answer.unasked)}", 2)
    if near is None and answer.flaw:
        pass  # the store has one, and it is useless
    elif near is None:
        lines.append("  the store has no record to compare with")
    elif any(change.name == "model.type" for change in near.changes):
        lines += out.labelled(
            "", f"no record is near: the nearest, {near.key[:16]} ({near.recipe}), is of another model", 2
        )
    else:
        where = "" if near.remote == LOCAL else f" on {near.remote}"
        differs = out.count(len(near.changes), "ingredient")
        nearest = f"nearest is {near.key[:16]} ({near.recipe}){where}; it differs in {differs}:"
        lines += out.labelled("", nearest, 2)
        for change in near.changes[:CHANGES]:
            lines += [f"    {change_text(change)}"] if change.name == named(change.name) else []
            lines += meaning(change, 6)
        lines += out.more(len(near.changes) - CHANGES, 4)
    lines += [*_time(answer), *_reuse(answer), *layout, *_data(answer.data)]
    if answer.model_type != COMMAND:
        where = f" on {a(answer.elsewhere)}" if answer.elsewhere else ""
        lines.append(f"  next{where}: cachekit warm {answer.source}")
    return lines


def unanswered(silent: Unanswered) -> str:
    """Why nobody knows what a remote has, or that what it has is damaged; and what helps."""
    said = silent.reason if silent.code == IntegrityError.code else not_asked(silent.remote, silent.reason)
    return said + (f"; {silent.hint}" if silent.hint else "")


def _layout(answer: Planned) -> list[str]:
    """How a model is split over cores, and what its training lacks."""
    hard = answer.ingredients.hard  # a command's have no layout
    share = hard.get("parallel.tensor_parallel_size", 1) * hard.get("parallel.pipeline_parallel_size", 1)
    lines = []
    if share > 1:
        copies, nodes = hard["parallel.data_parallel_size"], hard["parallel.nodes"]
        each = " on each node" if nodes > 1 else ""
        lines.append(
            f"  {share} cores share a copy of the model; {out.count(copies, 'copy trains', 'copies train')}{each}"
        )
    for sentence in answer.lacks.values():
        lines += out.labelled("", sentence, 2)
    return lines


def _data(found: Preview | None) -> list[str]:
    """What the recipe's rows look like."""
    if found is None:
        return []
    looked = max((one.looked_at for one in found.splits), default=0)
    sizes = ", ".join(f"{one.name} {_rows(one)}" for one in found.splits) or "none could be read"
    if any(one.rows is not None and one.rows > one.looked_at for one in found.splits):
        sizes += f"; what follows is about the first {looked:,} rows of each file"
    lines = out.labelled("rows: ", sizes, 2)
    if found.columns:
        unread = f"; unused: {first_of(found.unread, LABELS)}" if found.unread else ""
        lines += out.labelled("columns: ", f"{', '.join(found.columns)}{unread}", 4)
    if found.labels:
        shown = [f"{name} ({number:,})" for name, number in found.labels.items()]
        lines += out.labelled("labels: ", first_of(shown, LABELS), 4)
    for row in found.examples:
        lines += out.labelled("", " | ".join(row.values()), 4)
    if found.cut:
        lines += out.labelled(
            "",
            f"at least {found.cut:,} of these texts have more words than training.max_seq_length and will be truncated",
            4,
        )
    for name, why in list(found.ignored.items())[:IGNORED]:
        lines += out.labelled("", f"not read: {name}, {why}", 4)
    lines += out.more(len(found.ignored) - IGNORED, 4)
    for why in found.unread_splits:
        lines += out.labelled("not read: ", why, 4)
    for doubt in found.doubts:
        lines += out.labelled("odd: ", doubt, 4)
    return lines


def _rows(split: SplitPreview) -> str:
    """How many rows a split has; an estimate is no more precise than two digits."""
    if split.rows is None:
        return "not looked at"
    return f"{split.rows:,}" if split.exact else f"about {float(f'{split.rows:.2g}'):,.0f}"


def _modules(answer: Planned) -> list[str]:
    rows = [[out.size(one.bytes), one.remote, one.name] for one in answer.modules]
    return [f"    {line}" for line in out.table(rows, ["size", "where", "module"], right={0})]


def figure(expected: Expected) -> str:
    """Where an expected time comes from, and in what the job differs from the one that was timed."""
    differs = f"; it differs: {first_of(map(named, expected.differs), DIFFERENCES)}" if expected.differs else ""
    return f"{METHODS[expected.method]} {expected.source}{differs}"


def _time(answer: Planned) -> list[str]:
    """How long compiling takes, how sure that is, and what it costs."""
    expected, price = answer.expected, answer.price
    if expected is None:
        return ["  no estimate of the compile time: no similar compile has been measured"]
    lines = [
        f"  compiling takes about {out.duration(expected.seconds)}: {span(expected.low, expected.high)}",
        *out.labelled("", figure(expected), 4),
    ]
    if price is not None and answer.dollars_range is not None:
        machine = f" for {a(price.instance)}" if price.instance else ""
        low, high = map(dollars, answer.dollars_range)
        rate = f"at {dollars(price.per_hour)} an hour{machine} ({price.source})"
        lines += out.labelled("", f"{dollars(answer.dollars)}: {low} to {high}, {rate}", 4)
    if answer.unpriced:
        lines += out.labelled("", _unpriced(answer.unpriced), 4)
    return lines


def _unpriced(instance: str) -> str:
    return f"no cost: the registry has no price for {instance} (give --price {instance}=DOLLARS, per hour)"


def _reuse(answer: Planned) -> list[str]:
    """What a warm begins with: how much of it fits, only the compiler knows."""
    reuse, near = answer.reuse, answer.nearest
    if reuse is None:
        return []
    nearest = near is not None and near.key == reuse.key
    whose = "the nearest record's" if nearest else f"{reuse.key[:16]}'s ({reuse.recipe})"
    there = f", {out.size(reuse.fetch_bytes)} to fetch" if reuse.fetch_bytes else ""
    graphs = out.count(reuse.graphs, "graph")
    fit = "if it fits, it need not compile" if reuse.graphs == 1 else "those that fit need not compile"
    words = f"warm begins with {whose} {graphs}{there}; {fit}"
    return out.labelled("", words, 4)


def change_text(change: Change) -> str:
    """One difference: `name: old → new`, long values cut."""
    return f"{change.name}: {cut(out.value(change.old), VALUE)} → {cut(out.value(change.new), VALUE)}"


def meaning(change: Told, indent: int) -> list[str]:
    """What a difference means, and what differs because of it."""
    lines = [line for words in change.words for line in out.labelled("", words, indent)]
    if change.follows:
        lines += out.labelled("with it: ", ", ".join(other.name for other in change.follows), indent)
    return lines


def several(answer: Forecast) -> list[str]:
    """Many plans: a line each, what it all comes to, and what could not be planned."""
    planned = [row for row in answer.plans if row.status != "failed"]
    lines = _table(planned) if planned else []
    causes = set()
    for row in answer.plans:
        if (error := row.error) is not None:
            told = error.cause if error.cause not in causes and len(error.cause) <= CAUSE else ""
            causes.add(error.cause)
            lines += out.labelled("failed  ", out.about(row.name, error.message) + (f": {told}" if told else ""))
    unused: dict[str, list[str]] = {}  # names of recipes by the reason why what there is of them is not used
    for row in planned:
        for sentence in row.untrusted:
            unused.setdefault(sentence, []).append(row.name)
        for silent in row.unanswered:
            unused.setdefault(unanswered(silent), []).append(row.name)
    for sentence, names in unused.items():
        lines += out.labelled("unused  ", out.about(", ".join(names), sentence))
    return [*lines, "", *_totals(answer), *_next(planned)]


def _table(planned: Sequence[Row]) -> list[str]:
    names: dict[str, str] = {}  # of remotes, as the table has them
    costs = any(row.price for row in planned)
    header = ["recipe", "plan", "where", "to fetch", "compiling", *(["cost"] if costs else [])]
    cells = [_row(row, names, costs=costs) for row in planned]
    said = [place for place, column in enumerate(zip(*cells, strict=True)) if any(column)]  # the others say nothing
    right = {said.index(place) for place in (3, 4, 5) if place in said}
    head, *rows = out.table([[row[place] for place in said] for row in cells], [header[place] for place in said], right)
    kinds: dict[str, list[str]] = {}  # of compilers and machines, in the order in which they come
    for row, line in zip(planned, rows, strict=True):
        machine = f" on {row.elsewhere}" if row.elsewhere else ""
        kinds.setdefault(f"{row.directory}{machine}", []).append(line)
    lines = [line for kind, found in kinds.items() for line in (f"{kind}:", *found)]
    lines = [head, *(lines if len(kinds) > 1 else rows)]
    if len(kinds) == 1:
        lines.insert(0, f"{next(iter(kinds))}:")
    lines += [f"{short} is {name}" for name, short in names.items() if short != name]
    if any(row.same_as and (row.compiles or row.fetch_bytes) for row in planned):
        lines.append("= has the same graphs as a recipe above it, and counts once")
    return [*lines, *_sources([row for row in planned if row.compiles and not row.same_as])]


def _sources(missed: Sequence[Row]) -> list[str]:
    """Who published the compile times, and who says what an hour of each machine costs."""
    named: dict[str, list[str]] = {}
    for row in missed:
        if row.expected is not None and not row.expected.key:
            named.setdefault(f"{METHODS[row.expected.method]} {row.expected.source}", []).append(row.name)
    lines = []
    for source, names in named.items():
        lines += out.labelled("", f"{first_of(names)}: {source}", 2)
    for price in dict.fromkeys(row.price for row in missed if row.price):
        machine = f" for {a(price.instance)}" if price.instance else ""
        lines += out.labelled("", f"{dollars(price.per_hour)} an hour{machine}: {price.source}", 2)
    for instance in dict.fromkeys(row.unpriced for row in missed if row.unpriced):
        lines += out.labelled("", _unpriced(instance), 2)
    return lines


def _row(row: Row, names: dict[str, str], *, costs: bool) -> list[str]:
    status = "goes cold" if row.goes_cold else row.status
    missed = row.compiles
    same = bool(row.same_as)
    fetch = "=" if same else out.size(row.fetch_bytes)
    cells = [
        row.name,
        status,
        "" if missed else _cache(row.remote, names),
        fetch if not missed and row.fetch_bytes else "",
        ("=" if same else _takes(row)) if missed else "",
    ]
    return [*cells, ("=" if same else _costs(row)) if missed else ""] if costs else cells


def _takes(row: Row) -> str:
    """How long compiling takes: a range where only others have published a figure."""
    if row.expected is not None and not row.expected.key:
        return span(row.expected.low, row.expected.high)
    return "?" if row.expected_seconds is None else f"about {out.duration(row.expected_seconds)}"


def _costs(row: Row) -> str:
    """Likewise what it costs."""
    if row.dollars_range is not None and row.expected is not None and not row.expected.key:
        return " to ".join(map(dollars, row.dollars_range))
    return dollars(row.dollars)


def _cache(remote: str, names: dict[str, str]) -> str:
    if remote not in names:
        names[remote] = remote if len(remote) <= LONGEST else f"cache {1 + sum(s != n for n, s in names.items())}"
    return names[remote]


def _totals(answer: Forecast) -> list[str]:
    sums = answer.totals
    kinds = {"hit": sums.hit, "miss": sums.miss, "unknown": sums.unknown, "failed": sums.failed}
    counts = ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
    lines = [f"{out.count(sums.recipes, 'recipe')}: {counts}"]
    if sums.fetch_bytes:
        lines.append(f"  to fetch: {out.size(sums.fetch_bytes)}")
    if sums.miss or sums.unknown:
        costs = _cost(sums.unknown_seconds, sums.expected_seconds, sums.seconds_range, sums.dollars, sums.dollars_range)
        lines += out.labelled("to compile: ", costs, 2)
    if sums.goes_cold:
        cold = out.count(sums.goes_cold, "recipe goes", "recipes go")
        costs = _cost(
            sums.goes_cold_unknown_seconds,
            sums.goes_cold_expected_seconds,
            sums.goes_cold_seconds_range,
            sums.goes_cold_dollars,
            sums.goes_cold_dollars_range,
        )
        lines += out.labelled("", f"{cold} cold with this toolchain: {costs}", 2)
    return lines


def _cost(unknown: int, seconds: float, between: tuple[float, float], paid: float, costs: tuple[float, float]) -> str:
    words = f"about {out.duration(seconds)} ({span(*between)})" if seconds else ""
    if seconds and paid:
        words += f", {dollars(paid)} ({' to '.join(map(dollars, costs))})"
    left = f"{out.count(unknown, 'key')} whose time is unknown" if unknown else ""
    return ", and ".join(part for part in (words, left) if part) or "nothing of its own"


def _next(planned: Sequence[Row]) -> list[str]:
    missed = next((row for row in planned if row.compiles and not row.same_as), None)
    if missed is None:
        return []
    where = f" on {a(missed.elsewhere)}" if missed.elsewhere else ""
    return ["", f"next{where}: cachekit warm {missed.source}"]
