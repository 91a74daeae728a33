"""The fine-tune, with every compile skipped; what compiles all the same is reported and added to the record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs

from cachekit.compilers import Observed
from cachekit.data.shapes import check_data
from cachekit.errors import CachekitError, IntegrityError, StoreError, UsageError
from cachekit.events import bypass, bypassed
from cachekit.recipe.model_folder import check_package
from cachekit.store.record import Record
from cachekit.training import Result
from cachekit.values import by_value
from cachekit.verbs.going_without import of_plan, own_root, unrestored, unshared
from cachekit.verbs.live import LiveRoot, live_root
from cachekit.verbs.obtain import have
from cachekit.verbs.plan import HERE, Plan, Searching, as_miss, miss_error, plan
from cachekit.verbs.prepare import Prepared
from cachekit.verbs.push import push
from cachekit.verbs.resume import checkpoint
from cachekit.verbs.run_job import run_job
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
        bypassed: Why it went without the cache, or a part of it, and how often; see `cachekit.events`.
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
    planned = plan(prepared, session.store, session.chain, anew=True, searching=searching)
    warmed, record = None, None if recache else have(session, planned)
    if record is None:
        gone = planned.found and not recache
        missed = as_miss(planned, session.store, session.chain, searching) if gone else planned
        warmed = warm(session, prepared, recache=recache, require_warm=require_warm, planned=missed)
        record = warmed.record
    else:
        session.journal.emit("plan", recipe=prepared.recipe.name, key=prepared.key, status="hit", tier=planned.tier)
        of_plan(session, planned)
    overhead = time.monotonic() - start - (warmed.seconds if warmed else 0.0)

    def run(record: Record) -> Trained:
        mark = time.monotonic()
        with live_root(session, prepared.key, record, own_root(session, prepared.recipe)) as live:
            before = overhead + time.monotonic() - mark
            session.journal.emit("restore", key=prepared.key, bytes=live.restored_bytes, seconds=round(before, 3))
            result, seen = run_job(
                session, prepared, live, "train", output_dir=output_dir, resume=resume, found=True, strict=require_warm
            )
            mark = time.monotonic()
            record, built = _add(session, prepared, record, live, seen)
        after = time.monotonic() - mark
        counts = bypassed(session.journal)
        return Trained(planned, warmed, record, result, built, before + after, time.monotonic() - start, counts)

    try:
        trained = run(record)
    except IntegrityError as error:
        # Between plan and restore a blob went bad: the store has set it aside and told, and now it is a miss. Or the
        # compiler does not want what the record holds, although it is whole: then it is a hit still.
        again = plan(prepared, session.store, session.chain, anew=True, searching=searching)
        unrestored(session, again, error)
        if again.found and (fetched := have(session, again)):
            trained = run(fetched)
            session.journal.emit("train.end", **trained.as_dict())
            return trained
        if require_warm and again.hit:
            raise
        if require_warm:
            raise miss_error(structs.replace(again, flaw=again.flaw or f"{error.message}: {error.cause}")) from None
        if again.hit:
            session.journal.emit("restore.refused", key=prepared.key, reason=f"{error.message}: {error.cause}")
        warmed = warm(session, prepared, recache=again.hit, planned=again)
        trained = run(warmed.record)
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


def _add(session: Session, prepared: Prepared, record: Record, live: LiveRoot, seen: Observed) -> tuple[Record, int]:
    """Add what compiled in spite of the record; never fails the training, which has worked."""
    graphs = seen.compiled
    built = session.compiler.binaries(session.compiler.contents(live.tree) - live.before)
    if not graphs and not built:
        return record, 0
    session.journal.emit("train.compiled", graphs=graphs, built=built, when=seen.surprises, **beyond(seen, record))
    try:
        with session.store.workspace() as workspace:
            # Not to copy gigabytes that the store has: only what the run used beyond the record.
            new = structs.replace(seen, modules=seen.modules - {module.name for module in record.modules})
            harvest = session.compiler.harvest(live.tree, live.before, prepared.fingerprint, workspace, new)
            if harvest is not None:
                with session.store.changing(record.key):
                    # Hours may have passed: others have added theirs, or compiled anew.
                    now = session.store.lookup(record.key, record.directory, record.model_type) or record
                    known = {module.name for module in now.modules}
                    modules = [module for module in harvest.modules if module.name not in known]
                    if modules:
                        # What the run needed in all: the record may have counted some of what it compiled.
                        total = max(now.graphs, seen.found + graphs)
                        now = structs.replace(now, modules=(*now.modules, *modules), graphs=total)
                        wanted = {file.sha256 for module in modules for file in module.files}
                        files = {sha256: path for sha256, path in harvest.files.items() if sha256 in wanted}
                        session.store.publish(now, files)
                    record = now
            push(session, [record], session.chain.writable)
            unshared(session)
    except (CachekitError, OSError) as error:
        session.journal.emit("train.not-kept", reason=str(error))
        bypass(session.journal, "store-not-writable" if isinstance(error, StoreError) else "not-kept", str(error))
    return record, built
