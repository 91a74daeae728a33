"""Start the worker for a prepared recipe, and pass its events to the journal."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from cachekit.compilers import Observed, Run, Watch
from cachekit.compilers.cachedir import CacheDir
from cachekit.compilers.prepare import Prepared
from cachekit.errors import CachekitError, CompileError, InterruptedRunError, TrainingError
from cachekit.events import Journal, bypass
from cachekit.recipe import ingredients, model_config
from cachekit.store import Store
from cachekit.store.notes import note_attempt
from cachekit.training import Job, ProcessLauncher, Result
from cachekit.training.meeting import Meeting, meeting
from cachekit.training.participant import Participant

# Events that come many times a second; shown, not written down.
FREQUENT = {"step", "graphs", "at", "tick"}
# What torchrun and its like tell their workers; ours is one worker.
LAUNCHERS = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

SOONEST = 60.0  # seconds that machines wait for each other at least: they never begin at the same moment


def run_job(
    launcher: ProcessLauncher,
    prepared: Prepared,
    cache_dir: CacheDir,
    mode: Literal["trial", "train"],
    *,
    store: Store,
    log: Path,
    output_dir: Path | None = None,
    checkpoint_dir: Path | None = None,
    resume: str = "",
    found: bool,
    wait: float,
    strict: bool = False,
    figures: Mapping[str, float] | None = None,
    begun: Callable[[Watch], object] = lambda _: None,
) -> tuple[Result, Observed]:
    """Run the worker to its end.

    Args:
        launcher: Starts the worker.
        prepared: The recipe.
        cache_dir: The compiler cache dir.
        mode: Of the job.
        store: Its journal is told, and a trial that fails is noted there.
        log: The file that the worker prints to.
        output_dir: Of a training.
        checkpoint_dir: Likewise; see `Job.checkpoint_dir`.
        resume: See `Job.resume`.
        found: Everything was restored.
        wait: Seconds to wait for the other machines of a run on several.
        strict: Stop at the first compile, where the compiler can be watched.
        figures: See `Job.figures`.
        begun: Is given what follows the run, as it begins.

    Returns:
        What the worker reported, with the compiler's own counts, and what the compiler did.

    Raises:
        MissError: Something compiled, under `strict`.
        CompileError: The trial left something uncompiled.
        WaitedTooLongError: Another machine of the run has not come.
        UsageError: Another machine is to run something else.
        CachekitError: The worker failed, or another machine did.
    """
    recipe, compiler = prepared.recipe, prepared.compiler
    folder = model_config.folder_of(recipe)
    weights = str(folder) if folder else recipe.model.id or ""
    job = Job(
        mode=mode,
        recipe=structs.replace(recipe, environment={}),
        labels=prepared.labels,
        precision=ingredients.precision(recipe, prepared.fingerprint.bf16),
        config=dict(prepared.architecture.config),
        weights=weights,
        tokenizer=recipe.model.tokenizer or weights,
        output_dir=str(output_dir or ""),
        runtime=compiler.runtime,
        settings=compiler.settings(recipe),
        events=str(cache_dir.work / "events.jsonl"),
        result=str(cache_dir.work / "result.json"),
        resume=resume,
        compiles_expected=not found,
        figures=dict(figures or {}),
        checkpoint_dir=str(checkpoint_dir or ""),
    )

    watch = compiler.watch(Run(recipe, cache_dir.tree, mode, found, strict, cache_dir.restored))
    begun(watch)

    others: Meeting | None = None

    def sink(event: dict[str, Any]) -> None:
        watch.event(event)
        name = str(event.pop("event", "unknown"))
        if others is not None and name == "tick":
            others.look()
        (store.journal.show if name in FREQUENT else store.journal.emit)(f"worker.{name}", **event)

    # Sets and dictionaries keyed by strings must iterate alike in every worker, or graphs could differ by seed.
    changes: dict[str, str | None] = {"PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}
    # Settings of other launchers that Transformers reads by itself would change precision or layout behind the key.
    changes |= dict.fromkeys((name for name in os.environ if name.startswith("ACCELERATE_")), None)
    changes |= dict.fromkeys(LAUNCHERS)
    changes |= ingredients.worker_variables(recipe)
    changes |= watch.environment
    store.journal.emit("worker.start", mode=mode, log=str(log), output_dir=job.output_dir)
    watch.begin(sink)
    # Transformers makes the folder before anything is in it.
    targets = [one for one in (output_dir, checkpoint_dir) if one]
    made = [place for one in targets for place in (one, *one.parents) if not place.exists()]
    try:
        with _meeting(prepared, job, store.journal, wait) as others:
            result = launcher.run(job, changes, log, sink, watch)
        if mode == "trial":
            try:
                watch.complete(sink)
            except KeyboardInterrupt as error:
                cause = f"{str(error) or 'Ctrl-C'} while graphs compiled; see {log}"
                raise InterruptedRunError("stopped", cause=cause, hint="run the command again") from None
    except CachekitError as error:
        with suppress(OSError):
            for place in made:
                place.rmdir()
        if mode == "trial" and isinstance(error, CompileError | TrainingError):
            note_attempt(store.layout, prepared.key, error, log, watch.needs())
        raise
    counts, seconds = result.counters, result.seconds.get("graphs", 0.0)
    carried = counts["found_ms"] / 1000 if "found_ms" in counts else None
    told = Observed(
        counts.get("found", 0), counts.get("compiled", 0), seconds, result.surprises, timed=False, found_seconds=carried
    )
    seen = watch.observed(told)
    if seen.compiled and not seen.timed:
        seen = structs.replace(seen, compile_seconds=seconds)
    result = structs.replace(
        result, counters={**counts, "found": seen.found, "compiled": seen.compiled}, surprises=seen.surprises
    )
    for note in seen.notes:
        store.journal.emit("worker.note", note=note)
    store.journal.emit("worker.end", mode=mode, counters=result.counters, seconds=result.seconds, steps=result.steps)
    refused = max(result.counters.get("fxgraph_cache_bypass", 0), result.counters.get("autograd_cache_bypass", 0))
    if refused:
        bypass(store.journal, "compiler-bypass", f"{refused} graphs in the {mode} run")
    return result, seen


def _trained_by(prepared: Prepared) -> dict[str, Any]:
    """What all machines of a training have alike although it is in no key."""
    names = ("training.", "model.name", "data.name")
    soft = prepared.ingredients.soft
    return {name: soft[name] for name in soft if name.startswith(names) and name != "training.dataloader_num_workers"}


@contextmanager
def _meeting(prepared: Prepared, job: Job, journal: Journal, wait: float) -> Iterator[Meeting | None]:
    """The other machines, where the run is one with theirs; None where it is this machine's alone."""
    recipe, compiler, told = prepared.recipe, prepared.compiler, ""
    if not (prepared.tries_together if job.mode == "trial" else recipe.parallel.nodes > 1):
        yield None
        return

    def waiting(whom: str, waited: float) -> None:
        nonlocal told
        if whom != told:
            told = whom
            journal.emit("nodes.wait", holder=whom)
        journal.show("lock.waiting", holder=whom, waited=waited)

    me = Participant(
        rank=compiler.node.rank,
        host=socket.gethostname(),
        nodes=recipe.parallel.nodes,
        mode=job.mode,
        key=prepared.key,
        hard=dict(prepared.ingredients.hard),
        soft=_trained_by(prepared) if job.mode == "train" else {},
        resume=Path(job.resume).name,
    )
    with meeting(me, compiler.node, max(wait, SOONEST), waiting) as others:
        yield others
