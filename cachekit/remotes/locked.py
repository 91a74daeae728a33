"""The artifacts of a lock file on remotes: which has exactly these, now or at the state that was locked."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from cachekit.errors import AuthError, IntegrityError, RemoteError, UntrustedError
from cachekit.remotes import document, layout
from cachekit.remotes.document import Shared
from cachekit.remotes.fetch import Judge, Pulled, pull
from cachekit.remotes.port import LATEST
from cachekit.remotes.remote import Found, Remote
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.store.lock_file import Locked
from cachekit.store.origin import ReusedOrigin
from cachekit.store.record import Record, covers, paths_of
from cachekit.text import cut

HISTORY = 2000  # commits in which a state that a lock file names is looked for


def holder(remotes: Remotes, record: Record) -> Found | None:
    """The first remote that has the same artifacts now; None where none has, or could be asked."""
    for remote in remotes.readable:
        try:
            found = remotes.find_on(remote, record.place)
        except (RemoteError, AuthError) as error:
            remotes.failed(remote, error)
        else:
            if found is not None and covers(found.shared.record, record):
                return found
    return None


def fetch_locked(
    store: Store, remotes: Remotes, locked: Locked, judge: Judge, *, dry_run: bool = False
) -> Pulled | None:
    """Fetch exactly the locked artifacts into the store, if it lacks any: from a remote as it is, or as it was.

    Another build of the key in the store is replaced.

    Args:
        store: Gets them.
        remotes: To look at.
        locked: Which they are.
        judge: See `fetch.Judge`.
        dry_run: Only say what would be fetched.

    Returns:
        What was fetched, or would be; None where the store has it all.

    Raises:
        IntegrityError: They cannot be fetched: what the remotes have is something else. Nothing was changed.
        RemoteError, AuthError: They may be on a remote that could not be asked.
        StoreError: The store cannot be written.
        UntrustedError: The record that was locked is revoked, whatever lies on the remotes by now.
    """
    record = locked.record
    if any(locked.digest in remote.trust.table.revoked.records for remote in remotes.readable):
        raise UntrustedError(
            f"the locked artifacts of {locked.recipe} are not used",
            cause=f"the record that was locked ({locked.digest[:16]}) is revoked by its digest",
            hint=f"lock another build: cachekit store lock {locked.words}",
        )
    mine = store.lookup(record.place)
    if mine is not None and covers(mine, record):
        return None
    reasons: list[str] = []
    for remote in remotes.readable:
        remote.retry()
        try:
            for found in _candidates(remotes, remote, locked, reasons):
                if dry_run:
                    size = sum(file.size for file in store.lacking(found.shared.record.files))
                    return Pulled(record, remote.name, 0, size, record.size - size, 0.0)
                try:
                    return pull(store, found, judge)
                except IntegrityError as error:
                    reasons.append(f"{remote.name}: {error.message}")
        except (RemoteError, AuthError) as error:
            remotes.failed(remote, error)
    remotes.raise_failure(record.key)
    if not remotes.readable:
        reasons.append("no remote that can be read is configured")
    raise IntegrityError(
        f"the locked artifacts of {locked.recipe} cannot be found",
        cause="; ".join(dict.fromkeys(reasons)),
        hint=f"push them from a machine that has them (key {record.key[:16]}), or lock again: "
        f"cachekit store lock {locked.words}",
    )


def _candidates(remotes: Remotes, remote: Remote, locked: Locked, reasons: list[str]) -> Iterator[Found]:
    """Where on a remote the artifacts may be: as it is now, or as it was when they were locked."""
    now = remote.revision()
    then = locked.revision if locked.remote == remote.name and locked.revision != now else ""
    for revision in (now, *([then] if then else [])):
        try:
            shared = same_artifacts(remote, locked.record, revision, reasons)
        except (RemoteError, AuthError) as error:
            if revision == now:
                raise
            reasons.append(f"{remote.name} at {revision[:12]}: {error.message}")  # a history that was cut
            continue
        if shared is not None:
            try:
                stray = "" if revision == now else _stray(remote, revision, now)
                found = remote.judge(shared, revision, past=revision != now and not stray, stray=stray)
            except UntrustedError as error:
                remotes.refused(remote, locked.record.key, error)
                reasons.append(f"{remote.name}: {error.cause}")
                continue
            yield found if shared.record.digest == locked.digest else _cut(found, locked)


def _stray(remote: Remote, revision: str, now: str) -> str:
    """Why a state that a lock file names may be anybody's, as the commit of a pull request is; empty where it is not.

    Only the whole hash of a commit that is in the history of the present state names one of the remote's own.

    Raises:
        RemoteError, AuthError: The remote cannot be asked.
    """
    with remote.call() as storage:
        if any(one.revision == revision for most in (LATEST, HISTORY) for one in storage.latest(now, most)):
            return ""
    return f"the lock file names the state {cut(revision, 40)!r}, which is not among the last {HISTORY:,} commits there"


def _cut(found: Found, locked: Locked) -> Found:
    """What is locked of a record that has it, and perhaps more, which others added: all else is as it was judged.

    A lock file may say anything of when and by whom a record was made. The record that was judged, and the one that
    was locked, are noted as ones whose files are reused, so that whoever revokes one of them revokes this one.

    Raises:
        RemoteError, AuthError: The signatures of the record cannot be read.
    """
    whole = found.shared.record
    names = {module.name for module in locked.record.modules}
    modules = tuple(module for module in whole.modules if module.name in names)
    beside = None if modules == whole.modules else found.beside()
    origin = found.origin if beside is None else beside.origin
    if origin is None:
        return found
    # The time is the record's that was judged, where that has one.
    source = ReusedOrigin(whole.key, locked.digest, origin.remote, origin.how, origin.signers, whole.provenance.created)
    sources = [source] * bool(locked.digest)
    if beside is not None:
        sources = [structs.replace(source, record=whole.digest), *sources]
    return structs.replace(
        found,
        shared=structs.replace(found.shared, record=structs.replace(whole, modules=modules)),
        origin=structs.replace(origin, reused=tuple(dict.fromkeys((*sources, *origin.reused)))),
    )


def same_artifacts(remote: Remote, record: Record, revision: str, reasons: list[str] | None = None) -> Shared | None:
    """What a remote has with every file of a record, if it has that: the key's record there, or else the bare files.

    Args:
        remote: The remote.
        record: The record.
        revision: The remote's state.
        reasons: Gets what it lacks.

    Raises:
        RemoteError, AuthError: It cannot be asked.
    """
    with remote.call() as storage:
        shared = document.listed(storage, layout.record_path(record.place), revision)
        if shared is not None and covers(shared.record, record):
            return shared
        # Artifacts are never overwritten by a push: they may be there without a record that names them.
        own = dict(paths_of(record.modules))
        spare = {layout.blob_path(file.sha256) for file in own.values()}
        there = storage.stat(sorted({*own, *spare}), revision)
    places: dict[str, str] = {}
    for path, file in sorted(own.items()):
        blob = layout.blob_path(file.sha256)
        holds = there[path].holds(file.size, file.sha256) if path in there else False
        if holds:
            continue
        if blob in there and there[blob].size == file.size:
            places[file.sha256] = blob
        elif holds is False:
            if reasons is not None:
                reasons.append(f"{remote.name}: {path} {'has other bytes' if path in there else 'is not there'}")
            return None
    return Shared(record, {}, places)
