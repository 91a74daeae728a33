"""Keys to compile, tiers to lease them on, and who holds them."""

import hashlib
import itertools
import json
import time
from functools import partial

import pytest

from cachekit.remotes.layout import LEASES, lease_path
from tests.remotes.lease_worker import Job, blind
from tests.remotes.tier_processes import KINDS, serve

_numbers = itertools.count()
BLIND = "folder without compare-and-swap"


@pytest.fixture(scope="module", params=[*KINDS, BLIND])
def make(request, tmp_path_factory):
    kind = "folder" if request.param == BLIND else request.param
    with serve(kind, tmp_path_factory.mktemp(kind)) as opened:
        yield partial(blind, opened) if request.param == BLIND else opened


@pytest.fixture
def tier(make):
    return make()


@pytest.fixture
def job(tmp_path):
    return Job(hashlib.sha256(b"%d" % next(_numbers)).hexdigest(), tmp_path / "log")


def until(condition, processes=()):
    """Wait for something that must happen; a process that fails meanwhile fails the test."""
    while not condition():
        assert not any(process.exitcode for process in processes)
        time.sleep(0.02)


def holders(tier, key):
    """The claims that lie there, however the tier keeps them."""
    revision = tier.revision()
    paths = [lease_path(key)] if tier.compares else [e.path for e in tier.list(f"{LEASES}/{key}", revision)]
    documents = [tier.read(path, revision, 1 << 16) for path in paths]
    return [json.loads(document.data) for document in documents if document]


def never():
    return False


def silent(holder, waited):
    pass
