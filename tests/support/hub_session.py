"""Fixtures for tests with a real client and a test Hub: used by `pytest_plugins = ["tests.support.hub_session"]`.

CACHEKIT_HUB_PYTHONS names interpreters (blanks between them), each with its own huggingface_hub; without it, only the
one that runs the tests. With others named, every test runs with Xet and without it.

PYTEST_DONT_REWRITE: tests also import helpers from here, before pytest would rewrite it.
"""

from __future__ import annotations

import http.client
import itertools
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.hubserver import Client, ClientError, HubServer

PYTHONS = os.environ.get("CACHEKIT_HUB_PYTHONS", "").split() or [sys.executable]
MODES = list(itertools.product(PYTHONS, [True, False]))
COUNTER = itertools.count()


def _mode_name(mode):
    name = Path(mode[0]).parent.parent.name if len(PYTHONS) > 1 else "client"
    return f"{name}-{'xet' if mode[1] else 'lfs'}"


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory):
    with HubServer(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


def both_ways(test):
    """For tests of what depends on how bytes travel: also where a run keeps to one client, as fast runs do."""
    test.both_ways = True
    return test


def pytest_generate_tests(metafunc):
    if "shared_client" in metafunc.fixturenames:
        modes = MODES if len(PYTHONS) > 1 or hasattr(metafunc.function, "both_ways") else MODES[:1]
        metafunc.parametrize("shared_client", modes, indirect=True, ids=_mode_name, scope="module")


@pytest.fixture(scope="module")
def shared_client(request, shared_hub, tmp_path_factory):
    python, xet = request.param
    with Client(shared_hub, tmp_path_factory.mktemp("home"), python=python, xet=xet) as client:
        yield client.ready()


DEFAULTS = {
    "xet": True, "latency": 0.0, "commits_per_hour": None, "overlap_409": False, "commit_seconds": 0.0, "tree_page": 0,
}  # fmt: skip


@pytest.fixture
def hub(shared_hub):
    """The module's Hub without faults, its log empty."""
    shared_hub.log.clear()
    yield shared_hub
    shared_hub.faults.clear()
    for name, value in DEFAULTS.items():
        setattr(shared_hub, name, value)


@pytest.fixture
def client(shared_client, hub):
    return shared_client


@pytest.fixture
def repo(hub):
    """A private repository with a small and a large file, planted."""
    repo = hub.repo(f"team/repo-{next(COUNTER)}")
    repo.plant({"a/small.txt": b"small", "b.txt": b"b"}, "first")
    repo.plant({"a/large.bin": bytes(range(256)) * 1000}, "second", lfs=True)
    hub.log.clear()
    return repo


def ask(url, token="", body=None, *, method="GET"):
    """Status, headers and body of one request, without any client's cleverness."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, f"{address.path}?{address.query}", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def failure(client, code, **arguments) -> ClientError:
    with pytest.raises(ClientError) as caught:
        client(code, **arguments)
    return caught.value


PUSH = """
    adds = [Add(path, bytes.fromhex(data)) for path, data in files.items()]
    return api.create_commit(name, adds, commit_message="push", parent_commit=parent).oid
"""
