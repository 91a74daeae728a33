"""A user's own command with a restored compiler cache dir before it and a harvest after it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from cachekit.compilers import Observed, Run, Watch
from cachekit.compilers.cachedir import CacheDir
from cachekit.compilers.command import shown
from cachekit.compilers.keep import FINISHED, REPORTED, Keeping, command_marks, edits_of, is_inert, joined, spared
from cachekit.compilers.prepare import Prepared
from cachekit.errors import CachekitError, IntegrityError, MissError, StoreError
from cachekit.events import bypass, bypassed
from cachekit.recipe.command import CommandLine
from cachekit.recipe.price import Price
from cachekit.remotes.remotes import Remotes
from cachekit.store import Store
from cachekit.store.record import COMMAND, Record
from cachekit.training.passthrough import Passthrough
from cachekit.values import Answer
from cachekit.verbs.plan import (
    Plan,
    fetch_planned,
    look_again,
    miss_error,
    plan,
    tell,
    unfetched,
    unrestored,
    unshared,
)
from cachekit.verbs.planned import Planned, planned
from cachekit.verbs.session import Session, using_store
from cachekit.verbs.train import beyond

# Set for a command that runs under cachekit, to this run's name: what it starts need not look for a cache itself.
ATTENDED = "CACHEKIT_RUN"

# Old graphs travel along with those of an edited script; after that many edits they are left behind.
MOST_EDITS = 8
# Between records that differ in one of these no graph can be shared.
_FOREIGN = ("compiler.name", "toolchain.", "target.", "trust.")


class Ran(Answer, frozen=True, kw_only=True, tag="cachekit/run/1"):
    """What became of a command.

    Attributes:
        name: What a person would call it: the script's file, the module, or the program.
        command: Its words, without secrets.
        status: What was found beforehand.
        remote: Where that was found.
        nearest: The key of the nearest command's record, whose graphs this one was given, as it had none of its own.
        compiled: Graphs.
        found: Graphs.
        built: Machine-code files, or modules, that are new.
        kept: What compiled is in the store now.
        problem: Why what was compiled could not be kept; empty where it was.
        modules: Of the record that the store has now for the key; so for `bytes`.
        restored_bytes: What the command was given.
        saved_seconds: What compiling took of the graphs that it found, where they were compiled.
        overhead_seconds: What cachekit itself took.
        seconds: Wall time of it all.
        bypassed: Why the run bypassed the cache, or a part of it, and how often; see `cachekit.events`.
    """

    name: str
    command: list[str]
    exit_code: int
    key: str
    status: Literal["hit", "miss", "unknown"]
    remote: str
    nearest: str
    compiled: int
    found: int
    built: int
    kept: bool
    problem: str
    modules: tuple[str, ...]
    bytes: int
    restored_bytes: int
    compile_seconds: float
    saved_seconds: float
    overhead_seconds: float
    seconds: float
    notes: tuple[str, ...]
    bypassed: Mapping[str, int] = {}


@using_store
def run(
    session: Session,
    prepared: Prepared,
    command: CommandLine,
    *,
    require_warm: bool = False,
    recache: bool = False,
    cwd: Path | None = None,
) -> Ran:
    """Run a command; nothing that compiled in an earlier run of it compiles again. See `Cache.run`.

    Raises:
        StoreError: No compiler cache dir can be made.
    """
    start = time.monotonic()
    found = looked_up(prepared, session.store, session.remotes)
    if require_warm and not ready(found):
        raise not_warm(found)
    session.journal.emit("plan", recipe=command.name, key=prepared.key, status=found.status, remote=found.remote)
    tell(session, found, recache=recache)
    with entered(session, found, require_warm=require_warm, recache=recache) as (cache_dir, record, nearest):
        given = record or nearest
        reported = record is not None and bool(record.soft.get(REPORTED))
        watch = prepared.compiler.watch(
            Run(prepared.recipe, cache_dir.tree, "command", reported, require_warm, cache_dir.restored)
        )
        sink = partial(_tell, session, watch)
        if given is not None:
            session.journal.emit("restore", key=prepared.key, bytes=cache_dir.restored_bytes, seconds=since(start))
        session.journal.emit("command.start", command=shown(command))
        watch.begin(sink)
        before = time.monotonic() - start
        environment = {**watch.environment, ATTENDED: session.journal.run}
        with session.until_notice():
            passthrough = _passthrough(session, watch, strict=require_warm)
            code = passthrough.run(command.words, environment, cwd)
        mark = time.monotonic()
        session.journal.emit("command.end", code=code)
        seen = watch.observed()
        built = prepared.compiler.binaries(prepared.compiler.contents(cache_dir.tree) - cache_dir.before)
        fetched = found.found is not None
        marks = command_marks(seen, finished=code == 0)
        keeping = Keeping(
            session.store, prepared, record, cache_dir, nearest, replaces=recache, ended=code == 0, marks=marks
        )
        kept, problem = session.keep(keeping, seen, fetched=fetched, last=passthrough.stopped)
    if record is not None and (seen.compiled or built):
        session.journal.emit("command.compiled", graphs=seen.compiled, built=built, when=[], **beyond(seen, record))
    if seen.compiled and kept is None and not problem:
        bypass(session.journal, "caching-off", f"{seen.compiled} graphs compiled, nothing was kept")
    elif seen.compiled and kept is not None and not problem:
        unshared(session)
    for note in seen.notes:
        session.journal.emit("worker.note", note=note)
    after = time.monotonic() - mark
    done = told(
        command,
        found,
        seen,
        code=code,
        record=kept,
        nearest=nearest,
        built=built,
        problem=problem,
        restored_bytes=cache_dir.restored_bytes,
        saved_seconds=spared(seen, given, cache_dir),
        overhead_seconds=before + after,
        seconds=time.monotonic() - start,
    )
    done = structs.replace(done, bypassed=bypassed(session.journal))
    session.journal.emit("command.done", **done.as_dict())
    return done


def told(
    command: CommandLine,
    plan: Plan,
    seen: Observed,
    *,
    code: int,
    record: Record | None,
    nearest: Record | None,
    built: int,
    problem: str,
    restored_bytes: int,
    saved_seconds: float,
    overhead_seconds: float,
    seconds: float,
) -> Ran:
    """The answer of a run: `record` is what the store has now, `nearest` another command's; the rest as in `Ran`."""
    return Ran(
        name=plan.prepared.recipe.name,
        command=shown(command),
        exit_code=code,
        key=plan.prepared.key,
        status=plan.status,
        remote=plan.remote,
        nearest=nearest.key if nearest else "",
        compiled=seen.compiled,
        found=seen.found,
        built=built,
        kept=record is not None and not problem,
        problem=problem,
        modules=tuple(module.name for module in record.modules) if record else (),
        bytes=record.size if record else 0,
        restored_bytes=restored_bytes,
        compile_seconds=seen.compile_seconds,
        saved_seconds=saved_seconds,
        overhead_seconds=round(overhead_seconds, 3),
        seconds=round(seconds, 3),
        notes=tuple(seen.notes),
    )


