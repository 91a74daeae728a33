"""Compile everything that a fine-tune will need, once: trial run, harvest, publish."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, structs

from cachekit.compilers.prepare import Prepared
from cachekit.data.shapes import check_data
from cachekit.errors import (
    AuthError,
    CachekitError,
    CompileError,
    IntegrityError,
    InterruptedRunError,
    MissError,
    RemoteError,
    StoreError,
    TrainingError,
    WaitedTooLongError,
)
from cachekit.events import bypass, bypassed
from cachekit.recipe.model_config import check_package
from cachekit.remotes.nearest import Nearest, to_fetch
from cachekit.store.durable import store_error
from cachekit.store.layout import LOCAL
from cachekit.store.notes import forget_attempt
from cachekit.store.record import Record, Reuse
from cachekit.values import by_value
from cachekit.verbs.plan import (
    Plan,
    as_miss,
    fetch_planned,
    left_unfinished,
    miss_error,
    plan,
    tell,
    unshared,
)
from cachekit.verbs.planned import Reused
from cachekit.verbs.session import Session, using_store

if TYPE_CHECKING:  # a hit needs none of these
    from cachekit.compilers import Compiler, Observed, Watch
    from cachekit.compilers.cachedir import CacheDir
    from cachekit.remotes.lease import Lease
    from cachekit.remotes.remote import Found
    from cachekit.store.compile_lock import Holder
    from cachekit.training import Result


class WarmRun(Struct, frozen=True):
    """What a warm did.

    Attributes:
        plan: What it had found out beforehand.
        record: The record of the key.
        compiled: Graphs compiled now; 0 is a hit.
        seconds: Wall time of it all.
        waited_seconds: Of which waiting for another process.
        worker: What the trial run reported; None without one.
        bypassed: Why it bypassed the cache, or a part of it, and how often; see `cachekit.events`.
        reused: What came from the nearest record; None where nothing did.
    """

    plan: Plan
    record: Record
    compiled: int
    seconds: float
    waited_seconds: float = 0.0
    worker: Result | None = None
    bypassed: Mapping[str, int] = {}
    reused: Reused | None = None

    __hash__ = by_value


@using_store
def warm(
    session: Session,
    prepared: Prepared,
    *,
    recache: bool = False,
    require_warm: bool = False,
    planned: Plan | None = None,
) -> WarmRun:
    """Make sure that the record of a recipe exists; see `Cache.warm`. `planned` is its plan, where that is made.

    Under `require_warm` the trial run begins with the nearest record, where the key has none, and is stopped at the
    first compile: if all graphs are there, they become the record of this key as well.

    Raises:
        StoreError: The result cannot be kept; found out before compiling, where possible.
    """
    start = time.monotonic()
    check_data(prepared.recipe)
    reuse_bytes = 0 if recache else session.config.reuse_bytes
    planned = planned or plan(prepared, session.store, session.remotes, anew=True, reuse_bytes=reuse_bytes)
    session.journal.emit(
        "plan", recipe=prepared.recipe.name, key=prepared.key, status=planned.status, remote=planned.remote
    )
    tell(session, planned, recache=recache)
    if not recache and (record := fetch_planned(session, planned)):
        if not planned.found:  # a warm made before there was a remote, or while that was away
            session.push(record)
        return _done(session, WarmRun(planned, record, 0, time.monotonic() - start), planned.remote)
    planned = as_miss(planned, session.store, session.remotes, reuse_bytes) if planned.found else planned
    if require_warm and planned.reuse is None:
        raise miss_error(planned)
    from cachekit.remotes.lease import Lease
    from cachekit.store.compile_lock import CompileLock

    check_package(prepared.recipe)
    try:
        session.store.check_writable(prepared.place)
    except StoreError as error:
        bypass(session.journal, "store-not-writable", error.cause or error.message)
        raise

    last_told: Holder | str | None = "nobody yet"

    def waiting(holder: Holder | None, waited: float) -> None:
        nonlocal last_told
        if holder != last_told:
            last_told = holder
            session.journal.emit("lock.wait", key=prepared.key, holder=str(holder or "an unknown process"))
        session.journal.show("lock.waiting", holder=str(holder or "an unknown process"), waited=waited)

    compile_lock = CompileLock(session.store.layout, prepared.key, prepared.recipe.name, session.store.rwlock)
    try:
        with compile_lock.hold(0 if require_warm else session.config.wait_seconds, waiting) as waited:
            if waited > 0:
                # Whoever held the key has most likely made what we wanted; a fresh record also satisfies `recache`.
                place = prepared.place
                meanwhile = session.store.lookup(place)
                if meanwhile is not None and (not recache or meanwhile != planned.record):
                    return _done(session, WarmRun(planned, meanwhile, 0, time.monotonic() - start, waited), LOCAL)
            # Who compiles nothing keeps nobody from it. Where a trial run needs all machines of a training, one with
            # the lease would wait for the others to join, and they for the lease.
            alone = recache or require_warm or prepared.tries_together
            with nullcontext(Lease["Found"]()) if alone else _lease(session, prepared) as mine:
                if mine.found and (record := session.fetch(mine.found)):
                    done, remote = WarmRun(planned, record, 0, 0.0), mine.found.remote.name
                else:
                    remote = ""
                    done = _compile(session, prepared, planned, mine, replaces=recache, strict=require_warm)
            seconds = time.monotonic() - start
            return _done(session, structs.replace(done, seconds=seconds, waited_seconds=waited + mine.waited), remote)
    except WaitedTooLongError as error:
        if require_warm:
            raise miss_error(planned, error.message) from error
        raise


def _lease(session: Session, prepared: Prepared) -> AbstractContextManager[Lease[Found]]:
    from cachekit.remotes.lease.fleet import fleet_lease, leases_on

    if (nodes := prepared.recipe.parallel.nodes) > 1 and leases_on(session.remotes) is None:
        session.journal.emit("nodes.unshared", nodes=nodes)
    return fleet_lease(
        session.remotes,
        session.journal,
        prepared.place,
        prepared.recipe.name,
        wait=session.config.wait_seconds,
        seconds=session.config.lease_seconds,
    )


def _compile(
    session: Session, prepared: Prepared, planned: Plan, mine: Lease[Found], *, replaces: bool, strict: bool
) -> WarmRun:
    shared = session.own_root(prepared)
    begun = time.monotonic()
    # Who wants everything compiled anew reuses nothing.
    near = None if replaces else (not strict and left_unfinished(session, prepared)) or _fetched(session, planned)
    if strict and near is None:
        raise miss_error(planned)
    expected = None if strict else planned.expected_seconds
    session.journal.emit(
        "compile.start",
        key=prepared.key,
        expected_seconds=expected,
        expected_graphs=planned.expected_graphs,
        strict=strict,
    )
    try:
        done = _try(session, prepared, planned, near, shared, mine=mine, begun=begun, replaces=replaces, strict=strict)
    except CachekitError as error:
        if strict and isinstance(error, MissError | IntegrityError):
            raise miss_error(planned, error.cause or error.message) from error
        # Nobody can say that it was not the reused record's doing, and without it the root is empty. Other machines of
        # a common trial run would not try again.
        ours = isinstance(error, IntegrityError | TrainingError | CompileError) and not prepared.tries_together
        if strict or near is None or shared is not None or not ours:
            raise
        reason = ": ".join(filter(None, [error.message, error.cause]))
        session.journal.emit("reuse.failed", key=prepared.key, reason=reason)
        done = _try(session, prepared, planned, None, shared, mine=mine, begun=begun)
    if done.compiled:
        unshared(session)
    session.push(done.record, lease=mine, replaces=replaces)
    return done


def _try(
    session: Session,
    prepared: Prepared,
    planned: Plan,
    near: Nearest | None,
    shared: Path | None,
    *,
    mine: Lease[Found],
    begun: float,
    replaces: bool = False,
    strict: bool = False,
) -> WarmRun:
    """The trial run, with what the nearest record has or without, and its harvest.

    Args:
        session: Collaborators.
        prepared: The recipe.
        planned: Its plan.
        near: The record to begin with.
        shared: The compiler's own root, where it is not a private one.
        mine: The lease of the key.
        begun: When that was begun to be fetched, by the monotonic clock.
        replaces: Everything is compiled anew.
        strict: Stop at the first compile.
    """
    from cachekit.compilers.keep import Keeping, spared, unfinished
    from cachekit.compilers.port import not_warm
    from cachekit.training.run import run_job

    anew = prepared.place if replaces else None
    with session.cache_dir(prepared, near.record if near else None, shared, anew=anew) as cache_dir:
        if near:
            session.journal.emit(
                "reuse.restored",
                key=prepared.key,
                nearest=near.known.key,
                recipe=near.known.recipe,
                remote=near.place,
                differs=[change.name for change in near.changes],
                bytes=cache_dir.restored_bytes,
                seconds=round(planned.search_seconds + time.monotonic() - begun, 3),
            )
        started, part = time.monotonic(), unfinished(prepared)
        watches: list[Watch] = []

        def finished(session: Session) -> Record | None:
            if strict or replaces:
                return None
            nearest = near.record if near and near.known.key != part.key else None
            keeping = Keeping(session.store, part, None, cache_dir, nearest)
            reported = frozenset[str]().union(*(watch.needs() for watch in watches))
            return keeping.keep_unfinished(time.monotonic() - started, reported)

        try:
            live = prepared.compiler.marks_finished
            with session.until_notice(mine, finished if live else lambda _: None):
                result, seen = run_job(
                    session.launcher(),
                    prepared,
                    cache_dir,
                    "trial",
                    store=session.store,
                    log=session.log,
                    found=strict,
                    wait=session.config.wait_seconds,
                    strict=strict,
                    begun=watches.append,
                )
        except InterruptedRunError:
            if record := finished(session):
                session.push_last(record, lease=mine)
            raise
        reused = _assess(prepared.compiler, near, cache_dir, seen) if near else None
        if strict and (seen.compiled or not reused):
            raise not_warm(f"{seen.compiled} graphs compiled, {seen.found} were found")
        note = None
        if near and reused:  # its graphs, and what they take when cold
            cold = round(seen.compile_seconds + spared(seen, near.record, cache_dir), 3)
            note = Reuse(near.known.key, reused.graphs, cold)
        record = _keep(session, prepared, cache_dir, seen, reused=note, nearest=near.record if near else None)
    if reused:
        session.journal.emit("reuse.end", **structs.asdict(reused))
    compiled = seen.compiled if reused or shared is not None else max(seen.compiled, 1)
    return WarmRun(planned, record, compiled, 0.0, worker=result, reused=reused)


def _fetched(session: Session, planned: Plan) -> Nearest | None:
    """The record that the plan begins with, whole and in the store; None where there is none, or it cannot be fetched.

    Raises:
        StoreError: The store cannot be written.
    """
    near = planned.reuse
    if near is None:
        return None
    if near.remote is None:
        record = session.store.lookup(near.known.place)
    else:
        try:
            found = to_fetch(near, session.store, session.config.reuse_bytes)
        except (RemoteError, AuthError) as error:
            session.remotes.failed(near.remote, error)
            return None
        record = session.fetch(found) if found is not None else None
    return structs.replace(near, record=record) if record is not None else None


def _assess(compiler: Compiler, near: Nearest, cache_dir: CacheDir, seen: Observed) -> Reused | None:
    """What a run took over from what was restored; None where that is nothing."""
    kernels = 0
    if seen.modules:  # the compiler names what it used, also what lay there already
        files = graphs = len(seen.modules & cache_dir.written)
    else:
        graphs = seen.found
        used = cache_dir.before if seen.used is None else seen.used
        files, kernels = len(used), compiler.binaries(used)
        if seen.used is None and not graphs:
            return None
    if not files:
        return None
    return Reused(
        key=near.known.key,
        recipe=near.known.recipe,
        remote=near.place,
        differs=tuple(change.name for change in near.changes),
        graphs=graphs,
        of=seen.found + seen.compiled,
        files=files,
        kernels=kernels,
        bytes=cache_dir.restored_bytes,
    )


def _keep(
    session: Session,
    prepared: Prepared,
    cache_dir: CacheDir,
    seen: Observed,
    *,
    reused: Reuse | None,
    nearest: Record | None,
) -> Record:
    from cachekit.compilers.keep import new_record, told_secrets
    from cachekit.store.record import marked

    # What was used of the other record belongs to this one as well; where nobody knows what that was, all of it.
    used = cache_dir.before if reused and seen.used is None else seen.used or frozenset()
    with session.store.workspace() as workspace:
        try:
            harvest = prepared.compiler.harvest(
                cache_dir.tree, cache_dir.before - used, prepared.fingerprint, workspace, seen
            )
            told = told_secrets(harvest, prepared)
        except OSError as error:
            raise store_error(session.store.layout.home, error) from error
        if harvest is None:
            bypass(session.journal, "caching-off", f"{seen.compiled} graphs compiled, nothing was kept")
            raise CompileError(
                "the trial run compiled nothing that could be kept",
                cause=f"the compiler found {seen.found} graphs and compiled {seen.compiled}",
                hint=f"is its cache switched off? see {session.log}",
            )
        record = new_record(prepared, harvest.modules, seen, given=nearest, reused=reused or UNSET)
        record = marked(record, *([nearest] if nearest else []), told=told)
        session.store.publish(record, harvest.files, reused=cache_dir.given, tree=cache_dir.tree)
    forget_attempt(session.store.layout, prepared.key)
    return record


def _done(session: Session, warmed: WarmRun, remote: str) -> WarmRun:
    """Tell the journal; `remote` is where the record came from, empty where it was made now."""
    session.journal.emit(
        "warm.end",
        recipe=warmed.record.recipe,
        key=warmed.record.key,
        remote=remote,
        graphs=warmed.record.graphs,
        compiled=warmed.compiled,
        seconds=round(warmed.seconds, 3),
        waited_seconds=round(warmed.waited_seconds, 3),
        compile_seconds=warmed.record.compile_seconds,
        cold_seconds=warmed.record.cold_seconds,
        bytes=warmed.record.size,
    )
    return structs.replace(warmed, bypassed=bypassed(session.journal))
