"""The model and the tokenizer of a job, from a folder, the Hub, or random weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, set_seed

from cachekit.architecture import IRRELEVANT
from cachekit.errors import RecipeError, UnknownNameError
from cachekit.training.job import Job

# Fields that reach no graph but through the weights that training starts from.
SCALES = {"initializer_factor", "initializer_range"}


def load(job: Job, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Tokenizer and model, ready to be compiled.

    Args:
        job: What to load.
        options: Keywords of the compiler for loading a model.

    Raises:
        RecipeError: The weights do not fit the architecture, or Transformers does not know it.
        UnknownNameError: Files are neither here nor on the Hub.
    """
    return _tokenizer(job), _model(job, options)


def _tokenizer(job: Job) -> Any:
    try:
        return AutoTokenizer.from_pretrained(job.tokenizer, revision=_revision(job, job.tokenizer))
    except (OSError, ValueError) as error:
        raise UnknownNameError(
            f"no tokenizer could be loaded from {job.tokenizer}",
            cause=_first_line(error),
            hint="check model.id, your network and HF_TOKEN, or give model.tokenizer",
        ) from error


def _model(job: Job, options: Mapping[str, Any]) -> Any:
    # What is in no key must not act by a back door: Transformers still takes gradient_checkpointing from a config.
    left_out = {"model_type", *IRRELEVANT} - SCALES
    fields = {name: value for name, value in job.config.items() if name not in left_out}
    head = {
        "num_labels": len(job.labels),
        "id2label": dict(enumerate(job.labels)),
        "label2id": {name: number for number, name in enumerate(job.labels)},
        # Set beforehand: the model would find it out in its first forward pass, and that would be another graph.
        "problem_type": "single_label_classification",
        "use_cache": False,
    }
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
    if job.recipe.model.from_config:
        return AutoModelForSequenceClassification.from_config(config, **options)
    try:
        return AutoModelForSequenceClassification.from_pretrained(
            job.weights, config=config, revision=_revision(job, job.weights), **options
        )
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
