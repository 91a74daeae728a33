"""On a miss: begin with what the nearest record has, of the same compiler and target.

The compiler's own key decides what of it is used, so that it can only save work. What was used goes into the new
record, which stands for itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cachekit.compilers import Observed
from cachekit.errors import AuthError, CachekitError, RemoteError
from cachekit.key.canonical import Change
from cachekit.remotes.layout import LOCAL
from cachekit.remotes.remote import Found
from cachekit.store.record import DamagedRecordError, Help, Record
from cachekit.verbs.akin import akin, fits
from cachekit.verbs.live import LiveRoot
from cachekit.verbs.nearest_here import nearest_here
from cachekit.verbs.obtain import obtain
from cachekit.verbs.plan import Plan
from cachekit.verbs.prepare import Prepared
from cachekit.verbs.session import Session


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A record of another key that may help.

    Attributes:
        record: The record.
        changes: What differs, from it to the recipe.
        found: The shared cache that has it, where the store has not.
        fetch: Of that, the bytes that the store lacks.
    """

    record: Record
    changes: tuple[Change, ...]
    found: Found | None = None
    fetch: int = 0

    @property
    def tier(self) -> str:
        """Where it is."""
        return self.found.remote.name if self.found else LOCAL

    def as_dict(self) -> dict[str, Any]:
        """For the journal."""
        record = self.record
        differs = [change.name for change in self.changes]
        return {"neighbour": record.key, "recipe": record.recipe, "tier": self.tier, "differs": differs}


@dataclass(frozen=True, slots=True)
class Helped:
    """What came of it.

    Attributes:
        neighbour: The record that was restored.
        graphs: Graphs that came from it.
        of: Graphs that the recipe needs.
        files: Files, or modules, of it that were used; they are in the new record.
        kernels: Of these, machine code that belongs to no graph of its own: it serves other graphs as well.
        bytes: What was restored.
    """

    neighbour: Neighbour
    graphs: int
    of: int
    files: int
    kernels: int
    bytes: int

    def note(self, seconds: float) -> Help:
        """What the new record says of it, whose compile took that long: its graphs, and what they take when cold."""
        record = self.neighbour.record
        return Help(record.key, self.graphs, round(max(seconds, record.cold_seconds), 3))

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "key": self.neighbour.record.key,
            "recipe": self.neighbour.record.recipe,
            "tier": self.neighbour.tier,
            "differs": [change.name for change in self.neighbour.changes],
            "graphs": self.graphs,
            "of": self.of,
            "files": self.files,
            "kernels": self.kernels,
            "bytes": self.bytes,
        }


def reach(session: Session, prepared: Prepared, planned: Plan) -> Neighbour | None:
    """The nearest record that may help and is within the byte budget, whole and in the store; None where there is none.

    What goes wrong with it is told, and nothing else.

    Args:
        session: Collaborators.
        prepared: The recipe.
        planned: Its plan, which knows the nearest record of all in the store.

    Raises:
        StoreError: The store cannot be written.
    """
    limit = session.config.neighbour_bytes
    if not limit:
        return None
    near = _local(session, prepared, planned, limit)
    try:
        near = _shared(session, prepared, near, limit) or near
    except (RemoteError, AuthError, DamagedRecordError) as error:
        tell_failure(session, prepared, error)
    if near is None:
        return None
    if near.found is not None:
        record = obtain(session, near.found)
    else:
        record = session.store.lookup(near.record.key, near.record.directory, near.record.model_type)
    return replace(near, record=record) if record is not None else None


def _shared(session: Session, prepared: Prepared, here: Neighbour | None, limit: int) -> Neighbour | None:
    """One on a shared cache, where it is nearer than the one in the store; nothing of it is fetched yet.

    Raises:
        RemoteError, AuthError, DamagedRecordError: It cannot be read there.
    """
    if not session.chain.readable:
        return None
    from cachekit.verbs import neighbours

    foreign, hard = session.compiler.foreign, prepared.ingredients.hard
    known = neighbours.Neighbour(neighbours.Known.of(here.record), here.changes, record=here.record) if here else None
    best = neighbours.search(
        neighbours.Wanted.of(prepared),
        session.store,
        session.chain,
        fits=lambda other: fits(other, hard, foreign),
        here=known,
    ).neighbour
    found = best.find() if best is not None and best.remote is not None and best.known.size <= limit else None
    if best is None or found is None or akin(prepared, foreign, found.shared.record) is None:
        return None
    fetch = sum(file.size for file in session.store.missing(found.shared.record))
    return Neighbour(found.shared.record, best.changes, found, fetch) if fetch <= limit else None


def assess(session: Session, near: Neighbour, live: LiveRoot, seen: Observed) -> Helped | None:
    """What a run took over from what was restored; None where that is nothing."""
    kernels = 0
    if seen.modules:  # the compiler names what it used, also what lay there already
        files = graphs = len(seen.modules & live.written)
    else:
        graphs = seen.found
        used = live.before if seen.used is None else seen.used
        files, kernels = len(used), session.compiler.binaries(used)
        if seen.used is None and not graphs:
            return None
    if not files:
        return None
    return Helped(near, graphs, seen.found + seen.compiled, files, kernels, live.restored_bytes)


def _local(session: Session, prepared: Prepared, planned: Plan, limit: int) -> Neighbour | None:
    foreign = session.compiler.foreign
    first = planned.neighbour
    if first is not None and first.size <= limit and (changes := akin(prepared, foreign, first)) is not None:
        return Neighbour(first, changes)
    hard, key, directory = prepared.ingredients.hard, prepared.key, prepared.fingerprint.directory
    near = nearest_here(
        session.store,
        hard,
        lambda one: one.directory == directory and one.bytes <= limit and one.key != key,
        lambda other: fits(other, hard, foreign),
    )
    changes = akin(prepared, foreign, near) if near else None
    return Neighbour(near, changes) if near is not None and changes is not None else None


def tell_failure(session: Session, prepared: Prepared, error: Exception) -> None:
    """A neighbour that cannot be had, or used, is told, and everything compiles as if there were none."""
    reason = str(error)
    if isinstance(error, CachekitError):
        reason = ": ".join(filter(None, [error.message, error.cause]))
    session.journal.emit("neighbour.failed", key=prepared.key, reason=reason)
