"""The architecture of a model: its config, found without network where that is possible, and what of it matters.

Two models whose configs differ only in fields that affect no graph (names, label names, paths, the library's version)
share a key: a fine-tune of a model compiles to the same graphs as the model itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from msgspec import Struct

from cachekit.errors import RecipeError
from cachekit.recipe import Recipe, model_config, tasks, zoo

_BERTS = "a TensorFlow note of the first BERTs"
# Fields of a config.json that never affect a graph of ours: name to reason. Everything else does, when in doubt.
IRRELEVANT = {
    "_attn_implementation_autoset": "a note of the library to itself",
    "architectures": "which head the weights had; the task chooses ours",
    "dtype": "dtype of the stored weights; the worker loads fp32",
    "finetuning_task": "what it was fine-tuned for",
    "gradient_checkpointing": "old place of a training argument, which is an ingredient of its own",
    "id2label": "names of labels; their number is an ingredient of its own",
    "label2id": "names of labels",
    "license": "no number",
    "num_labels": "an ingredient of its own, from the data",
    "tie_weights_": "read by nothing; tie_word_embeddings is",
    "problem_type": "set by the task",
    "return_dict": "set by the worker",
    "task_specific_params": "generation settings",
    "tokenizer_class": "the tokenizer runs on the host",
    "torch_dtype": "old name of dtype",
    "transformers_version": "version that wrote the file; ours is an ingredient of its own",
    "use_cache": "past keys and values, which training does not use",
    **dict.fromkeys(("_commit_hash", "_name_or_path"), "where it came from"),
    **dict.fromkeys(("init_std", "initializer_factor", "initializer_range"), "scale of random weights"),
    **dict.fromkeys(("directionality", "pooler_fc_size", "pooler_num_attention_heads"), _BERTS),
    **dict.fromkeys(("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"), _BERTS),
}
# Of these, what affects no graph but through the weights that training starts from.
SCALES = frozenset({"init_std", "initializer_factor", "initializer_range"})
# Of these a recipe says what it means in a place of its own; said here, nothing would come of it.
ELSEWHERE = {
    "dtype": "training.bf16",
    "gradient_checkpointing": "training.gradient_checkpointing",
    "id2label": "data.labels",
    "label2id": "data.labels",
    "num_labels": "data.num_labels",
    "problem_type": "task",
    "torch_dtype": "training.bf16",
}
NO_EFFECT = IRRELEVANT.keys() - SCALES
# Fields that every config has, with the value that means "nothing special": left out when they have it.
GENERIC_DEFAULTS: dict[str, Any] = {
    "add_cross_attention": False,
    "chunk_size_feed_forward": 0,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "output_attentions": False,
    "output_hidden_states": False,
    "output_past": True,
    "pruned_heads": {},
    "tie_encoder_decoder": False,
    "tie_word_embeddings": True,
    "torchscript": False,
    "use_bfloat16": False,
}


class Architecture(Struct, frozen=True, dict=True):
    """A model's config, and where it was found.

    Attributes:
        config: As in `config.json`, the recipe's overrides applied.
        source: For people: a path, `registry`, `Hub cache`, `Hub`.
    """

    config: Mapping[str, Any]
    source: str

    @property
    def model_type(self) -> str:
        """Transformers' name of the architecture's family, `bert`."""
        return str(self.config["model_type"])

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """What its type's configs mean where they say nothing; empty for a type that the registry does not have."""
        return zoo.architecture_defaults(self.model_type)

    @cached_property
    def whole(self) -> dict[str, Any]:
        """The config with the type's defaults where it says nothing."""
        return {**self.defaults, **self.config}


