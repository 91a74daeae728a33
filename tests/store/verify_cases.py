"""Stores to spoil, each with a shared cache that has good copies."""

import pytest

from cachekit.remotes.folder import FolderTier
from cachekit.verbs.push import push
from tests.support.standins import Watched, publish


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def with_cache(home, shared):
    return Watched(home, shared=[(FolderTier(shared), "rw")])


def filled(watched, *made):
    """Publish records, and put them on the shared caches, if there are any."""
    for pair in made:
        publish(watched.store, pair)
    push(watched.session, [record for record, _ in made], watched.session.chain.writable)


def record_path(store, record):
    return store.layout.record(record.directory, record.model_type, record.key)
