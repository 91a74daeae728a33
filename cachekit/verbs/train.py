"""The fine-tune, with every compile skipped; what compiles all the same is reported and added to the record."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from cachekit.compilers import Observed, Watch
from cachekit.compilers.cachedir import CacheDir
from cachekit.compilers.keep import Keeping, spared
from cachekit.compilers.prepare import Prepared
from cachekit.config_files import make
from cachekit.data.shapes import check_data
from cachekit.disk import existing, named
from cachekit.errors import (
    CompilerUnavailableError,
    IntegrityError,
    InterruptedRunError,
    RecipeError,
    UsageError,
)
from cachekit.events import bypassed
from cachekit.path_steps import below, look_at
from cachekit.recipe import Recipe
from cachekit.recipe.model_config import check_package
from cachekit.store.record import Record
from cachekit.text import cause_of
from cachekit.training import trackers
from cachekit.training.checkpoints import checkpoint, is_jobs
from cachekit.training.job import Speed
from cachekit.training.run import run_job
from cachekit.values import Answer
from cachekit.verbs.plan import (
    as_miss,
    fetch_planned,
    look_again,
    miss_error,
    plan,
    tell,
    unshared,
)
from cachekit.verbs.session import Session, using_store
from cachekit.verbs.warm import WarmRun, warm
from cachekit.whose import Standing, of_another, open_to_others, shared_with
from cachekit.writers import exchanged_by, owners_of, planted_on

_DEEPEST = 4  # folders, of those in which a training writes: checkpoint-5/global_step5


class Trained(Answer, frozen=True, kw_only=True, tag="cachekit/train/1"):
    """What a training did; also `result.json` in its output folder.

    Attributes:
        compiled: Graphs that compiled in the training run; the promise is 0.
        built: Machine-code files that were built in the training run: 0 means that no compiler ran.
        found: Graphs that were found.
        surprises: Phases in which something compiled although everything had been restored.
        metrics: By split: `{"validation": {"accuracy": ..., "loss": ..., "rows": ...}}`.
        lacks: What the training could not have here, with a sentence.
        rows: By split.
        steps: Optimizer steps that the model has behind it.
        steps_taken: Of those, steps of this run.
        speed: Steps and rows a second, and the seconds of the evaluations.
        resumed_from: The checkpoint that the run started from.
        compile_seconds: What had to be warmed first took this long to compile.
        saved_seconds: What compiling took of the graphs that it found, where they were compiled; 0 where it compiled
            them itself before it trained, or a resumed run had no step left to take.
        overhead_seconds: What cachekit itself took: plan, restore, harvest.
        seconds: Wall time of it all.
        phases: Seconds by phase: import, data, model, train, evaluate, save; `graphs` is what the first steps took
            beyond the later ones: compiling, or loading what is compiled.
        counters: The compiler's own.
        bypassed: Why the run bypassed the cache, or a part of it, and how often; see `cachekit.events`.
    """

    recipe: str
    source: str
    key: str
    status: Literal["hit", "warmed"]
    compiled: int
    built: int
    found: int
    surprises: tuple[str, ...]
    metrics: Mapping[str, Mapping[str, float | int]]
    lacks: Mapping[str, str]
    rows: Mapping[str, int]
    steps: int
    steps_taken: int
    speed: Speed
    resumed_from: str
    output_dir: str
    compile_seconds: float
    saved_seconds: float
    overhead_seconds: float
    seconds: float
    phases: Mapping[str, float]
    counters: Mapping[str, int]
    bypassed: Mapping[str, int]


@using_store
def train(
    session: Session,
    prepared: Prepared,
    *,
    output_dir: Path,
    checkpoint_dir: Path | None = None,
    resume: str = "",
    recache: bool = False,
    require_warm: bool = False,
) -> Trained:
    """Run the fine-tune of a recipe; warm it first where it is not. See `Cache.train`.

    A result that could not be kept is told to the journal, and does not fail a training that worked.
    """
    start = time.monotonic()
    check_data(prepared.recipe)
    check_package(prepared.recipe)
    prepared.compiler.node.check(prepared.recipe)
    resume = checked(session, prepared, output_dir, resume, checkpoint_dir)
    reuse_bytes = 0 if recache else session.config.reuse_bytes
    planned = plan(prepared, session.store, session.remotes, anew=True, reuse_bytes=reuse_bytes)
    warmed, record = None, None if recache else fetch_planned(session, planned)
    if record is None:
        gone = planned.found and not recache
        missed = as_miss(planned, session.store, session.remotes, reuse_bytes) if gone else planned
        warmed = warm(session, prepared, recache=recache, require_warm=require_warm, planned=missed)
        record = warmed.record
    else:
        session.journal.emit("plan", recipe=prepared.recipe.name, key=prepared.key, status="hit", remote=planned.remote)
        tell(session, planned)

    def again(error: IntegrityError) -> Record:
        nonlocal warmed
        now, fetched = look_again(session, prepared, error, reuse_bytes)
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

    with session.filled(prepared, record, again) as (cache_dir, restored):
        record = restored or record
        overhead = time.monotonic() - start - (warmed.seconds if warmed else 0.0)
        session.journal.emit("restore", key=prepared.key, bytes=cache_dir.restored_bytes, seconds=round(overhead, 3))
        outputs = [folder for folder in (output_dir, checkpoint_dir) if folder is not None]
        missing = [one for folder in outputs for one in (folder, *folder.parents) if not one.exists()]
        for folder in outputs:
            _check_output(folder, begin=True)
        watches: list[Watch] = []
        try:
            with session.until_notice():
                result, seen = run_job(
                    session.launcher(),
                    prepared,
                    cache_dir,
                    "train",
                    store=session.store,
                    log=session.log,
                    output_dir=output_dir,
                    checkpoint_dir=checkpoint_dir,
                    resume=resume,
                    found=True,
                    wait=session.config.wait_seconds,
                    strict=require_warm,
                    figures=_figures(warmed),
                    begun=watches.append,
                )
        except InterruptedRunError:
            reported = frozenset[str]().union(*(watch.needs() for watch in watches))
            more = Keeping(session.store, prepared, record, cache_dir).keep_unfinished(0.0, reported)
            if more is not None:
                session.push_last(more)
            raise
        finally:
            for folder in missing:  # a training that never began, as where the machines do not fit, leaves none
                with suppress(OSError):
                    folder.rmdir()
        mark = time.monotonic()
        record, built = _add(session, prepared, record, cache_dir, seen)
    overhead += time.monotonic() - mark
    trained = Trained(
        recipe=prepared.recipe.name,
        source=prepared.source,
        key=prepared.key,
        status="warmed" if warmed is not None and warmed.compiled else "hit",
        compiled=result.counters.get("compiled", 0),
        built=built,
        found=result.counters.get("found", 0),
        surprises=result.surprises,
        metrics=result.metrics,
        lacks=prepared.fingerprint.lacks,
        rows=result.rows,
        steps=result.steps,
        steps_taken=result.steps_taken,
        speed=result.speed,
        resumed_from=result.resumed_from,
        output_dir=result.output_dir,
        compile_seconds=warmed.record.compile_seconds if warmed else 0.0,
        # What this command compiled itself a moment ago spared it nothing.
        saved_seconds=spared(seen, restored, cache_dir)
        if result.steps_taken and not (warmed is not None and warmed.compiled)
        else 0.0,
        overhead_seconds=round(overhead, 3),
        seconds=round(time.monotonic() - start, 3),
        phases=result.seconds,
        counters=result.counters,
        bypassed=bypassed(session.journal),
    )
    session.journal.emit("train.end", **trained.as_dict())
    return trained


def _figures(warmed: WarmRun | None) -> dict[str, float]:
    """What trackers are told beside the worker's counters. What this command compiled itself spared it nothing."""
    waited = {"waited_seconds": round(warmed.waited_seconds, 3) if warmed else 0.0}
    return {**waited, "saved_seconds": 0.0} if warmed is not None and warmed.compiled else waited


