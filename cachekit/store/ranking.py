"""Records by their distance from what is wanted, of which only those are looked at that may be among the nearest.

A folder of the index holds the records of one compiler and one model type, and all of them have some ingredients in
common. Those tell how near the nearest of them can be at best: a folder is opened when its turn comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from cachekit.key.canonical import canonical_json
from cachekit.key.nearest import weight
from cachekit.store.summary import Summary, Vocabulary, group_of

_COUNT = 1 << 32  # more than a record can have ingredients: distance and number of changes are added up as one number


class Columns(NamedTuple):
    """What looking for the nearest needs of some records, one item for each.

    Attributes:
        names: What they are sorted by: keys, or what begins with those.
        parts: As `Summary.parts`.
    """

    names: Sequence[str]
    parts: Sequence[tuple[int, ...]]


class Ranked(NamedTuple):
    """A record, and its hard ingredients."""

    row: Summary
    hard: dict[str, Any]


class Shelf:
    """Some records, of which as much is read as is asked for.

    Args:
        directory: That of all of them; empty where they differ.
        compilers: Of all of them.
        common: Pairs of the vocabulary that each of them has.
        columns: Gives what looking for the nearest needs.
        read: Their summaries, in the same order.
    """

    def __init__(
        self,
        directory: str,
        compilers: Collection[str],
        common: Sequence[int],
        columns: Callable[[], Columns],
        read: Callable[[], list[Summary]],
    ) -> None:
        self.directory = directory
        self.compilers = compilers
        self.common = common
        self._columns = columns
        self._read = read

    @classmethod
    def of(cls, summaries: list[Summary]) -> Shelf:
        """Records whose summaries are known, sorted by their keys."""

        def columns() -> Columns:
            return Columns([each.key for each in summaries], [each.parts for each in summaries])

        directories = {each.directory for each in summaries}
        directory = directories.pop() if len(directories) == 1 else ""
        return cls(directory, {each.compiler for each in summaries}, (), columns, lambda: summaries)

    @cached_property
    def columns(self) -> Columns:
        """What looking for the nearest needs."""
        return self._columns()

    @cached_property
    def summaries(self) -> list[Summary]:
        """One for each record, in the same order."""
        return self._read()


class Summaries(Sequence[Summary]):
    """All records of a store at one moment, in the order of their paths.

    Args:
        shelves: The records of a folder each.
        vocabulary: What their `parts` refer to.
    """

    def __init__(self, shelves: list[Shelf], vocabulary: Vocabulary) -> None:
        self._shelves = shelves
        self._vocabulary = vocabulary

    def __len__(self) -> int:
        return sum(len(shelf.summaries) for shelf in self._shelves)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Summary]:
        for shelf in self._shelves:
            yield from shelf.summaries

    def hard(self, summary: Summary) -> dict[str, Any]:
        """The hard ingredients of one of them."""
        return self._vocabulary.hard(summary.parts)

    def ranking(self, wanted: Mapping[str, Any]) -> Ranking:
        """The records by their distance from `wanted`, hard ingredients."""
        return Ranking(self._shelves, self._vocabulary, wanted)


class Ranking:
    """Records by their distance from what is wanted, nearest first, in the same order as `key.nearest` has it.

    Of two sets, the names that do not agree are those of both, less the equal pairs. So a candidate's pair adds a
    change where the wanted set lacks its name, takes one away where it is equal, and else leaves the sum as it is: a
    distance, beside a number that all candidates have in common.

    Args:
        shelves: The records.
        vocabulary: What their parts refer to.
        wanted: Hard ingredients.
    """

    def __init__(self, shelves: Sequence[Shelf], vocabulary: Vocabulary, wanted: Mapping[str, Any]) -> None:
        self._shelves = shelves
        self._vocabulary = vocabulary
        self._worth = {name: weight(name) * _COUNT + 1 for name in wanted}
        self._all = sum(self._worth.values())
        equal = {name: canonical_json(value).decode() for name, value in wanted.items()}
        # By name, of a pair that is equal and of one that is not: a name stands with many values.
        change: dict[str, tuple[int, int]] = {}
        costs = []
        for name, text in vocabulary.pairs:
            if name not in change:
                worth = self._worth.get(name)
                change[name] = (weight(name) * _COUNT + 1,) * 2 if worth is None else (-worth, 0)
            costs.append(change[name][equal.get(name) != text])
        self._costs = costs  # by pair
        self._names = frozenset(change)
        self._sums: dict[int, int] = {}  # by part, of those that were looked at
        self._opened: dict[int, list[tuple[int, str, int, int]]] = {}  # by shelf

    def where(
        self,
        holds: Callable[[Summary], bool] | None = None,
        *,
        compiler: str | None = None,
        directory: str | None = None,
    ) -> Iterator[Summary]:
        """The records in this order, read as far as the caller goes.

        Args:
            holds: Leaves out those for which it is false.
            compiler: Leaves out those of others.
            directory: Likewise.
        """
        # A shelf stands before the records that are as far as its nearest may be.
        queue = [
            (self._at_best(shelf), "", place, -1)
            for place, shelf in enumerate(self._shelves)
            if (compiler is None or compiler in shelf.compilers)
            and (directory is None or shelf.directory in {directory, ""})
        ]
        heapq.heapify(queue)
        while queue:
            _, _, place, number = heapq.heappop(queue)
            shelf = self._shelves[place]
            if number < 0:
                queue += self._open(place)
                heapq.heapify(queue)
                continue
            found = shelf.summaries[number]
            if compiler not in {None, found.compiler} or directory not in {None, found.directory}:
                continue
            if holds is None or holds(found):
                yield found

    def same_but(self, group: str) -> Iterator[Summary]:
        """The records with these ingredients, whatever they have of one group: of `toolchain`, `toolchain.torch`.

        Args:
            group: What the names that do not matter begin with, up to the dot.
        """
        pairs, members = self._vocabulary.pairs, self._vocabulary.parts
        inside = {name for name in self._names if group_of(name) == group}
        nearest = -sum(worth for name, worth in self._worth.items() if group_of(name) != group)
        for shelf in self._shelves:
            other = (pair for pair in shelf.common if self._costs[pair] >= 0)
            if any(pairs[pair][0] not in inside for pair in other):
                continue
            parts = {part for one in shelf.columns.parts for part in one}
            self._add_up(parts)
            rest = {n: 0 if pairs[members[n][0]][0] in inside else self._sums[n] for n in parts}
            for number, one in enumerate(shelf.columns.parts):
                # Each pair that is not equal, or too many, leaves more than that.
                if sum(map(rest.__getitem__, one)) == nearest:
                    yield shelf.summaries[number]

    def _at_best(self, shelf: Shelf) -> int:
        """The distance of a record that has what all of the shelf have, and whatever is wanted beside."""
        pairs = self._vocabulary.pairs
        common = sum(self._costs[pair] for pair in shelf.common)
        return common - self._all + sum(self._worth.get(pairs[pair][0], 0) for pair in shelf.common)

    def _open(self, place: int) -> list[tuple[int, str, int, int]]:
        if place not in self._opened:
            names, parts = self._shelves[place].columns
            self._add_up({part for one in parts for part in one})
            of_part = self._sums.__getitem__
            self._opened[place] = [
                (sum(map(of_part, one)), name, place, number)
                for number, (name, one) in enumerate(zip(names, parts, strict=True))
            ]
        return self._opened[place]

    def _add_up(self, parts: set[int]) -> None:
        of_pair, members = self._costs.__getitem__, self._vocabulary.parts
        for part in parts - self._sums.keys():
            self._sums[part] = sum(map(of_pair, members[part]))
