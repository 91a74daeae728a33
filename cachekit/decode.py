"""Values of a type from JSON, and from what a parser made of JSON, YAML or TOML.

msgspec learns a type when it first reads one, and two threads that do so at once end the process: the second takes up
what the first has only half learnt [0.22]. So all of cachekit reads here, where one thread learns.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_LEARNT: dict[Any, msgspec.json.Decoder[Any]] = {}
_LEARNING = threading.RLock()
# Nobody forks meanwhile: the half would stay with the fork.
os.register_at_fork(before=_LEARNING.acquire, after_in_parent=_LEARNING.release, after_in_child=_LEARNING.release)


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    found = _LEARNT.get(kind)
    if found is None:
        with _LEARNING:
            found = _LEARNT[kind] = msgspec.json.Decoder(kind)
    return found


def from_json(raw: bytes | str, kind: type[T]) -> T:
    """Read a value of this type from JSON.

    Raises:
        msgspec.MsgspecError: It is no JSON, or another value; before msgspec 0.20 not a ValueError.
        RecursionError: It is nested too deeply.
    """
    try:
        return _decoder(kind).decode(raw)
    except UnicodeError as error:  # in a text
        raise msgspec.DecodeError(f"it is not UTF-8: {error}") from error


def from_builtins(value: Any, kind: type[T]) -> T:
    """Read a value of this type from one of JSON's types, as a parser of JSON, YAML or TOML gives it.

    Raises:
        msgspec.ValidationError: It is another value.
        RecursionError: It is nested too deeply.
    """
    _decoder(kind)
    return msgspec.convert(value, kind)  # noqa: TID251 - the one place
