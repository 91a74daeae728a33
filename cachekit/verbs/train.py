"""The fine-tune, with every compile skipped; what compiles all the same is reported and added to the record."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs

from cachekit.compilers import Observed
from cachekit.compilers.cachedir import CacheDir
from cachekit.compilers.keep import Keeping
from cachekit.compilers.prepare import Prepared
from cachekit.data.shapes import check_data
from cachekit.disk import existing
from cachekit.errors import IntegrityError, UsageError
from cachekit.events import bypassed
from cachekit.recipe import Recipe
from cachekit.recipe.model_folder import check_package
from cachekit.store.record import Record
from cachekit.training import Result
from cachekit.training.checkpoints import checkpoint
from cachekit.training.run import run_job
from cachekit.values import by_value
from cachekit.verbs.plan import (
    HERE,
    Plan,
    Searching,
    as_miss,
    fetch_planned,
    look_again,
    miss_error,
    plan,
    tell,
    unshared,
)
from cachekit.verbs.session import Session, holding
from cachekit.verbs.warm import Warmed, warm


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training did.

    Attributes:
        plan: What was found beforehand.
        warmed: What had to be warmed first; None after a hit.
        record: The record that was used, with what was added.
        result: What the worker reported.
        built: Machine-code files that were built in the training run: 0 means that no compiler ran.
        overhead_seconds: What cachekit itself took: plan, restore, harvest.
        seconds: Wall time of it all.
        bypassed: Why it bypassed the cache, or a part of it, and how often; see `cachekit.events`.
    """

    plan: Plan
    warmed: Warmed | None
    record: Record
    result: Result
    built: int
    overhead_seconds: float
    seconds: float
    bypassed: Mapping[str, int] = field(default_factory=dict)

    __hash__ = by_value

    @property
    def compiled(self) -> int:
        """Graphs that compiled in the training run; the promise is 0."""
        return self.result.counters.get("compiled", 0)

    @property
    def saved_seconds(self) -> float:
        """What the first steps took less than a cold compile; negative where a hit did not pay."""
        return round(self.record.cold_seconds - self.result.seconds.get("graphs", 0.0), 3)

    def as_dict(self) -> dict[str, Any]:
        """For programs, and for `result.json` in the output folder."""
        prepared = self.plan.prepared
        return {
            "recipe": prepared.recipe.name,
            "source": prepared.source,
            "key": prepared.key,
            "status": "warmed" if self.warmed is not None and self.warmed.compiled else "hit",
            "compiled": self.compiled,
            "built": self.built,
            "found": self.result.counters.get("found", 0),
            "surprises": list(self.result.surprises),
            "metrics": self.result.metrics,
            "lacks": dict(prepared.fingerprint.lacks),
            "rows": self.result.rows,
            "steps": self.result.steps,
            "resumed_from": self.result.resumed_from,
            "output_dir": self.result.output_dir,
            "compile_seconds": self.warmed.record.compile_seconds if self.warmed else 0.0,
            "saved_seconds": self.saved_seconds,
            "overhead_seconds": round(self.overhead_seconds, 3),
            "seconds": round(self.seconds, 3),
            "phases": self.result.seconds,
            "counters": self.result.counters,
            "bypassed": dict(self.bypassed),
        }


