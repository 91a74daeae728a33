"""The records by their distance from what is wanted; only those that may be among the nearest are looked at.

A folder holds the records of one compiler and one model type. The ingredients that all of them have, and the values
that these have, tell how near the nearest of the folder can be at best: the folder is opened when its turn comes.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cachekit.key.canonical import canonical_json
from cachekit.key.nearest import weight
from cachekit.store.index_file import LostIndexError
from cachekit.store.layout import Place
from cachekit.store.record import IMPORTED

if TYPE_CHECKING:
    from cachekit.store.index import Index
    from cachekit.store.index_rows import IndexRow

_COUNT = 1 << 32  # more than a record can have ingredients: distance and number of changes are added up as one number


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


class Folder(Struct, frozen=True):
    """Some records.

    Attributes:
        id: Names them.
        common: The names of hard ingredients that each of them has, with the values that may be there, as canonical
            JSON; None where these are too many to be told.
    """

    id: int
    common: Mapping[str, Sequence[str] | None]


class Distances:
    """Distances from one set of hard ingredients.

    Of two sets, the names that do not agree are those of both, less the equal pairs. So a candidate's pair adds a
    change where the wanted set lacks its name, takes one away where it is equal, and else leaves the sum as it is: the
    sum over the wanted set's own names.
    """

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._worth = {name: _worth(name) for name in wanted}
        self._texts = {name: canonical_json(value).decode() for name, value in wanted.items()}
        self._all = sum(self._worth.values())
        self._sums: dict[int, int] = {}  # by part

    def search(
        self,
        folders: Iterable[Folder],
        records: Callable[[int], list[tuple[int, str, list[int]]]],
        parts: Callable[[Iterable[int]], Mapping[int, Mapping[str, str]]],
    ) -> Iterator[tuple[int, int]]:
        """Numbers of records and their distances, nearest first.

        Of equally near ones those of an earlier folder come first, so that no other need be opened; then the smaller
        key.

        Args:
            folders: All of them.
            records: Of a folder: number, key, and the numbers of the parts that make up the hard ingredients.
            parts: Some parts, values as canonical JSON.
        """
        # A folder stands before its records that are as far as its nearest may be; it has no key.
        queue = [(self._at_best(folder), order, "", folder.id) for order, folder in enumerate(folders)]
        heapq.heapify(queue)
        while queue:
            far, order, key, number = heapq.heappop(queue)
            if key:
                yield number, far // _COUNT
                continue
            found = records(number)
            unknown = set[int]().union(*(numbers for _, _, numbers in found)) - self._sums.keys()
            self._sums |= {part: self._sum(pairs) for part, pairs in parts(unknown).items()}
            of_part = self._sums.__getitem__
            queue += [(self._all + sum(map(of_part, numbers)), order, key, record) for record, key, numbers in found]
            heapq.heapify(queue)

    def _at_best(self, folder: Folder) -> int:
        """The least distance that a record of the folder can have: what all its records share differs in any case."""
        total = 0
        for name, texts in folder.common.items():
            wanted = self._texts.get(name)
            if wanted is None or (texts is not None and wanted not in texts):
                total += _worth(name)
        return total

    def _sum(self, pairs: Mapping[str, str]) -> int:
        total = 0
        for name, text in pairs.items():
            wanted = self._texts.get(name)
            if wanted is None:
                total += _worth(name)
            elif wanted == text:
                total -= self._worth[name]
        return total


def _worth(name: str) -> int:
    return weight(name) * _COUNT + 1
