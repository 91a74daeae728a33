"""Stores to spoil, each with a remote that has good copies."""

import pytest

from cachekit.remotes.folder import FolderStorage
from cachekit.remotes.push import push
from tests.support.standins import Watched, publish


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def with_cache(home, shared):
    return Watched(home, shared=[(FolderStorage(shared), "rw")])


def filled(watched, *made):
    """Publish records, and put them on the remotes, if there are any."""
    for pair in made:
        publish(watched.store, pair)
    push(watched.store, watched.session.remotes, [record for record, _ in made])


def record_path(store, record):
    return store.layout.record(record.place)
