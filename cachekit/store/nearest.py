"""The records around what is wanted: by their distance from it, or those of the same job."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cachekit.store.index_file import LostIndexError
from cachekit.store.layout import Place
from cachekit.store.record import IMPORTED

if TYPE_CHECKING:
    from cachekit.store.index import Index
    from cachekit.store.index_rows import IndexRow


class NearRecord(Struct, frozen=True):
    """A record and how near it is.

    Attributes:
        row: The record.
        hard: Its hard ingredients.
        distance: The sum of the weights of what differs; see `key.WEIGHTS`.
    """

    row: IndexRow
    hard: dict[str, Any]
    distance: int = 0


class Around:
    """The records around some hard ingredients. All answers are of one look at the store.

    Args:
        looks: Gives the index; anew where it was lost meanwhile, in which case what was told already is not told twice.
        hard: The hard ingredients.
    """

    def __init__(self, looks: Iterator[Index], hard: Mapping[str, Any]) -> None:
        self._looks, self._hard = looks, hard
        self._index = next(looks)
        self._searches: dict[tuple[str, str], tuple[list[NearRecord], Iterator[NearRecord]]] = {}

    def nearest(self, *, compiler: str = "", directory: str = "") -> Iterator[NearRecord]:
        """The records by their distance, nearest first; the caller takes as many as are needed.

        Whoever asks the same again gets what was found, and the search goes on behind that: among 100,000 records it
        takes a fifth of a second.
        """
        begun = self._searches.get((compiler, directory)) or ([], self._search(compiler, directory))
        found, more = self._searches[compiler, directory] = begun
        for place in itertools.count():
            if place == len(found):
                if (near := next(more, None)) is None:
                    return
                found.append(near)
            yield found[place]

    def _search(self, compiler: str, directory: str) -> Iterator[NearRecord]:
        told = set[Place]()
        while True:
            try:
                for near in self._index.nearest(self._hard, compiler=compiler, directory=directory):
                    if near.row.model_type != IMPORTED and near.row.place not in told:
                        told.add(near.row.place)
                        yield near
            except LostIndexError:
                self._index = next(self._looks)
            else:
                return

    def same_job(self) -> list[NearRecord]:
        """The records with these ingredients, whatever their toolchains are; no distance is told of them."""
        while True:
            try:
                return self._index.same_job(self._hard)
            except LostIndexError:
                self._index = next(self._looks)
