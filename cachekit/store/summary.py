"""Records in few words: what a list of them shows, and the ingredients in a form in which the nearest is found fast.

Records of one store have most of their ingredients in common. Each pair of a name and a value is kept once, and so is
each set of pairs whose names begin alike (`model.`, `training.`): a record is the numbers of some sets.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from cachekit.key import canonical_json, weight
from cachekit.record import Record

Pair = tuple[str, str]  # a name, and its value as canonical JSON
_COUNT = 1 << 32  # more than a record can have ingredients: distance and number of changes are added up as one number


class Summary(Struct, frozen=True, array_like=True, gc=False):
    """A record without its modules; see `record.Record` for the fields of the same names.

    Attributes:
        modules: How many there are.
        bytes: Of all files.
        created, user, host, instance: Of its provenance.
        parts: Its hard ingredients; `Summaries.hard` reads them.
    """

    key: str
    directory: str
    model_type: str
    compiler: str
    recipe: str
    graphs: int
    modules: int
    bytes: int
    compile_seconds: float
    cold_seconds: float
    created: str
    user: str
    host: str
    instance: str
    parts: tuple[int, ...]


class Vocabulary:
    """The hard ingredients of many records; only ever grows, so that a number once given keeps its meaning.

    Args:
        pairs: Each a name and a value.
        parts: Each the numbers of some pairs.
    """

    def __init__(self, pairs: Iterable[Pair] = (), parts: Iterable[tuple[int, ...]] = ()) -> None:
        self.pairs = list(pairs)
        self.parts = list(parts)
        self._numbers: tuple[dict[Pair, int], dict[tuple[int, ...], int]] | None = None  # made when first needed

    def add(self, hard: Mapping[str, Any]) -> tuple[int, ...]:
        """Take in a set of ingredients; the numbers by which `hard` gives it back."""
        return self.add_pairs((name, canonical_json(value).decode()) for name, value in hard.items())

    def add_pairs(self, pairs: Iterable[Pair]) -> tuple[int, ...]:
        """As `add`, of values that are canonical JSON already."""
        if self._numbers is None:
            self._numbers = (
                {pair: number for number, pair in enumerate(self.pairs)},
                {part: number for number, part in enumerate(self.parts)},
            )
        of_pairs, of_parts = self._numbers
        groups: dict[str, list[int]] = {}
        for pair in sorted(pairs):
            group = groups.setdefault(pair[0].split(".", 1)[0], [])
            group.append(_number(of_pairs, self.pairs, pair))
        return tuple(_number(of_parts, self.parts, tuple(group)) for group in groups.values())

    def pairs_of(self, parts: Iterable[int]) -> Iterator[Pair]:
        """What was added, as canonical JSON."""
        return (self.pairs[pair] for part in parts for pair in self.parts[part])

    def hard(self, parts: Iterable[int]) -> dict[str, Any]:
        """What was added; numbers in their canonical form."""
        return {name: json.loads(text) for name, text in self.pairs_of(parts)}

    def distances(self, wanted: Mapping[str, Any]) -> list[int]:
        """What each part adds to the distance from `wanted`, beside a sum that all candidates have in common.

        Of two sets, the names that do not agree are those of both, less the equal pairs. So a candidate's pair adds a
        change where `wanted` lacks its name, takes one away where it is equal, and else leaves the sum as it is.
        """
        equal = {name: canonical_json(value).decode() for name, value in wanted.items()}
        change: dict[str, int] = {}  # the cost of one, by name
        costs = []
        for name, text in self.pairs:
            cost = change.get(name) or change.setdefault(name, weight(name) * _COUNT + 1)
            costs.append(cost if name not in equal else -cost if equal[name] == text else 0)
        of_pair = costs.__getitem__
        return [sum(map(of_pair, part)) for part in self.parts]


def _number(numbers: dict[Any, int], items: list[Any], item: Any) -> int:
    number = numbers.setdefault(item, len(items))
    if number == len(items):
        items.append(item)
    return number


class Shelf:
    """Some records: what looking for the nearest needs, and the rest when it is asked for.

    Args:
        names: What they are sorted by: keys, or what begins with those.
        parts: As `Summary.parts`.
        read: Their summaries.
    """

    def __init__(
        self, names: Sequence[str], parts: Sequence[tuple[int, ...]], read: Callable[[], list[Summary]]
    ) -> None:
        self.names = names
        self.parts = parts
        self._read = read

    @classmethod
    def of(cls, summaries: list[Summary]) -> Shelf:
        """Records whose summaries are known."""
        return cls([each.key for each in summaries], [each.parts for each in summaries], lambda: summaries)

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
        return sum(len(shelf.names) for shelf in self._shelves)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[Summary]:
        for shelf in self._shelves:
            yield from shelf.summaries

    def hard(self, summary: Summary) -> dict[str, Any]:
        """The hard ingredients of one of them."""
        return self._vocabulary.hard(summary.parts)

    def ranked(self, wanted: Mapping[str, Any], where: Callable[[Summary], bool] | None = None) -> Iterator[Summary]:
        """The records by their distance from `wanted`, nearest first, in the same order as `key.nearest` has it.

        Args:
            wanted: Hard ingredients.
            where: Leaves out those for which it is false.
        """
        cost = self._vocabulary.distances(wanted).__getitem__
        queue = [
            (sum(map(cost, parts)), name, place, number)
            for place, shelf in enumerate(self._shelves)
            for number, (name, parts) in enumerate(zip(shelf.names, shelf.parts, strict=True))
        ]
        heapq.heapify(queue)
        while queue:
            _, _, place, number = heapq.heappop(queue)
            found = self._shelves[place].summaries[number]
            if where is None or where(found):
                yield found

    def same_but(self, wanted: Mapping[str, Any], group: str) -> Iterator[Summary]:
        """The records with these ingredients, whatever they have of one group: of `toolchain`, `toolchain.torch`.

        Args:
            wanted: Hard ingredients.
            group: What the names that do not matter begin with, up to the dot.
        """
        ours = self._vocabulary.add(wanted)
        pairs, members = self._vocabulary.pairs, self._vocabulary.parts
        left_out = {n for n, part in enumerate(members) if part and pairs[part[0]][0].split(".", 1)[0] == group}
        rest = set(ours) - left_out
        for shelf in self._shelves:
            for number, parts in enumerate(shelf.parts):
                if set(parts) - left_out == rest:
                    yield shelf.summaries[number]


def summarise(record: Record, vocabulary: Vocabulary) -> Summary:
    """A record in few words; its ingredients are added to `vocabulary`."""
    made = record.provenance
    return Summary(
        key=record.key,
        directory=record.directory,
        model_type=record.model_type,
        compiler=record.compiler,
        recipe=record.recipe,
        graphs=record.graphs,
        modules=len(record.modules),
        bytes=record.size,
        compile_seconds=record.compile_seconds,
        cold_seconds=record.cold_seconds,
        created=made.created,
        user=made.user,
        host=made.host,
        instance=made.instance,
        parts=vocabulary.add(record.hard),
    )
