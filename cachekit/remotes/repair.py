"""Bring back from the remotes what a check found to be bad.

A record keeps its modules where a remote has the same bytes; where it has another compile of the same key, that takes
its place. What is bad is set aside only once its replacement has come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from cachekit.errors import AuthError, IntegrityError, RemoteError, UntrustedError
from cachekit.remotes.fetch import Judge, pull
from cachekit.remotes.locked import same_artifacts
from cachekit.remotes.remote import Found, Remote
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.store.durable import store_error
from cachekit.store.partial import sweep as sweep_partials
from cachekit.store.record import DamagedRecordError
from cachekit.store.verify import Examine, Problem, verify_record


def repair(
    store: Store,
    remotes: Remotes,
    problems: Sequence[Problem],
    examine: Callable[[str], Examine | None],
    judge: Callable[[str], Judge],
) -> tuple[Problem, ...]:
    """Repair what can be repaired.

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
        with store.using():
            sweep_partials(store.layout)
            for problem in problems:
                store.journal.show("verify.repairing", file=problem.file, key=problem.keys[0])
                source, why = _Repair(store, remotes, problem, examine, judge).run()
                done.append(structs.replace(problem, repaired=source, left=why))
                name = "verify.repaired" if source else "verify.left"
                store.journal.emit(name, key=problem.keys[0], file=problem.file, how=source or why)
    except OSError as error:
        raise store_error(store.layout.home, error) from error
    return tuple(done)


class _Repair:
    """The repair of one problem."""

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
        self._path = store.layout.record(problem.place)
        self._reasons: list[str] = []

    def run(self) -> tuple[str, str]:
        """Where the good bytes came from, or why there are none."""
        if not self._bad():
            return "another record's repair", ""
        if self._path.is_dir():
            return "", "a folder is in its place: remove the folder"
        for remote in self._remotes.readable:
            remote.retry()
            self._repair_from(remote)
            if not self._bad():
                return remote.name, ""
        if not self._remotes.readable:
            self._reasons.append("no remote that can be read is configured")
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

    def _repair_from(self, remote: Remote) -> None:
        """Repair it from one remote, if that has what is needed."""
        try:
            found = remote.find(self._problem.place, anew=True)
            for candidate in (self._same_modules(remote), found):
                if candidate is not None and self._pulled(candidate):
                    return
        except UntrustedError as error:
            self._reasons.append(f"{remote.name}: {error.cause}")
        except (RemoteError, AuthError) as error:
            self._remotes.failed(remote, error)
            self._reasons.append(f"{remote.name}: {error.message}")
        except DamagedRecordError as error:
            self._reasons.append(f"{remote.name}: its record there is damaged: {error}")

    def _same_modules(self, remote: Remote) -> Found | None:
        """Our own record, where the remote has the same bytes of those modules that are bad."""
        record = self._store.read(self._problem.place) if self._problem.kind == "blob" else None
        if record is None:
            return None
        beside = self._store.origins.of(record)
        bad = {one.sha256 for one in self._look() if one.kind == "blob"}
        modules = tuple(one for one in record.modules if not bad.isdisjoint(file.sha256 for file in one.files))
        revision = remote.revision()
        shared = same_artifacts(remote, structs.replace(record, modules=modules), revision)
        if shared is None:
            return None
        # Kept from now on: somebody may remove the record while its bytes come, and it is not made here by that.
        return Found(remote, structs.replace(shared, record=record), revision, kept=beside)

    def _pulled(self, found: Found) -> bool:
        record = found.shared.record
        if self._problem.kind == "graph" and self._problem.sha256 in {file.sha256 for file in record.files}:
            self._reasons.append(f"{found.remote.name} has the same bytes")
            return False
        try:
            pull(self._store, found, self._judge(record.directory))
        except IntegrityError as error:
            self._reasons.append(f"{found.remote.name}: {error.message}")
            return False
        return True
