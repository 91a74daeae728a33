"""The local store: content-addressed blobs, records that point to them, and the guarantees about both."""

from cachekit.store.durable import store_error
from cachekit.store.flight import Flight, Holder
from cachekit.store.partial import Partial, receiving
from cachekit.store.partial import sweep as sweep_partials
from cachekit.store.scratch import Scratch
from cachekit.store.store import Store
from cachekit.store.summary import Summaries, Summary

__all__ = [
    "Flight",
    "Holder",
    "Partial",
    "Scratch",
    "Store",
    "Summaries",
    "Summary",
    "receiving",
    "store_error",
    "sweep_partials",
]
