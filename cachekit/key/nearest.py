"""How near two sets of hard ingredients are, what each difference weighs, and which of two a compile can reuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from cachekit.key.canonical import Change, difference

# What a difference of this kind costs, by the first part of the name: a record of another compiler or target can
# share no artifact, one of another architecture hardly any, one of another batch size none of the main graphs but
# perhaps the small ones. `nearest` sorts by it.
WEIGHTS = {"trust": 100, "compiler": 100, "toolchain": 100, "target": 100, "model": 30, "task": 30, "parallel": 20}
LEAST = 10  # no two records are nearer than that: nobody need be asked for a nearer one
# A record that differs by more is of another model: nothing of it was ever used.
FARTHEST = 60
OLD = "trust."  # another salt of the settings: somebody wants nothing of what was made before
TOOLS = "toolchain."  # what of these matters, the compiler says (`Compiler.foreign`)


def group_of(name: str) -> str:
    """What the name of an ingredient begins with, up to the dot."""
    return name.split(".", 1)[0]


@lru_cache(4096)
def weight(name: str) -> int:
    """What a change of an ingredient counts for."""
    return WEIGHTS.get(group_of(name), LEAST)


def distance(changes: Iterable[Change]) -> int:
    """How far apart two sets are: the sum of their changes' weights."""
    return sum(weight(change.name) for change in changes)


def reusable(changes: Sequence[Change], foreign: tuple[str, ...]) -> bool:
    """Whether a compile can begin with what a job that differs so has left.

    Args:
        changes: What differs.
        foreign: Beginnings of ingredients that the compiler's own key does not tell apart; see `Compiler.foreign`.
    """
    if any(change.name.startswith((*foreign, OLD)) for change in changes):
        return False
    return distance(change for change in changes if not change.name.startswith(TOOLS)) <= FARTHEST


def nearest(wanted: Mapping[str, Any], candidates: Mapping[str, Mapping[str, Any]]) -> tuple[str, list[Change]] | None:
    """The candidate with the least difference to `wanted`.

    Args:
        wanted: Hard ingredients.
        candidates: Hard ingredients by name (a key, a path).

    Returns:
        Its name and the changes from it to `wanted`; None without candidates. Equal distances go to the smaller name,
        so that the answer does not depend on reading order.
    """
    best: tuple[tuple[int, int, str], list[Change]] | None = None
    for name, hard in candidates.items():
        changes = difference(hard, wanted)
        rank = distance(changes), len(changes), name
        if best is None or rank < best[0]:
            best = rank, changes
    return (best[0][2], best[1]) if best else None
