"""What the records that are known say of a miss: the nearest one, how long compiling takes, what was warm before.

Only records that are told of are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cachekit.store import Row, Store
from cachekit.store.record import COMMAND, Record
from cachekit.verbs.nearest_here import first_read
from cachekit.verbs.prepare import Prepared

if TYPE_CHECKING:
    from cachekit.verbs.estimate import Estimate

ASKED = 128  # records, the nearest ones, of which those are chosen that say most about the time


class Timed(Struct, frozen=True):
    """A record as an estimate needs it; see `record.Record`."""

    key: str
    recipe: str
    compiler: str
    directory: str
    model_type: str
    hard: Mapping[str, Any]
    cold_seconds: float
    instance: str


class KnownRecords:
    """The records that misses are compared with.

    Args:
        store: The local store.
        others: Records of elsewhere, which say how long compiling takes.
    """

    def __init__(self, store: Store, others: Iterable[Record] = ()) -> None:
        self._store = store
        self._others = [
            Timed(
                *(one.key, one.recipe, one.compiler, one.directory, one.model_type),
                *(one.hard, one.cold_seconds, one.provenance.instance),
            )
            for one in others
        ]

    def nearest(self, prepared: Prepared) -> Record | None:
        """The record with the least difference to a recipe."""
        key, command = prepared.key, _is_command(prepared.model_type)
        near = (one.row for one in self._store.nearest(prepared.ingredients.hard))
        return first_read(
            self._store, (one for one in near if _is_command(one.model_type) == command and one.key != key)
        )

    def estimate(self, prepared: Prepared) -> Estimate | None:
        """How long compiling takes; None is unknown."""
        place, hard = prepared.fingerprint, prepared.ingredients.hard
        found = self._store.nearest(hard, compiler=place.compiler)
        ranked = islice((near for near in found if near.row.cold_seconds > 0), ASKED)
        chosen = {near.row.key: (near.row, near.hard) for near in ranked}
        # The same recipe under another toolchain says more than its many differences tell.
        index = self._store.index
        chosen |= {row.key: (row, index.hard(row)) for row in index.same_job(hard)}
        near = [
            Timed(
                *(row.key, row.recipe, row.compiler, row.directory, row.model_type),
                *(its, row.cold_seconds, row.instance),
            )
            for row, its in chosen.values()
        ]
        if not near and not self._others:
            return None
        from cachekit.verbs.estimate import Job, estimate

        job = Job(place.compiler, place.directory, prepared.model_type, hard, place.instance)
        return estimate(job, [*near, *self._others])

    def former(self, prepared: Prepared) -> Record | None:
        """The youngest whole record of the same recipe under another toolchain."""
        same = self._store.refresh().same_job(prepared.ingredients.hard)
        alike = [one for one in same if one.key != prepared.key]
        records = map(self._read, sorted(alike, key=lambda one: one.created, reverse=True))
        return next((record for record in records if record and not self._store.missing(record)), None)

    def _read(self, one: Row) -> Record | None:
        return self._store.read(*one.place)


def _is_command(model_type: str) -> bool:
    """Recipes and commands have no ingredients in common."""
    return model_type == COMMAND
