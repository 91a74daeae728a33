"""What the records that are known say of a miss: the nearest one, how long compiling takes, what was warm before.

The store's summaries are looked at once, for any number of misses; only records that are told of are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cachekit.store import Store
from cachekit.store.ranking import Ranking
from cachekit.store.record import COMMAND, IMPORTED, Record
from cachekit.store.summary import Summary
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
        self._found = store.summaries(without=IMPORTED, glance=True)
        self._ranked: tuple[str, Ranking] | None = None  # of the key that was asked about last
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
        near = self._ranking(prepared).where(lambda one: _is_command(one.model_type) == command and one.key != key)
        return first_read(self._store, near)

    def estimate(self, prepared: Prepared) -> Estimate | None:
        """How long compiling takes; None is unknown."""
        place, hard = prepared.fingerprint, prepared.ingredients.hard
        ranking = self._ranking(prepared)
        ranked = ranking.where(lambda other: other.cold_seconds > 0, compiler=place.compiler)
        # The same recipe under another toolchain says more than its many differences tell.
        chosen = {one.key: one for one in (*islice(ranked, ASKED), *ranking.same_but("toolchain"))}
        near = [
            Timed(
                *(one.key, one.recipe, one.compiler, one.directory, one.model_type),
                *(self._found.hard(one), one.cold_seconds, one.instance),
            )
            for one in chosen.values()
        ]
        if not near and not self._others:
            return None
        from cachekit.verbs.estimate import Job, estimate

        job = Job(place.compiler, place.directory, prepared.model_type, hard, place.instance)
        return estimate(job, [*near, *self._others])

    def former(self, prepared: Prepared) -> Record | None:
        """The youngest whole record of the same recipe under another toolchain."""
        alike = [one for one in self._ranking(prepared).same_but("toolchain") if one.key != prepared.key]
        records = map(self._read, sorted(alike, key=lambda one: one.created, reverse=True))
        return next((record for record in records if record and not self._store.missing(record)), None)

    def _read(self, one: Summary) -> Record | None:
        return self._store.read(one.directory, one.model_type, one.key)

    def _ranking(self, prepared: Prepared) -> Ranking:
        if self._ranked is None or self._ranked[0] != prepared.key:
            self._ranked = prepared.key, self._found.ranking(prepared.ingredients.hard)
        return self._ranked[1]


def _is_command(model_type: str) -> bool:
    """Recipes and commands have no ingredients in common."""
    return model_type == COMMAND
