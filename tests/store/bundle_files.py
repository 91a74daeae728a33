"""Bundles for tests: a whole one, and such as a stranger would make.

Used by `pytest_plugins = ["tests.store.bundle_files"]`.

PYTEST_DONT_REWRITE: tests also import helpers from here, before pytest would rewrite it.
"""

from __future__ import annotations

import hashlib
import io

import pytest

from cachekit.key.canonical import canonical_json
from cachekit.store.bundle import BLOCK, INDEX, Reader, header
from cachekit.store.record import serialise
from cachekit.verbs.export import export_bundle
from cachekit.verbs.imports import import_bundle
from tests.support.standins import Watched, make_record, publish


def sealed(body) -> bytes:
    """A document with its digest."""
    return serialise({"bundle": body, "sha256": hashlib.sha256(canonical_json(body)).hexdigest()})


def padded(raw: bytes) -> bytes:
    return raw + b"\0" * (-len(raw) % BLOCK)


def ended(raw: bytes) -> bytes:
    return raw + b"\0" * (1024 + -(len(raw) + 1024) % 10240)


def crafted(contents, *, heads=None, listed=None, raw_index=None) -> bytes:
    """A bundle as a stranger would make it: any header at any place, an index that says something else."""
    members = [{"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in contents]
    raw = raw_index or sealed({"schema": 1, "members": members if listed is None else listed})
    out = header(INDEX, len(raw)) + padded(raw)
    for number, (path, data) in enumerate(contents):
        head = (heads or {}).get(number)
        out += (header(path, len(data)) if head is None else head) + padded(data)
    return ended(out)


@pytest.fixture
def whole(tmp_path):
    """A bundle of one small record: its path, and its members with their bytes."""
    watched = Watched(tmp_path / "maker")
    record = publish(watched.store, make_record(size=200))
    path = tmp_path / "whole.tar"
    export_bundle(watched.session, [record], path)
    contents = []
    with path.open("rb") as source:
        for member, chunks in Reader(source, "whole").each():
            contents.append((member.path, b"".join(chunks)))
    return path, contents


def taken(home, raw: bytes, *, dry_run=False):
    return import_bundle(Watched(home, trust_all=True).session, io.BytesIO(raw), "x.tar", dry_run=dry_run)
