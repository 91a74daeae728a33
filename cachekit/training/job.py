"""What crosses the border between cachekit and its training worker: a job in, events on the way, a result out."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from cachekit.errors import ErrorDocument
from cachekit.recipe import Recipe


class Job(Struct, frozen=True):
    """One run of the worker.

    Attributes:
        mode: `trial` takes a few steps that reach every graph and leaves nothing behind; `train` is the fine-tune.
        recipe: Checked values; the worker does not read YAML. Its variables are in the worker's environment, and not
            here: a job is a file, and a variable may be a secret.
        labels: Names of the classes, in the order of their numbers.
        precision: `bf16` or `fp32`.
        config: The architecture's config with the recipe's overrides.
        weights: Folder or Hub id of the weights.
        tokenizer: Folder or Hub id of the tokenizer.
        output_dir: Where checkpoints and the model go.
        runtime: The module that has the compiler's `port.Runtime`.
        settings: What that runtime is told.
        resume: A checkpoint's path; empty starts anew.
        compiles_expected: False where everything was restored: the worker reports each compile as a surprise.
        figures: What only cachekit's own process knows of the run, for trackers.
    """

    mode: Literal["trial", "train"]
    recipe: Recipe
    labels: tuple[str, ...]
    precision: str
    config: dict[str, Any]
    weights: str
    tokenizer: str
    output_dir: str
    runtime: str
    settings: dict[str, Any]
    events: str
    result: str
    resume: str = ""
    compiles_expected: bool = True
    figures: dict[str, float] = {}


class Speed(Struct, frozen=True):
    """How fast a training was, without what compiles, or is loaded, in its first step.

    Attributes:
        steps_per_second: By the median of the optimizer steps, without the first one and without those before an
            evaluation or a checkpoint; None where no step is left.
        rows_per_second: Likewise, of all workers together; where rows are packed into blocks, blocks.
        evaluation_seconds: Wall time of the evaluation that the figures of a split are of.
    """

    steps_per_second: float | None = None
    rows_per_second: float | None = None
    evaluation_seconds: dict[str, float] = field(default_factory=dict)


class Result(Struct, frozen=True):
    """What the worker did.

    Attributes:
        failure: Why the worker gave up.
        metrics: By split: `{"validation": {"accuracy": ..., "f1": ..., "loss": ..., "rows": ...}}`.
        counters: The runtime's counters at the end.
        seconds: Wall time by phase: import, data, model, train, evaluate, save; `graphs` is what the first training
            and the first evaluation step took beyond the later ones: compiling, or loading what is compiled.
        steps: Optimizer steps that the model has behind it.
        steps_taken: Of those, steps of this run: the others lie before the checkpoint that it started from.
        speed: How fast it was.
        rows: Rows by split.
        surprises: Phases in which something compiled although everything had been restored.
        output_dir: Where the model was saved; empty after a trial.
        resumed_from: The checkpoint that the run started from.
    """

    failure: ErrorDocument | None = None
    metrics: dict[str, dict[str, float | int]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    steps_taken: int = 0
    speed: Speed = Speed()
    rows: dict[str, int] = field(default_factory=dict)
    surprises: tuple[str, ...] = ()
    output_dir: str = ""
    resumed_from: str = ""
