"""The model and the tokenizer of a job, from a folder, the Hub, or random weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer, set_seed

from cachekit.architecture import IRRELEVANT
from cachekit.errors import RecipeError, UnknownNameError
from cachekit.training import lora
from cachekit.training.job import Job
from cachekit.training.tasks.port import Task

# Fields that reach no graph but through the weights that training starts from.
SCALES = {"init_std", "initializer_factor", "initializer_range"}


def compiled_part(model: Any) -> Any:
    """The model whose forward pass is compiled: the one inside of PEFT's, whose own passes arguments on."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def load(job: Job, task: Task, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """The processor (tokenizer or image processor) and the model.

    Args:
        job: What to load.
        task: What for.
        options: Keywords of the compiler for loading a model.

    Raises:
        RecipeError: The weights do not fit the architecture, Transformers does not know it, or LoRA finds no layer.
        UnknownNameError: Files are neither here nor on the Hub.
    """
    processor, model = _processor(job, task), _model(job, task, options)
    if getattr(model, "loss_type", "") is None:
        # Of GPT-2 and others: the library warns in the forward pass that it takes its usual loss, and a warning there
        # cuts the graph in two (transformers 4.57 and 5.23, torch 2.13).
        model.loss_function = model.loss_function
    training = job.recipe.training
    if training.lora is not None:
        model = lora.apply(model, training.lora, training)
    return processor, model


def _processor(job: Job, task: Task) -> Any:
    if task.processor == "image":
        return _image_processor(job)
    try:
        return AutoTokenizer.from_pretrained(job.tokenizer, revision=_revision(job, job.tokenizer))
    except (OSError, ValueError) as error:
        raise UnknownNameError(
            f"no tokenizer could be loaded from {job.tokenizer}",
            cause=_first_line(error),
            hint="check model.id, your network and HF_TOKEN, or give model.tokenizer",
        ) from error


def _image_processor(job: Job) -> Any:
    try:
        return AutoImageProcessor.from_pretrained(job.tokenizer, revision=_revision(job, job.tokenizer))
    except (OSError, ValueError) as error:
        raise UnknownNameError(
            f"no image processor could be loaded from {job.tokenizer}",
            cause=_first_line(error),
            hint="check model.id, your network and HF_TOKEN, or name a folder with model.tokenizer",
        ) from error


def _model(job: Job, task: Task, options: Mapping[str, Any]) -> Any:
    # What is in no key must not act by a back door: Transformers still takes gradient_checkpointing from a config.
    left_out = {"model_type", *IRRELEVANT} - SCALES
    fields = {name: value for name, value in job.config.items() if name not in left_out}
    head = {**task.config(job), "use_cache": False}
    auto = getattr(transformers, task.auto_model)
    # By default the weights keep the dtype in which they were stored, which is not in the key: bf16 is autocast here.
    options = {"dtype": torch.float32, **options}
    try:
        config = AutoConfig.for_model(job.config["model_type"], **fields, **head)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecipeError(
            f"Transformers cannot make a {job.config['model_type']} model of this config", cause=_first_line(error)
        ) from error
    # The head, too, starts from random weights: without a seed two runs of one recipe would not be alike.
    set_seed(job.recipe.training.seed)
    if type(config) not in auto._model_mapping:  # noqa: SLF001 - the library asks so itself, and has no other way
        raise RecipeError(
            f"Transformers has no {config.model_type} model for {job.recipe.task}",
            hint="choose another model; `cachekit zoo models` says what each is fine-tuned for",
        )
    if job.recipe.model.from_config:
        return auto.from_config(config, **options)
    try:
        return auto.from_pretrained(job.weights, config=config, revision=_revision(job, job.weights), **options)
    except OSError as error:
        raise UnknownNameError(
            f"no weights could be loaded from {job.weights}",
            cause=_first_line(error),
            hint="check network and HF_TOKEN, give model.path, or train from scratch: --set model.from_config=true",
        ) from error
    except (RuntimeError, ValueError) as error:
        raise RecipeError(
            f"the weights of {job.weights} do not fit the model",
            cause=_first_line(error),
            hint="where model.config changes their shapes, train from scratch with --set model.from_config=true",
        ) from error


def _revision(job: Job, place: str) -> str:
    return (job.recipe.model.revision if place == job.recipe.model.id else None) or "main"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
