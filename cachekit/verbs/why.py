"""Why a recipe misses: the nearest record, here or on a shared cache, and what differs from it. Nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import to_builtins

from cachekit.key.canonical import difference
from cachekit.values import by_value
from cachekit.verbs.changes import Told, told
from cachekit.verbs.plan import Plan, Searching, plan
from cachekit.verbs.prepare import Prepared
from cachekit.verbs.session import Session


@dataclass(frozen=True, slots=True)
class Why:
    """Why a recipe misses, or that it does not.

    Attributes:
        plan: What is there for its key; on a miss, the nearest record, and how far each remote was searched.
        changes: From the nearest record to the recipe, in words.
    """

    plan: Plan
    changes: tuple[Told, ...] = ()

    __hash__ = by_value

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        prepared, near = self.plan.prepared, self.plan.near
        return {
            "recipe": prepared.recipe.name,
            "source": prepared.source,
            "status": "hit" if self.plan.hit else "miss",
            "key": prepared.key,
            "directory": prepared.fingerprint.directory,
            "tier": self.plan.tier,
            "flaw": self.plan.flaw,
            "nearest": None
            if near is None
            else {
                "key": near.known.key,
                "recipe": near.known.recipe,
                "tier": near.place,
                "directory": near.known.directory,
                "model_type": near.known.model_type,
                "distance": near.distance,
                "graphs": near.known.graphs,
                "bytes": near.known.size,
                "compile_seconds": near.known.compile_seconds,
                "created": near.known.created,
                "by": near.known.by,
            },
            "changes": [change.as_dict() for change in self.changes],
            "looked": to_builtins(self.plan.looked),
        }


def why(session: Session, prepared: Prepared) -> Why:
    """Look a recipe up as `plan` does; on a miss find what differs from the nearest record.

    Args:
        session: Collaborators.
        prepared: The recipe.
    """
    planned = plan(prepared, session.store, session.chain, searching=Searching(remotes=True))
    return Why(planned, told(planned.changes, prepared.fingerprint.compiler))


@dataclass(frozen=True, slots=True)
class Side:
    """One of two that are compared.

    Attributes:
        name: What to call it: `bert (recipe)`.
        kind: `recipe`, `record`, or `file`.
        tier: Where a record is.
        soft: What is recorded beside its key.
    """

    name: str
    kind: str
    key: str
    compiler: str
    hard: Mapping[str, Any]
    soft: Mapping[str, Any] = field(default_factory=dict)
    tier: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {"name": self.name, "kind": self.kind, "key": self.key, "tier": self.tier}


@dataclass(frozen=True, slots=True)
class Compared:
    """What differs from one to another."""

    old: Side
    new: Side
    changes: tuple[Told, ...]
    soft: tuple[Told, ...]

    __hash__ = by_value

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "old": self.old.as_dict(),
            "new": self.new.as_dict(),
            "same": not self.changes,
            "changes": [change.as_dict() for change in self.changes],
            "soft": [change.as_dict() for change in self.soft],
        }


def compare(old: Side, new: Side) -> Compared:
    """The difference between two recipes or records."""
    compiler = new.compiler if old.compiler == new.compiler else ""
    sides = ("the first", "the second")
    soft = told(difference(old.soft, new.soft), compiler, sides)
    return Compared(old, new, told(difference(old.hard, new.hard), compiler, sides), soft)
