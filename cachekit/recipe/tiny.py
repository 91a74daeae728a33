"""A recipe in small: the same architecture and task, few layers, short rows, a few rows of its own, random weights.

`--tiny` runs any recipe of the zoo on a laptop in a minute, without the Hub: to see it work, and to test it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from cachekit.recipe import Recipe, architecture, tasks, zoo
from cachekit.recipe.load import edited, said_by
from cachekit.recipe.schema import Compiler, Data, Parallel, Training

VOCABULARY = 512
POSITIONS = 96
LENGTH = 32
TARGET_LENGTH = 16
STEPS = 60
BATCH = 8
IMAGE_SIZE = 16
CHOICES = 4

# What makes a model small, by the names that configs give it; a config gets those that it has.
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "dim", "d_model", "n_embd", "embedding_size"), 32),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "n_layer", "num_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head", "num_heads", "num_key_value_heads"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv"), 16),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), POSITIONS),
    **dict.fromkeys(("vocab_size", "decoder_vocab_size"), VOCABULARY),
    "image_size": IMAGE_SIZE,
    "patch_size": 4,
    "pooler_output_size": 32,
}
# Convolutional networks count in lists, one number a stage.
OF_TYPE: dict[str, dict[str, Any]] = {
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
    "efficientnet": {
        "image_size": IMAGE_SIZE,
        "width_coefficient": 1.0,
        "depth_coefficient": 1.0,
        "hidden_dim": 1280,  # what its last convolution has, whatever its config says
        "in_channels": [32, 16],
        "out_channels": [16, 24],
        "kernel_sizes": [3, 3],
        "strides": [1, 2],
        "depthwise_padding": [],
        "num_block_repeats": [1, 1],
        "expand_ratios": [1, 2],
    },
}
# Numbers of words with a meaning: those of the tiny tokenizer, where a config has one.
WORDS = {
    "pad_token_id": "[PAD]",
    "bos_token_id": "[CLS]",
    "eos_token_id": "[SEP]",
    "sep_token_id": "[SEP]",
    "forced_eos_token_id": "[SEP]",
    "forced_bos_token_id": "[CLS]",
    "decoder_start_token_id": "[PAD]",
}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # the first words of the tiny tokenizer


# Where rows come from: of these a recipe names the first that fits, and the last two go with `train_file`.
PLACES = ("id", "path", "train_file")
BESIDE = ("validation_file", "test_file")


def in_small(words: Sequence[str], read: Callable[[Sequence[str]], Recipe]) -> Recipe:
    """A recipe in small, with what a user sets on top of it.

    A user who names rows means those, in the columns that the recipe says, in place of the few that come along.

    Raises:
        CachekitError: The recipe cannot be read so, or its model's architecture is not known.
    """
    said = {path[:2]: value for path, value in map(said_by, words)}
    named = {path[1] for path, value in said.items() if path[0] == "data" and len(path) > 1 and value is not None}
    own_rows = bool(named.intersection(PLACES))
    if own_rows:
        words = [*(f"data.{name}=null" for name in (*PLACES, *BESIDE) if name not in named), *words]
    whole = read(words)
    recipe = small(whole)
    if own_rows:
        recipe = structs.replace(recipe, data=whole.data)
    if ("training", "eval_strategy") in said:
        evaluation = {"eval_strategy": whole.training.eval_strategy, "eval_steps": whole.training.eval_steps}
        recipe = structs.replace(recipe, training=structs.replace(recipe.training, **evaluation))
    return edited(recipe, words) if words else recipe


def small(recipe: Recipe) -> Recipe:
    """A recipe in small, with the few rows that come along.

    Raises:
        CachekitError: The model's architecture is not known; see `architecture.resolve`.
    """
    found = architecture.resolve(recipe)
    known = found.whole
    config = {name: value for name, value in SIZES.items() if known.get(name) is not None}
    config |= OF_TYPE.get(found.model_type, {})
    config |= {name: SPECIAL.index(word) for name, word in WORDS.items() if isinstance(known.get(name), int)}
    training, read = recipe.training, tasks.fields(recipe).training
    lengths = {"max_seq_length": LENGTH, "max_target_length": TARGET_LENGTH, "doc_stride": LENGTH // 4}
    if "image_size" in read and known.get("image_size") is None:
        lengths["image_size"] = IMAGE_SIZE
    return structs.replace(
        recipe,
        name=f"{recipe.name}-tiny",
        model=structs.replace(
            recipe.model,
            from_config=True,
            config={**recipe.model.config, **config},
            tokenizer=str(zoo.tiny() / (recipe.task if tasks.fields(recipe).sees_images else "tokenizer")),
        ),
        data=_data(recipe),
        training=structs.replace(
            training,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=BATCH,
            gradient_accumulation_steps=min(2, training.gradient_accumulation_steps),
            num_train_epochs=Training().num_train_epochs,
            max_steps=min(STEPS, training.max_steps or STEPS),
            learning_rate=3e-3,
            warmup_steps=0,
            lr_scheduler_type="linear",
            logging_steps=10,
            eval_strategy="no",
            eval_steps=None,
            **{name: value for name, value in lengths.items() if name in read},
        ),
        parallel=Parallel(),
        compiler=Compiler(name=recipe.compiler.name),
        environment={},
        expect=(),
    )


def _data(recipe: Recipe) -> Data:
    """The task's own rows, in the columns that the recipe's rows have too."""
    data: dict[str, Any] = {"source_prefix": recipe.data.source_prefix}
    if recipe.data.text_pair_column:
        data["text_pair_column"] = "pair"
    own = tasks.fields(recipe)
    if own.sees_images:
        data["labels"] = ("bars", "cross", "disc", "square")
    if own.has_choices:
        data["context_column"] = "context"
        data["choices_columns"] = tuple(f"ending{number}" for number in range(CHOICES))
    if "source_lang" in own.data:
        data |= {"translation_column": "translation", "source_lang": "en", "target_lang": "fr"}
    return Data(path=str(zoo.tiny() / recipe.task), **data)
