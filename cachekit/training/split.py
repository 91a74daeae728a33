"""The workers share copies of a model that is split over Neuron cores, with optimum-neuron's NeuronTrainer.

Written against the sources of optimum-neuron 0.4.5: `trainers/transformers.py`, `trainers/training_args.py`,
`models/training/modeling_auto.py`, `modeling_utils.py`, `peft/mapping_func.py`; adapters as in its
`trainers/sft_trainer.py`.
It has no evaluation, and goes on from no checkpoint. What it would send to the Hub at its end is cachekit's to share.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import statistics
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, TrainerCallback, set_seed

from cachekit.errors import CompilerUnavailableError, RecipeError
from cachekit.recipe import Recipe
from cachekit.recipe.schema import Lora, Training
from cachekit.text import first_line
from cachekit.training import lora, model, trainer
from cachekit.training.backend import Surroundings, TrainingOutcome
from cachekit.training.checkpoints import checkpoints
from cachekit.training.events import CounterWatch
from cachekit.training.job import Job
from cachekit.training.tasks.port import Feature, Filled, Task, Work

ATTENTION = "attention"  # of a job's settings


def arguments(recipe: Recipe, *, precision: str, output_dir: str, trial: bool) -> dict[str, Any]:
    """What NeuronTrainingArguments are given."""
    training, layout = recipe.training, recipe.parallel
    return {
        **trainer.shared_arguments(training, precision=precision, output_dir=output_dir, trial=trial),
        "tensor_parallel_size": layout.tensor_parallel_size,
        "pipeline_parallel_size": layout.pipeline_parallel_size,
        "zero_1": layout.zero_1,
        # It evaluates nothing, and refuses a pipeline whose batches do not divide those of an evaluation, 8 by default.
        "per_device_eval_batch_size": training.per_device_train_batch_size,
        "label_names": ["labels"],
        # Sharing what is compiled is ours: its own push sends the whole cache, to a public repository by default.
        # Its figures of speed stay on: without any of them its trainer breaks off at the first step (0.4.5).
        "skip_cache_push": True,
    }


def split_model(job: Job, task: Task, layout: Any) -> Any:
    """The model: this worker's part of it.

    Args:
        job: What to load.
        task: What for.
        layout: `NeuronTrainingArguments.trn_config`: which part that is.

    Raises:
        CachekitError: See `model.load`.
    """
    from optimum.neuron.models.training import NeuronModelForCausalLM

    dtype = torch.bfloat16 if job.precision == "bf16" else torch.float32
    config = model.config_of(job, task)
    # Its layers ask the config for both while they are made.
    config.dtype, config._attn_implementation = dtype, job.settings[ATTENTION]  # noqa: SLF001 - as the library does it
    set_seed(job.recipe.training.seed)
    if job.recipe.model.from_config:
        loaded = NeuronModelForCausalLM.from_config(config, layout)
    else:
        with model.loading(job):
            loaded = NeuronModelForCausalLM.from_pretrained(
                job.weights, layout, config=config, dtype=dtype, revision=model.revision(job, job.weights)
            )
    training = job.recipe.training
    return adapted(loaded, config, training.lora, training) if training.lora else loaded


def adapted(loaded: Any, config: Any, wanted: Lora, training: Training) -> Any:
    """The model with adapters on the layers that its architecture has; optimum-neuron joins some of them into one.

    Raises:
        RecipeError: The architecture has no such layers, or no adapter can be put on them.
        CompilerUnavailableError: PEFT is not installed.
    """
    settings = lora.config(wanted)
    with torch.device("meta"):  # names only, no weights
        lora.check_names(
            AutoModelForCausalLM.from_config(config, attn_implementation="eager"), wanted.target_modules or ()
        )
    from optimum.neuron.peft import get_peft_model

    if training.gradient_checkpointing:  # checkpoints are reentrant here, and embeddings that are frozen end them
        loaded.enable_input_require_grads()
    set_seed(training.seed)
    try:
        found = get_peft_model(loaded, settings)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise RecipeError(
            f"optimum-neuron puts no adapter into this {config.model_type} model",
            cause=first_line(error),
            hint=f"name other layers with {lora.FIELD}",
        ) from error
    return lora.asking_nobody(found)


class StepTimes(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """When each optimizer step began: tensors are lazy, and a step is worked off when the next one begins."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A new optimizer step."""
        self.marks.append(time.perf_counter())

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last one is done."""
        self.marks.append(time.perf_counter())

    def graph_seconds(self) -> float:
        """What the first step took beyond the later ones: compiling, or loading what is compiled."""
        steps = [after - before for before, after in zip(self.marks, self.marks[1:], strict=False)]
        return round(max(0.0, steps[0] - statistics.median(steps[1:])), 3) if len(steps) > 1 else 0.0


class KeepCheckpoints(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Removes older checkpoints: the library finds those that are too many, and leaves them there (0.4.5).

    Args:
        folder: Where they are.
        most: How many stay; None is all.
    """

    def __init__(self, folder: str, most: int | None) -> None:
        self._folder, self._most = Path(folder), most

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """All workers have written the newest one."""
        if self._most is None or os.environ.get("LOCAL_RANK", "0") != "0":
            return
        for old in list(checkpoints(self._folder))[self._most :]:
            shutil.rmtree(old, ignore_errors=True)


