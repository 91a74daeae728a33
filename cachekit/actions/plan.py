"""Tell before running what will be found and what must be compiled. `warm` and `train` begin with this function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cachekit.actions.prepare import Prepared
from cachekit.compilers.explain import explain
from cachekit.errors import MissError
from cachekit.key import ABSENT, Change, distance, nearest
from cachekit.record import Record
from cachekit.store import Store

# A record this far away says nothing about how long the compile will take (see key.WEIGHTS).
COMPARABLE = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """What will happen.

    Attributes:
        record: The whole, verified record of the key; None is a miss.
        neighbour: On a miss, the record with the least difference.
        changes: What differs, from the neighbour to this recipe.
    """

    prepared: Prepared
    record: Record | None
    neighbour: Record | None = None
    changes: tuple[Change, ...] = ()

    @property
    def hit(self) -> bool:
        """Nothing will compile."""
        return self.record is not None

    @property
    def expected_seconds(self) -> float | None:
        """How long compiling takes: measured for this key, or for a near enough neighbour; None is unknown."""
        if self.record is not None:
            return self.record.compile_seconds
        if self.neighbour is not None and distance(self.changes) <= COMPARABLE:
            return self.neighbour.compile_seconds
        return None

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        record, prepared = self.record, self.prepared
        return {
            "recipe": prepared.recipe.name,
            "source": prepared.source,
            "status": "hit" if self.hit else "miss",
            "key": prepared.key,
            "compiler": prepared.fingerprint.compiler,
            "directory": prepared.fingerprint.directory,
            "elsewhere": prepared.fingerprint.instance if prepared.fingerprint.elsewhere else "",
            "model_type": prepared.model_type,
            "architecture_from": prepared.architecture.source,
            "labels": list(prepared.labels),
            "modules": [
                {"name": module.name, "status": "hit", "tier": "store", "bytes": sum(f.size for f in module.files)}
                for module in (record.modules if record else ())
            ],
            "graphs": record.graphs if record else None,
            "bytes": record.size if record else 0,
            "compile_seconds": 0.0 if self.hit else self.expected_seconds,
            "saved_seconds": self.expected_seconds if self.hit else 0.0,
            "nearest": None
            if self.neighbour is None
            else {
                "key": self.neighbour.key,
                "recipe": self.neighbour.recipe,
                "changes": [change_dict(change, prepared.fingerprint.compiler) for change in self.changes],
            },
            "ingredients": {"hard": dict(prepared.ingredients.hard), "soft": dict(prepared.ingredients.soft)},
        }


def change_dict(change: Change, compiler: str = "") -> dict[str, Any]:
    """A change for programs; a side that lacks the ingredient is left out, and so are words where none are needed."""
    sides = {"old": change.old, "new": change.new}
    known = {side: value for side, value in sides.items() if value is not ABSENT}
    words = explain(compiler, change.name, change.old, change.new)
    return {"name": change.name, **known, **({"words": words} if words else {})}


def plan(prepared: Prepared, store: Store) -> Plan:
    """Look the key up; on a miss, find the nearest record."""
    record = store.lookup(prepared.key, prepared.fingerprint.directory, prepared.model_type)
    if record is not None:
        return Plan(prepared, record)
    others = {other.key: other for other in store.records() if other.key != prepared.key}
    found = nearest(prepared.ingredients.hard, {key: other.hard for key, other in others.items()})
    if found is None:
        return Plan(prepared, None)
    return Plan(prepared, None, others[found[0]], tuple(found[1]))


def miss_error(planned: Plan) -> MissError:
    """What `--require-warm` answers on a miss."""
    differs = ", ".join(change.name for change in planned.changes[:3])
    return MissError(
        f"{planned.prepared.recipe.name} is not warm: key {planned.prepared.key[:16]} has no record",
        cause=f"the nearest record differs in {differs}" if differs else "the store has no record that is near",
        hint=f"cachekit warm {planned.prepared.source}",
    )
