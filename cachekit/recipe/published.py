"""How long a recipe compiles by what others published of theirs: all that somebody without a record can know."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import structs

from cachekit.key.cost import SAME, Expected, Growth, Timed, published
from cachekit.recipe import architecture, zoo
from cachekit.recipe.ingredients import described, sizes
from cachekit.recipe.variant import Variant

_OTHER_COMPILER = 1.5  # as a factor: what another compiler for accelerators took; no two were compared
_INSTANCE = "instance"  # among ingredients, of which it is none: the type of the machine


def expected(compiler: str, instance: str, model_type: str, hard: Mapping[str, Any], growth: Growth) -> Expected | None:
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
        said += ", its compiler's version not said"
    if low == high:
        said += f" (one figure, {low:g} s; the range is ours)"
    spread = math.sqrt(high / low) if high > low else SAME
    return Timed("", said, "", found.model_type, hard, math.sqrt(low * high), spread)
