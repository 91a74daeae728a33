"""Which records may help a miss: those that differ in nothing that the compiler's own key lacks, and not by much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from cachekit.key.canonical import Change, difference, distance
from cachekit.store.record import COMMAND, IMPORTED, Record
from cachekit.verbs.prepare import Prepared

# A record that differs by more (see key.WEIGHTS) is of another model: nothing of it was ever used.
FARTHEST = 60
TOOLS = "toolchain."  # what of these matters, the compiler says (`Compiler.foreign`)


class Helper(Struct, frozen=True):
    """The record that a warm would begin with, as far as a plan knows.

    Attributes:
        record: The record.
        tier: Where it is: `local`, or the name of a shared cache.
        changes: What differs, from it to the recipe.
        fetch: Bytes that the store lacks of it.
    """

    record: Record
    tier: str
    changes: tuple[Change, ...]
    fetch: int

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "key": self.record.key,
            "recipe": self.record.recipe,
            "tier": self.tier,
            "graphs": self.record.graphs,
            "bytes": self.record.size,
            "fetch_bytes": self.fetch,
            "differs": [change.name for change in self.changes],
        }


def akin(prepared: Prepared, foreign: tuple[str, ...], record: Record) -> tuple[Change, ...] | None:
    """What differs from a record that may help; None where it cannot.

    Args:
        prepared: The recipe.
        foreign: See `Compiler.foreign`.
        record: Another key's record.
    """
    if record.key == prepared.key or record.directory != prepared.fingerprint.directory:
        return None
    if record.model_type in {IMPORTED, COMMAND}:
        return None
    changes = difference(record.hard, prepared.ingredients.hard)
    return tuple(changes) if near_enough(changes, foreign) else None


def fits(other: Mapping[str, Any], hard: Mapping[str, Any], foreign: tuple[str, ...]) -> bool:
    """As `akin`, of hard ingredients alone."""
    return near_enough(difference(other, hard), foreign)


def near_enough(changes: Sequence[Change], foreign: tuple[str, ...]) -> bool:
    """Whether a record that differs so may help."""
    if any(change.name.startswith(foreign) for change in changes):
        return False
    return distance(change for change in changes if not change.name.startswith(TOOLS)) <= FARTHEST
