"""The local store: content-addressed blobs, records that point to them, and the guarantees about both."""

from cachekit.store.ranking import Summaries
from cachekit.store.store import Store
from cachekit.store.summary import Summary

__all__ = ["Store", "Summaries", "Summary"]