def graph_fields(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that may reach a graph: defaults filled in, irrelevant ones left out.

    So are those that only repeat others. A null is left out where it says nothing, and kept where the default is
    something else: `pad_token_id: null` makes another graph than BERT's 0.
    """
    merged = model_config.rotary({**GENERIC_DEFAULTS, **defaults, **config}, config, defaults)
    left_out = model_config.repeated(str(config.get("model_type", "")), merged)
    left_out |= model_config.GENERATION if merged.get("is_encoder_decoder") else set()
    return {
        name: value
        for name, value in sorted(merged.items())
        if name not in IRRELEVANT
        and name not in left_out
        and name != "model_type"
        and not (value is None and {**GENERIC_DEFAULTS, **defaults}.get(name) is None)
        and not (name in GENERIC_DEFAULTS and value == GENERIC_DEFAULTS[name])
    }


def resolve(recipe: Recipe) -> Architecture:
    """Find the architecture of a recipe's model: its folder, the registry, the Hub cache, and last the Hub.

    Where a package gives the weights, the key is the same with and without it: what `model.id` says of the registry is
    compared with the package's own config, and nobody else is asked for a config in its place.

    Raises:
        RecipeError: The model's files are not where the recipe says, its config is none, or a package's config is
            another than that of `model.id`.
        UnknownNameError: Nobody knows the model.
        AuthError: The Hub gives its config only to some.
    """
    model = recipe.model
    folder = model_config.folder_of(recipe)
    entry = zoo.model(model.id) if model.id is not None else None
    if folder is not None:
        config = model_config.read(folder / "config.json")
        if model.package and entry is not None:
            _check_same(recipe, config, entry.config)
        return _with_overrides(recipe, config, str(folder))
    if entry is not None:
        return _with_overrides(recipe, entry.config, "registry")
    if model.package or model.id is None:
        unknown = f", and the registry does not have model.id {model.id}" if model.id else ""
        raise model_config.not_installed(recipe, f"the package holds the model's config{unknown}")
    from cachekit.recipe import hub

    cached = hub.cached_config(model.id, model.revision)
    if cached is not None:
        return _with_overrides(recipe, model_config.read(cached), "Hub cache")
    return _with_overrides(recipe, model_config.read(hub.download_config(model.id, model.revision)), "Hub")


def _check_same(recipe: Recipe, own: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse a package whose model is another than the one that `model.id` names, on machines without the package."""
    found = []
    for config in (own, known):
        kind = model_config.model_type(config, str(recipe.model.package))
        found.append({"model_type": kind, **graph_fields(config, zoo.architecture_defaults(kind))})
    differ = [name for name in sorted({**found[0], **found[1]}) if found[0].get(name) != found[1].get(name)]
    if differ:
        name = differ[0]
        raise RecipeError(
            f"model.package {recipe.model.package} holds a different model from model.id {recipe.model.id}",
            cause=f"{name} is {found[0].get(name)} and {found[1].get(name)}"
            + (f", and {len(differ) - 1} more differ" if len(differ) > 1 else ""),
            hint="remove model.id, or name the model that the package holds",
        )


def positions(found: Architecture, field: str = "max_seq_length") -> int | None:
    """The tokens that a model has positions for, by the field of `training` that asks; None where it says no number."""
    merged = found.whole
    half = "decoder" if field == "max_target_length" else "encoder"
    usual = merged.get("max_position_embeddings") or merged.get("n_positions")
    number = merged.get(f"max_{half}_position_embeddings", usual)
    # RoBERTa counts positions from padding_idx + 1, so two of them are never used.
    offset = 2 if found.model_type in {"roberta", "xlm-roberta", "camembert"} else 0
    return number - offset if isinstance(number, int) else None


def check(recipe: Recipe, found: Architecture) -> None:
    """Refuse, before anything is loaded, what the model cannot do: its task, a length, or a width of its heads.

    Raises:
        RecipeError: The model cannot do it.
    """
    check_task(recipe, found)
    read = tasks.fields(recipe).training
    for name in ("max_seq_length", "max_target_length"):
        if name in read:
            check_length(found, getattr(recipe.training, name), name)
    check_heads(found)


def check_length(found: Architecture, length: int, field: str = "max_seq_length") -> None:
    """Refuse a length in tokens, of a field of `training`, that the model has no positions for.

    Raises:
        RecipeError: It is too long.
    """
    most = positions(found, field)
    if most is not None and length > most:
        raise RecipeError(
            f"training.{field} is {length}, but the model has {most} positions", hint=f"--set training.{field}={most}"
        )


def check_task(recipe: Recipe, found: Architecture) -> None:
    """Refuse a model of images for texts, the reverse, and one that cannot write or judge what the task asks it to.

    Of an architecture that the registry does not have, the worker asks Transformers.

    Raises:
        RecipeError: The model cannot do the task.
    """
    known = found.defaults
    if not known:
        return
    own, sees, why = tasks.fields(recipe), "num_channels" in known and "vocab_size" not in known, ""
    if sees != own.sees_images:
        why = f"a {found.model_type} model reads {'images' if sees else 'texts'}"
    elif own.rewrites_texts and not known.get("is_encoder_decoder"):
        why = f"a {found.model_type} model has an encoder but no decoder"
    elif own.judges_texts and found.whole.get("pad_token_id", 0) is None:
        raise RecipeError(
            "model.config.pad_token_id is missing",
            cause=f"a {found.model_type} model judges a text by its last word, and must know what is padding",
            hint="--set model.config.pad_token_id=NUMBER, that of the tokenizer's padding token",
        )
    if why:
        field = next(name for name in ("id", "path", "package") if getattr(recipe.model, name))
        raise RecipeError(
            f"model.{field} {getattr(recipe.model, field)} is not for the task {recipe.task}",
            cause=why,
            hint="change one of them; `cachekit zoo ls models` says what each model is for",
        )


def check_heads(found: Architecture) -> None:
    """Refuse a width that its attention heads cannot share, and heads that keys and values cannot.

    Raises:
        RecipeError: It does not divide.
    """
    whole = found.whole
    width = next((name for name in ("hidden_size", "dim", "d_model", "n_embd") if name in whole), "")
    heads = next((name for name in ("num_attention_heads", "n_heads", "n_head") if name in whole), "")
    pairs = [(heads, "num_key_value_heads")]
    if not whole.get("head_dim"):
        pairs.append((width, heads))
    for many, few in pairs:
        size, number = whole.get(many), whole.get(few)
        if isinstance(size, int) and isinstance(number, int) and (number < 1 or size % number):
            raise RecipeError(
                f"model.config: {many} {size} cannot be shared by {few} {number}",
                hint=f"make model.config.{many} a multiple of model.config.{few}",
            )


def _with_overrides(recipe: Recipe, config: Mapping[str, Any], source: str) -> Architecture:
    changes = recipe.model.config
    found = Architecture({**config, **changes}, source)
    model_type = model_config.model_type(found.config, source)
    defaults = {**GENERIC_DEFAULTS, **found.defaults}
    known = {**defaults, **dict.fromkeys(IRRELEVANT), **config}
    for name in changes:
        writes = found.defaults and found.config.get("is_encoder_decoder") and name in model_config.GENERATION
        if name in NO_EFFECT or writes:
            elsewhere = ELSEWHERE.get(name)
            raise RecipeError(
                f"model.config.{name} has no effect",
                cause="evaluation uses greedy decoding" if writes else IRRELEVANT[name],
                hint=f"set {elsewhere} instead" if elsewhere else f"remove model.config.{name}",
            )
        if found.defaults and name not in known:
            near = get_close_matches(name, known, n=1)
            raise RecipeError(
                f"model.config.{name}: a {model_type} config has no such field",
                hint=f"did you mean model.config.{near[0]}?" if near else "see the model's config.json",
            )
    reaching = {name: value for name, value in changes.items() if name not in IRRELEVANT}
    model_config.check(config, reaching, defaults, source)
    return found
