"""The training worker: `start.py cachekit.training.worker JOB.json`, one job in a process of its own.

Under torchrun there are several, one a rank; on each node the first one tells events and the result, the others
only failures.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from cachekit.errors import CachekitError
from cachekit.ingredients import eval_batch
from cachekit.leash import die_with
from cachekit.training.events import CounterWatch, Events
from cachekit.training.failure import of_exception
from cachekit.training.job import Failure, Job, Result

RESERVE = 64 << 10  # bytes; a result is smaller


def main() -> int:
    """Run the job that the command line names, and leave its result in the job's result file."""
    die_with(os.getppid())
    job = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Job)
    rank = int(os.environ.get("LOCAL_RANK", "0"))  # each node has its own parent to answer to
    target = Path(f"{job.result}.rank{rank}") if rank else Path(job.result)
    # On a disk that fills up, this much is there to say so.
    fresh = target.with_name(f"new-{target.name}")
    fresh.write_bytes(b" " * RESERVE)
    events = Events(Path(f"{job.events}.rank{rank}") if rank else Path(job.events))
    try:
        result = _run(job, events)
    except CachekitError as error:
        _trace()
        result = Result(failure=Failure(error.code, error.message, error.cause, error.hint))
    except Exception as error:  # the parent gets every failure in words; the log has the traceback  # noqa: BLE001
        folders = [Path(job.output_dir)] if job.mode == "train" else []
        folders += [Path(job.events).parent, Path(tempfile.gettempdir())]
        result = Result(failure=of_exception(error, events.failed_in, folders))
        _trace()
    with fresh.open("r+b") as stream:
        stream.write(msgspec.json.encode(result))
        stream.truncate()
    fresh.replace(target)
    events.emit("done")
    events.close()
    return 1 if result.failure else 0


def _trace() -> None:
    with suppress(OSError):  # the log's disk is full
        traceback.print_exc()


def _run(job: Job, events: Events) -> Result:
    workers = int(os.environ.get("WORLD_SIZE", "1"))  # torchrun's, over all nodes
    with events.timed("import"):
        runtime: Any = importlib.import_module(job.runtime)
        import sklearn.metrics  # noqa: F401 - used by the first evaluation, and missed here, before the first compile

        from cachekit.training import data, model, text_classification, trainer

        runtime.prepare(job.settings)
    with events.timed("data"):
        splits = data.load(
            job.recipe.data, job.labels, job.recipe.training.seed, lambda said: events.emit("note", note=said)
        )
        counts = {name: len(split) for name, split in splits.items()}
        trainer.check_rows(job.recipe.training, counts["train"], workers)
    with events.timed("model"):
        tokenizer, net = model.load(job, runtime.model_options(job.settings))
        text_classification.check_tokenizer(tokenizer)
        inputs = text_classification.inputs_of(net)
        runtime.compile_model(net, job.settings)

    trial = job.mode == "trial"
    with tempfile.TemporaryDirectory(prefix="trial-", dir=Path(job.events).parent) as nowhere:
        session = trainer.Session(
            job=job,
            model=net,
            collator=text_classification.Collator(tokenizer, job.recipe.training.max_seq_length, inputs),
            splits=_trial_splits(job, splits, workers) if trial else splits,
            output_dir=nowhere if trial else job.output_dir,
            events=events,
            compiler_arguments=runtime.arguments(job.settings),
            adapt=runtime.adapt,
            workers=workers,
        )
        with CounterWatch(events, runtime.counters) as watch:
            outcome = session.run(watch, tokenizer)
        runtime.finish()
    return Result(
        metrics=outcome.metrics,
        counters=runtime.counters(),
        seconds={**events.seconds, "graphs": outcome.graph_seconds},
        steps=outcome.steps,
        rows=counts,
        surprises=() if job.compiles_expected else tuple(dict.fromkeys(watch.compiled_in)),
        output_dir="" if trial else job.output_dir,
        resumed_from=outcome.resumed_from,
    )


def _trial_splits(job: Job, splits: dict[str, Any], workers: int) -> dict[str, Any]:
    """Just enough rows, repeated if need be: a trial's shapes are those of the real run, its rows don't matter."""
    from cachekit.training.trainer import TRIAL_STEPS, rows_of_a_step

    need = TRIAL_STEPS * rows_of_a_step(job.recipe.training, workers)
    train, validation = splits["train"], splits["validation"]
    return {
        "train": train.take([index % len(train) for index in range(need)]),
        # One full evaluation batch a worker, and one that is padded.
        "validation": validation.take(
            [index % len(validation) for index in range(eval_batch(job.recipe) * workers + 1)]
        ),
    }


if __name__ == "__main__":
    sys.exit(main())
