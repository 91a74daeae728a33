"""Stands in for the client below `BucketStorage`, by the contract of the Hub's buckets (`HfApi.batch_bucket_files`).

The operations of a batch are carried out in their order, and some may be refused; it is no transaction; there is no
condition, and the last writer of a path wins; a file says when it came (`uploadedAt`).
"""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace
from typing import NamedTuple
from urllib.parse import unquote

from cachekit.errors import RemoteError, TooLargeError, UncertainError
from cachekit.remotes.hub.bucket import BATCH


class Fault(NamedTuple):
    """What goes wrong with a batch: the error of its push, and which of its paths are as they were."""

    error: type[RemoteError]
    refused: str | None = ""  # what they have in them; None: all was done
    late: bool = False  # what was not done is done later


LOST, NEVER, LATE = Fault(UncertainError, None), Fault(UncertainError), Fault(UncertainError, late=True)


class Client:
    """What a bucket asks its client for, and what that one asks the Hub's.

    Args:
        push: Waits for its `turn` before each request; its `fault`, if any, is that of the next batch.
        world: Has the files.
    """

    endpoint = "http://hub"

    def __init__(self, push, world):
        self._push, self._world, self._files = push, world, world.files

    def call(self, **_):
        return None

    def ask(self, question):
        return question(self)

    def each(self, question, call):
        return question(self)

    def send(self, job, call):
        return job(self)

    def document(self, url, path, limit, call):
        self._push.turn(f"read {path}", 2)
        if path not in self._files:
            raise FileNotFoundError(path)
        data, name, _ = self._files[path]
        if len(data) > limit:
            raise TooLargeError("it is too large", token=name)
        return data, name, ""

    def chunks(self, url, call, start, end):
        path = unquote(url.rpartition("/")[2])
        yield self.document(url, path, 1 << 30, call)[0][start:end]

    def bucket_info(self, name):
        self._push.turn("info")
        return SimpleNamespace(id=name, private=True)

    def get_bucket_paths_info(self, name, paths):
        self._push.turn(f"stat {' '.join(paths)}")
        return [self._entry(path) for path in paths if path in self._files]

    def list_bucket_tree(self, name, below, *, recursive):
        self._push.turn(f"list {below}")
        return [self._entry(path) for path in sorted(self._files) if path.startswith(f"{below}/")]

    def _entry(self, path):
        data, name, at = self._files[path]
        at = datetime.fromtimestamp(round(at, 3), timezone.utc)
        return SimpleNamespace(type="file", path=path, size=len(data), xet_hash=name, uploaded_at=at)

    def batch_bucket_files(self, name, add, delete):
        todo = [(path, one if isinstance(one, bytes) else one.read_bytes()) for one, path in map(tuple, add)]
        todo += [(path, None) for path in delete]
        assert len(todo) <= BATCH, "the client sends more in several requests, and goes on if one fails"
        self._push.turn(f"batch {' '.join(path for path, _ in todo)}")
        fault, self._push.fault = self._push.fault, None
        done = [one for one in todo if not fault or fault.refused is None or fault.refused not in one[0]]
        self._world.write(done)
        if fault and fault.late:
            self._world.late.append(todo)
        if fault and (len(done) < len(todo) or fault.refused is None):
            raise fault.error("it did not go well", cause="a fault")
