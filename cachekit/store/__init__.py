"""The local store: content-addressed blobs, records that point to them, and the guarantees about both."""

from cachekit.store.durable import store_error
from cachekit.store.flight import Flight, Holder
from cachekit.store.scratch import Scratch
from cachekit.store.store import Store

__all__ = ["Flight", "Holder", "Scratch", "Store", "store_error"]
