"""A user's own command with a restored compiler cache dir before it and a harvest after it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from cachekit.compilers import Observed, Run, Watch
from cachekit.compilers.cachedir import CacheDir
from cachekit.compilers.command import shown
from cachekit.compilers.keep import FINISHED, REPORTED, Keeping, command_marks
from cachekit.compilers.prepare import Prepared
from cachekit.errors import CachekitError, IntegrityError, MissError
from cachekit.events import bypass, bypassed
from cachekit.recipe.command import CommandLine
from cachekit.store.record import COMMAND, Record
from cachekit.training.passthrough import Passthrough
from cachekit.values import by_value
from cachekit.verbs.plan import Plan, fetch_planned, look_again, plan, tell, unrestored, unshared
from cachekit.verbs.session import Session, holding
from cachekit.verbs.train import beyond

# Set for a command that runs under cachekit, to this run's name: what it starts need not look for a cache itself.
ATTENDED = "CACHEKIT_RUN"

# Old graphs travel along with those of an edited script; after that many edits they are left behind.
MOST_MODULES = 8
# Between records that differ in one of these no graph can be shared.
_FOREIGN = ("compiler.name", "toolchain.", "target.")


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a command.

    Attributes:
        command: Its words, without secrets.
        code: Its exit code.
        plan: What was found beforehand.
        record: What the store has now for the key; None where nothing compiled, or nothing could be kept.
        seed: The record of a similar command whose graphs it was given, as it had none of its own.
        seen: What the compiler did.
        built: Machine-code files, or modules, that are new.
        problem: Why what compiled could not be kept; empty where it was.
        restored_bytes: What it was given.
        overhead_seconds: What cachekit itself took.
        seconds: Wall time of it all.
        bypassed: Why it bypassed the cache, or a part of it, and how often; see `cachekit.events`.
    """

    command: list[str]
    code: int
    plan: Plan
    record: Record | None
    seed: Record | None
    seen: Observed
    built: int
    problem: str
    restored_bytes: int
    overhead_seconds: float
    seconds: float
    bypassed: Mapping[str, int] = field(default_factory=dict)

    __hash__ = by_value

    @property
    def saved_seconds(self) -> float:
        """What compiling took less than it did when the record was made."""
        base = self.plan.record or self.seed
        return round(base.compile_seconds - self.seen.compile_seconds, 3) if base and self.restored_bytes else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        record = self.record
        return {
            "command": self.command,
            "exit_code": self.code,
            "key": self.plan.prepared.key,
            "status": "hit" if self.plan.hit else "miss",
            "remote": self.plan.remote,
            "seed": self.seed.key if self.seed else "",
            "compiled": self.seen.compiled,
            "found": self.seen.found,
            "built": self.built,
            "kept": record is not None and not self.problem,
            "problem": self.problem,
            "modules": [module.name for module in record.modules] if record else [],
            "bytes": record.size if record else 0,
            "restored_bytes": self.restored_bytes,
            "compile_seconds": self.seen.compile_seconds,
            "saved_seconds": self.saved_seconds,
            "overhead_seconds": round(self.overhead_seconds, 3),
            "seconds": round(self.seconds, 3),
            "notes": list(self.seen.notes),
            "bypassed": dict(self.bypassed),
        }


