"""Keys to compile, remotes and clocks to lease them on, and who holds them."""

import hashlib
import itertools
import json

import pytest

from cachekit.remotes.layout import LEASES, lease_path
from cachekit.remotes.lease import lease
from tests.remotes.jumping_clock import JumpingClock
from tests.remotes.memory_remote import MemoryRemote

_numbers = itertools.count()
SORTS = {"compares": {}, "side-by-side": {"compares": False}, "scarce": {"scarce": True}}


@pytest.fixture(params=SORTS)
def remote(request):
    """Each of the sorts of remotes that a lease may lie on."""
    return MemoryRemote(**SORTS[request.param])


@pytest.fixture
def clock():
    return JumpingClock()


@pytest.fixture
def key():
    return new_key()


def new_key():
    return hashlib.sha256(b"%d" % next(_numbers)).hexdigest()


@pytest.fixture
def wanting(clock, key):
    """Want the lease of the key, by the clock that jumps."""

    def want(remote, what="", seconds=60.0, **how):
        how = {"wait": 0.0, "told": silent, "done": never, "clock": clock} | how
        return lease(remote, key, what, seconds, **how)

    return want


def holders(remote, key):
    """The leases that lie there, however the remote keeps them."""
    revision = remote.revision()
    paths = [lease_path(key)] if remote.compares else [e.path for e in remote.list(f"{LEASES}/{key}", revision)]
    documents = [remote.read(path, revision, 1 << 16) for path in paths]
    return [json.loads(document.data) for document in documents if document]


def never():
    return None


def silent(waiting):
    pass


class Cut:
    """A remote whose line can be cut, or that refuses to be written to."""

    def __init__(self, storage):
        self._storage = storage
        self.error = None  # raised by every call
        self.refusal = None  # raised by commits
        self.commits = 0
        self.refused = 0

    def __getattr__(self, name):
        value = getattr(self._storage, name)
        if self.error is not None and callable(value):
            self.refused += 1
            raise self.error
        return value

    def commit(self, change, revision):
        if self.error or self.refusal:
            raise self.error or self.refusal
        self.commits += 1
        return self._storage.commit(change, revision)
