"""`transformers.Trainer` with a model that our compiler compiles: arguments, timing of steps, events."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

from cachekit.errors import DataError
from cachekit.recipe.ingredients import eval_batch
from cachekit.recipe.schema import Recipe, Training
from cachekit.training import model
from cachekit.training.checkpoints import weight_names
from cachekit.training.job import CounterWatch, Events, Job, Speed
from cachekit.training.tasks.port import FILLER, Feature, Work

# A trial takes this many optimizer steps, saves and evaluates after TRIAL_SAVE of them, and goes on: the first step
# makes the optimizer's state, the second is a steady one, the third follows a checkpoint and an evaluation.
TRIAL_STEPS = 3
TRIAL_SAVE = 2

# Of the figures of an evaluation, those that the Trainer adds about its speed.
TIMES = frozenset(
    {"runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "jit_compilation_time"}
)


def shared_arguments(recipe: Recipe, *, precision: str, output_dir: str, trial: bool) -> dict[str, Any]:
    """What every trainer is told, by the names of `transformers.TrainingArguments`; a trial reaches every graph."""
    training = recipe.training
    shared: dict[str, Any] = {
        "output_dir": output_dir,
        "per_device_train_batch_size": training.per_device_train_batch_size,
        "gradient_accumulation_steps": training.gradient_accumulation_steps,
        "bf16": precision == "bf16",
        "optim": training.optim,
        "learning_rate": training.learning_rate,
        "lr_scheduler_type": training.lr_scheduler_type,
        "warmup_steps": training.warmup_steps,
        "weight_decay": training.weight_decay,
        "adam_beta1": training.adam_beta1,
        "adam_beta2": training.adam_beta2,
        "adam_epsilon": training.adam_epsilon,
        "max_grad_norm": training.max_grad_norm,
        "gradient_checkpointing": training.gradient_checkpointing,
        "seed": training.seed,
        "dataloader_num_workers": training.dataloader_num_workers,
        # Each new shape is a new graph: the last partial batch is dropped, and no column is the library's to remove.
        "dataloader_drop_last": True,
        "remove_unused_columns": False,
        "report_to": [] if trial else list(training.report_to),
        "run_name": recipe.name,
        "disable_tqdm": True,
        "logging_strategy": "steps",
        # Where tensors are lazy, logging has graphs of its own, and so has the step after it.
        "logging_steps": 1 if trial else training.logging_steps,
    }
    if trial:
        return {**shared, "max_steps": TRIAL_STEPS, "save_strategy": "steps", "save_steps": TRIAL_SAVE}
    return {
        **shared,
        "num_train_epochs": training.num_train_epochs,
        "max_steps": training.max_steps or -1,
        "save_strategy": training.save_strategy,
        "save_steps": training.save_steps,
        "save_total_limit": training.save_total_limit,
    }


def arguments(job: Job, output_dir: str, labels: Sequence[str], compiler: Mapping[str, Any]) -> TrainingArguments:
    """Transformers' arguments from ours and the compiler's."""
    training, trial = job.recipe.training, job.mode == "trial"
    return TrainingArguments(
        **shared_arguments(job.recipe, precision=job.precision, output_dir=output_dir, trial=trial),
        **model.lora_arguments(training),
        per_device_eval_batch_size=eval_batch(job.recipe),
        label_smoothing_factor=training.label_smoothing_factor,
        data_seed=training.seed,
        label_names=list(labels),
        dataloader_pin_memory=torch.cuda.is_available(),
        eval_strategy="steps" if trial else training.eval_strategy,
        eval_steps=TRIAL_SAVE if trial else training.eval_steps,
        **compiler,
    )


class FixedShapeTrainer(Trainer):  # type: ignore[misc, unused-ignore]
    """A Trainer that times its steps, takes whole steps only, and counts each evaluation row once."""

    def __init__(self, events: Events, workers: int, work: Work, *args: Any, trial: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._graphs_only = trial  # of the Trainer, `_trial` is something else
        self._events = events
        self._work = work
        self._workers = workers
        self._features: Sequence[Feature] = ()
        # Plain mean loss: the model's own. With this on, a count of labels is passed into the compiled graph.
        self.model_accepts_loss_kwargs = False
        self.step_seconds: dict[str, list[float]] = {"training": [], "evaluation": []}

    def _get_train_sampler(self, train_dataset: Any = None) -> torch.utils.data.Sampler[int]:
        """Rows at random, as many as fill whole steps: other ones are left out in each epoch.

        The Trainer's own ends an epoch with fewer batches accumulated. Where tensors are lazy, a last step of one batch
        is a graph by itself (measured: torch-xla 2.9).
        """
        rows = self.train_dataset if train_dataset is None else train_dataset
        step = rows_of_a_step(self.args, self._workers)
        return torch.utils.data.RandomSampler(rows, num_samples=len(rows) // step * step)

    def get_train_dataloader(self) -> Any:
        """Of the batch size that was asked for: Transformers 4.57 takes that of the checkpoint it goes on from."""
        self._train_batch_size = self.args.train_batch_size
        return super().get_train_dataloader()

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """The weights of a checkpoint, under whatever names they are stored.

        Transformers 5 stores some families (ViT, DeiT) under their old names; its Trainer then finds none of them,
        warns, and goes on with the weights that the run began with (measured: 5.23).
        """
        target = self.model if model is None else model
        stored_names = weight_names(Path(resume_from_checkpoint))
        if isinstance(target, PreTrainedModel) and not stored_names <= target.state_dict().keys():
            kind = type(target)
            stored = kind.from_pretrained(resume_from_checkpoint, config=target.config, dtype=target.dtype)
            target.load_state_dict(stored.state_dict())
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = super().training_step(*args, **kwargs)
        self.step_seconds["training"].append(time.perf_counter() - start)
        return result

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        loss, logits, labels = super().prediction_step(model, inputs, *args, **kwargs)
        if self._work.generate is not None:
            with torch.no_grad(), self.compute_loss_context_manager():
                logits = (self._work.generate(model, self._prepare_inputs(inputs)), logits)
        self.step_seconds["evaluation"].append(time.perf_counter() - start)
        return loss, logits, labels

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Keeps the features at hand: a loader that is wrapped for a device does not tell its data set (torch-xla)."""
        self._features = (self.eval_dataset if eval_dataset is None else eval_dataset).features
        return super().get_eval_dataloader(eval_dataset)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate; the figures are the task's, over features and no fillers, the loss among them.

        There are none where a trial's device computes nothing, and returns zeros (Neuron's, which only takes graphs).

        Raises:
            RuntimeError: The features did not come back in their order: no figure would mean anything.
        """
        self._events.phase = "evaluation"
        output = super().evaluation_loop(*args, **kwargs)
        count = len(self._features)
        if any((np.asarray(part)[count:] != FILLER).any() for part in _parts(output.label_ids)):
            if self._graphs_only:
                return output
            raise RuntimeError("the filler rows of the last batch were not evaluated last")
        predictions, labels = (_first(count, given) for given in (output.predictions, output.label_ids))
        prefix = kwargs.get("metric_key_prefix", "eval")
        exact = self._work.score(self._features, predictions, labels)
        if output.metrics is not None:
            output.metrics.update({f"{prefix}_{name}": value for name, value in exact.items()})
        return output

    def graph_seconds(self) -> float:
        return graph_seconds(*self.step_seconds.values())


def graph_seconds(*kinds: Sequence[float]) -> float:
    """What the first step of each kind took beyond the later ones: compiling, or loading what is compiled."""
    return round(sum(max(0.0, kind[0] - statistics.median(kind[1:])) for kind in kinds if len(kind) > 1), 3)


def _parts(arrays: Any) -> tuple[Any, ...]:
    return arrays if isinstance(arrays, tuple) else (arrays,)


def _first(count: int, arrays: Any) -> Any:
    cut = tuple(np.asarray(part)[:count] for part in _parts(arrays))
    return cut if isinstance(arrays, tuple) else cut[0]


class ProgressCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Tells the parent process where training is, and books compiles to what was going on."""

    def __init__(self, events: Events, watch: CounterWatch, begin: Callable[[int], None] | None) -> None:
        self._events = events
        self._watch = watch
        self._begin = begin
        self.began: list[float] = []  # when each optimizer step did, and when the last one was done
        self.step_seconds: list[float] = []  # of those that nothing but training was in, without the first
        self.steps = 0  # optimizer steps of this run
        self._since_step = ""
        self._evaluated: tuple[int, dict[str, float]] = (-1, {})

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._begin is not None:
            self._begin(int(state.epoch or 0))  # the pass that a checkpoint was made in goes on

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        now = time.perf_counter()
        if self.steps > 1 and not self._since_step:
            self.step_seconds.append(now - self.began[-1])
        self.began.append(now)
        self._watch.look()
        self._events.phase = ("training step" if self.steps else "first training step") + self._since_step
        self._since_step = ""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._watch.look()
        self.steps += 1
        self._events.emit("step", step=state.global_step, of=state.max_steps)
        self._events.phase = "end of a step"

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.began.append(time.perf_counter())

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        figures = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
        self._events.emit("log", step=state.global_step, **figures)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: dict[str, float] | None = None, **kwargs: Any
    ) -> None:
        self._watch.look()
        self._evaluated = (state.global_step, dict(metrics or {}))
        self._events.phase, self._since_step = "end of an evaluation", " after an evaluation"

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._watch.look()
        self._events.phase, self._since_step = "end of a checkpoint", " after a checkpoint"
        self._events.emit("checkpoint", step=state.global_step)

    def speed(self, rows: int, evaluation_seconds: Mapping[str, float]) -> Speed:
        """How fast the training was; `rows` are those of a step."""
        evaluations = {split: round(seconds, 3) for split, seconds in evaluation_seconds.items()}
        if not self.step_seconds:
            return Speed(evaluation_seconds=evaluations)
        steps = 1 / statistics.median(self.step_seconds)
        return Speed(round(steps, 4), round(steps * rows, 3), evaluations)

    def evaluated(self, step: int) -> dict[str, float]:
        """The figures of this run's evaluation at that step, if it was the last one: no need to evaluate again.

        Not those of the Trainer's log: that of a checkpoint holds another run's, with other rows perhaps.
        """
        return self._evaluated[1] if self._evaluated[0] == step else {}


