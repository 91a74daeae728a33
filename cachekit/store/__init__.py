"""The local store: content-addressed blobs, records that point to them, and the guarantees about both."""

from cachekit.store.index_rows import Row
from cachekit.store.nearest import Near
from cachekit.store.store import Store

__all__ = ["Near", "Row", "Store"]
