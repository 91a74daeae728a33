"""obstore's store in memory, which creates and updates by version as the services do. It lives in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cachekit.remotes.objectstore import ObjectStorage
from cachekit.remotes.objectstore.connect import ObjectService, Stores
from cachekit.remotes.port import Storage


class InMemory(ObjectService):
    """A service in this process; ETags say nothing of contents, as Azure's."""

    scheme = "memory"
    service = "memory"
    store = "MemoryStore"
    skips = ""

    def __init__(self, store) -> None:
        self._store = store

    def connect(self, bucket, prefix, options, limits) -> Stores:
        return Stores(self._store, self._store, self._store, self._store)


class LikeAzure(InMemory):
    """A service that begins a listing nowhere but at its beginning."""

    resumes_lists = False


@contextmanager
def serve(folder: Path, kind: type[InMemory] = InMemory) -> Iterator[Callable[[], Storage]]:
    store = pytest.importorskip("obstore.store").MemoryStore()

    def make() -> Storage:
        return ObjectStorage(kind(store), "memory://team")

    yield make
