"""A Hub repo as a remote, with the real client in this process: fixtures and helpers of the tests of it.

Their names are those of other plugins' fixtures, so tests import them.
PYTEST_DONT_REWRITE: tests also import helpers from here, before pytest would rewrite it.
"""

from __future__ import annotations

import hashlib
import random
from itertools import count

import huggingface_hub.constants
import pytest

from cachekit.remotes.hub import HubStorage
from cachekit.remotes.port import Limits, Upload
from tests.remotes.one_hub import one_hub
from tests.remotes.storage_makers.hub import LIMITS, online

QUICK = Limits(connect=0.5, read=0.5, commit=0.75)  # for servers that do not answer
COUNTER = count()
DOC = "cachekit/v1/records/a/b/c.json"


@pytest.fixture
def hub():
    with online(), one_hub() as hub:
        yield hub


@pytest.fixture
def repo(hub):
    repo = hub.repo(f"team/cache-{next(COUNTER)}")
    repo.plant({DOC: b'{"a": 1}', "m/model.done": b"", "m/flags.json": b"[]"})
    repo.plant({"m/model.neff": bytes(range(256)) * 1000, "m/doc.json": b"{}"}, lfs=True)
    hub.log.clear()
    return repo


@pytest.fixture
def make(hub, repo):
    def make(**options):
        return HubStorage(repo.name, **{"endpoint": hub.endpoint, "token": hub.token, "limits": LIMITS} | options)

    return make


@pytest.fixture
def storage(make):
    return make()


@pytest.fixture(params=["xet", "lfs"])
def way(request, monkeypatch):
    """How large files travel."""
    if request.param == "xet" and huggingface_hub.constants.HF_HUB_DISABLE_XET:
        pytest.skip("HF_HUB_DISABLE_XET is set")
    if request.param == "lfs":
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    return request.param


def some_bytes(size=200_000):
    return random.Random(next(COUNTER)).randbytes(size)


def upload_of(path, data, source=None):
    return Upload(path, len(data), hashlib.sha256(data).hexdigest(), data if source is None else source)


def asked(hub):
    """What was asked, Xet's own requests left out; then forgotten."""
    kinds = [f"{entry.method} {entry.kind} {entry.status}" for entry in hub.requests if entry.kind != "xet"]
    hub.log.clear()
    return kinds


def told_nothing(size):
    raise AssertionError(size)
