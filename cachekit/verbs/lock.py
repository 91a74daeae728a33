"""Pin the exact artifacts of recipes in a file, say whether it still fits them, and fetch exactly these: `lock`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cachekit.errors import AuthError, IntegrityError, RemoteError
from cachekit.key.canonical import Change, difference
from cachekit.remotes import document, layout
from cachekit.remotes.document import RECORD_LIMIT, Shared
from cachekit.remotes.remote import Found, Remote
from cachekit.store.lock_file import Locked, anonymous, digest_of
from cachekit.store.record import DamagedRecordError, Record
from cachekit.verbs.plan import change_dict, miss_error, plan
from cachekit.verbs.prepare import Prepared
from cachekit.verbs.pull import pull
from cachekit.verbs.pull_recipes import Outcome
from cachekit.verbs.session import Session, holding


@dataclass(frozen=True, slots=True)
class Checked:
    """Whether a lock still fits its recipe.

    Attributes:
        locked: The entry.
        key: The recipe's key now.
        changes: Ingredients that differ, from the lock to the recipe; none where it fits.
    """

    locked: Locked
    key: str
    changes: tuple[Change, ...]

    @property
    def fits(self) -> bool:
        """The recipe would take what is locked."""
        return self.key == self.locked.record.key

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            **summary(self.locked),
            "status": "fits" if self.fits else "changed",
            "key_now": self.key,
            "changes": [change_dict(change, self.locked.record.compiler) for change in self.changes],
        }


def summary(locked: Locked) -> dict[str, Any]:
    """An entry for programs."""
    record = locked.record
    return {
        "recipe": locked.recipe,
        "set": list(locked.overrides),
        "tiny": locked.tiny,
        "compiler": record.compiler,
        "directory": record.directory,
        "key": record.key,
        "digest": locked.digest,
        "tier": locked.tier,
        "revision": locked.revision,
        "modules": len(record.modules),
        "files": len(record.files),
        "bytes": record.size,
    }


@holding
def lock(
    session: Session,
    prepared: Prepared,
    recipe: str,
    overrides: tuple[str, ...] = (),
    *,
    tiny: bool = False,
    toolchain: str = "",
    instance: str = "",
) -> Locked:
    """Pin what a run of the recipe would take now.

    Where a shared cache has the same artifacts, its state is noted beside, so that they can be had there for as long as
    it remembers that state.

    Args:
        session: Collaborators.
        prepared: The recipe.
        recipe: As it was named.
        overrides: Fields that were changed.
        tiny: It is the recipe in small.
        toolchain: The release that it was planned for.
        instance: Likewise the machine type.

    Raises:
        MissError: Nothing is there to be pinned.
        RemoteError, AuthError: A shared cache could not be asked.
    """
    for remote in session.chain.readable:
        remote.retry()
    planned = plan(prepared, session.store, session.chain, anew=True)
    if planned.record is None:
        session.chain.raise_failure()
        raise miss_error(planned)
    record, found = planned.record, planned.found
    if found is None:
        found = next((found for found in _everywhere(session, record) if covers(found.shared.record, record)), None)
    tier, revision = (found.remote.name, found.revision) if found else (layout.LOCAL, "")
    return Locked(
        recipe, overrides, toolchain, instance, tier, revision, digest_of(record), anonymous(record), tiny
    )  # fmt: skip


def check(locked: Locked, prepared: Prepared) -> Checked:
    """Compare an entry with its recipe as it is now."""
    changes = difference(locked.record.hard, prepared.ingredients.hard)
    return Checked(locked, prepared.key, tuple(changes))


def covers(record: Record, wanted: Record) -> bool:
    """Whether a record has every module of another one, with the same bytes."""
    held = {module.name: module.files for module in record.modules}
    return all(held.get(module.name) == module.files for module in wanted.modules)


@holding
def pull_locked(session: Session, locked: Locked, *, dry_run: bool = False) -> Outcome:
    """Have exactly the locked artifacts in the store: from there, or from a cache, as it is or as it was.

    Another build of the key in the store is replaced.

    Raises:
        IntegrityError: They cannot be had: what the caches have is something else. Nothing was changed.
        RemoteError, AuthError: They may be on a cache that could not be asked.
        StoreError: The store cannot be written.
    """
    record, store = locked.record, session.store
    mine = store.lookup(record.key, record.directory, record.model_type)
    if mine is not None and covers(mine, record):
        return Outcome(locked.recipe, "present", record.key, present=record.size)
    reasons: list[str] = []
    for remote in session.chain.readable:
        remote.retry()
        try:
            for found in _candidates(remote, locked, reasons):
                lacking = store.missing(found.shared.record)
                size = sum(file.size for file in lacking)
                if dry_run:
                    return Outcome(
                        locked.recipe, "would-fetch", record.key, remote.name, size=size, present=record.size - size
                    )
                try:
                    done = pull(session, found)
                except IntegrityError as error:
                    reasons.append(f"{remote.name}: {error.message}")
                    continue
                return Outcome(
                    locked.recipe, "fetched", record.key, done.tier, done.files, done.size, done.present, done.seconds
                )
        except (RemoteError, AuthError) as error:
            session.chain.failed(remote, error)
    session.chain.raise_failure()
    if not session.chain.readable:
        reasons.append("no shared cache is named that may be read")
    raise IntegrityError(
        f"the locked artifacts of {locked.recipe} are not to be had",
        cause="; ".join(dict.fromkeys(reasons)),
        hint=f"push them from a machine that has them (key {record.key[:16]}), or lock anew: "
        f"cachekit lock {locked.words}",
    )


def _everywhere(session: Session, record: Record) -> Iterator[Found]:
    """The record of a key on every cache that has one."""
    for remote in session.chain.readable:
        try:
            found = remote.find(record.directory, record.model_type, record.key, anew=True)
        except (RemoteError, AuthError) as error:
            session.chain.failed(remote, error)
        except DamagedRecordError:
            continue
        else:
            if found is not None:
                yield found


def _candidates(remote: Remote, locked: Locked, reasons: list[str]) -> Iterator[Found]:
    """Where on a cache the artifacts may be: as a record says now, as one said then, or as bare files."""
    now = remote.revision()
    then = locked.revision if locked.tier == remote.name and locked.revision != now else ""
    for revision in (now, *([then] if then else [])):
        try:
            shared = _record(remote, locked, revision) or _files(remote, locked, revision, reasons)
        except (RemoteError, AuthError) as error:
            if revision == now:
                raise
            reasons.append(f"{remote.name} at {revision[:12]}: {error.message}")  # a history that was cut
            continue
        if shared is not None:
            yield Found(remote, shared, revision)


def _record(remote: Remote, locked: Locked, revision: str) -> Shared | None:
    record = locked.record
    try:
        with remote.call() as tier:
            found = tier.read(layout.path_of(record), revision, RECORD_LIMIT)
        shared = document.read(found.data) if found else None
    except (DamagedRecordError, IntegrityError):
        return None
    if shared is None or not covers(shared.record, record):
        return None
    # That of the cache may have grown by what others added; what is taken is what is locked.
    same = digest_of(shared.record) == locked.digest
    return shared if same else replace(shared, record=record)


def _files(remote: Remote, locked: Locked, revision: str, reasons: list[str]) -> Shared | None:
    """The locked files without a record that names them; artifacts on a cache are never overwritten by a push."""
    own = {
        layout.file_path(module, file): file for module in locked.record.modules for file in module.files
    }  # fmt: skip
    spare = {layout.blob_path(file.sha256) for file in own.values()}
    with remote.call() as tier:
        there = tier.stat(sorted({*own, *spare}), revision)
    places: dict[str, str] = {}
    for path, file in sorted(own.items()):
        blob = layout.blob_path(file.sha256)
        holds = there[path].holds(file.size, file.sha256) if path in there else False
        if holds:
            continue
        if blob in there and there[blob].size == file.size:
            places[file.sha256] = blob
        elif holds is False:
            state = "has other bytes" if path in there else "is not there"
            reasons.append(f"{remote.name}: {path} {state}")
            return None
    return Shared(locked.record, {}, places)
