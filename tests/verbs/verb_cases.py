"""A home, a worker's output and log, and a warmed toy recipe, for tests of plan, warm and train."""

import pytest

from cachekit.verbs.warm import warm
from tests.support.standins import Watched, overwrite


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def output(tmp_path):
    return tmp_path / "output"


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


@pytest.fixture
def warmed(home, log):
    """A store in which the recipe is warm; gives the record."""
    watched = Watched(home)
    record = warm(watched.session, watched.prepare()).record
    log.unlink()
    return record


def blob(watched, record, number=0):
    return watched.store.layout.blob(record.files[number].sha256)


def spoil(path):
    overwrite(path, path.read_bytes()[::-1] + b"!")