def rows_of_a_step(training: Training | TrainingArguments, workers: int) -> int:
    """Rows that one optimizer step takes, over all workers."""
    return training.per_device_train_batch_size * training.gradient_accumulation_steps * workers


def check_rows(training: Training, rows: int, workers: int, unit: str = "rows") -> None:
    """Raise DataError where the rows, or whatever else a feature is, do not fill a step: a trial would not notice."""
    needed = rows_of_a_step(training, workers)
    if rows < needed:
        batch, accumulated = training.per_device_train_batch_size, training.gradient_accumulation_steps
        lower = "gradient_accumulation_steps" if accumulated > 1 else "per_device_train_batch_size"
        raise DataError(
            f"{rows} training {unit} do not fill a step",
            cause=f"a step takes {needed} {unit}: a batch of {batch}, {accumulated} accumulated, on {workers} workers",
            hint=f"lower training.{lower}",
        )


def figures_of(found: Mapping[str, float], kind: str = "eval") -> dict[str, float | int]:
    """The task's figures of an evaluation of that name, without what the Trainer says of its speed."""
    start = f"{kind}_"
    named = {name.removeprefix(start): value for name, value in found.items() if name.startswith(start)}
    return {
        name: value if isinstance(value, int) else round(float(value), 6)
        for name, value in named.items()
        if name not in TIMES
    }
