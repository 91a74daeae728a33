"""How a job is trained: on whole copies of its model, by Transformers' Trainer. `split` is the other way.

Which one it is, the compiler's adapter decides: it says so in the job's settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import transformers.trainer
from msgspec import Struct

from cachekit.compilers.port import Runtime
from cachekit.recipe.ingredients import eval_batch
from cachekit.training import model, trackers
from cachekit.training.job import CounterWatch, Events, Job, Speed
from cachekit.training.tasks.port import Feature, Resized, Task, Work
from cachekit.training.trainer import FixedShapeTrainer, ProgressCallback, arguments, figures_of, rows_of_a_step

SPLIT = "split"  # of a job's settings: the workers share copies of the model


class TrainingOutcome(Struct, frozen=True):
    """What a training reached; see `job.Result`."""

    metrics: dict[str, dict[str, float | int]]
    graph_seconds: float
    steps: int
    steps_taken: int
    speed: Speed


class Backend:
    """Each worker trains a copy of the whole model.

    Args:
        job: What to do.
        runtime: The compiler, seen from the worker; see `compilers.port.Runtime`.
        events: Told what happens.
        workers: Processes that train together.
        output_dir: Where the model goes; a trial's folder, which has its checkpoints too, is removed afterwards.

    Attributes:
        evaluates: It can judge a model; else only the rows to train on are made ready.
        copies: Copies of the model that train together: each takes batches of its own.
    """

    evaluates = True

    def __init__(self, job: Job, runtime: Runtime, events: Events, workers: int, output_dir: str) -> None:
        self.job, self.runtime, self.events = job, runtime, events
        self.workers, self.output_dir = workers, output_dir
        self.trial = job.mode == "trial"
        self.checkpoint_dir = output_dir if self.trial else job.checkpoints
        self.copies = workers

    def load(self, task: Task) -> tuple[Any, Any]:
        """The processor (tokenizer or image processor) and the model.

        Raises:
            CachekitError: See `model.load`.
        """
        return model.load(self.job, task, self.runtime.model_options())

    def figures(self) -> dict[str, float]:
        """Cachekit's own figures of this run so far, for trackers."""
        return {**trackers.of_counters(self.runtime.counters()), **self.job.figures}

    def run(self, processor: Any, net: Any, work: Work, watch: CounterWatch) -> TrainingOutcome:
        """Train, evaluate every split that is not trained on, save."""
        job, runtime, events = self.job, self.runtime, self.events
        runtime.compile_model(model.compiled_part(net), job.settings)
        progress = ProgressCallback(events, watch, work.begin)
        rest = {name: self._padded(features, work) for name, features in work.features.items() if name != "train"}
        train = work.features["train"]
        trackers.add(transformers.trainer, self.figures)
        trainer = FixedShapeTrainer(
            events,
            self.workers,
            work,
            model=net,
            args=arguments(job, self.checkpoint_dir, work.labels, runtime.arguments()),
            train_dataset=Resized(train, len(train)),
            eval_dataset=rest["validation"],
            data_collator=work.collate,
            compute_metrics=lambda _: {},  # asks the Trainer to keep predictions; it makes the figures of them itself
            preprocess_logits_for_metrics=work.reduce,
            trial=self.trial,
            callbacks=[progress],
        )
        runtime.adapt(trainer)
        if job.resume:
            events.emit("resume", checkpoint=job.resume)
        with trackers.one_run(trainer):
            with events.timed("train"):
                state = trainer.train(resume_from_checkpoint=job.resume or None)
            found: dict[str, dict[str, float | int]] = {}
            seconds: dict[str, float] = {}
            last = progress.evaluated(state.global_step)  # before any other split is evaluated
            for name, features in rest.items():
                kind, figures = ("eval", last) if name == "validation" else (name, {})
                if not figures:
                    events.emit("evaluating", split=name)
                    with events.timed("evaluate"):
                        figures = trainer.evaluate(features, metric_key_prefix=kind)
                        watch.look()
                found[name], seconds[name] = figures_of(figures, kind), figures[f"{kind}_runtime"]
        if not self.trial:
            with events.timed("save"):
                trainer.save_model(self.output_dir)
                if trainer.args.should_save:  # one worker of many
                    processor.save_pretrained(self.output_dir)
        speed = progress.speed(rows_of_a_step(job.recipe.training, self.copies), seconds)
        return TrainingOutcome(found, trainer.graph_seconds(), state.global_step, progress.steps, speed)

    def _padded(self, features: Sequence[Feature], work: Work) -> Resized:
        """Features for whole rounds, in which each worker takes a batch: what is left of one would be dropped."""
        rows = eval_batch(self.job.recipe) * self.workers
        return Resized(features, -(-len(features) // rows) * rows, work.filler)


def chosen(settings: Mapping[str, Any]) -> type[Backend]:
    """How a job with these settings is trained."""
    if not settings.get(SPLIT):
        return Backend
    from cachekit.training.split import SplitBackend  # imports what only such jobs have

    return SplitBackend
