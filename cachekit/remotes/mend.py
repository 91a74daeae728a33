"""Bring back from the remotes what a check found to be bad.

A record keeps its modules where a cache has the same bytes; where it has another compile of the same key, that takes
its place. What is bad is set aside only once its replacement has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from cachekit.errors import AuthError, IntegrityError, RemoteError
from cachekit.remotes.fetch import Judge, pull
from cachekit.remotes.fetch_files import Fetch, Fetched, WantedFile
from cachekit.remotes.remote import Found, Remote
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.store.durable import store_error
from cachekit.store.partial import sweep as sweep_partials
from cachekit.store.record import DamagedRecordError, File, Record, file_path
from cachekit.store.verify import Examine, Problem, verify_record


def repair(
    store: Store,
    remotes: Remotes,
    problems: Sequence[Problem],
    examine: Callable[[str], Examine | None],
    judge: Callable[[str], Judge],
) -> tuple[Problem, ...]:
    """Mend what can be mended.

    Args:
        store: The store.
        remotes: Where good bytes may be.
        problems: As a check found them.
        examine: See `store.verify.verify`.
        judge: Gives the judge of a compiler's directory; see `fetch.Judge`.

    Returns:
        The same, each with where the good bytes came from, or why there are none.

    Raises:
        StoreError: The store cannot be written.
    """
    done = []
    try:
        with store.holding():
            sweep_partials(store.layout)
            for problem in problems:
                store.journal.show("verify.repairing", file=problem.file, key=problem.keys[0])
                source, why = _Mender(store, remotes, problem, examine, judge).mend()
                done.append(structs.replace(problem, mended=source, left=why))
                name = "verify.mended" if source else "verify.left"
                store.journal.emit(name, key=problem.keys[0], file=problem.file, how=source or why)
    except OSError as error:
        raise store_error(store.layout.home, error) from error
    return tuple(done)


class _Mender:
    """Mends one problem."""

    def __init__(
        self,
        store: Store,
        remotes: Remotes,
        problem: Problem,
        examine: Callable[[str], Examine | None],
        judge: Callable[[str], Judge],
    ) -> None:
        self._store, self._remotes = store, remotes
        self._problem = problem
        self._examine, self._judge = examine, judge
        self._path = store.layout.record(*problem.place)
        self._reasons: list[str] = []

    def mend(self) -> tuple[str, str]:
        """Where the good bytes came from, or why there are none."""
        if not self._bad():
            return "another record's repair", ""
        if self._path.is_dir():
            return "", "a folder is in its place: remove that"
        for remote in self._remotes.readable:
            remote.retry()
            if self._from(remote):
                return remote.name, ""
        if not self._remotes.readable:
            self._reasons.append("no remote is named that may be read")
        return "", "; ".join(dict.fromkeys(self._reasons)) or "no remote has it"

    def _bad(self) -> list[Problem]:
        """What is wrong still: with this file, or, where it is the record that is bad, with all of it."""
        found = self._look()
        if self._problem.kind == "record":
            return found if self._path.exists() else [self._problem]
        if not self._path.exists():
            return []
        return [one for one in found if one.sha256 == self._problem.sha256 or one.kind == "record"]

    def _look(self) -> list[Problem]:
        return verify_record(self._store, self._problem.place, self._examine)

    def _record(self) -> Record | None:
        return self._store.read(*self._problem.place)

    def _from(self, remote: Remote) -> bool:
        """Mend it from one cache."""
        try:
            found = remote.find(*self._problem.place, anew=True)
            record = self._record() if self._problem.kind == "blob" else None
            if record is not None and self._fetch(remote, found, record):
                return not self._bad()
            if found is None:
                return False
            if self._problem.kind == "neff" and self._problem.sha256 in {
                file.sha256 for file in found.shared.record.files
            }:
                self._reasons.append(f"{remote.name} has the same bytes")
                return False
            self._set_aside()
            pull(self._store, found, self._judge(found.shared.record.directory))
        except (RemoteError, AuthError) as error:
            self._remotes.failed(remote, error)
            self._reasons.append(f"{remote.name}: {error.message}")
        except DamagedRecordError as error:
            self._reasons.append(f"{remote.name}: its record there is damaged: {error}")
        except IntegrityError as error:
            self._reasons.append(f"{remote.name}: {error.message}")
        return not self._bad()

    def _fetch(self, remote: Remote, found: Found | None, record: Record) -> bool:
        """Fetch the same bytes, and put them in their place; False where the cache has not all that is bad."""
        bad = {one.sha256 for one in self._look() if one.kind == "blob"}
        files = {file.sha256: file for file in record.files if file.sha256 in bad}
        self._store.hold(record.files)
        with self._store.workspace() as workspace, remote.call() as storage:
            revision = found.revision if found else remote.revision()
            finished: dict[str, Path] = {}
            for digest, raw in (found.shared.inline if found else {}).items():
                if digest in files:
                    finished[digest] = workspace / digest
                    finished[digest].write_bytes(raw)
            lying = self._lying(record, files, found)
            there = storage.stat([path for digest, path in lying.items() if digest not in finished], revision)
            wanted = [
                WantedFile(path, files[digest].size, digest, digest.__eq__)
                for digest, path in lying.items()
                if digest not in finished and path in there and there[path].size == files[digest].size
            ]
            fetched: dict[str, Fetched] = Fetch(self._store, storage, revision).all(wanted, sparing=True)
            finished |= {digest: one.path for digest, one in fetched.items()}
            if len(finished) < len(files):
                return False
            self._set_aside(files.values())
            self._store.publish(record, finished, {digest: one.pieces for digest, one in fetched.items()})
        return True

    def _lying(self, record: Record, files: Mapping[str, File], found: Found | None) -> dict[str, str]:
        """Where files lie in a cache: as its record says, else under their modules' own names."""
        own = {
            file.sha256: file_path(module, file)
            for module in record.modules
            for file in module.files
            if file.sha256 in files
        }
        said = {digest: path for digest, (_, path) in found.shared.paths().items()} if found else {}
        return {digest: said.get(digest, path) for digest, path in own.items()}

    def _set_aside(self, files: Iterable[File] = ()) -> None:
        """Move damaged blobs to quarantine: these, or else the one that the problem is about."""
        record = self._record()
        own = [file for file in record.files if file.sha256 == self._problem.sha256] if record else []
        for file in [*files] or own[:1]:
            with suppress(IntegrityError), self._store.reading(file):
                pass
