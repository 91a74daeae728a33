"""Each worker trains a whole copy of the model, with Transformers' Trainer."""

from __future__ import annotations

from typing import Any

from cachekit.recipe.ingredients import eval_batch
from cachekit.training import model
from cachekit.training.backend import Surroundings, TrainingOutcome
from cachekit.training.events import CounterWatch
from cachekit.training.tasks.port import Filled, Task, Work
from cachekit.training.trainer import FixedShapeTrainer, ProgressCallback, arguments, figures_of


class Backend:
    """See `backend.Backend`."""

    evaluates = True

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.copies = around.workers
        self._loaded: tuple[Any, Any] | None = None

    def load(self, task: Task) -> tuple[Any, Any]:
        """See `backend.Backend`."""
        job = self._around.job
        self._loaded = model.load(job, task, self._around.runtime.model_options(job.settings))
        return self._loaded

    def run(self, work: Work, watch: CounterWatch) -> TrainingOutcome:
        """Train, evaluate every split that is not trained on, save."""
        around, job, runtime = self._around, self._around.job, self._around.runtime
        assert self._loaded is not None
        processor, net = self._loaded
        runtime.compile_model(model.compiled_part(net), job.settings)
        progress = ProgressCallback(around.events, watch, work.begin)
        # A round of evaluation gives each worker a batch: those of a last round that is not whole would be dropped.
        round_of_all = eval_batch(job.recipe) * around.workers
        rest = {
            name: Filled(features, work.filler, round_of_all)
            for name, features in work.features.items()
            if name != "train"
        }
        trainer = FixedShapeTrainer(
            around.events,
            around.workers,
            work,
            model=net,
            args=arguments(job, around.output_dir, work.labels, runtime.arguments(job.settings)),
            train_dataset=Filled(work.features["train"], work.filler),
            eval_dataset=rest["validation"],
            data_collator=work.collate,
            compute_metrics=lambda _: {},  # asks the Trainer to keep predictions; it makes the figures of them itself
            preprocess_logits_for_metrics=work.reduce,
            trial=around.trial,
            callbacks=[progress],
        )
        runtime.adapt(trainer)
        if job.resume:
            around.events.emit("resume", checkpoint=job.resume)
        with around.events.timed("train"):
            state = trainer.train(resume_from_checkpoint=job.resume or None)
        found: dict[str, dict[str, float | int]] = {}
        last = progress.evaluated(state.global_step)  # before any other split is evaluated
        for name, features in rest.items():
            figures = last if name == "validation" else {}
            if not figures:
                around.events.emit("evaluating", split=name)
                with around.events.timed("evaluate"):
                    figures = trainer.evaluate(features)
                    watch.look()
            found[name] = figures_of(figures)
        if not around.trial:
            with around.events.timed("save"):
                trainer.save_model(around.output_dir)
                if trainer.args.should_save:  # one worker of many
                    processor.save_pretrained(around.output_dir)
        return TrainingOutcome(found, trainer.graph_seconds(), state.global_step, job.resume)