def beyond(seen: Observed, record: Record) -> dict[str, Any]:
    """What a run compiled although a record had been restored, for the journal: `cachekit why --run` reads it."""
    known = {module.name for module in record.modules}
    return {
        "key": record.key,
        "modules": sorted(seen.modules - known),
        "again": sorted(seen.seconds.keys() & known),
        "seconds": dict(seen.seconds),
    }


def _add(
    session: Session, prepared: Prepared, record: Record, cache_dir: CacheDir, seen: Observed
) -> tuple[Record, int]:
    """Add what compiled in spite of the record; never fails the training, which has worked."""
    built = prepared.compiler.binaries(prepared.compiler.contents(cache_dir.tree) - cache_dir.before)
    if not seen.compiled and not built:
        return record, 0
    when = seen.surprises
    session.journal.emit("train.compiled", graphs=seen.compiled, built=built, when=when, **beyond(seen, record))
    keeping = Keeping(session.store, prepared, record, cache_dir)
    kept, problem = session.keep(keeping, seen, fetched=False)
    if not problem:
        unshared(session)
    return kept or record, built


def output_folder(recipe: Recipe, said: str | Path | None) -> Path:
    """Where a training's model goes: as said, as the recipe says, or below the working directory.

    Raises:
        UsageError: It is in a home directory that is not known.
    """
    return named(said or recipe.training.output_dir or Path("runs") / recipe.name).absolute()


