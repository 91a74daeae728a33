"""Ingredients, their canonical form, the key, and the difference between two sets of them.

A key is the SHA-256 of the canonical JSON of the *hard* ingredients. *Soft* ones are recorded beside it: they may or
may not reach a graph, and never change the key. `tests/vectors/` fixes the form, and which ingredients recipes and
commands have; changing either takes a new SCHEMA.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import UNSET, Struct, field

SCHEMA = 2
DIGITS = 64  # of a key, as text
FEWEST_DIGITS = 4  # of a key that a person types, at least

Value = None | bool | int | float | str | list[Any] | dict[str, Any]


def canonical(value: Any) -> Any:
    """Bring a JSON value into the one form that is hashed.

    Numbers that are equal are written alike (`0.0` and `0`, `1e3` and `1000`); mappings are sorted when written; lists
    keep their order, which is meaning (compiler flags).

    Raises:
        ValueError: NaN, infinity, a key of a mapping that is not a string, text that is not Unicode, or no JSON.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} has no JSON form")
        return int(value) if value.is_integer() else value
    if isinstance(value, str):
        value.encode("utf-8")  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
        return value
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("a mapping's keys must be strings")
        return {canonical(name): canonical(item) for name, item in value.items()}
    raise ValueError(f"{type(value).__name__} has no JSON form")


_FLAT = frozenset((str, int, bool, type(None)))  # each is written in one way only
_TEXT = frozenset((str,))
_LISTS = frozenset((list, tuple))  # alike in JSON; msgspec has tuples


def _form(value: Any) -> Any:
    """The same as `canonical` for what is encoded right away, where text that is not Unicode is seen as well.

    Most of a large record are small mappings that are canonical as they are: they are not copied.
    """
    kind = type(value)
    if kind in _FLAT:
        return value
    if kind is dict and _FLAT.issuperset(map(type, value.values())) and _TEXT.issuperset(map(type, value)):
        return value
    if kind in _LISTS:
        return [_form(item) for item in value]
    if kind is dict and _TEXT.issuperset(map(type, value)):
        return {name: _form(item) for name, item in value.items()}
    return canonical(value)


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def canonical_json(value: Any) -> bytes:
    """The bytes that are hashed: sorted names, no spaces, UTF-8, each number in one form."""
    return _encode(_form(value)).encode("utf-8")


class Ingredients(Struct, frozen=True):
    """The named values behind a key.

    Attributes:
        hard: Dotted name to JSON value; all of it is in the key.
        soft: Recorded beside the key.
    """

    hard: Mapping[str, Any]
    soft: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """64 hex digits: the SHA-256 of the schema number and the hard ingredients."""
        return key_of(self.hard)


def key_of(hard: Mapping[str, Any], schema: int = SCHEMA) -> str:
    """The key of a set of hard ingredients, as read back from a record as well."""
    return hashlib.sha256(canonical_json({"schema": schema, "hard": hard})).hexdigest()


def is_older(key: str, hard: Mapping[str, Any]) -> bool:
    """Whether a key is the one that an older schema gives to these ingredients: no recipe has it any more."""
    return any(key_of(hard, older) == key for older in range(1, SCHEMA))


def member(name: str, value: Any) -> str:
    """A hard ingredient as it is hashed, for `key_of_members`."""
    return f"{_encode(name)}:{_encode(_form(value))}"


def key_of_members(members: Iterable[str]) -> str:
    """As `key_of`, of ingredients in the order of their names, each of them made once for many keys.

    Raises:
        UnicodeEncodeError: One has text that is not Unicode.
    """
    return hashlib.sha256(f'{{"hard":{{{",".join(members)}}},"schema":{SCHEMA}}}'.encode()).hexdigest()


ABSENT = UNSET  # JSON leaves the field out


class Change(Struct, frozen=True):
    """One ingredient that two sets do not share; ABSENT where one side lacks it."""

    name: str
    old: Any = ABSENT
    new: Any = ABSENT


SIDES = ("that record", "this recipe")  # what to call the old and the new, where nobody says


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """What changed from one set of hard ingredients to another, sorted by name."""
    names = [name for name in old.keys() | new.keys() if not same(old.get(name, ABSENT), new.get(name, ABSENT))]
    return [Change(name, old.get(name, ABSENT), new.get(name, ABSENT)) for name in sorted(names)]


def same(one: Any, other: Any) -> bool:
    """Whether two values are written alike in a key; `True` and `1` differ, `1` and `1.0` do not.

    Absence is not null: a missing ingredient and one whose value is null give different keys.
    """
    if type(one) in _FLAT and type(other) in _FLAT:
        return type(one) is type(other) and bool(one == other)
    if one is ABSENT or other is ABSENT:
        return one is other
    return canonical_json(one) == canonical_json(other)


_BEGINS = "scrypt:"
_COST = 1 << 10  # of scrypt, with blocks of 8: 1 MB and 4 ms on one core of 2026


@lru_cache(256)
def hashed(name: str, value: str) -> str:
    """A variable's value as a record has it where the value is nobody else's business.

    The salt is the same everywhere, as a team's hosts must come to one key; see docs/decisions.
    """
    salt = hashlib.sha256(f"cachekit environment {name}".encode("utf-8", "surrogateescape")).digest()
    raw = value.encode("utf-8", "surrogateescape")
    return _BEGINS + hashlib.scrypt(raw, salt=salt, n=_COST, r=8, p=1, dklen=16).hex()


def is_hashed(value: object) -> bool:
    """Whether a value of a record is such a hash."""
    return isinstance(value, str) and value.startswith(_BEGINS)
