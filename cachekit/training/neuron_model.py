"""A model that is split over Neuron cores, as optimum-neuron has it, with adapters where the recipe wants them.

Written against the sources of optimum-neuron 0.4.5: `models/training/modeling_auto.py`, `modeling_utils.py`,
`peft/mapping_func.py`; adapters as in `trainers/sft_trainer.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from transformers import AutoModelForCausalLM, set_seed

from cachekit.errors import RecipeError
from cachekit.recipe.schema import Lora, Training
from cachekit.training import lora, model
from cachekit.training.job import Job
from cachekit.training.tasks.port import Task

ATTENTION = "attention"  # of a job's settings


def load(job: Job, task: Task, layout: Any) -> Any:
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
            cause=model.first_line(error),
            hint=f"name other layers with {lora.FIELD}",
        ) from error
    # By itself it asks the Hub at each checkpoint whether the vocabulary grew. Here it never does.
    found.save_pretrained = partial(found.save_pretrained, save_embedding_layers=False)
    return found
