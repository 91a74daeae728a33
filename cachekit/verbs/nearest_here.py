"""The record of the store with the least difference to what is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cachekit.store import Row, Store
from cachekit.store.record import Record


def nearest_here(
    store: Store,
    hard: Mapping[str, Any],
    where: Callable[[Row], bool],
    fits: Callable[[Mapping[str, Any]], bool] | None = None,
) -> Record | None:
    """Find it; of equally near ones that with the smaller key. Its blobs are not looked at.

    Args:
        store: The local store.
        hard: What is wanted, as hard ingredients.
        where: Which records come into question at all.
        fits: And of those by their ingredients: asked of the near ones only.
    """
    found = store.nearest(hard)
    return first_read(store, (near.row for near in found if where(near.row) and (fits is None or fits(near.hard))))


def first_read(store: Store, found: Iterable[Row]) -> Record | None:
    """The first of some records that can be read; one that can't is damaged, or gone since it was listed."""
    records = (store.read(*one.place) for one in found)
    return next((record for record in records if record is not None), None)
