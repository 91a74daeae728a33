"""Experiments that are made once, however many checks ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, cast, overload

from cachekit.compilers.neuron.contract.check import UnknownError

if TYPE_CHECKING:
    from cachekit.compilers.neuron.contract.lab import Lab

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 - used as a decorator
    """A property of a lab that is made once, and fails again as it failed."""

    def __init__(self, make: Callable[[Lab], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, lab: None, owner: type[Lab]) -> once[T]: ...
    @overload
    def __get__(self, lab: Lab, owner: type[Lab]) -> T: ...
    def __get__(self, lab: Lab | None, owner: type[Lab]) -> T | once[T]:
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
