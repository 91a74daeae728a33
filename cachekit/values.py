"""The hash of a value that is frozen, and has mappings or lists inside that Python itself does not hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from msgspec import Struct


def by_value(self: object) -> int:
    """Equal values have equal hashes. For classes: `__hash__ = by_value`."""
    return hash((type(self), *(_hash(value) for value in _parts(self))))


def _hash(value: object) -> int:
    try:
        return hash(value)
    except TypeError:
        pass
    if isinstance(value, Mapping):  # in whatever order
        return hash(frozenset((name, _hash(one)) for name, one in value.items()))
    if isinstance(value, list | tuple):
        return hash(tuple(map(_hash, value)))
    if isinstance(value, set):
        return hash(frozenset(value))
    return by_value(value)


def _parts(value: object) -> list[object]:
    if isinstance(value, Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value) if field.compare]
    raise TypeError(f"unhashable type: {type(value).__name__!r}")
