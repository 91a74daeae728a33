"""The local store: content-addressed blobs, records that point to them, and the guarantees about both."""

from cachekit.store.index import NearRecord
from cachekit.store.index_rows import IndexRow
from cachekit.store.store import Store

__all__ = ["IndexRow", "NearRecord", "Store"]