def looked_up(prepared: Prepared, store: Store, remotes: Remotes) -> Plan:
    """The plan of a command. A remote's record counts more than one that a run which failed has left here."""
    found = plan(prepared, store, remotes, anew=True)
    if found.record is None or found.found is not None or ready(found):
        return found
    there = remotes.find(prepared.place, anew=True)
    if there is None or not there.shared.record.soft.get(FINISHED, True):
        return found
    record = there.shared.record
    return structs.replace(found, record=record, found=there, lacking=tuple(store.lacking(record.files)))


def ready(plan: Plan) -> bool:
    """The key's record is there, served of late, and a command that came to its end has made it."""
    return plan.record is not None and bool(plan.record.soft.get(FINISHED, True)) and not is_inert(plan.record)


def foreseen(plan: Plan, price: Price | None = None) -> Planned:
    """What a command will find: with a record that a failed run has made, or that did not serve, it may compile."""
    answer = planned(plan, price)
    if plan.record is None or ready(plan):
        return answer
    flaw = "its record was made by a run that failed, and may lack graphs"
    if is_inert(plan.record):
        flaw = "its last runs found none of the graphs that were kept: their notes say why"
    return structs.replace(answer, flaw=flaw, expected_seconds=None, dollars=None)


def not_warm(plan: Plan) -> CachekitError:
    """What `--require-warm` answers."""
    error = foreseen(plan).miss()
    assert error is not None
    return error


