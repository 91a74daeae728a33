"""Paths that may be used on a tier: they come from records that others wrote."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cachekit.errors import UsageError
from cachekit.store.record import RelativePath


def check(paths: Iterable[str]) -> None:
    """Nothing, if all of them are relative and stay below where they start.

    Raises:
        UsageError: One is not, or no store could hold it.
    """
    for path in paths:
        try:
            msgspec.convert(path, RelativePath)
            path.encode()
        except (msgspec.ValidationError, UnicodeEncodeError):
            raise UsageError(
                f"{path[:200]!r} cannot be the path of a file in a shared cache",
                cause="it leaves its folder, or no store could hold it",
                hint="whoever wrote that record is not to be trusted",
            ) from None