class WholeSteps(torch.utils.data.Dataset[Feature]):  # type: ignore[misc, unused-ignore]
    """As many features as fill whole steps: a last step of fewer batches, or a sampler's repeats, would be another."""

    def __init__(self, features: Filled, step: int) -> None:
        self._features = features
        self._length = len(features) // step * step

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Feature:
        return self._features[index]


class Backend:
    """See `backend.Backend`.

    Raises:
        CompilerUnavailableError: optimum-neuron or what it needs does not import, or is another than we know.
    """

    evaluates = False

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        recipe = around.job.recipe
        self._arguments = self._made(
            arguments(recipe, precision=around.job.precision, output_dir=around.output_dir, trial=around.trial)
        )
        layout = recipe.parallel
        self.copies = around.workers // (layout.tensor_parallel_size * layout.pipeline_parallel_size)
        self._loaded: tuple[Any, Any] | None = None
        for sentence in around.job.settings.get("lacks", ()):
            around.events.emit("note", note=sentence)

    def _made(self, given: dict[str, Any]) -> Any:
        """Made before the model is: they tell each worker which part of it is its own."""
        package, install = (str(self._around.job.settings[name]) for name in ("package", "install"))
        try:
            from optimum.neuron.trainers import NeuronTrainingArguments
        except (ImportError, RuntimeError) as error:
            raise CompilerUnavailableError(
                "optimum-neuron does not import", cause=first_line(error), hint=install
            ) from error
        known = {field.name for field in dataclasses.fields(NeuronTrainingArguments)}
        if unknown := sorted(given.keys() - known):
            raise CompilerUnavailableError(
                f"{package} {metadata.version(package)} has a trainer of another kind",
                cause=f"it does not know {', '.join(unknown)}",
                hint=install,
            )
        return NeuronTrainingArguments(**given)

    def load(self, task: Task) -> tuple[Any, Any]:
        """See `backend.Backend`."""
        job = self._around.job
        self._loaded = model.processor(job, task), split_model(job, task, self._arguments.trn_config)
        return self._loaded

    def run(self, work: Work, watch: CounterWatch) -> TrainingOutcome:
        """See `backend.Backend`."""
        from optimum.neuron.trainers import NeuronTrainer

        assert self._loaded is not None
        processor, net = self._loaded
        around, times = self._around, StepTimes()
        step = trainer.rows_of_a_step(around.job.recipe.training, self.copies)
        training = NeuronTrainer(
            model=net,
            args=self._arguments,
            data_collator=work.collate,
            train_dataset=WholeSteps(Filled(work.features["train"], work.filler), step),
            callbacks=[
                times,
                trainer.ProgressCallback(around.events, watch, work.begin),
                KeepCheckpoints(around.output_dir, around.job.recipe.training.save_total_limit),
            ],
        )
        with around.events.timed("train"):
            training.train()
            watch.look()
        if not around.trial:
            with around.events.timed("save"):
                training.save_model(around.output_dir)
                if os.environ.get("RANK", "0") == "0":  # its own test of who is the first is true in every worker
                    processor.save_pretrained(around.output_dir)
            joined = f"`optimum-cli neuron consolidate {around.output_dir} FOLDER` joins them"
            around.events.emit("note", note=f"the model is saved in parts, one for each core that shares it; {joined}")
        return TrainingOutcome({}, times.graph_seconds(), training.state.global_step)
