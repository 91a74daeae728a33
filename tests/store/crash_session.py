"""Processes that are killed, or fail, at their n-th call."""

import pytest

from tests.store.crash.server import Crashes


@pytest.fixture(scope="session")
def crashes(tmp_path_factory):
    server = Crashes(tmp_path_factory.mktemp("crashes"))
    yield server
    server.close()
