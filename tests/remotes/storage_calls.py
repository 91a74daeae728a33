"""Each way to ask a remote for something, and what a person gets to see of its errors."""

from __future__ import annotations

import hashlib
import traceback
from pathlib import Path

from cachekit.errors import CachekitError
from cachekit.remotes.port import ABSENT, Commit, Upload, Write

QUIET = [].append  # tells nobody


def upload_of(path: str, data: bytes | Path) -> Upload:
    content = data if isinstance(data, bytes) else data.read_bytes()
    return Upload(path, len(content), hashlib.sha256(content).hexdigest(), data)


def write(storage, path, data, token=ABSENT):
    storage.commit(Commit("t", (), [Write(path, data, token)]), "")


def every_call(storage):
    """Each way to ask it for something."""
    return {
        "stat": lambda: storage.stat(["a/b"], ""),
        "stat of many": lambda: storage.stat([f"a/{n}" for n in range(20)], ""),
        "list": lambda: list(storage.list("a", "")),
        "read": lambda: storage.read("a/b", "", 100),
        "chunks": lambda: list(storage.chunks("a/b", "")),
        "upload": lambda: storage.upload([upload_of("a/b", b"x")], "", QUIET),
        "commit": lambda: write(storage, "a/b", b"x"),
        "commit of two": lambda: storage.commit(Commit("t", (), [Write("a", b"x", ""), Write("b", b"x", "")]), ""),
    }


def shown(error: CachekitError) -> str:
    """All that a person, a log or a journal could get to see."""
    return "\n".join([*traceback.format_exception(error), *error.lines(), repr(error), repr(error.document)])
