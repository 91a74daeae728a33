"""The record of the store with the least difference to what is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cachekit.store import Store, Summary
from cachekit.store.record import IMPORTED, Record


def nearest_here(
    store: Store,
    hard: Mapping[str, Any],
    where: Callable[[Summary], bool],
    fits: Callable[[Mapping[str, Any]], bool] | None = None,
) -> Record | None:
    """Find it; of equally near ones that with the smaller key. Its blobs are not looked at.

    Args:
        store: The local store.
        hard: What is wanted, as hard ingredients.
        where: Which records come into question at all.
        fits: And of those by their ingredients: asked of the near ones only.
    """
    summaries = store.summaries(without=IMPORTED, glance=True)
    near = summaries.ranking(hard).where(where)
    return first_read(store, (other for other in near if fits is None or fits(summaries.hard(other))))


def first_read(store: Store, found: Iterable[Summary]) -> Record | None:
    """The first of some records that can be read; one that can't is damaged, or gone since it was listed."""
    records = (store.read(one.directory, one.model_type, one.key) for one in found)
    return next((record for record in records if record is not None), None)
