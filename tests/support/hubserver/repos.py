"""Repositories: refs and commits in memory, and the bytes on disk by content.

A commit holds what it changes; trees are made of them and kept for a while. Ids of commits are digests as git's, not
git's own: invented. The Hub's contract: one commit after the other, a new repository has a `.gitattributes`.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .objects import Objects, git_blob, lfs_pointer
from .wire import HubError

TYPES = {"models": "model", "datasets": "dataset", "spaces": "space"}
LFS_SUFFIXES = (  # the Hub's own list for a new model repository
    "7z arrow bin bz2 ckpt ftz gz h5 joblib lfs.* mlmodel model msgpack npy npz onnx ot parquet pb pickle pkl pt pth "
    "rar safetensors tar tflite tgz wasm xz zip zst"
)
ATTRIBUTES = "".join(f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES.split()).encode()
KEPT_TREES = 32

Tree = dict[str, dict[str, Any]]


def stamp(seconds: float) -> str:
    """A moment as the Hub writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03}Z"


@dataclass(frozen=True)
class Commit:
    """One commit: `changes` maps a path to its new file, or to None where it is deleted."""

    oid: str
    parent: str | None
    title: str
    message: str
    user: str
    at: float
    changes: dict[str, dict[str, Any] | None]


class Repo:
    """One repository. Methods that change it take its lock."""

    def __init__(self, repo_type: str, name: str, objects: Objects, *, private: bool) -> None:
        self.type, self.name, self.objects, self.private = repo_type, name, objects, private
        self.lock = threading.RLock()
        self.committing = threading.Lock()
        self.recent: deque[float] = deque()  # moments of commits, for the quota
        self._trees: OrderedDict[str, Tree] = OrderedDict()
        self._commits: dict[str, Commit] = {}
        self._made: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self.created = time.time()
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}

    @property
    def head(self) -> str:
        return self.branches["main"]

    def commit(self, oid: str) -> Commit:
        return self._commits[oid]

    def history(self, oid: str | None) -> Iterable[Commit]:
        while oid:
            yield (commit := self.commit(oid))
            oid = commit.parent

    def resolve(self, revision: str, lag: int = 0) -> str:
        """The commit behind a branch, tag or commit id; `lag` commits before a branch's head.

        Raises:
            HubError: 404, RevisionNotFound.
        """
        name = revision.removeprefix("refs/heads/").removeprefix("refs/tags/")
        with self.lock:
            oid = self.branches.get(name) or self.tags.get(name)
            if oid:
                for _ in range(lag if name in self.branches else 0):
                    oid = self.commit(oid).parent or oid
                return oid
            if name in self._commits:
                return name
        raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def tree(self, oid: str) -> Tree:
        """All files of a commit; not to be changed by the caller."""
        with self.lock:
            missing: list[Commit] = []
            tree: Tree = {}
            for commit in self.history(oid):
                if commit.oid in self._trees:
                    tree = dict(self._trees[commit.oid])
                    break
                missing.append(commit)
            else:
                tree = {}
            if not missing:
                self._trees.move_to_end(oid)
                return self._trees[oid]
            for commit in reversed(missing):
                for path, file in commit.changes.items():
                    if file is None:
                        tree.pop(path, None)
                    else:
                        tree[path] = {**file, "commit": commit.oid}
            self._trees[oid] = tree
            if len(self._trees) > KEPT_TREES:
                self._trees.popitem(last=False)
            return tree

    def once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` gives, kept for a while: listings of a commit, which may have a hundred thousand files."""
        with self.lock:
            if key not in self._made:
                self._made[key] = make()
                if len(self._made) > KEPT_TREES:
                    self._made.popitem(last=False)
            return self._made[key]

    def add_commit(
        self,
        branch: str,
        parent: str | None,
        changes: Mapping[str, Any],
        *,
        title: str,
        message: str = "",
        user: str,
        at: float | None = None,
    ) -> str:
        """Put a commit on a branch whose head is `parent`."""
        with self.lock:
            at = time.time() if at is None else at
            text = json.dumps([self.name, branch, parent, title, message, user, at, changes])
            commit = Commit(hashlib.sha1(text.encode()).hexdigest(), parent, title, message, user, at, dict(changes))
            self._commits[commit.oid] = commit
            self.branches = {**self.branches, branch: commit.oid}
            return commit.oid

    def regular(self, data: bytes) -> dict[str, Any]:
        """A file that git itself holds, its bytes kept."""
        name = hashlib.sha256(data).hexdigest()
        if not self.objects.has(name):  # a cache has many equal small files
            self.objects.put([data], name)
        return {"size": len(data), "oid": git_blob(data), "sha256": name, "lfs": False}

    def linked(self, sha256: str, size: int, xet: str | None) -> dict[str, Any]:
        """A file of which git holds a pointer."""
        pointer = lfs_pointer(sha256, size)
        file = {"size": size, "oid": git_blob(pointer), "sha256": sha256, "lfs": True, "pointer": len(pointer)}
        return file | ({"xet": xet} if xet else {})

    # What tests use to look and to plant, past the protocol.

    def files(self, revision: str = "main") -> list[str]:
        return sorted(self.tree(self.resolve(revision)))

    def read(self, path: str, revision: str = "main") -> bytes:
        """A file's bytes; KeyError where it is not there. Not for files that exist as Xet only."""
        return self.objects.read(self.tree(self.resolve(revision))[path]["sha256"])

    def plant(self, files: Mapping[str, bytes | None], title: str = "Planted", *, lfs: bool = False) -> str:
        """Commit to main whatever the names are, also such as the Hub refuses; None deletes."""
        with self.lock:
            changes = {}
            for path, data in files.items():
                file = None if data is None else self.regular(data)
                changes[path] = self.linked(file["sha256"], file["size"], None) if file and lfs else file
            return self.add_commit("main", self.head, changes, title=title, user="admin")


class Repos:
    """All repositories."""

    def __init__(self, folder: Path) -> None:
        self.objects = Objects(folder / "objects")
        self._lock = threading.Lock()
        self._repos: dict[tuple[str, str], Repo] = {}

    def get(self, repo_type: str, name: str) -> Repo | None:
        with self._lock:
            return self._repos.get((repo_type, name))

    def create(self, repo_type: str, name: str, *, private: bool) -> tuple[Repo, bool]:
        """The repository, and whether it is new."""
        with self._lock:
            if known := self._repos.get((repo_type, name)):
                return known, False
            repo = Repo(repo_type, name, self.objects, private=private)
            files = {".gitattributes": repo.regular(ATTRIBUTES)}
            repo.add_commit("main", None, files, title="initial commit", user="admin")
            self._repos[repo_type, name] = repo
            return repo, True

    def delete(self, repo: Repo) -> None:
        with self._lock:
            del self._repos[repo.type, repo.name]
