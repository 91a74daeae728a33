"""Fetch the files of modules that no record of ours names, as far as the store lacks them.

Where a record on the remote names a file at its own place, the record's digest must fit. Where the remote tells a
digest itself, that one must. Files are told apart by nothing else: what is the same in hundreds of modules is fetched
once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from msgspec import Struct

from cachekit import files
from cachekit.remotes import document, layout
from cachekit.remotes.budget import each
from cachekit.remotes.fetch_files import LANES, Fetch, Fetched, WantedFile, inline_files
from cachekit.remotes.port import Entry, Storage, git_digest
from cachekit.store import Store
from cachekit.store.origin import How
from cachekit.store.record import LARGEST, File, file_path

_GIT = re.compile(r"[0-9a-f]{40}")


class RefusedError(Exception):
    """A file, or a module, that is not to be used; its text says why."""


class RecordedFiles(Struct):
    """What records of a remote say: the digests of files by path, and tiny files' bytes by digest."""

    digests: dict[str, set[str]] = {}
    inline: dict[str, bytes] = {}


def vouched(storage: Storage, revision: str, modules: Iterable[str]) -> RecordedFiles:
    """What the remote's records say of these modules' files, as far as those lie at their own places.

    Raises:
        RemoteError, AuthError: It cannot be asked.
    """
    wanted = frozenset(modules)
    paths = [
        entry.path
        for compiler in sorted({name.partition("/")[0] for name in wanted})
        for entry in storage.list(f"{layout.RECORDS}/{compiler}", revision)
        if entry.path.endswith(".json") and entry.size <= LARGEST
    ]

    said = RecordedFiles()
    for shared in filter(None, each([partial(document.listed, storage, path, revision) for path in paths], LANES)):
        for module in shared.record.modules:
            for file in module.files if module.name in wanted else ():
                if file.sha256 not in shared.places:
                    said.digests.setdefault(file_path(module, file), set()).add(file.sha256)
                if file.sha256 in shared.inline:
                    said.inline[file.sha256] = shared.inline[file.sha256]
    return said


class ModuleFiles:
    """The bytes of files of one cache.

    Args:
        store: The store.
        storage: The remote.
        revision: Its state.
        said: What its records say.
        workspace: For bytes that came inside a record; it has to stay until they are published.
        how: How files that no record names came to be trusted: one is not resumed that began another way.
    """

    def __init__(
        self, store: Store, storage: Storage, revision: str, said: RecordedFiles, workspace: Path, *, how: How
    ) -> None:
        self._store = store
        self._storage = storage
        self._revision = revision
        self._said = said
        self._how = how
        self._workspace = workspace
        self._brought: dict[str, Fetched] = {}
        self._names: dict[str, str] = {}
        self._fetched: list[Path] = []
        self.count = 0
        self.size = 0

    def bring(self, entries: Iterable[Entry]) -> None:
        """Fetch the files that can be fetched, whatever is wrong with others.

        Raises:
            RemoteError, AuthError: As the remote. What arrived is kept.
            OSError: The store cannot be written.
        """
        wanted: dict[str, WantedFile] = {}
        inline: dict[str, bytes] = {}
        for entry in entries:
            sha256 = self._digest(entry)
            raw = b"" if entry.size == 0 else self._said.inline.get(sha256)
            if raw is not None and len(raw) == entry.size:
                name = hashlib.sha256(raw).hexdigest()
                inline[name] = raw
            else:
                name = sha256 or self._unknown(entry)
                wanted.setdefault(name, WantedFile(entry.path, entry.size, name, name.__eq__ if sha256 else bool))
            self._names[entry.path] = name
        store = self._store
        sizes = {name: one.size for name, one in wanted.items()} | {name: len(raw) for name, raw in inline.items()}
        known = [File(name, size, name) for name, size in sizes.items() if files.is_digest(name)]
        store.use(known)
        for name in {file.sha256 for file in known} - {file.sha256 for file in store.lacking(known)}:
            self._brought[name] = Fetched(store.layout.blob(name), sizes[name], name, stored=True)
            wanted.pop(name, None)
            inline.pop(name, None)
        total = sum(one.size for one in wanted.values())
        store.journal.emit("pull.start", key="", remote=self._storage.name, files=len(wanted), bytes=total)
        found = Fetch(store, self._storage, self._revision, self._workspace).all(wanted.values(), sparing=True)
        self.count, self.size = len(found), sum(one.size for one in found.values())
        found |= inline_files(inline, self._workspace)
        self._brought |= found
        self._fetched = [one.path for one in found.values()]

    def file(self, entry: Entry) -> Fetched:
        """The bytes of a file that was brought.

        Raises:
            RefusedError: They are not what the remote, or a record on it, says.
        """
        brought = self._brought.get(self._names[entry.path])
        name = entry.path.rpartition("/")[2]
        said = self._said.digests.get(entry.path)
        if brought is None or not _is_of(entry, brought):
            raise RefusedError(f"{name} does not match what {self._storage.name} reports: its size or digest differs")
        if said and brought.sha256 not in said:
            raise RefusedError(f"{name} does not match a record on {self._storage.name}")
        return brought

    def forget(self) -> None:
        """Remove what was fetched and not published: a next time would find the same."""
        for path in self._fetched:
            path.unlink(missing_ok=True)

    def _digest(self, entry: Entry) -> str:
        """The SHA-256 that a file should have; empty where only reading it tells."""
        known = entry.digests.get("sha256", "")
        if files.is_digest(known):
            return known
        said = self._said.digests.get(entry.path, set())
        return next(iter(said)) if len(said) == 1 else ""

    def _unknown(self, entry: Entry) -> str:
        """A name for a file whose SHA-256 nobody knows: by git's digest, which names its bytes, else by its place."""
        git = entry.digests.get("git", "")
        place = (
            ["git", git]
            if _GIT.fullmatch(git)
            else [self._storage.name, self._revision, self._how, entry.path, *entry.digests.values()]
        )
        return "unknown-" + hashlib.sha256(json.dumps([entry.size, *place]).encode()).hexdigest()


def _is_of(entry: Entry, brought: Fetched) -> bool:
    """Whether bytes are what the remote says of them, by the digest that it knows."""
    holds = entry.holds(brought.size, brought.sha256)
    if holds is not None:
        return holds
    if "git" not in entry.digests:
        return True
    with brought.path.open("rb") as source:
        return git_digest(brought.size, files.pieces(source)) == entry.digests["git"]