@holding
def train(
    session: Session,
    prepared: Prepared,
    *,
    output_dir: Path,
    resume: str = "",
    recache: bool = False,
    require_warm: bool = False,
) -> Trained:
    """Run the fine-tune of a recipe; warm it first where it is not.

    Args:
        session: Collaborators.
        prepared: The recipe.
        output_dir: Where checkpoints and the model go.
        resume: `auto` for the newest whole checkpoint there, or a checkpoint's path.
        recache: Compile anew first.
        require_warm: Fail instead of compiling.

    Raises:
        CachekitError: See `warm` and `run_job`. A result that could not be kept is told to the journal, and does not
            fail a training that worked.
    """
    start = time.monotonic()
    check_data(prepared.recipe)
    check_package(prepared.recipe)
    if resume and (reason := prepared.fingerprint.lacks.get("resume")):
        raise UsageError(
            f"{prepared.recipe.name} cannot be resumed", cause=reason, hint="leave --resume out to train anew"
        )
    resume = checkpoint(resume, output_dir, session.journal)
    searching = HERE if require_warm or recache else Searching.as_warm(session.config)
    planned = plan(prepared, session.store, session.remotes, anew=True, searching=searching)
    warmed, record = None, None if recache else fetch_planned(session, planned)
    if record is None:
        gone = planned.found and not recache
        missed = as_miss(planned, session.store, session.remotes, searching) if gone else planned
        warmed = warm(session, prepared, recache=recache, require_warm=require_warm, planned=missed)
        record = warmed.record
    else:
        session.journal.emit("plan", recipe=prepared.recipe.name, key=prepared.key, status="hit", remote=planned.remote)
        tell(session, planned)

    def again(error: IntegrityError) -> Record:
        nonlocal warmed
        now, fetched = look_again(session, prepared, error, searching)
        if fetched is not None:
            return fetched
        reason = f"{error.message}: {error.cause}"
        if require_warm and now.hit:
            raise error
        if require_warm:
            raise miss_error(structs.replace(now, flaw=now.flaw or reason)) from None
        if now.hit:  # the record is whole, and the compiler does not want what it holds
            session.journal.emit("restore.refused", key=prepared.key, reason=reason)
        warmed = warm(session, prepared, recache=now.hit, planned=now)
        return warmed.record

    with session.filled(prepared, record, again) as (live, restored):
        record = restored or record
        overhead = time.monotonic() - start - (warmed.seconds if warmed else 0.0)
        session.journal.emit("restore", key=prepared.key, bytes=live.restored_bytes, seconds=round(overhead, 3))
        result, seen = run_job(
            session.launcher(),
            session.compiler,
            prepared,
            live,
            "train",
            store=session.store,
            log=session.log,
            output_dir=output_dir,
            resume=resume,
            found=True,
            strict=require_warm,
        )
        mark = time.monotonic()
        record, built = _add(session, prepared, record, live, seen)
    overhead += time.monotonic() - mark
    counts = bypassed(session.journal)
    trained = Trained(planned, warmed, record, result, built, overhead, time.monotonic() - start, counts)
    session.journal.emit("train.end", **trained.as_dict())
    return trained


def beyond(seen: Observed, record: Record) -> dict[str, Any]:
    """What a run compiled although a record had been restored, for the journal: `cachekit why --run` reads it."""
    known = {module.name for module in record.modules}
    return {
        "key": record.key,
        "modules": sorted(seen.modules - known),
        "again": sorted(seen.seconds.keys() & known),
        "seconds": dict(seen.seconds),
    }


def _add(session: Session, prepared: Prepared, record: Record, live: CacheDir, seen: Observed) -> tuple[Record, int]:
    """Add what compiled in spite of the record; never fails the training, which has worked."""
    built = session.compiler.binaries(session.compiler.contents(live.tree) - live.before)
    if not seen.compiled and not built:
        return record, 0
    when = seen.surprises
    session.journal.emit("train.compiled", graphs=seen.compiled, built=built, when=when, **beyond(seen, record))
    keeping = Keeping(session.store, session.compiler, prepared, record, live)
    kept, problem = session.keep(keeping, seen, fetched=False)
    if not problem:
        unshared(session)
    return kept or record, built


def output_folder(recipe: Recipe, said: Path | None) -> Path:
    """Where a training's model goes: as said, as the recipe says, or below the working directory."""
    return (said or Path(recipe.training.output_dir or Path("runs") / recipe.name)).expanduser().absolute()


def check_output(folder: Path) -> None:
    """Find out before training whether its result can be written.

    Raises:
        UsageError: It cannot.
    """
    # Made only by a training that starts: one that does not leaves nothing behind.
    try:
        probe = existing(folder) / f".cachekit-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"the output folder {folder} cannot be written",
            cause=error.strerror or str(error),
            hint="name another with --output-dir",
        ) from error
