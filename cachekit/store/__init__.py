"""The local store: content-addressed blobs, records that point to them, and the guarantees about both."""

from cachekit.store.store import Store

__all__ = ["Store"]
