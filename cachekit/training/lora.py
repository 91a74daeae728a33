"""Low-rank adaptation by PEFT: small matrices beside a model's own, which stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from transformers import set_seed

from cachekit.errors import INSTALL, CompilerUnavailableError, RecipeError
from cachekit.recipe.schema import Lora, Training
from cachekit.text import first_line

FIELD = "training.lora.target_modules"
ALL_LINEAR = "all-linear"  # PEFT's word for every linear layer but the head's
_MANY = 12  # names that a sentence lists


def apply(model: Any, training: Training) -> Any:
    """The model with adapters, and everything else frozen.

    Raises:
        RecipeError: The model has no such layers, or PEFT knows none for it.
        CompilerUnavailableError: PEFT is not installed.
    """
    assert training.lora is not None
    settings = config(training.lora)
    from peft import get_peft_model

    # Frozen embeddings give no gradient to what follows. The library makes one up, with a hook on them that cuts the
    # graph in pieces (transformers 5.23, torch 2.13). Only reentrant checkpoints need it; ours are not: `arguments`.
    model.enable_input_require_grads = lambda: None
    return adapted(model, settings, training, named=model, attach=get_peft_model, library="PEFT")


def adapted(
    model: Any, settings: Any, training: Training, *, named: Any, attach: Callable[[Any, Any], Any], library: str
) -> Any:
    """The model with adapters of a library.

    Args:
        model: Loaded.
        settings: From `config`.
        training: Its seed is that of the adapters' first values: the same whatever was drawn before.
        named: A model whose layers have the names that the recipe may use.
        attach: Puts the adapters on.
        library: Whose that is.

    Raises:
        RecipeError: The model has no such layers, or the library knows none for it.
    """
    names = training.lora.target_modules if training.lora else None
    if names and ALL_LINEAR in names and len(names) > 1:
        raise RecipeError(f"{FIELD}: {ALL_LINEAR} means all of them", hint=f"name it alone: {FIELD}: [{ALL_LINEAR}]")
    if names and names != (ALL_LINEAR,):
        _check_names(named, names)
    set_seed(training.seed)
    try:
        found = attach(model, settings)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise RecipeError(
            f"{library} puts no adapter into this {named.config.model_type} model",
            cause=first_line(error),
            hint=_hint(named),
        ) from error
    # By itself it asks the Hub at each checkpoint whether the vocabulary grew.
    found.save_pretrained = partial(found.save_pretrained, save_embedding_layers=False)
    return found


def config(lora: Lora) -> Any:
    """PEFT's config of what the recipe says; CompilerUnavailableError where PEFT is not installed."""
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


def _check_names(model: Any, names: tuple[str, ...]) -> None:
    """Raise RecipeError for a name that means no layer: PEFT is content with one of them that does."""
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
