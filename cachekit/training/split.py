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
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, TrainerCallback, set_seed

from cachekit.compilers.port import Runtime
from cachekit.errors import CompilerUnavailableError
from cachekit.recipe import Recipe
from cachekit.text import first_line
from cachekit.training import model, trackers, trainer
from cachekit.training.backend import Backend, TrainingOutcome
from cachekit.training.checkpoints import checkpoints
from cachekit.training.job import CounterWatch, Events, Job
from cachekit.training.tasks.port import Resized, Task, Work

ATTENTION = "attention"  # of a job's settings


def arguments(recipe: Recipe, *, precision: str, output_dir: str, trial: bool) -> dict[str, Any]:
    """What NeuronTrainingArguments are given."""
    training, layout = recipe.training, recipe.parallel
    return {
        **trainer.shared_arguments(recipe, precision=precision, output_dir=output_dir, trial=trial),
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
    """This worker's part of the model; `layout`, `NeuronTrainingArguments.trn_config`, says which part.

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
    if training.lora is None:
        return loaded
    settings = model.lora_config(training.lora)
    from optimum.neuron.peft import get_peft_model

    with torch.device("meta"):  # names only, no weights; in the loaded model the library joins some layers into one
        named = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    if training.gradient_checkpointing:  # checkpoints are reentrant here, and embeddings that are frozen end them
        loaded.enable_input_require_grads()
    return model.adapted(
        loaded, settings, training, named=named, attach=get_peft_model, library=job.settings["package"]
    )


class KeepCheckpoints(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Removes all but the newest checkpoints: the library finds those that are too many, and leaves them (0.4.5)."""

    def __init__(self, folder: str, most: int | None) -> None:
        self._folder, self._most = Path(folder), most

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._most is None or os.environ.get("LOCAL_RANK", "0") != "0":
            return
        for old in list(checkpoints(self._folder))[self._most :]:
            shutil.rmtree(old, ignore_errors=True)


class SplitBackend(Backend):
    """The workers share copies of the model.

    Raises:
        CompilerUnavailableError: optimum-neuron or what it needs does not import, or is another than we know.
    """

    evaluates = False

    def __init__(self, job: Job, runtime: Runtime, events: Events, workers: int, output_dir: str) -> None:
        super().__init__(job, runtime, events, workers, output_dir)
        layout = job.recipe.parallel
        self._arguments = self._made(
            arguments(job.recipe, precision=job.precision, output_dir=self.checkpoint_dir, trial=self.trial)
        )
        self.copies = workers // (layout.tensor_parallel_size * layout.pipeline_parallel_size)
        for sentence in job.settings.get("lacks", ()):
            events.emit("note", note=sentence)

    def _made(self, given: dict[str, Any]) -> Any:
        """Made before the model is: they tell each worker which part of it is its own."""
        package, install = (str(self.job.settings[name]) for name in ("package", "install"))
        try:
            from optimum.neuron.trainers import NeuronTrainingArguments
        except (ImportError, RuntimeError) as error:
            raise CompilerUnavailableError(
                "optimum-neuron does not import", cause=first_line(error), hint=install
            ) from error
        known = {field.name for field in dataclasses.fields(NeuronTrainingArguments)}
        if unknown := sorted(given.keys() - known):
            raise CompilerUnavailableError(
                f"the trainer of {package} {metadata.version(package)} is not the one that cachekit knows",
                cause=f"its arguments lack {', '.join(unknown)}",
                hint=install,
            )
        return NeuronTrainingArguments(**given)

    def load(self, task: Task) -> tuple[Any, Any]:
        """The tokenizer, and this worker's part of the model."""
        return model.processor(self.job, task), split_model(self.job, task, self._arguments.trn_config)

    def run(self, processor: Any, net: Any, work: Work, watch: CounterWatch) -> TrainingOutcome:
        """Train and save."""
        from optimum.neuron.trainers import NeuronTrainer
        from optimum.neuron.trainers import transformers as transformers_trainer

        wanted, train = self.job.recipe.training, work.features["train"]
        progress = trainer.ProgressCallback(self.events, watch, work.begin)
        trackers.add(transformers_trainer, self.figures)
        step = trainer.rows_of_a_step(wanted, self.copies)
        training = NeuronTrainer(
            model=net,
            args=self._arguments,
            data_collator=work.collate,
            # A last step of fewer batches, or a sampler's repeats, would be another graph.
            train_dataset=Resized(train, len(train) // step * step),
            callbacks=[progress, KeepCheckpoints(self.checkpoint_dir, wanted.save_total_limit)],
        )
        with self.events.timed("train"):
            training.train()
            watch.look()
        if not self.trial:
            with self.events.timed("save"):
                training.save_model(self.output_dir)
                if os.environ.get("RANK", "0") == "0":  # its own test of who is the first is true in every worker
                    processor.save_pretrained(self.output_dir)
            joined = f"`optimum-cli neuron consolidate {self.output_dir} FOLDER` joins them"
            self.events.emit(
                "note", note=f"the model is saved in parts, one for each core that shares the model; {joined}"
            )
        # Tensors are lazy: a step is worked off when the next one begins.
        steps = [after - before for before, after in pairwise(progress.began)]
        first, taken = trainer.graph_seconds(steps), progress.steps
        return TrainingOutcome({}, first, training.state.global_step, taken, progress.speed(step, {}))
