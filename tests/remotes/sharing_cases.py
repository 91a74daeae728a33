"""Members of a team with one shared cache, on every kind of tier."""

import pytest

from tests.remotes.tier_processes import KINDS, serve
from tests.support.standins import Watched


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


@pytest.fixture(params=KINDS)
def make(request, tmp_path):
    """Opens the same tier anew, as another machine would."""
    with serve(request.param, tmp_path / "server") as opened:
        yield opened


@pytest.fixture
def member(tmp_path, make):
    """A member of the team: a home of its own, and the shared cache."""

    def join(name, may="rw", **options):
        return Watched(tmp_path / name, shared=[(make(), may)], **options)

    return join


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder
