"""Processes that are killed, or fail, at their n-th call; and a folder in memory for what they leave."""

import pytest

from tests.store.crash.server import Crashes
from tests.support.standins import memory_folder


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    server = Crashes(tmp_path_factory.mktemp("crashes"))
    yield server
    server.close()


@pytest.fixture
def tmp_path():
    """In memory where that is to be had: thousands of stores come and go, and no test here cuts the power."""
    with memory_folder() as folder:
        yield folder
