"""The record of the store with the least difference to what is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cachekit.record import IMPORTED, Record
from cachekit.store import Store, Summary


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
    for other in summaries.ranked(hard, where):
        if fits is None or fits(summaries.hard(other)):
            record = store.read(other.directory, other.model_type, other.key)
            if record is not None:  # else it is damaged, or gone since it was listed
                return record
    return None
