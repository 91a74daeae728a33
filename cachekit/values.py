"""What all answers have in common; and the hash of a frozen value with mappings or lists in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins

from cachekit.errors import CachekitError


def by_value(self: object) -> int:
    """Equal values have equal hashes. For classes: `__hash__ = by_value`."""
    if not isinstance(self, Struct):
        raise TypeError(f"unhashable type: {type(self).__name__!r}")
    return hash((type(self), *(_hash(getattr(self, name)) for name in self.__struct_fields__)))


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


class Answer(Struct, frozen=True, tag_field="schema"):
    """What a verb answers. Its fields are the document of `--format json`, and `--schema` is made from their types.

    Each class has a `tag`, `cachekit/plan/1`: what its document is, and the version of its fields. The document begins
    with it, as `schema`. The number is raised when a field goes or means something else.
    """

    __hash__ = by_value

    def as_dict(self) -> dict[str, Any]:
        """The answer as JSON values."""
        found: dict[str, Any] = json.loads(json.dumps(builtins(self)))
        return found


class Failed(Answer, frozen=True, tag="cachekit/error/1"):
    """What a verb prints that failed before it had an answer; else `error` stands beside the answer's own fields."""

    error: CachekitError


def builtins(value: Any) -> Any:
    """A value as JSON has it: a path is text, an error is its code, message, cause and hint."""
    return to_builtins(value, enc_hook=_encoded)


def _encoded(value: Any) -> Any:
    if isinstance(value, CachekitError):
        return value.document
    return dict(value) if isinstance(value, Mapping) else str(value)
