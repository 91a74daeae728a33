"""Which instance type of the registry trains a recipe cheapest, by the training times that somebody published of it.

A time is never made up: where the recipe's `expect` names none for a machine, that is unknown, and what is said instead
is how fast the machine would have to be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct, structs

from cachekit.compilers.prepare import Prepared
from cachekit.errors import CachekitError, InterruptedRunError
from cachekit.key.cost import Expected
from cachekit.recipe import Recipe, zoo
from cachekit.recipe.price import Price, Prices
from cachekit.recipe.schema import Expectation
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.text import count, dollars
from cachekit.values import Answer
from cachekit.verbs.plan import plans
from cachekit.verbs.planned import planned

LONG = 2.0  # times as long, from which on a ratio is easier to read than a percentage


class OnInstance(Struct, frozen=True, kw_only=True):
    """A recipe on an instance type.

    Attributes:
        plan: What `plan` would say there; `none` where cachekit compiles nothing for such a machine, a GPU's; `refused`
            where the recipe cannot be trained there.
        refused: Why it cannot.
        price: What an hour of one machine costs, and who says so and when; None where nobody does.
        training: The published figures of the recipe there: seconds, steps a second, how many machines, and their
            source; None where nobody published a time.
        training_dollars: The seconds at the price; where there is no price, the bill of the source; else None.
        billed: It is the bill of the source.
        compiling: How long a miss compiles there; None on a hit, and where it is unknown.
        compiling_dollars: The least and the most that this costs.
        equal_speed: How many times as fast as on the `base` of the answer it must train here to cost as much: the
            ratio of the prices of an hour. None without a price of both.
    """

    instance: str
    accelerator: str
    cores: int
    plan: Literal["hit", "miss", "unknown", "none", "refused"]
    refused: str = ""
    price: Price | None = None
    training: Expectation | None = None
    training_dollars: float | None = None
    billed: bool = False
    compiling: Expected | None = None
    compiling_dollars: tuple[float, float] | None = None
    equal_speed: float | None = None


class InstancePlan(Answer, frozen=True, kw_only=True, tag="cachekit/plan-instances/1"):
    """Where a recipe trains for how much.

    Attributes:
        cheapest: The instance type on which it trains for the least money, of those with a published time; empty where
            fewer than two have one.
        base: The one that others are compared with: the cheapest, or the one with the cheapest hour.
        why: What makes it the cheapest, in sentences; or why nobody knows.
        instances: First those of which it is known what training costs, the cheapest first; then by the hour.
    """

    recipe: str
    source: str
    cheapest: str
    base: str
    why: tuple[str, ...]
    instances: tuple[OnInstance, ...]


def plan_instances(
    recipe: Recipe,
    prepare: Callable[[str], Prepared],
    store: Store,
    remotes: Remotes,
    *,
    source: str,
    prices: Prices,
    as_published: bool,
) -> InstancePlan:
    """Plan a recipe on each instance type of the registry, and compare.

    Args:
        recipe: The recipe.
        prepare: Makes its key for an instance type.
        store: The local store.
        remotes: The remotes, each asked once for all instance types.
        source: The recipe as the user named it.
        prices: What an hour costs.
        as_published: The recipe is as its file has it: with other settings its figures are somebody else's.

    Raises:
        CachekitError: No instance type can train the recipe, and all for one reason: another toolchain, say.
    """
    ready: dict[str, Prepared] = {}
    errors: dict[str, CachekitError] = {}
    known = {name: one for name, one in zoo.instances().items() if one.cores}
    for name, machine in known.items():
        if machine.target:
            try:
                ready[name] = prepare(name)
            except InterruptedRunError:
                raise
            except CachekitError as error:
                errors[name] = error
    if not ready and len({error.said for error in errors.values()}) == 1:  # it is no machine's fault
        raise next(iter(errors.values()))
    made = dict(zip(ready, plans(list(ready.values()), store, remotes).plans, strict=True))
    figures = _figures(recipe) if as_published else {}
    rows = []
    for name, machine in known.items():
        price, published = prices.of(name), figures.get(name)
        told = planned(made[name], price) if name in made else None
        rows.append(
            OnInstance(
                instance=name,
                accelerator=machine.accelerator,
                cores=machine.cores,
                plan=_status(told.status) if told else "refused" if name in errors else "none",
                refused=errors[name].said if name in errors else "",
                price=price,
                training=published,
                training_dollars=_cost(published, price),
                billed=published is not None and price is None,
                compiling=told.expected if told else None,
                compiling_dollars=told.dollars_range if told else None,
            )
        )
    return _compared(recipe, source, rows, as_published=as_published)


def _status(status: str) -> Literal["hit", "miss", "unknown"]:
    return "hit" if status == "hit" else "unknown" if status == "unknown" else "miss"


def _figures(recipe: Recipe) -> dict[str, Expectation]:
    """The first published time for each instance type: a later one is of another run, as its note says."""
    found: dict[str, Expectation] = {}
    for one in recipe.expect:
        if one.train_seconds is not None:
            found.setdefault(one.instance, one)
    return found


def _cost(published: Expectation | None, price: Price | None) -> float | None:
    if published is None or published.train_seconds is None:
        return None
    return published.dollars if price is None else price.cost(published.train_seconds * published.machines)


def _compared(recipe: Recipe, source: str, rows: list[OnInstance], *, as_published: bool) -> InstancePlan:
    paid = sorted((row for row in rows if row.training_dollars is not None), key=lambda row: row.training_dollars or 0)
    able = [row for row in rows if row.plan not in {"none", "refused"} and row.price]
    by_hour = sorted(able, key=lambda row: row.price.per_hour if row.price else 0)
    base = next(iter([*paid, *by_hour]), None)
    if base is not None and base.price is not None:
        hour = base.price.per_hour * (base.training.machines if base.training else 1)
        rows = [
            structs.replace(row, equal_speed=round(row.price.per_hour / hour, 4)) if row.price and hour else row
            for row in rows
        ]
    most = float("inf")

    def place(row: OnInstance) -> tuple[float, bool, float]:
        hour = row.price.per_hour if row.price else most
        return most if row.training_dollars is None else row.training_dollars, row.plan in {"none", "refused"}, hour

    return InstancePlan(
        recipe=recipe.name,
        source=source,
        cheapest=paid[0].instance if len(paid) > 1 else "",
        base=base.instance if base else "",
        why=tuple(_why(paid, base, as_published=as_published)),
        instances=tuple(sorted(rows, key=place)),
    )


def _why(paid: list[OnInstance], base: OnInstance | None, *, as_published: bool) -> list[str]:
    if not paid:
        said = (
            "nobody has published how long it takes to train on any machine of the registry"
            if as_published
            else "the published times are of the recipe without --set and --tiny"
        )
        hour = f"; of the machines that can train it, {base.instance} has the cheapest hour" if base else ""
        return [said + hour]
    first, *others = paid
    if not others:
        return [f"of the machines in the registry, only {first.instance} has a published training time"]
    return [_against(first, other) for other in others]


def _against(first: OnInstance, other: OnInstance) -> str:
    """Why one is cheaper than another: by the hour, by the time, and by how fast it steps."""
    ours, theirs = first.training, other.training
    if ours is None or theirs is None or not first.training_dollars or not other.training_dollars:
        return ""  # both have figures
    reasons = []
    if first.price and other.price:
        hours = first.price.per_hour * ours.machines, other.price.per_hour * theirs.machines
        reasons.append(f"an hour costs {_percent(*hours, 'less', 'more')}")
    if ours.machines != theirs.machines:
        reasons.append(f"{count(ours.machines, 'machine')} instead of {theirs.machines}")
    ratio = (ours.train_seconds or 0) / (theirs.train_seconds or 1)
    longer = f"{ratio:.3g} times as long" if ratio >= LONG else f"{_percent(ratio, 1, 'less', 'more')} time"
    reasons.append(f"training takes {longer}")
    if ours.steps_per_second and theirs.steps_per_second:
        reasons.append(f"{_percent(ours.steps_per_second, theirs.steps_per_second, 'fewer', 'more')} steps a second")
    cheaper = _percent(first.training_dollars, other.training_dollars, "less", "more")
    return (
        f"{dollars(first.training_dollars)} on {first.instance} is {cheaper} than {dollars(other.training_dollars)} on "
        f"{other.instance}: {', '.join(reasons)}"
    )


def _percent(ours: float, theirs: float, less: str, more: str) -> str:
    if not theirs:
        return f"0 % {less}"
    change = 100 * (ours / theirs - 1)
    return f"{abs(change):.0f} % {less if change < 0 else more}"
