"""The port of a training library: it loads a model, and trains it. Which one it is, the compiler's adapter decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from cachekit.training.events import CounterWatch, Events
from cachekit.training.job import Job
from cachekit.training.tasks.port import Task, Work

SETTING = "backend"  # of a job's settings: the module of the backend
DEFAULT = "cachekit.training.whole"


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """What a training reached; see `job.Result`."""

    metrics: dict[str, dict[str, float | int]]
    graph_seconds: float
    steps: int
    resumed_from: str = ""


class Backend(Protocol):
    """One training by one library. A backend is a module with a class `Backend`.

    Attributes:
        evaluates: It can judge a model; else only the rows to train on are made ready.
        copies: Copies of the model that train together: each takes batches of its own.
    """

    evaluates: bool
    copies: int

    def load(self, task: Task) -> tuple[Any, Any]:
        """The processor (tokenizer or image processor) and the model.

        Raises:
            CachekitError: See `model.load`.
        """
        ...

    def run(self, work: Work, watch: CounterWatch) -> TrainingOutcome:
        """Train, evaluate, save; called once, after `load`."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a backend is made with.

    Attributes:
        job: What to do.
        runtime: The compiler, seen from here; see `compilers.port.Runtime`.
        events: Where to tell it.
        workers: Processes that train together.
        output_dir: Where checkpoints and the model go; of a trial a folder that nobody keeps.
    """

    job: Job
    runtime: Any
    events: Events
    workers: int
    output_dir: str

    @property
    def trial(self) -> bool:
        """A few steps that reach every graph, and leave nothing behind."""
        return self.job.mode == "trial"


Make = Callable[[Surroundings], Backend]
