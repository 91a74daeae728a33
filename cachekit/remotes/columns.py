"""The columns of an index: each says one thing of all rows, and what many rows say stands there once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

from msgspec import Struct

from cachekit.key.canonical import ABSENT, canonical_json


class Column(Struct, frozen=True, array_like=True):
    """What the rows say of one thing.

    Attributes:
        values: What they say.
        rows: Which of these each row says, -1 for none; empty where each row has its own.
    """

    values: list[Any]
    rows: list[int] = []

    @property
    def numbers(self) -> Sequence[int]:
        """Which value each row has; -1 for none."""
        return self.rows or range(len(self.values))

    def of(self, row: int) -> Any:
        """What a row says; ABSENT where it says nothing."""
        number = self.numbers[row]
        return self.values[number] if number >= 0 else ABSENT

    def fits(self, count: int) -> bool:
        """Whether it speaks of so many rows, in values that can be told apart."""
        numbers = self.numbers
        if len(numbers) != count or len(self.values) > count:
            return False
        if self.rows and not -1 <= min(self.rows) <= max(self.rows) < len(self.values):
            return False
        for value in self.values:
            if isinstance(value, (list, dict)):
                text_of(value)
        return True

    def only(self, stays: Sequence[bool]) -> Column:
        """For some of the rows."""
        numbers = list(compress(self.numbers, stays))
        used = {number: place for place, number in enumerate(sorted({*numbers} - {-1}))}
        return Column([self.values[number] for number in used], [used.get(number, -1) for number in numbers])

    def with_(self, more: Iterable[Any]) -> Column:
        """With more rows, and each value once."""
        numbered: dict[str, int] = {}
        values: list[Any] = []

        def number(value: Any) -> int:
            if value is ABSENT:
                return -1
            name = _name(value)
            if name not in numbered:
                numbered[name] = len(values)
                values.append(value)
            return numbered[name]

        again = [number(value) for value in self.values]
        numbers = [again[one] if one >= 0 else -1 for one in self.numbers]
        return Column(values, numbers + [number(value) for value in more])

    def packed(self) -> Column:
        """As it is written: where most rows have a value of their own, without numbers."""
        if len(self.values) * 2 <= len(self.rows) or -1 in self.rows:
            return self
        return Column([self.values[number] for number in self.numbers])


def _name(value: Any) -> str:
    """What tells a value from others: as `text_of`, in less time for most."""
    kind = type(value)
    return f'"{value}' if kind is str else str(value) if kind is int else text_of(value)


def text_of(value: Any) -> str:
    """A value as it is compared with others."""
    return canonical_json(value).decode()
