"""What the records that are known say of a miss: the nearest one, how long compiling takes, what was warm before.

Only records that are told of are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

from cachekit.key.cost import ASKED, Expected, Timed, expected, figure
from cachekit.recipe import zoo
from cachekit.store import Row, Store
from cachekit.store.record import COMMAND, Record
from cachekit.verbs.nearest_here import first_read
from cachekit.verbs.prepare import Prepared


class KnownRecords:
    """The records that misses are compared with.

    Args:
        store: The local store.
        others: Records of elsewhere, which say how long compiling takes.
    """

    def __init__(self, store: Store, others: Iterable[Record] = ()) -> None:
        self._store = store
        self._others = list(others)

    def nearest(self, prepared: Prepared) -> Record | None:
        """The record with the least difference to a recipe."""
        key, command = prepared.key, _is_command(prepared.model_type)
        near = (one.row for one in self._store.nearest(prepared.ingredients.hard))
        return first_read(
            self._store, (one for one in near if _is_command(one.model_type) == command and one.key != key)
        )

    def expected(self, prepared: Prepared) -> Expected | None:
        """How long compiling takes; None is unknown."""
        place, hard = prepared.fingerprint, prepared.ingredients.hard
        command = _is_command(prepared.model_type)
        ranked = (
            (near.row, near.hard)
            for near in self._store.nearest(hard, compiler=place.compiler)
            if near.row.cold_seconds > 0 and _is_command(near.row.model_type) == command
        )
        index = self._store.refresh()
        same = ((row, index.hard(row)) for row in index.same_job(hard))
        here = (
            Timed(one.key, one.recipe, one.directory, one.model_type, its, one.cold_seconds)
            for one, its in chain(same, islice(ranked, ASKED))
            if one.compiler == place.compiler
        )
        there = (
            Timed(one.key, one.recipe, one.directory, one.model_type, one.hard, one.cold_seconds)
            for one in self._others
            if one.compiler == place.compiler and _is_command(one.model_type) == command
        )
        found = expected(place.directory, prepared.model_type, hard, chain(here, there), prepared.growth)
        if found is not None:
            return found
        measured = zoo.compile_seconds(prepared.recipe.model.id or "", str(hard.get("target.chip", "")))
        return figure(measured.seconds, measured.source) if measured else None

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
