"""The training worker: `start.py cachekit.training.worker JOB.json`, one job in a process of its own.

Under torchrun there are several, one a rank; on each node the first one tells events and the result, the others
only failures.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import structs

from cachekit import private
from cachekit.compilers.port import Runtime
from cachekit.decode import from_json
from cachekit.errors import CachekitError
from cachekit.process import die_with
from cachekit.recipe.ingredients import eval_batch
from cachekit.training.failure import of_exception
from cachekit.training.job import CounterWatch, Events, Job, Result

RESERVE = 64 << 10  # bytes; a result is smaller
# Variables with a folder of the Hub's clients [huggingface_hub: constants.py; datasets: config.py], read at import.
_CACHE = re.compile(r"(HF|HUGGINGFACE|TRANSFORMERS)_(.*_)?(HOME|CACHE|PATH)|PYTORCH_TRANSFORMERS_CACHE|XDG_CACHE_HOME")


def main() -> int:
    """Run the job that the command line names, and leave its result in the job's result file."""
    die_with(os.getppid())
    os.umask(os.umask(0o077) | 0o002)  # else others could make links in a checkpoint's folder while it is written
    for name, value in os.environ.items():
        if value and value[0] not in "/~$" and _CACHE.fullmatch(name):
            os.environ[name] = str(Path(value).absolute())  # it means the same in `_only_the_hub`
    job = from_json(Path(sys.argv[1]).read_bytes(), Job)
    rank = int(os.environ.get("LOCAL_RANK", "0"))  # each node has its own parent to answer to
    target = Path(f"{job.result}.rank{rank}") if rank else Path(job.result)
    # On a disk that fills up, this much is there to say so.
    fresh = target.with_name(f"new-{target.name}")
    private.write(fresh, b" " * RESERVE)
    events = Events(Path(f"{job.events}.rank{rank}") if rank else Path(job.events))
    try:
        result = _run(job, events)
    except CachekitError as error:
        _trace()
        result = Result(failure=error.document)
    except Exception as error:  # the parent gets every failure in words; the log has the traceback  # noqa: BLE001
        folders = [Path(job.output_dir), Path(job.checkpoints)] if job.mode == "train" else []
        folders += [Path(job.events).parent, Path(tempfile.gettempdir())]
        result = Result(failure=of_exception(error, events.failed_in, folders, _compiler_said(job, error)).document)
        _trace()
    with fresh.open("r+b") as stream:
        stream.write(msgspec.json.encode(result))
        stream.truncate()
    fresh.replace(target)
    events.emit("done")
    events.close()
    return 1 if result.failure else 0


def _compiler_said(job: Job, error: Exception) -> str | None:
    """See `Runtime.failure`; None where the compiler was never loaded."""
    module = sys.modules.get(job.runtime)
    return module.Runtime().failure(error) if module else None


def _trace() -> None:
    with suppress(OSError):  # the log's disk is full
        traceback.print_exc()


def _run(job: Job, events: Events) -> Result:
    if job.mode == "train":
        return _in_folder(job, events, job.output_dir)
    with tempfile.TemporaryDirectory(prefix="trial-", dir=Path(job.events).parent) as nowhere:
        return _in_folder(job, events, nowhere)


def _in_folder(job: Job, events: Events, output_dir: str) -> Result:
    workers = int(os.environ.get("WORLD_SIZE", "1"))  # torchrun's, over all nodes
    with events.timed("import"):
        runtime: Runtime = importlib.import_module(job.runtime).Runtime()
        import sklearn.metrics  # noqa: F401 - used by the first evaluation, and missed here, before the first compile

        from cachekit.training import backend, tasks, trainer
        from cachekit.training.tasks.port import Resized

        runtime.prepare(job.settings)
        used = backend.chosen(job.settings)(job, runtime, events, workers, output_dir)
    training = job.recipe.training
    task = tasks.select(job.recipe.task)
    with events.timed("data"), _only_the_hub(job):
        splits = task.rows(job, lambda said: events.emit("note", note=said))
        counts = {name: len(split) for name, split in splits.items()}
        if not used.evaluates:
            splits = {"train": splits["train"]}
    with events.timed("model"), _only_the_hub(job):
        processor, net = used.load(task)
    trial = job.mode == "trial"
    with events.timed("features"):
        most: dict[str, int] = {}
        if trial:
            # One full evaluation batch a worker, and one that is padded.
            most["train"] = trainer.TRIAL_STEPS * trainer.rows_of_a_step(training, used.copies)
            if used.evaluates:
                most["validation"] = eval_batch(job.recipe) * workers + 1
        work = task.ready(job, processor, net, splits, most)
        for note in work.notes:
            events.emit("note", note=note)
        trainer.check_rows(training, len(work.features["train"]), used.copies, work.unit)
        if trial:
            # A trial's shapes are those of the real run, its rows don't matter.
            work = structs.replace(
                work, features={name: Resized(work.features[name], count) for name, count in most.items()}
            )
    with CounterWatch(events, runtime.counters) as watch:
        outcome = used.run(processor, net, work, watch)
    runtime.finish()
    return Result(
        metrics=outcome.metrics,
        counters=runtime.counters(),
        seconds={**events.seconds, "graphs": outcome.graph_seconds},
        steps=outcome.steps,
        steps_taken=outcome.steps_taken,
        speed=outcome.speed,
        rows=counts,
        surprises=() if job.compiles_expected else tuple(dict.fromkeys(watch.compiled_in)),
        output_dir="" if trial else job.output_dir,
        resumed_from=job.resume,
    )


@contextmanager
def _only_the_hub(job: Job) -> Iterator[None]:
    """Let an id name something on the Hub, and no folder of the working directory.

    Transformers and datasets look there first, and would load a folder of that name, which may be somebody else's and
    which no plan knows of. So the working directory is an empty folder meanwhile; a recipe's paths are absolute.
    """
    before = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with tempfile.TemporaryDirectory(prefix="empty-", dir=Path(job.events).absolute().parent) as empty:
            os.chdir(empty)
            try:
                yield
            finally:
                os.fchdir(before)
    finally:
        os.close(before)


if __name__ == "__main__":
    sys.exit(main())