def folder_of(said: str | Path | None) -> Path | None:
    """The folder of the checkpoints as somebody says it; None where nobody does: the model's.

    Raises:
        UsageError: It is in a home directory that is not known.
    """
    return named(said).absolute() if said else None


def checked(
    session: Session, prepared: Prepared, output_dir: Path, resume: str, checkpoint_dir: Path | None = None
) -> str:
    """Find out before training whether it can go on from where it is told to, and write its result.

    Returns:
        The checkpoint to go on from; empty where none is wanted.

    Raises:
        RecipeError: The package of a tracker is not installed.
        CompilerUnavailableError: This host compiles only, which is said before it does.
        UsageError: The checkpoint cannot be used, or a folder not be written.
    """
    for folder in filter(None, (output_dir, checkpoint_dir)):
        _check_output(folder)
    if lacking := trackers.missing(prepared.recipe.training.report_to):
        raise RecipeError(
            f"training.report_to names {' and '.join(lacking)}, which cannot be imported",
            cause="the package is not installed beside cachekit",
            hint=f"python -m pip install {' '.join(lacking)}; or report nothing: --set training.report_to=[]",
        )
    if reason := prepared.fingerprint.lacks.get("device"):
        raise CompilerUnavailableError(
            "there is no device here to train on",
            cause=reason,
            hint="`cachekit warm` compiles here, and `cachekit push` shares the record; train where the devices are",
        )
    if resume and (reason := prepared.fingerprint.lacks.get("resume")):
        raise UsageError(
            f"{prepared.recipe.name} cannot be resumed", cause=reason, hint="leave --resume out to start over"
        )
    return checkpoint(resume, checkpoint_dir or output_dir, session.journal)


def _check_output(folder: Path, *, begin: bool = False) -> None:
    """See that a model can be written to a folder, and that no other user's link or folder leads the writer elsewhere.

    The folder is made only by a training that begins: one that does not leaves nothing behind. Somebody else may have
    made it since the first look, or could do so while the worker starts.
    """
    try:
        if begin:
            make(folder, 0o775)
        jobs = is_jobs(folder)
        told = (None if jobs else _stranger(folder)) or _made_in(existing(folder), folder)
        if told and not jobs:
            raise UsageError(
                f"the output folder {folder} is not written to: a training replaces and removes files there",
                cause=f"{told.why}, so another user could make the training write elsewhere",
                hint="choose a folder of your own with --output-dir"
                + (f"; or check that nothing there is a link, then run: {told.mend}" if told.mend else ""),
            )
    except OSError as error:
        raise UsageError(
            f"the output folder {folder} cannot be written",
            cause=cause_of(error),
            hint="choose another folder with --output-dir",
        ) from error


def _made_in(there: Path, folder: Path) -> Standing | None:
    """Who else could write to a folder that the training makes, as the umask lets them; found by making one.

    A folder with the bit for it gives its group to what is made there, also one that this user is not in.
    """
    probe = there / f".cachekit-{uuid.uuid4().hex}"
    probe.mkdir(0o775)
    try:
        step = look_at(folder, probe)
    finally:
        probe.rmdir()
    return structs.replace(open_to_others(step), mend="umask 022") if step.to_strangers else None


def _stranger(folder: Path) -> Standing | None:
    """Who else made something in a folder, or can make a link there, before the training or while it goes on.

    The writer of a model and of checkpoints follows links.
    """
    told = planted_on(folder, file=False) or exchanged_by(folder / "config.json", found=True, followed=True)
    if told or not folder.is_dir():
        return told
    owners = {0, os.geteuid(), *owners_of(folder)}  # of whom the line above accepts each
    for step in below(folder, _DEEPEST, files=True):
        if step.place.is_symlink():
            with suppress(FileNotFoundError):
                step.place.stat()  # raises for a link that leads to itself
            inside = step.place / "config.json" if step.place.is_dir() else step.place
            told = planted_on(step.place, file=inside == step.place and inside.exists())
            if told := told or exchanged_by(inside, found=True, followed=True):
                return told
        user = step.state.st_uid
        if user not in owners and not shared_with([user], folder):
            return of_another(step.place, step.state)
        if step.to_strangers and step.last:
            return open_to_others(step)
    return None
