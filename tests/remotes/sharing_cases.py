"""Members of a team with one remote: on a real folder, and on each sort of remote in memory.

What differs by kind is the port's contract, which `test_port` has; what it takes processes for, the campaigns have.
"""

from functools import partial

import pytest

from cachekit.remotes.lease import lease
from tests.remotes.lease_cases import SORTS
from tests.remotes.memory_remote import MemoryRemote
from tests.remotes.storage_processes import serve
from tests.support.standins import Watched
from tests.verbs.verb_cases import log  # noqa: F401 - a fixture

# For what the kind of remote makes no difference to.
ANY_KIND = pytest.mark.parametrize("make", ["folder"], indirect=True)


@pytest.fixture(params=["folder", "side-by-side", "scarce"])
def make(request, tmp_path, monkeypatch):
    """Opens the same remote anew, as another machine would."""
    if request.param in {*SORTS, "far"}:
        remote = MemoryRemote(**SORTS.get(request.param, {}))
        remote.lines = 1 if request.param in SORTS else 8  # as an object store has
        monkeypatch.setattr("cachekit.remotes.lease.fleet.lease", partial(lease, settle=0.0))  # all see it at once
        yield lambda: remote
        return
    with serve(request.param, tmp_path / "server") as opened:
        yield opened


@pytest.fixture
def member(tmp_path, make):
    """A member of the team: a home of its own, and the remote."""

    def join(name, may="rw", **options):
        return Watched(tmp_path / name, shared=[(make(), may)], **options)

    return join


@pytest.fixture
def shared(tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder
