"""Each worker trains a whole copy of the model, with Transformers' Trainer."""

from __future__ import annotations

from typing import Any

from cachekit.training import model, trainer
from cachekit.training.backend import Outcome, Surroundings
from cachekit.training.events import CounterWatch
from cachekit.training.tasks.port import Task, Work


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

    def run(self, work: Work, watch: CounterWatch) -> Outcome:
        """See `backend.Backend`."""
        around, job, runtime = self._around, self._around.job, self._around.runtime
        assert self._loaded is not None
        processor, net = self._loaded
        runtime.compile_model(model.compiled_part(net), job.settings)
        session = trainer.Session(
            job=job,
            model=net,
            work=work,
            output_dir=around.output_dir,
            events=around.events,
            compiler_arguments=runtime.arguments(job.settings),
            adapt=runtime.adapt,
            workers=around.workers,
        )
        return session.run(watch, processor)
