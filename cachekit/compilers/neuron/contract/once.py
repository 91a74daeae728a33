"""Experiments that are made once, however many checks ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from cachekit.compilers.neuron.contract.check import UnknownError


class _Keeps(Protocol):
    """Whoever makes experiments: by name what came of them."""

    made: dict[str, Any]


L = TypeVar("L", bound=_Keeps)
T = TypeVar("T")


class once(Generic[L, T]):  # noqa: N801 - used as a decorator
    """A property of a lab that is made once, and fails again as it failed."""

    def __init__(self, make: Callable[[L], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, lab: None, owner: type[L]) -> once[L, T]: ...
    @overload
    def __get__(self, lab: L, owner: type[L]) -> T: ...
    def __get__(self, lab: L | None, owner: type[L]) -> T | once[L, T]:
        if lab is None:
            return self
        name = self._make.__name__
        if name not in lab.made:
            try:
                lab.made[name] = self._make(lab)
            except UnknownError as error:
                lab.made[name] = error
        found = lab.made[name]
        if isinstance(found, UnknownError):
            raise found
        return cast("T", found)
