"""Tell before running what will be found and what must be compiled. `warm` and `train` begin with this function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cachekit.actions.prepare import Prepared
from cachekit.compilers.explain import explain
from cachekit.errors import MissError
from cachekit.key import ABSENT, Change, distance, nearest
from cachekit.record import COMMAND, IMPORTED, Record
from cachekit.store import Store
from cachekit.tiers.chain import Chain
from cachekit.tiers.layout import LOCAL
from cachekit.tiers.remote import Found

# A record this far away says nothing about how long the compile will take (see key.WEIGHTS).
COMPARABLE = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """What will happen.

    Attributes:
        record: The record of the key, whole and verified where the store has it; None is a miss.
        found: The shared cache that has it, where the store has not.
        fetch: Of that, the bytes that the store lacks.
        neighbour: On a miss, the record with the least difference.
        changes: What differs, from the neighbour to this recipe.
        flaw: On a miss, what is wrong with the key's own record; empty where it has none.
    """

    prepared: Prepared
    record: Record | None
    neighbour: Record | None = None
    changes: tuple[Change, ...] = ()
    found: Found | None = None
    fetch: int = 0
    flaw: str = ""

    @property
    def hit(self) -> bool:
        """Nothing will compile."""
        return self.record is not None

    @property
    def tier(self) -> str:
        """Where the record is: `local`, or the name of a shared cache; empty on a miss."""
        if self.record is None:
            return ""
        return self.found.remote.name if self.found else LOCAL

    @property
    def expected_seconds(self) -> float | None:
        """How long compiling takes: measured for this key, or for a near enough neighbour; None is unknown."""
        if self.record is not None:
            return self.record.compile_seconds
        if self.neighbour is not None and distance(self.changes) <= COMPARABLE:
            return self.neighbour.cold_seconds
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
                {"name": module.name, "status": "hit", "tier": self.tier, "bytes": sum(f.size for f in module.files)}
                for module in (record.modules if record else ())
            ],
            "graphs": record.graphs if record else None,
            "bytes": record.size if record else 0,
            "tier": self.tier,
            "fetch_bytes": self.fetch,
            "compile_seconds": 0.0 if self.hit else self.expected_seconds,
            "saved_seconds": self.expected_seconds if self.hit else 0.0,
            "nearest": None
            if self.neighbour is None
            else {
                "key": self.neighbour.key,
                "recipe": self.neighbour.recipe,
                "changes": [change_dict(change, prepared.fingerprint.compiler) for change in self.changes],
            },
            "flaw": self.flaw,
            "ingredients": {"hard": dict(prepared.ingredients.hard), "soft": dict(prepared.ingredients.soft)},
        }


def change_dict(change: Change, compiler: str = "") -> dict[str, Any]:
    """A change for programs; a side that lacks the ingredient is left out, and so are words where none are needed."""
    sides = {"old": change.old, "new": change.new}
    known = {side: value for side, value in sides.items() if value is not ABSENT}
    words = explain(compiler, change.name, change.old, change.new)
    return {"name": change.name, **known, **({"words": words} if words else {})}


def plan(prepared: Prepared, store: Store, chain: Chain | None = None, *, anew: bool = False) -> Plan:
    """Look the key up, here and on the shared caches; on a miss, find the nearest record.

    Args:
        prepared: The recipe.
        store: The local store.
        chain: The shared caches.
        anew: Ask those, whatever is remembered of what they had not.
    """
    place = prepared.fingerprint.directory, prepared.model_type, prepared.key
    record = store.lookup(prepared.key, *place[:2])
    if record is not None:
        return Plan(prepared, record)
    found = chain.find(*place, anew=anew) if chain else None
    if found is not None:
        record = found.shared.record
        return Plan(prepared, record, found=found, fetch=sum(file.size for file in store.missing(record)))
    flaw = store.flaw(prepared.key)
    alike = (other for other in store.records(without=IMPORTED) if _kind(other.model_type) == _kind(place[1]))
    others = {other.key: other for other in alike if other.key != prepared.key}
    near = nearest(prepared.ingredients.hard, {key: other.hard for key, other in others.items()})
    if near is None:
        return Plan(prepared, None, flaw=flaw)
    return Plan(prepared, None, others[near[0]], tuple(near[1]), flaw=flaw)


def _kind(model_type: str) -> bool:
    """Recipes and commands have no ingredients in common."""
    return model_type == COMMAND


def miss_error(planned: Plan) -> MissError:
    """What `--require-warm` answers on a miss."""
    differs = ", ".join(change.name for change in planned.changes[:3])
    near = f"the nearest record differs in {differs}" if differs else "the store has no record that is near"
    what = "cannot be used" if planned.flaw else "has no record"
    return MissError(
        f"{planned.prepared.recipe.name} is not warm: key {planned.prepared.key[:16]} {what}",
        cause=planned.flaw or near,
        hint=f"cachekit warm {planned.prepared.source}",
    )
