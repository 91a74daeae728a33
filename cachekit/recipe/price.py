"""What compiling costs: an hour of a machine, and how long a recipe takes by what others published of theirs.

Prices are as the user says, or as the registry quotes them. The published times are all that somebody without a record
can know.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from msgspec import Struct, structs

from cachekit import host
from cachekit.errors import UsageError
from cachekit.key.cost import SAME, Expected, Growth, Timed, published
from cachekit.recipe import architecture, zoo
from cachekit.recipe.ingredients import described, sizes
from cachekit.recipe.variant import Variant

_MOST = 1e6  # dollars an hour: more than any machine costs


class Price(Struct, frozen=True):
    """What an hour costs.

    Attributes:
        per_hour: In `currency`.
        instance: The instance type; empty where the user named a price alone.
        source: Who says so.
    """

    per_hour: float
    currency: str
    instance: str
    source: str

    def cost(self, seconds: float) -> float:
        """What that many seconds cost."""
        return round(self.per_hour * seconds / 3600, 6)

    def dollars(self, seconds: float | None) -> float | None:
        """Likewise; None for an unknown time."""
        return None if seconds is None else self.cost(seconds)


class Prices(Struct, frozen=True):
    """Prices as a user overrides them.

    Attributes:
        own: Dollars an hour by instance type; under "" for every machine.
        instance: Whose price to take for a plan that is for no machine with a price: that of a laptop, say.
    """

    own: dict[str, float]
    instance: str = ""

    def of(self, instance: str) -> Price | None:
        """The price of a plan for this instance type, empty if unknown; None where nobody says one."""
        name = self.instance or instance
        known = zoo.instances().get(name) if name else None
        currency = known.price.currency if known and known.price else "USD"
        for said in (name, ""):
            if said in self.own:
                return Price(self.own[said], currency, name, "--price")
        if known is None or known.price is None:
            return None
        price = known.price
        return Price(price.per_hour, price.currency, name, f"{price.source}, {price.date}")


def machine(prices: Prices) -> Price:
    """The price of the machine that was named, else of this one.

    Raises:
        UsageError: Nobody says its price, or several were given.
    """
    if len({*prices.own, prices.instance} - {""}) > 1 or ("" in prices.own and len(prices.own) > 1):
        raise UsageError("--price was given for several machines, but only one price is used", hint="give --price once")
    named = next(iter(name for name in prices.own if name), "")
    name = prices.instance or named or host.product()
    if found := prices.of(name):
        return found
    raise UsageError(
        f"the registry has no price for {name}" if name else "the hourly price of this machine is unknown",
        hint=f"--price {name}=DOLLARS per hour"
        if name
        else "--price 0.40, or the price of another machine: --price trn1.2xlarge",
    )


def read(said: Iterable[str]) -> Prices:
    """Read `--price`: `0.40` for every machine, `trn1.2xlarge=0.40` for one, `trn1.2xlarge` for the registry's price.

    Raises:
        UsageError: The text has none of these forms, or the registry has no price of the machine.
        UnknownNameError: The registry has no such machine.
    """
    own: dict[str, float] = {}
    instance = ""
    for text in said:
        name, equals, amount = text.rpartition("=")
        try:
            value = float(amount)
        except ValueError:
            if equals or not re.match(r"[a-z]\w*\.", text):  # no type of a machine
                raise _wrong(text) from None
            if zoo.instance(text).price is None:
                raise UsageError(
                    f"the registry has no price for {text}", hint=f"--price {text}=DOLLARS per hour"
                ) from None
            instance = text
            continue
        if not 0 <= value <= _MOST or (equals and not name):
            raise _wrong(text)
        if name:
            zoo.instance(name)
        own[name] = value
    return Prices(own, instance)


def _wrong(text: str) -> UsageError:
    return UsageError(
        f"--price {text}: not a price per hour", hint="--price 0.40, --price trn1.2xlarge=0.40, or --price trn1.2xlarge"
    )


_OTHER_COMPILER = 1.5  # as a factor: what another compiler for accelerators took; no two were compared
_INSTANCE = "instance"  # among ingredients, of which it is none: the type of the machine


def published_time(
    compiler: str, instance: str, model_type: str, hard: Mapping[str, Any], growth: Growth
) -> Expected | None:
    """How long a job compiles, by the nearest figure that was published; None where nobody published any.

    Where there is none of its compiler, one of another compiler for accelerators is widened, and named.

    Args:
        compiler: The compiler's name.
        instance: The type of the machine that compiles; empty where it is not known, which is none of those named.
        model_type: The job's family.
        hard: Its ingredients.
        growth: Of the compiler.
    """
    known = zoo.compile_times()
    hard = {**hard, _INSTANCE: instance or "of an unknown type"}
    own = [_timed(one) for one in known if one.compiler == compiler]
    if own or "target.chip" not in hard:
        return published(model_type, hard, own, growth)
    found = published(model_type, hard, map(_timed, known), growth)
    if found is None:
        return None
    low, high = found.low / _OTHER_COMPILER, found.high * _OTHER_COMPILER
    source = f"{found.source}, of PyTorch/XLA, as nobody has published one of {compiler}"
    return structs.replace(found, low=round(low, 3), high=round(high, 3), method="scaled", source=source)


@cache
def _timed(one: zoo.CompileTime) -> Timed:
    loaded = Variant(one.recipe, one.set).load()
    found = architecture.resolve(loaded)
    low, high = one.seconds
    machine = zoo.instance(one.instance)
    hard = {**sizes(loaded, found), "target.chip": machine.target, _INSTANCE: one.instance}
    hard |= described(loaded, bf16=True, workers=machine.cores)  # each chip of Neuron's computes in bfloat16
    hard |= {f"toolchain.{name}": version for name, version in one.toolchain.items()}
    said = f"{one.recipe}{' with other settings' if one.set else ''}, {one.where}"
    if not one.toolchain:
        said += ", compiler version not stated"
    if low == high:
        said += f" (one figure, {low:g} s; the range is ours)"
    spread = math.sqrt(high / low) if high > low else SAME
    return Timed("", said, "", found.model_type, hard, math.sqrt(low * high), spread)
