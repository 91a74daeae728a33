"""The object-store remote on an S3 server of its own; its requests are counted, and may fail."""

from __future__ import annotations

import hashlib

import pytest

from cachekit.remotes.objectstore import ObjectStorage
from cachekit.remotes.objectstore.s3 import S3
from cachekit.remotes.port import Limits
from tests.remotes.s3_server import s3_server, use

SHORT = Limits(connect=0.3, read=0.3, commit=0.4)


def open_s3(name, limits=None, **options):
    """The remote at `s3://bucket/prefix`."""
    return ObjectStorage(S3(), name, options, limits)


@pytest.fixture(scope="module")
def shared_server():
    with s3_server() as server:
        yield server


@pytest.fixture
def server(shared_server, monkeypatch):
    use(monkeypatch, shared_server.environment())
    shared_server.fault, shared_server.lost, shared_server.ignores = (lambda _: None), (lambda _: False), ""
    shared_server.requests.clear()
    shared_server.keys.clear()
    yield shared_server
    shared_server.fault, shared_server.lost, shared_server.ignores = (lambda _: None), (lambda _: False), ""


@pytest.fixture
def name(server, request):
    """A place of its own for each test."""
    return f"s3://{server.bucket}/{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]}/cache"


@pytest.fixture
def storage(name):
    return open_s3(name)