def nearest_of(plan: Plan) -> Record | None:
    """The nearest command's record, where its graphs can be used: a changed script mostly has many of the old ones."""
    near = plan.nearest.record if plan.nearest else None
    if near is None or near.model_type != COMMAND or edits_of(near) >= MOST_EDITS:
        return None
    if near.hard.get("command.name") != plan.prepared.ingredients.hard["command.name"]:
        return None
    if any(change.name.startswith(_FOREIGN) for change in plan.changes):
        return None
    return near


@contextmanager
def entered(
    session: Session, plan: Plan, *, require_warm: bool, recache: bool
) -> Iterator[tuple[CacheDir, Record | None, Record | None]]:
    """A compiler cache dir with what there is for a command; with what is left, where that turns out to be damaged.

    Args:
        session: Collaborators.
        plan: The command's plan.
        require_warm: Fail where its record cannot be fetched.
        recache: Restore nothing.

    Returns:
        The root; the command's record; without one, that of a similar command, whose graphs it was given.

    Raises:
        MissError: The record could not be fetched, under `require_warm`.
    """
    prepared = plan.prepared
    here = session.store.lookup(prepared.place) if plan.found and not recache else None
    try:
        record = None if recache else fetch_planned(session, plan)
        if record is not None and plan.found is not None:
            record = joined(session.store, record, here)
    except StoreError as error:  # a full disk, for one, keeps no command from running
        if require_warm:
            raise
        bypass(session.journal, "store-not-writable", str(error))
        record = None
    if record is None and require_warm:
        raise miss_error(unfetched(plan, session.remotes))
    record = record or here  # what a run that failed has left, if any
    nearest = None if record or recache else nearest_of(plan)

    def again(error: IntegrityError) -> Record | None:
        session.journal.emit("restore.refused", key=prepared.key, reason=f"{error.message}: {error.cause}")
        if record is None:
            unrestored(session, None, error, last=True)
            return None
        _, fetched = look_again(session, prepared, error, last=True)
        if fetched is None and require_warm:
            raise error
        return fetched

    with session.filled(prepared, record or nearest, again, anew=recache) as (cache_dir, given):
        yield (cache_dir, None, nearest) if given is nearest else (cache_dir, given, None)


def _passthrough(session: Session, watch: Watch, *, strict: bool) -> Passthrough:
    """The command's run, as the compiler's watch follows it. What that has to say stops no command but a strict one."""
    told: set[str] = set()

    def carefully(events: Any) -> None:
        try:
            for event in events():
                _tell(session, watch, dict(event))
        except CachekitError as error:
            if strict and isinstance(error, MissError):
                raise
            if error.message not in told:
                told.add(error.message)
                note = ": ".join(filter(None, [error.message, error.cause]))
                session.journal.emit("worker.note", note=f"{note}; {error.hint}" if error.hint else note)

    return Passthrough(
        look=lambda pid: carefully(partial(watch.look, pid)),
        hear=(lambda words: carefully(partial(watch.output, words))) if watch.listens else None,
    )


def _tell(session: Session, watch: Watch, event: dict[str, Any]) -> None:
    watch.event(event)
    name = str(event.pop("event", "unknown"))
    # Counts on the way would be shown in the midst of the command's own output.
    if name != "graphs":
        session.journal.emit(f"worker.{name}", **event)


def since(start: float) -> float:
    """Seconds since a moment of the monotonic clock, as journals have them."""
    return round(time.monotonic() - start, 3)
