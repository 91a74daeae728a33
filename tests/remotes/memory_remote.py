"""A remote in memory, for what stands above the port; with and without compare-and-swap, with few or many commits."""

from __future__ import annotations

import hashlib
import itertools
import threading

from cachekit.errors import ConflictError, TooLargeError
from cachekit.remotes.layout import check
from cachekit.remotes.notes import Copies
from cachekit.remotes.port import ABSENT, Document, Entry, PastCommit


class MemoryRemote:
    """The files of one place; threads share it.

    Args:
        compares: Of two writes on one token one fails.
        scarce: It has revisions: a commit on another state than the present one fails, as on a Hub repo.
    """

    public = private = False
    untold, copies, joins = "", Copies(), -1

    def check(self, paths):
        """Nobody owns a file of it."""

    def heeds(self, token):
        return False

    def __init__(self, *, compares: bool = True, scarce: bool = False) -> None:
        self.name = "memory"
        self.compares, self.scarce, self.batch, self.lines = compares, scarce, 1000 if scarce else 1, 1
        self._lock = threading.Lock()
        self._files: dict[str, tuple[bytes, str]] = {}  # and what names this state
        self._numbers = itertools.count(1)
        self._titles: list[str] = []

    def revision(self):
        return str(len(self._titles)) if self.scarce else ""

    def stranger(self, memory=None):
        return ""

    def stat(self, paths, revision):
        check(paths)
        return {path: self._entry(path) for path in paths if path in self._files}

    def list(self, folder, revision):
        check([folder] if folder else [])
        with self._lock:
            paths = [path for path in self._files if not folder or path.startswith(f"{folder}/")]
        yield from (self._entry(path) for path in paths)

    def _entry(self, path):
        data, _ = self._files[path]
        return Entry(path, len(data), {"sha256": hashlib.sha256(data).hexdigest()})

    def read(self, path, revision, limit):
        check([path])
        data, token = self._files.get(path, (b"", ABSENT))
        if len(data) > limit:
            raise TooLargeError(f"{path} is too large", token=token)
        return Document(data, token) if token != ABSENT else None

    def chunks(self, path, revision, start=0, end=None):
        check([path])
        if path not in self._files:
            raise FileNotFoundError(path)
        data = self._files[path][0][start:end]
        yield from (data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20))

    def expect(self, files, revision):
        pass

    def upload(self, files, revision, tell):
        check([file.path for file in files])
        for file in files:
            data = file.source if isinstance(file.source, bytes) else file.source.read_bytes()
            with self._lock:
                there = self._files.setdefault(file.path, (data, str(next(self._numbers))))[0]
            if there != data:
                raise ConflictError(f"there are different bytes at {file.path}")
            tell(file.size)

    def commit(self, change, revision):
        check([write.path for write in change.writes])
        with self._lock:
            if self.scarce and revision != str(len(self._titles)):
                raise ConflictError("somebody else wrote meanwhile")
            for write in change.writes if self.compares else ():
                if self._files.get(write.path, (b"", ABSENT))[1] != write.token:
                    raise ConflictError(f"{write.path} was changed in the meantime")
            for write in change.writes:
                if write.data is None:
                    self._files.pop(write.path, None)
                else:
                    self._files[write.path] = (write.data, str(next(self._numbers)))
            self._titles.append((change.title, change.message))
            return str(len(self._titles)) if self.scarce else ""

    def latest(self, revision="", most=50):
        last = int(revision) if revision else len(self._titles)
        changes = enumerate(self._titles[:last] if self.scarce else (), 1)
        return [PastCommit(str(number), title, 0.0, message) for number, (title, message) in changes][::-1]