@holding
def run(
    session: Session,
    prepared: Prepared,
    command: CommandLine,
    *,
    require_warm: bool = False,
    recache: bool = False,
    cwd: Path | None = None,
) -> Ran:
    """Run a command; nothing that compiled in an earlier run of it compiles again.

    Args:
        session: Collaborators.
        prepared: See `prepare_command`.
        command: The command.
        require_warm: Fail instead of compiling.
        recache: Give it nothing, and keep what it compiles in place of what there was.
        cwd: Its working directory.

    Raises:
        MissError: Something would compile, or began to, under `require_warm`.
        UsageError: There is no such program.
        StoreError: No compiler cache dir can be made.
    """
    start = time.monotonic()
    planned = plan(prepared, session.store, session.remotes, anew=True)
    if require_warm and not ready(planned):
        raise not_warm(planned)
    status = "hit" if planned.hit else "miss"
    session.journal.emit("plan", recipe=command.name, key=prepared.key, status=status, remote=planned.remote)
    tell(session, planned, recache=recache)
    with entered(session, planned, require_warm=require_warm, recache=recache) as (live, record, seed):
        given = record or seed
        found = record is not None and bool(record.soft.get(REPORTED))
        watch = session.compiler.watch(Run(prepared.recipe, live.tree, "command", found, require_warm, live.restored))
        sink = partial(_tell, session, watch)
        if given is not None:
            session.journal.emit("restore", key=prepared.key, bytes=live.restored_bytes, seconds=_since(start))
        session.journal.emit("command.start", command=shown(command))
        watch.begin(sink)
        before = time.monotonic() - start
        environment = {**watch.environment, ATTENDED: session.journal.run}
        code = _passthrough(session, watch, strict=require_warm).run(command.words, environment, cwd)
        mark = time.monotonic()
        session.journal.emit("command.end", code=code)
        seen = watch.observed() or Observed()
        built = session.compiler.binaries(session.compiler.contents(live.tree) - live.before)
        fetched = planned.found is not None
        marks = command_marks(seen, finished=code == 0)
        keeping = Keeping(session.store, session.compiler, prepared, record, live, seed, replaces=recache, marks=marks)
        kept, problem = session.keep(keeping, seen, fetched=fetched)
    if record is not None and (seen.compiled or built):
        session.journal.emit("command.compiled", graphs=seen.compiled, built=built, when=[], **beyond(seen, record))
    if seen.compiled and kept is None and not problem:
        bypass(session.journal, "caching-off", f"{seen.compiled} graphs compiled, nothing was kept")
    elif seen.compiled and kept is not None and not problem:
        unshared(session)
    for note in seen.notes:
        session.journal.emit("worker.note", note=note)
    after = time.monotonic() - mark
    done = Ran(
        shown(command), code, planned, kept, seed, seen, built, problem, live.restored_bytes, before + after,
        time.monotonic() - start, bypassed(session.journal),
    )  # fmt: skip
    session.journal.emit("command.done", **done.as_dict())
    return done


def ready(planned: Plan) -> bool:
    """The key's record is there, and a command that came to its end has made it."""
    return planned.record is not None and bool(planned.record.soft.get(FINISHED, True))


def not_warm(planned: Plan) -> MissError:
    """What `--require-warm` answers."""
    differs = ", ".join(change.name for change in planned.changes[:3])
    near = f"the nearest record differs in {differs}" if differs else "no record is near"
    if planned.record is not None:
        near = "its record was made by a run that failed, and may lack graphs"
    return MissError(
        f"{planned.prepared.recipe.name} is not warm: key {planned.prepared.key[:16]}",
        cause=planned.flaw or near,
        hint="run it once without --require-warm",
    )


def seed_of(planned: Plan) -> Record | None:
    """The nearest command's record, where its graphs can be used: a changed script mostly has many of the old ones."""
    near = planned.near.record if planned.near else None
    if near is None or near.model_type != COMMAND or len(near.modules) > MOST_MODULES:
        return None
    if near.hard.get("command.name") != planned.prepared.ingredients.hard["command.name"]:
        return None
    if any(change.name.startswith(_FOREIGN) for change in planned.changes):
        return None
    return near


@contextmanager
def entered(
    session: Session, planned: Plan, *, require_warm: bool, recache: bool
) -> Iterator[tuple[CacheDir, Record | None, Record | None]]:
    """A compiler cache dir with what there is for a command; with what is left, where that turns out to be damaged.

    Args:
        session: Collaborators.
        planned: The command's plan.
        require_warm: Fail where its record cannot be had.
        recache: Restore nothing.

    Returns:
        The root; the command's record; without one, that of a similar command, whose graphs it was given.

    Raises:
        MissError: The record could not be fetched, under `require_warm`.
    """
    prepared = planned.prepared
    record = None if recache else fetch_planned(session, planned)
    if record is None and require_warm:
        raise not_warm(structs.replace(planned, record=None, found=None, flaw="it could not be fetched"))
    seed = None if record or recache else seed_of(planned)

    def again(error: IntegrityError) -> Record | None:
        session.journal.emit("restore.refused", key=prepared.key, reason=f"{error.message}: {error.cause}")
        if record is None:
            unrestored(session, None, error, last=True)
            return None
        _, fetched = look_again(session, prepared, error, last=True)
        if fetched is None and require_warm:
            raise error
        return fetched

    with session.filled(prepared, record or seed, again) as (live, given):
        yield (live, None, seed) if given is seed else (live, given, None)


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


def _since(start: float) -> float:
    return round(time.monotonic() - start, 3)
