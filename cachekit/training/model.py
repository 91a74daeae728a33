"""The model and the tokenizer of a job, from a folder, the Hub, or random weights; and its LoRA adapters, by PEFT."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoImageProcessor, AutoTokenizer, set_seed

from cachekit.errors import INSTALL, CompilerUnavailableError, RecipeError, UnknownNameError
from cachekit.recipe.architecture import NO_EFFECT
from cachekit.recipe.hub import gated
from cachekit.recipe.schema import Lora, Training
from cachekit.text import first_line, first_of
from cachekit.training.job import Job
from cachekit.training.tasks import inputs
from cachekit.training.tasks.port import Task


def compiled_part(model: Any) -> Any:
    """The model whose forward pass is compiled: the one inside of PEFT's, whose own passes arguments on."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def load(job: Job, task: Task, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """The processor (tokenizer or image processor) and the model, loaded with the compiler's own `options`.

    Raises:
        RecipeError: The weights do not fit the architecture, Transformers does not know it, or LoRA finds no layer.
        UnknownNameError: Files are neither here nor on the Hub.
    """
    loaded, model = processor(job, task), _model(job, task, options)
    if "vocab_size" in job.recipe.model.config and task.processor == "tokenizer":
        inputs.check_vocabulary(loaded, model)
    if getattr(model, "loss_type", "") is None:
        # Of GPT-2 and others: the library warns in the forward pass that it takes its usual loss, and a warning there
        # cuts the graph in two (transformers 4.57 and 5.23, torch 2.13).
        model.loss_function = model.loss_function
    training = job.recipe.training
    if training.lora is not None:
        model = add_lora(model, training)
    return loaded, model


def processor(job: Job, task: Task) -> Any:
    """The tokenizer or the image processor; UnknownNameError where its files are neither here nor on the Hub."""
    is_image = task.processor == "image"
    auto, what = (AutoImageProcessor, "image processor") if is_image else (AutoTokenizer, "tokenizer")
    try:
        return auto.from_pretrained(job.tokenizer, revision=revision(job, job.tokenizer))
    except (OSError, ValueError) as error:
        if closed := gated(error, _named_by(job, job.tokenizer), job.tokenizer):
            raise closed from error
        raise UnknownNameError(
            f"no {what} could be loaded from {job.tokenizer}",
            cause=first_line(error),
            hint="check model.id, your network and HF_TOKEN, or give model.tokenizer",
        ) from error


def config_of(job: Job, task: Task) -> Any:
    """The model's config with the task's own fields; RecipeError where Transformers cannot make one."""
    # What is in no key must not act by a back door: Transformers still takes gradient_checkpointing from a config.
    left_out = {"model_type", *NO_EFFECT}
    fields = {name: value for name, value in job.config.items() if name not in left_out}
    head = {**task.config(job), "use_cache": False}
    try:
        return AutoConfig.for_model(job.config["model_type"], **fields, **head)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecipeError(
            f"Transformers cannot make a {job.config['model_type']} model from this config", cause=first_line(error)
        ) from error


@contextmanager
def loading(job: Job) -> Iterator[None]:
    """What can go wrong while weights are loaded, in words.

    Raises:
        AuthError: The Hub gives them only to some.
        UnknownNameError: They are neither here nor on the Hub.
        RecipeError: They do not fit the architecture.
    """
    try:
        yield
    except (OSError, AttributeError) as error:
        # Without a network, Transformers 4.57 asks the file that it did not find for the end of its name.
        absent = str(error) == "'NoneType' object has no attribute 'endswith'"
        if not absent and not isinstance(error, OSError):
            raise
        if closed := gated(error, _named_by(job, job.weights), job.weights):
            raise closed from error
        raise UnknownNameError(
            f"no weights could be loaded from {job.weights}",
            cause="Transformers found no file of weights" if absent else first_line(error),
            hint="check network and HF_TOKEN, give model.path, or train from scratch: --set model.from_config=true",
        ) from error
    except (RuntimeError, ValueError) as error:
        raise RecipeError(
            f"the weights of {job.weights} do not fit the model",
            cause=first_line(error),
            hint="where model.config changes their shapes, train from scratch with --set model.from_config=true",
        ) from error


def _model(job: Job, task: Task, options: Mapping[str, Any]) -> Any:
    auto = getattr(transformers, task.auto_model)
    # By default the weights keep the dtype in which they were stored, which is not in the key: bf16 is autocast here.
    options = {"dtype": torch.float32, **options}
    config = config_of(job, task)
    # The head, too, starts from random weights: without a seed two runs of one recipe would not be alike.
    set_seed(job.recipe.training.seed)
    if type(config) not in auto._model_mapping:  # noqa: SLF001 - the library asks so itself, and has no other way
        raise RecipeError(
            f"Transformers has no {config.model_type} model for {job.recipe.task}",
            cause="model.id (or model.path) and task do not fit together",
            hint="choose another model; `cachekit zoo ls models` says what each is fine-tuned for",
        )
    classes = auto._model_mapping[type(config)]  # noqa: SLF001
    if isinstance(classes, list | tuple):  # DeiT has two, and the second has no loss
        config.architectures = [classes[0].__name__]
    made = classes[0] if isinstance(classes, list | tuple) else classes
    if job.recipe.training.gradient_checkpointing and not made.supports_gradient_checkpointing:
        raise RecipeError(
            f"training.gradient_checkpointing is true, but a {config.model_type} model cannot compute its "
            "layers' results a second time",
            hint="--set training.gradient_checkpointing=false",
        )
    if job.recipe.model.from_config:
        return auto.from_config(config, **options)
    with loading(job):
        return auto.from_pretrained(job.weights, config=config, revision=revision(job, job.weights), **options)


def _named_by(job: Job, place: str) -> str:
    return "model.tokenizer" if place == job.recipe.model.tokenizer else "model.id"


def revision(job: Job, place: str) -> str:
    """The revision to load from a place: the recipe's, if it is the model's own."""
    return (job.recipe.model.revision if place == job.recipe.model.id else None) or "main"


FIELD = "training.lora.target_modules"
ALL_LINEAR = "all-linear"  # PEFT's word for every linear layer but the head's


def add_lora(model: Any, training: Training) -> Any:
    """The model with adapters, and everything else frozen.

    Raises:
        RecipeError: The model has no such layers, or PEFT knows none for it.
        CompilerUnavailableError: PEFT is not installed.
    """
    assert training.lora is not None
    settings = lora_config(training.lora)
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


def lora_config(lora: Lora) -> Any:
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


def lora_arguments(training: Training) -> dict[str, Any]:
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
    return f"name some of its layers with {FIELD}: {first_of(found, 12)}"
