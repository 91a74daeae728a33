"""Tell before running what will be found and what must be compiled. `warm` and `train` begin with this function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs, to_builtins

from cachekit.compilers.explain import explain
from cachekit.errors import MissError
from cachekit.key.canonical import ABSENT, Change, difference
from cachekit.key.cost import Expected
from cachekit.recipe.model_folder import absent_package, how_to_install
from cachekit.remotes.chain import Chain
from cachekit.remotes.layout import LOCAL, Place
from cachekit.store import Store
from cachekit.store.record import File, Module, Record
from cachekit.values import by_value
from cachekit.verbs.known import KnownRecords
from cachekit.verbs.prepare import Prepared

if TYPE_CHECKING:
    from cachekit.recipe.price import Price
    from cachekit.remotes.remote import Found
    from cachekit.verbs.akin import Helper


class Plan(Struct, frozen=True):
    """What will happen.

    Attributes:
        record: The record of the key, whole and verified where the store has it; None is a miss.
        found: The shared cache that has it, where the store has not.
        lacking: Of that, the files that the store lacks.
        neighbour: On a miss, the record with the least difference.
        changes: What differs, from the neighbour to this recipe.
        flaw: On a miss, what is wrong with the key's own record; empty where it has none.
        expected: On a miss, how long compiling will take; None is unknown.
        near: Where the neighbour is: `local`, or the name of a shared cache.
        untrusted: On a miss, the shared caches that are not used because somebody else may have made what lies there.
        helper: On a miss, the record that a warm would begin with, as far as that was looked for (`with_help`).
    """

    prepared: Prepared
    record: Record | None
    neighbour: Record | None = None
    changes: tuple[Change, ...] = ()
    found: Found | None = None
    lacking: tuple[File, ...] = ()
    flaw: str = ""
    expected: Expected | None = None
    near: str = LOCAL
    helper: Helper | None = None
    untrusted: tuple[str, ...] = ()

    __hash__ = by_value

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
    def fetch(self) -> int:
        """Bytes to fetch."""
        return sum(file.size for file in self.lacking)

    @property
    def expected_seconds(self) -> float | None:
        """How long compiling takes: measured for this key, or expected by other records; None is unknown."""
        if self.record is not None:
            return self.record.cold_seconds
        return self.expected.seconds if self.expected else None

    @property
    def compile_seconds(self) -> float | None:
        """What there is to compile, in seconds: nothing on a hit; None is unknown."""
        return 0.0 if self.hit else self.expected_seconds

    def as_dict(self, price: Price | None = None) -> dict[str, Any]:
        """For programs.

        Args:
            price: What an hour costs, where that is known.
        """
        record, prepared, seconds = self.record, self.prepared, self.compile_seconds
        rounded = None if seconds is None else round(seconds, 3)
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
            "lacks": self._lacks(),
            "modules": [self._module(module) for module in (record.modules if record else ())],
            "graphs": record.graphs if record else None,
            "bytes": record.size if record else 0,
            "tier": self.tier,
            "fetch_bytes": self.fetch,
            "compile_seconds": rounded,
            "saved_seconds": self.expected_seconds if self.hit else 0.0,
            "expected_seconds": rounded,
            "expected": to_builtins(self.expected),
            "dollars": price.dollars(seconds) if price else None,
            "price": to_builtins(price),
            "nearest": None
            if self.neighbour is None
            else {
                "key": self.neighbour.key,
                "recipe": self.neighbour.recipe,
                "tier": self.near,
                "changes": [change_dict(change, prepared.fingerprint.compiler) for change in self.changes],
            },
            "neighbour": self.helper.as_dict() if self.helper else None,
            "flaw": self.flaw,
            "untrusted": list(self.untrusted),
            "ingredients": {"hard": dict(prepared.ingredients.hard), "soft": dict(prepared.ingredients.soft)},
        }

    def _lacks(self) -> dict[str, str]:
        """What a training cannot have, or what must be got for it."""
        lacks, fingerprint = {}, self.prepared.fingerprint
        if not fingerprint.elsewhere and (package := absent_package(self.prepared.recipe)):
            lacks["weights"] = (
                f"model.package: {package}, which has the weights, is not installed here; {how_to_install(package)}"
            )
        return {**fingerprint.lacks, **lacks}

    def _module(self, module: Module) -> dict[str, Any]:
        """A module for programs: one whose files are all here need not come from anywhere else."""
        lacking = {file.sha256 for file in self.lacking}
        fetch = {file.sha256: file.size for file in module.files if file.sha256 in lacking}
        return {
            "name": module.name,
            "status": "hit",
            "tier": self.tier if fetch else LOCAL,
            "bytes": sum(file.size for file in module.files),
            "fetch_bytes": sum(fetch.values()),
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
    return plans([prepared], store, chain, anew=anew).plans[0]


class Plans(Struct, frozen=True):
    """Plans of several recipes.

    Attributes:
        plans: In the order of the recipes.
        beside: Of what was looked up beside them, the records that are somewhere.
        known: What misses were compared with; None without a miss.
    """

    plans: tuple[Plan, ...]
    beside: Mapping[Place, Record]
    known: KnownRecords | None


def plans(
    wanted: Sequence[Prepared],
    store: Store,
    chain: Chain | None = None,
    *,
    anew: bool = False,
    beside: Sequence[Prepared] = (),
) -> Plans:
    """Plan several recipes at once: each shared cache is asked once for all that the store lacks.

    Args:
        wanted: The recipes.
        store: The local store.
        chain: The shared caches.
        anew: Ask those, whatever is remembered of what they had not.
        beside: Only looked up, in the same questions.
    """
    here = {place: store.lookup(place.key, *place[:2]) for place in map(place_of, [*wanted, *beside])}
    absent = [place for place, record in here.items() if record is None]
    found = chain.find_all(absent, anew=anew) if chain and absent else {}
    known: KnownRecords | None = None
    planned = []
    for one in wanted:
        record = here[place_of(one)]
        if record is not None:
            planned.append(Plan(one, record))
        elif one.key in found:
            shared = found[one.key].shared.record
            planned.append(Plan(one, shared, found=found[one.key], lacking=tuple(store.missing(shared))))
        else:
            known = known or KnownRecords(store, [other.shared.record for other in found.values()])
            missed = _miss(one, known, store.flaw(one.key))
            planned.append(structs.replace(missed, untrusted=chain.untrusted if chain else ()))
    there = {place: found[place.key].shared.record for place in absent if place.key in found}
    somewhere = {place: record for place, record in here.items() if record is not None} | there
    looked_up = {place: somewhere[place] for place in map(place_of, beside) if place in somewhere}
    return Plans(tuple(planned), looked_up, known)


def _miss(prepared: Prepared, known: KnownRecords, flaw: str) -> Plan:
    near, seconds = known.nearest(prepared), known.expected(prepared)
    if near is None:
        return Plan(prepared, None, flaw=flaw, expected=seconds)
    changes = tuple(difference(near.hard, prepared.ingredients.hard))
    return Plan(prepared, None, near, changes, flaw=flaw, expected=seconds)


def place_of(prepared: Prepared) -> Place:
    """Where the record of a recipe lies, here and on shared caches."""
    return Place(prepared.fingerprint.directory, prepared.model_type, prepared.key)


def miss_error(planned: Plan) -> MissError:
    """What `--require-warm` answers on a miss."""
    differs = ", ".join(change.name for change in planned.changes[:3])
    near = f"the nearest record differs in {differs}" if differs else "the store has no record that is near"
    what = "cannot be used" if planned.flaw else "has no record"
    untrusted = "; ".join(planned.untrusted)
    return MissError(
        f"{planned.prepared.recipe.name} is not warm: key {planned.prepared.key[:16]} {what}",
        cause=planned.flaw or untrusted or near,
        hint=f"cachekit warm {planned.prepared.source}",
    )
