"""How long a recipe compiles by what others published of theirs: all that somebody without a record can know."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cachekit.key.cost import SAME, Expected, Growth, Timed, published
from cachekit.recipe import architecture, zoo
from cachekit.recipe.ingredients import sizes
from cachekit.recipe.variant import Variant


def expected(compiler: str, model_type: str, hard: Mapping[str, Any], growth: Growth) -> Expected | None:
    """How long a job compiles, by the nearest figure that was published; None where nobody published any.

    Args:
        compiler: The compiler's name.
        model_type: The job's family.
        hard: Its ingredients.
        growth: Of the compiler.
    """
    return published(model_type, hard, _published(compiler), growth)


def _published(compiler: str) -> Iterator[Timed]:
    return (_timed(one) for one in zoo.compile_times() if one.compiler == compiler)


@cache
def _timed(one: zoo.CompileTime) -> Timed:
    loaded = Variant(one.recipe, one.set).load()
    found = architecture.resolve(loaded)
    low, high = one.seconds
    hard = {**sizes(loaded, found), "target.chip": zoo.instance(one.instance).target}
    said = f"{one.recipe}{' with other settings' if one.set else ''}, {one.where}"
    spread = math.sqrt(high / low) if high > low else SAME
    return Timed("", said, "", found.model_type, hard, math.sqrt(low * high), spread)
