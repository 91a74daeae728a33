"""Records in few words: what a list of them shows, and the ingredients in a form in which the nearest is found fast.

Records of one store have most of their ingredients in common. Each pair of a name and a value is kept once, and so is
each set of pairs whose names begin alike (`model.`, `training.`): a record is the numbers of some sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from cachekit.key.canonical import canonical_json
from cachekit.store.record import Record

Pair = tuple[str, str]  # a name, and its value as canonical JSON


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
        self._texts: dict[str, str] = {}

    def add(self, hard: Mapping[str, Any]) -> tuple[int, ...]:
        """Take in a set of ingredients; the numbers by which `hard` gives it back."""
        return self.add_pairs((name, self._text(value)) for name, value in hard.items())

    def _text(self, value: Any) -> str:
        kind = type(value)
        if kind is not str:  # numbers and lists of other types may be equal, and are not written alike
            return canonical_json(value).decode()
        text = self._texts.get(value)
        if text is None:
            text = self._texts[value] = canonical_json(value).decode()
        return text

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
            group = groups.setdefault(group_of(pair[0]), [])
            group.append(_number(of_pairs, self.pairs, pair))
        return tuple(_number(of_parts, self.parts, tuple(group)) for group in groups.values())

    def pairs_of(self, parts: Iterable[int]) -> Iterator[Pair]:
        """What was added, as canonical JSON."""
        return (self.pairs[pair] for part in parts for pair in self.parts[part])

    def hard(self, parts: Iterable[int]) -> dict[str, Any]:
        """What was added; numbers in their canonical form."""
        return {name: json.loads(text) for name, text in self.pairs_of(parts)}


def _number(numbers: dict[Any, int], items: list[Any], item: Any) -> int:
    number = numbers.setdefault(item, len(items))
    if number == len(items):
        items.append(item)
    return number


def group_of(name: str) -> str:
    """What the name of an ingredient begins with, up to the dot."""
    return name.split(".", 1)[0]


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
