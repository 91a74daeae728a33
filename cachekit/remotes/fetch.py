"""Bring a record from a remote into the store: only the files that are missing here, each of them checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from cachekit.errors import AuthError, CachekitError, IntegrityError, RemoteError
from cachekit.events import bypass
from cachekit.remotes.budget import lanes
from cachekit.remotes.fetch_files import Fetch, WantedFile, inline_files
from cachekit.remotes.packs import unpacked
from cachekit.remotes.push import push
from cachekit.remotes.remote import Found
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.store.durable import store_error
from cachekit.store.partial import sweep as sweep_partials
from cachekit.store.record import File, Module, Record

# Says what is wrong inside of a module's files, as far as its compiler can tell; empty where nothing is.
Judge = Callable[[Module, Callable[[File], Path]], str]


class Pulled(Struct, frozen=True):
    """The result of a pull.

    Attributes:
        record: The record, now in the store.
        remote: Where it came from.
        files: Files that were fetched; the tiny ones came with the record.
        size: Their bytes.
        present: Bytes that were here already.
        seconds: Wall time.
    """

    record: Record
    remote: str
    files: int
    size: int
    present: int
    seconds: float


def pull(store: Store, found: Found, judge: Judge, *, worth: float | None = None) -> Pulled:
    """Fetch what the store lacks of a record, and publish it there.

    Args:
        store: Gets it.
        found: The record, and where it is.
        judge: See `Judge`.
        worth: Seconds that it may take at most; see `Fetch`.

    Raises:
        RemoteError, AuthError: It could not be fetched. What arrived is kept for the next try.
        IntegrityError: What is there is not what its record says. Nothing of it entered the store.
        StoreError: The store cannot be written.
    """
    with store.using():
        return _pull(store, found, judge, worth)


def _pull(store: Store, found: Found, judge: Judge, worth: float | None) -> Pulled:
    start = time.monotonic()
    record = found.shared.record
    store.use(record.files)  # what is here already is not fetched
    files = {file.sha256: file for file in record.files}
    missing = [file for file in files.values() if store.blobs.check(file, "noted")]
    total = sum(file.size for file in missing)
    store.journal.emit("pull.start", key=record.key, remote=found.remote.name, files=len(missing), bytes=total)
    try:
        sweep_partials(store.layout)
        places = found.shared.paths
        inline = {
            file.sha256: found.shared.inline[file.sha256] for file in missing if file.sha256 in found.shared.inline
        }
        wanted = [
            WantedFile(places[file.sha256][1], file.size, file.sha256, file.sha256.__eq__)
            for file in missing
            if file.sha256 not in inline
        ]
        # What lies beside the record is asked for while its files come.
        with (
            store.workspace() as workspace,
            lanes([found.beside], 1, threading.Event()) as (beside,),
            found.remote.call() as storage,
        ):
            came = inline_files(inline, workspace)
            fetch = Fetch(store, storage, found.revision, workspace, spoiled=found.remote.spoiled, worth=worth)
            came |= unpacked(fetch, storage, found.revision, record.key, wanted=wanted, folder=workspace)
            came |= fetch.all([file for file in wanted if file.name not in came])
            finished = {sha256: one.path for sha256, one in came.items()}
            _look_inside(found, finished, store.layout.blob, judge)
            store.lacking(missing)  # sets damaged files aside, now that others can take their place
            store.publish(
                record, finished, {sha256: one.pieces for sha256, one in came.items()}, beside=beside.result()
            )
    except IntegrityError as error:
        store.journal.emit("remote.damaged", remote=found.remote.name, key=record.key, reason=error.cause)
        bypass(store.journal, "remote-damaged", found.remote.name)
        raise
    except OSError as error:
        raise store_error(store.layout.home, error) from error
    seconds = time.monotonic() - start
    store.journal.emit(
        "pull.end",
        key=record.key,
        recipe=record.recipe,
        remote=found.remote.name,
        files=len(missing),
        bytes=total,
        seconds=round(seconds, 3),
    )
    return Pulled(record, found.remote.name, len(missing), total, record.size - total, seconds)


def _look_inside(found: Found, finished: Mapping[str, Path], blob: Callable[[str], Path], judge: Judge) -> None:
    """Have the compiler judge what was fetched; what the compiler refuses is not kept.

    Raises:
        IntegrityError: A module is not.
    """
    record = found.shared.record
    places = found.shared.paths
    for module in record.modules:
        fetched = [file for file in module.files if file.sha256 in finished]
        if not fetched:
            continue
        if not (harm := judge(module, lambda file: finished.get(file.sha256) or blob(file.sha256))):
            continue
        for file in fetched:
            finished[file.sha256].unlink(missing_ok=True)
            if file.sha256 in places:
                found.remote.spoiled.add(places[file.sha256][1])
        raise IntegrityError(
            f"{module.name} on {found.remote.name} cannot be used",
            cause=harm,
            hint="`cachekit warm` compiles it again and replaces it there",
        )


def fetch(store: Store, remotes: Remotes, found: Found, judge: Judge, *, instead: bool = False) -> Pulled:
    """Fetch a record from the remote that has it, or from the next one that has it whole; fill the nearer ones.

    Args:
        store: Gets it.
        remotes: Those of this run.
        found: The record, and where it is.
        judge: See `Judge`.
        instead: It is compiled where it does not come: a fetch that takes longer than that is given up.

    Raises:
        RemoteError, AuthError, IntegrityError: As the first of them failed; all of that has been told.
        StoreError: The store cannot be written.
    """
    record = found.shared.record
    worth = record.cold_seconds if instead and record.cold_seconds else None
    remotes.patience.stake = lambda: record.cold_seconds or None
    first: CachekitError | None = None
    following: Found | None = found
    while following is not None:
        found = following
        try:
            pulled = pull(store, found, judge, worth=worth)
        except (RemoteError, AuthError) as error:
            remotes.failed(found.remote, error, record.key)
            found.remote.pass_over(found)
            first = first or error
        except IntegrityError as error:  # told as damage of the remote
            remotes.noted(found.remote, record.key, error)
            found.remote.pass_over(found)
            first = first or error
        else:
            if nearer := remotes.above(found.remote):
                push(store, remotes, [pulled.record], nearer)
            return pulled
        following = remotes.find(record.place, anew=True)
    assert first is not None  # there was one to begin with
    raise first
