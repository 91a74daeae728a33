"""Fetch modules of Neuron's by their names, without a record: from a cache that optimum-neuron or a copy filled.

Only finished modules are taken. Without a record nobody vouches for their bytes but the NEFF's own digest and, where
the cache knows it, that of the file; both are checked. They become a record as an import does.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from cachekit.actions.neuron_import import import_cache
from cachekit.actions.pull import LANES, lanes
from cachekit.actions.pull_recipes import Outcome
from cachekit.actions.session import Session
from cachekit.compilers.neuron import facts
from cachekit.compilers.neuron.fit import Check
from cachekit.errors import IntegrityError, UsageError
from cachekit.tiers.port import Entry, Tier
from cachekit.tiers.remote import Remote

LARGEST = 64 << 30  # bytes of one file


def pull_modules(
    session: Session, names: Sequence[str], folder: str, check: Check, *, dry_run: bool = False
) -> list[Outcome]:
    """Fetch modules from the first shared cache that has them all finished.

    Args:
        session: Collaborators.
        names: Modules, `neuronxcc-<version>/MODULE_<graph>+<flags>`.
        folder: A compiler's folder: all its modules.
        check: Judges each NEFF.
        dry_run: Only say what would be fetched.

    Raises:
        UsageError: A name is none of a module, or a folder none of a compiler.
        RemoteError, AuthError: A cache cannot be asked.
        IntegrityError: A file is not what the cache says it is.
    """
    wanted = [*names, *([folder] if folder else [])]
    for name in wanted:
        parts = PurePosixPath(name).parts
        if not facts.COMPILER_DIRECTORY.fullmatch(parts[0] if parts else "") or len(parts) > 2 or ".." in parts:  # noqa: PLR2004
            raise UsageError(
                f"{name!r} is no module of Neuron's",
                hint="neuronxcc-2.26.6360.0+6f180f47/MODULE_14529842170341812+f7f529f3",
            )
    return [_pull(session, name, check, dry_run=dry_run) for name in wanted]


def _pull(session: Session, name: str, check: Check, *, dry_run: bool) -> Outcome:
    for remote in session.chain.readable:
        remote.retry()
        revision = remote.revision()
        with remote.call() as tier:
            modules = _finished(tier.list(name, revision))
        known = {module.name for record in session.store.records() for module in record.modules}
        new = {module: entries for module, entries in modules.items() if module not in known}
        if not modules:
            continue
        files = [entry for entries in new.values() for entry in entries]
        size = sum(entry.size for entry in files)
        if not new:
            return Outcome(name, "present", "", remote.name)
        if dry_run:
            return Outcome(name, "would-fetch", "", remote.name, len(files), size)
        start = time.monotonic()
        key = _fetch(session, remote, revision, files, check)
        return Outcome(name, "fetched", key, remote.name, len(files), size, seconds=time.monotonic() - start)
    return Outcome(name, "absent", "")


def _finished(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Files of finished modules, by module."""
    modules: dict[str, list[Entry]] = {}
    for entry in entries:
        parts = PurePosixPath(entry.path).parts
        if len(parts) == 3:  # noqa: PLR2004 - compiler, module, file
            modules.setdefault("/".join(parts[:2]), []).append(entry)
    return {name: files for name, files in sorted(modules.items()) if _is_finished({Path(f.path).name for f in files})}


def _is_finished(names: set[str]) -> bool:
    return {facts.NEFF, facts.DONE} <= names and facts.FAILURE_LOG not in names


def _fetch(session: Session, remote: Remote, revision: str, files: Sequence[Entry], check: Check) -> str:
    """Fetch the files and import them; the key of their record."""
    with session.store.workspace() as workspace, remote.call() as tier:
        with lanes(min(LANES, len(files))) as pool:
            for number, done in enumerate([pool.submit(_one, tier, revision, entry, workspace) for entry in files]):
                done.result()
                session.journal.show("pull.files", done=number + 1, of=len(files))
        imported = import_cache(session.store, workspace, check)
    session.journal.emit("pull.modules", tier=remote.name, files=len(files), **imported.as_dict())
    return imported.groups[0].key if imported.groups else ""


def _one(tier: Tier, revision: str, entry: Entry, folder: Path) -> None:
    path = folder / entry.path
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as target:
        for data in tier.chunks(entry.path, revision):
            size += len(data)
            if size > min(entry.size, LARGEST):
                break
            digest.update(data)
            target.write(data)
    if entry.holds(size, digest.hexdigest()) is False:
        raise IntegrityError(
            f"{entry.path} on {tier.name} is not what that says", cause=f"{size:,} bytes of {entry.size:,}, or others"
        )
