"""What all answers have in common; and the hash of a frozen value with mappings or lists in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from msgspec import Struct, to_builtins

from cachekit.errors import CachekitError


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


class Answer(Struct, frozen=True):
    """What a verb answers. Its fields are the document of `--format json`, and `--schema` is made from their types."""

    __hash__ = by_value

    def as_dict(self) -> dict[str, Any]:
        """The answer as JSON values."""
        found: dict[str, Any] = json.loads(json.dumps(builtins(self)))
        return found


class ToldError(Struct, frozen=True):
    """An error as JSON has it."""

    code: str
    exit_code: int
    message: str
    cause: str
    hint: str


def builtins(value: Any) -> Any:
    """A value as JSON has it: a path is text, an error is a `ToldError`."""
    return to_builtins(value, enc_hook=_encoded)


def _encoded(value: Any) -> Any:
    if isinstance(value, CachekitError):
        return ToldError(value.code, value.exit_code, value.message, value.cause, value.hint)
    return dict(value) if isinstance(value, Mapping) else str(value)
