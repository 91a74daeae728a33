"""Low-rank adaptation by PEFT: small matrices beside a model's own, which stay as they are."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import set_seed

from cachekit.errors import INSTALL, CompilerUnavailableError, RecipeError
from cachekit.recipe.schema import Lora, Training
from cachekit.text import first_line

FIELD = "training.lora.target_modules"
ALL_LINEAR = "all-linear"  # PEFT's word for every linear layer but the head's
_MANY = 12  # names that a sentence lists


def apply(model: Any, lora: Lora, training: Training) -> Any:
    """The model with adapters, and everything else frozen.

    Args:
        model: Loaded.
        lora: What the recipe says.
        training: Its seed is that of the adapters' first values: the same whatever was drawn before.

    Raises:
        RecipeError: The model has no such layers, or PEFT knows none for it.
        CompilerUnavailableError: PEFT is not installed.
    """
    names = lora.target_modules
    if names and ALL_LINEAR in names and len(names) > 1:
        raise RecipeError(f"{FIELD}: {ALL_LINEAR} means all of them", hint=f"name it alone: {FIELD}: [{ALL_LINEAR}]")
    settings = config(lora)
    if names and names != (ALL_LINEAR,):
        check_names(model, names)
    from peft import get_peft_model

    # Frozen embeddings give no gradient to what follows. The library makes one up, with a hook on them that cuts the
    # graph in pieces (transformers 5.23, torch 2.13). Only reentrant checkpoints need it; ours are not: `arguments`.
    model.enable_input_require_grads = _nothing
    set_seed(training.seed)
    try:
        adapted = get_peft_model(model, settings)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise RecipeError(
            f"PEFT puts no adapter into this {model.config.model_type} model",
            cause=first_line(error),
            hint=_hint(model),
        ) from error
    return asking_nobody(adapted)


def asking_nobody(adapted: Any) -> Any:
    """The model, which by itself asks the Hub at each checkpoint whether the vocabulary grew: here it never does."""
    adapted.save_pretrained = partial(adapted.save_pretrained, save_embedding_layers=False)
    return adapted


def config(lora: Lora) -> Any:
    """PEFT's config of what the recipe says.

    Raises:
        CompilerUnavailableError: PEFT is not installed.
    """
    try:
        from peft import LoraConfig, TaskType
    except ImportError as error:
        raise CompilerUnavailableError("peft is not installed: training.lora needs it", hint=INSTALL) from error
    names = lora.target_modules
    return LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=lora.r,
        lora_alpha=int(lora.lora_alpha) if lora.lora_alpha == int(lora.lora_alpha) else lora.lora_alpha,
        lora_dropout=lora.lora_dropout,
        target_modules=ALL_LINEAR if names == (ALL_LINEAR,) else list(names) if names else None,
        bias=lora.bias,
    )


def arguments(training: Training) -> dict[str, Any]:
    """What Transformers' arguments are for a model with adapters."""
    if training.lora is None or not training.gradient_checkpointing:
        return {}
    return {"gradient_checkpointing_kwargs": {"use_reentrant": False}}


def _nothing() -> None:
    """In the place of a method that would do something."""


def check_names(model: Any, names: tuple[str, ...]) -> None:
    """Each of the names must mean a layer: PEFT is content with one of them that does.

    Raises:
        RecipeError: One means none.
    """
    modules = [name for name, _ in model.named_modules()]
    for wanted in names:
        if not any(name == wanted or name.endswith(f".{wanted}") for name in modules):
            raise RecipeError(
                f"{FIELD}: this {model.config.model_type} model has no layer {wanted!r}", hint=_hint(model)
            )


def _hint(model: Any) -> str:
    """The layers that can be named."""
    kinds = {"Linear", "Conv1D", "Embedding", "Conv2d"}
    ends = [name.rpartition(".")[2] for name, part in model.named_modules() if type(part).__name__ in kinds]
    found = list(dict.fromkeys(name for name in ends if not name.isdecimal()))
    return f"name some of its layers with {FIELD}: {', '.join(found[:_MANY])}"
