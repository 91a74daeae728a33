"""Bring back what a check found to be bad: from copies in the store itself, and from shared caches.

A record keeps its modules where a cache has the same bytes; where it has another compile of the same key, that takes
its place. What is bad is set aside only once its replacement has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cachekit.errors import AuthError, IntegrityError, RemoteError
from cachekit.remotes import layout as places
from cachekit.remotes.remote import Found, Remote
from cachekit.store.durable import store_error
from cachekit.store.partial import sweep as sweep_partials
from cachekit.store.reach import Entry, blobs, copy_of
from cachekit.store.record import DamagedRecordError, File, Record
from cachekit.verbs.pull import Fetch, Fetched, Wanted, pull
from cachekit.verbs.session import Session, holding
from cachekit.verbs.verify import Problem, again, record_of


@dataclass(frozen=True, slots=True)
class Repaired:
    """What became of the problems.

    Attributes:
        mended: Each with where the good bytes came from.
        left: What is bad still, each with why it could not be mended.
    """

    mended: tuple[tuple[Problem, str], ...]
    left: tuple[tuple[Problem, str], ...]


@holding
def repair(session: Session, problems: Sequence[Problem]) -> Repaired:
    """Mend what can be mended.

    Args:
        session: Collaborators.
        problems: As `verify` found them.

    Raises:
        StoreError: The store cannot be written.
    """
    mended: list[tuple[Problem, str]] = []
    left: list[tuple[Problem, str]] = []
    try:
        sweep_partials(session.store.layout)
        for problem in problems:
            session.journal.show("verify.repairing", file=problem.file, key=problem.keys[0])
            source, why = _Mender(session, problem).mend()
            (mended if source else left).append((problem, source or why))
            name = "verify.mended" if source else "verify.left"
            session.journal.emit(name, key=problem.keys[0], file=problem.file, how=source or why)
    except OSError as error:
        raise store_error(session.store.layout.home, error) from error
    return Repaired(tuple(mended), tuple(left))


class _Mender:
    """Mends one problem.

    Args:
        session: Collaborators.
        problem: The problem.
    """

    def __init__(self, session: Session, problem: Problem) -> None:
        self._session = session
        self._store = session.store
        self._problem = problem
        self._entry = problem.entry
        self._reasons: list[str] = []

    def mend(self) -> tuple[str, str]:
        """Where the good bytes came from, or why there are none."""
        if not self._bad():
            return "another record's repair", ""
        if self._entry.path.is_dir():
            return "", "a folder is in its place: remove that"
        if self._problem.kind == "record" and self._from_copies():
            return "its copy in the store", ""
        if self._problem.kind == "copy":
            self._store.lookup(self._entry.key, self._entry.directory, self._entry.model_type)
            if not self._bad():
                return "the record itself", ""
        for remote in self._session.chain.readable:
            remote.retry()
            if self._from(remote):
                return remote.name, ""
        if not self._session.chain.readable:
            self._reasons.append("no shared cache is named that may be read")
        return "", "; ".join(dict.fromkeys(self._reasons)) or "no shared cache has it"

    def _bad(self) -> list[Problem]:
        """What is wrong still: with this file, or, where it is the record that is bad, with all of it."""
        found = again(self._session, self._entry.path)
        if self._problem.kind == "record":
            return found if self._entry.path.exists() else [self._problem]
        if not self._entry.path.exists():
            return []
        return [one for one in found if one.digest == self._problem.digest or one.kind == "record"]

    # A record's own file

    def _from_copies(self) -> bool:
        layout, newest = self._store.layout, None
        for digest in sorted(blobs(layout)[0]):
            record = copy_of(layout.blob(digest))
            if record is None or _place(record) != _place(self._entry):
                continue
            if newest is None or record.provenance.created > newest.provenance.created:
                newest = record
        if newest is None:
            self._reasons.append("the store has no copy of it")
            return False
        try:
            self._store.publish(newest, {})
        except IntegrityError as error:
            self._reasons.append(f"its copy names what is damaged, too: {error.cause or error.message}")
            return False
        return True

    # Shared caches

    def _from(self, remote: Remote) -> bool:
        """Mend it from one cache."""
        try:
            found = remote.find(self._entry.directory, self._entry.model_type, self._entry.key, anew=True)
            record = record_of(self._entry) if self._problem.kind == "blob" else None
            if record is not None and self._fetch(remote, found, record):
                return not self._bad()
            if found is None:
                return False
            if self._problem.kind == "neff" and self._problem.digest in {
                file.sha256 for file in found.shared.record.files
            }:
                self._reasons.append(f"{remote.name} has the same bytes")
                return False
            self._set_aside()
            pull(self._session, found)
        except (RemoteError, AuthError) as error:
            self._session.chain.failed(remote, error)
            self._reasons.append(f"{remote.name}: {error.message}")
        except DamagedRecordError as error:
            self._reasons.append(f"{remote.name}: its record there is damaged: {error}")
        except IntegrityError as error:
            self._reasons.append(f"{remote.name}: {error.message}")
        return not self._bad()

    def _fetch(self, remote: Remote, found: Found | None, record: Record) -> bool:
        """Fetch the same bytes, and put them in their place; False where the cache has not all that is bad."""
        bad = {one.digest for one in again(self._session, self._entry.path) if one.kind == "blob"}
        files = {file.sha256: file for file in record.files if file.sha256 in bad}
        self._store.hold(record.files)
        with self._store.workspace() as workspace, remote.call() as tier:
            revision = found.revision if found else remote.revision()
            finished: dict[str, Path] = {}
            for digest, raw in (found.shared.inline if found else {}).items():
                if digest in files:
                    finished[digest] = workspace / digest
                    finished[digest].write_bytes(raw)
            lying = self._lying(record, files, found)
            there = tier.stat([path for digest, path in lying.items() if digest not in finished], revision)
            wanted = [
                Wanted(path, files[digest].size, digest, digest.__eq__)
                for digest, path in lying.items()
                if digest not in finished and path in there and there[path].size == files[digest].size
            ]
            fetched: dict[str, Fetched] = Fetch(self._session, tier, revision).all(wanted, sparing=True)
            finished |= {digest: one.path for digest, one in fetched.items()}
            if len(finished) < len(files):
                return False
            self._set_aside(files.values())
            self._store.publish(record, finished, {digest: one.pieces for digest, one in fetched.items()})
        return True

    def _lying(self, record: Record, files: Mapping[str, File], found: Found | None) -> dict[str, str]:
        """Where files lie in a cache: as its record says, else under their modules' own names."""
        own = {
            file.sha256: places.file_path(module, file)
            for module in record.modules
            for file in module.files
            if file.sha256 in files
        }
        said = {digest: path for digest, (_, path) in found.shared.paths().items()} if found else {}
        return {digest: said.get(digest, path) for digest, path in own.items()}

    def _set_aside(self, files: Iterable[File] = ()) -> None:
        """Move damaged blobs to quarantine: these, or else the one that the problem is about."""
        record = record_of(self._entry)
        own = [file for file in record.files if file.sha256 == self._problem.digest] if record else []
        for file in [*files] or own[:1]:
            with suppress(IntegrityError), self._store.reading(file):
                pass


def _place(one: Record | Entry) -> tuple[str, str, str]:
    return one.directory, one.model_type, one.key
