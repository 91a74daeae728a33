"""A store of its own for each test, and where it keeps a record."""

import pytest

from tests.support.standins import Watched


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def watched(home):
    return Watched(home)


@pytest.fixture
def store(watched):
    return watched.store
