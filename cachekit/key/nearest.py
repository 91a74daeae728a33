"""How near two sets of hard ingredients are, what each difference weighs, and which of two a compile can reuse."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from cachekit.key.canonical import Change, canonical_json

INTERRUPTED = "interrupted"  # a record with this ingredient has what a run had compiled when it was stopped
# What a difference of this kind costs, by the first part of the name: a record of another compiler or target can
# share no artifact, one of another architecture hardly any, one of another batch size none of the main graphs but
# perhaps the small ones. `Distances` sorts by it.
WEIGHTS = {
    "trust": 100, "compiler": 100, "toolchain": 100, "target": 100, "model": 30, "task": 30, "parallel": 20,
    "compiler.without_device": 20,  # the same programs, as far as is known, and nobody has tried them
    INTERRUPTED: 1,  # a part of the very same
}  # fmt: skip
LEAST = 10  # no two whole records are nearer than that: nobody need be asked for a nearer one
# A record that differs by more is of another model: nothing of it was ever used.
FARTHEST = 60
OLD = "trust."  # another salt of the settings: somebody wants nothing of what was made before
TOOLS = "toolchain."  # what of these matters, the compiler says (`Compiler.foreign`)
_COUNT = 1 << 32  # more than a record can have ingredients: distance and number of changes are added up as one number


def group_of(name: str) -> str:
    """What the name of an ingredient begins with, up to the dot."""
    return name.split(".", 1)[0]


@lru_cache(4096)
def weight(name: str) -> int:
    """What a change of an ingredient counts for."""
    return WEIGHTS.get(name, WEIGHTS.get(group_of(name), LEAST))


def distance(changes: Iterable[Change]) -> int:
    """How far apart two sets are: the sum of their changes' weights."""
    return sum(weight(change.name) for change in changes)


def reusable(changes: Sequence[Change], foreign: tuple[str, ...]) -> bool:
    """Whether a compile can begin with what a job that differs so has left.

    Args:
        changes: What differs.
        foreign: Beginnings of ingredients that the compiler's own key does not tell apart; see `Compiler.foreign`.
    """
    if any(change.name.startswith((*foreign, OLD)) for change in changes):
        return False
    return distance(change for change in changes if not change.name.startswith(TOOLS)) <= FARTHEST


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
    """Distances from one set of hard ingredients to many others, of which only those that may be near are looked at.

    A folder holds the records of one compiler and one model type. The ingredients that all of them have, and the
    values that these have, tell how near the nearest of the folder can be at best: the folder is opened when its turn
    comes.

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
