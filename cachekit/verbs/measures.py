"""The measures of a job by which compile time goes: depth, width, vocabulary, tokens, length; out of its ingredients.

Configs name these differently by family; what a family has not is None, and says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_WIDTH = ("hidden_size", "d_model", "n_embd", "dim", "hidden_dim")
_DEPTH = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
_PATCH = 16  # pixels a side, where a config does not say: a convolution's last stage sees as much
# Jobs of this kind measure 0 in all: logarithms are taken beside these, so that numbers stay near 0.
_USUAL = {"width": 768.0, "vocabulary": 30000.0, "tokens": 2048.0, "length": 128.0}

Measures = dict[str, float]


def measures(hard: Mapping[str, Any], base_layers: float) -> Measures:
    """The measures of a job as logarithms, 0 for what is not known.

    Args:
        hard: Its ingredients.
        base_layers: What is compiled beside the layers, in layers.
    """
    layers = _layers(hard)
    length = _length(hard)
    batch = _number(hard.get("training.per_device_train_batch_size"))
    found: dict[str, float | None] = {
        "width": _first(hard, _WIDTH) or _last(hard.get("model.config.hidden_sizes")),
        "vocabulary": _number(hard.get("model.config.vocab_size")),
        "tokens": batch * length if batch and length else None,
        "length": length,
    }
    logs = {name: math.log(value / _USUAL[name]) if value else 0.0 for name, value in found.items()}
    logs["layers"] = math.log((layers + base_layers) / (12 + base_layers)) if layers else 0.0
    accumulated = _number(hard.get("training.gradient_accumulation_steps")) or 1
    logs["accumulates"] = 1.0 if accumulated > 1 else 0.0  # how often is no matter: the graph is the same
    return logs


# Jobs that agree in these have the same measures.
NAMES = (
    *(f"model.config.{name}" for name in (*_WIDTH, *_DEPTH)),
    *(f"model.config.{name}" for name in ("hidden_sizes", "depths", "num_block_repeats", "vocab_size", "patch_size")),
    *(f"model.config.{name}" for name in ("encoder_layers", "decoder_layers", "num_decoder_layers")),
    *(f"training.{name}" for name in ("max_seq_length", "max_target_length", "image_size")),
    *(f"training.{name}" for name in ("per_device_train_batch_size", "gradient_accumulation_steps")),
    "model.type",
)
# What follows from these, or hardly matters beside them: a difference of these alone is told by the measures.
READ = frozenset(
    {
        *NAMES,
        *(f"model.config.{name}" for name in ("intermediate_size", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim")),
        *(f"model.config.{name}" for name in ("d_ff", "max_position_embeddings", "n_positions", "n_ctx")),
        *(f"model.config.{name}" for name in ("num_attention_heads", "n_head", "n_heads", "num_heads", "head_dim")),
        *(f"model.config.{name}" for name in ("num_key_value_heads", "d_kv")),
        "training.per_device_eval_batch_size",
        "model.num_labels",
    }
)


def _layers(hard: Mapping[str, Any]) -> float | None:
    config = "model.config."
    encoder, decoder = (_number(hard.get(f"{config}{half}_layers")) for half in ("encoder", "decoder"))
    if encoder and decoder:
        return encoder + decoder
    plain = _first(hard, _DEPTH)
    if f"{config}num_decoder_layers" in hard and plain:
        return plain + (_number(hard[f"{config}num_decoder_layers"]) or plain)
    if hard.get("model.type") == "t5" and plain:  # without a number of its own the decoder is as deep
        return 2 * plain
    return plain or _sum(hard.get(f"{config}depths")) or _sum(hard.get(f"{config}num_block_repeats"))


def _length(hard: Mapping[str, Any]) -> float | None:
    if side := _number(hard.get("training.image_size")):
        patch = _number(hard.get("model.config.patch_size")) or _PATCH
        return max(1.0, (side / patch) ** 2)
    source = _number(hard.get("training.max_seq_length"))
    target = _number(hard.get("training.max_target_length"))
    return (source or 0) + (target or 0) or None


def _first(hard: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    return next((number for name in names if (number := _number(hard.get(f"model.config.{name}")))), None)


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    return float(value) if known else None


def _last(value: Any) -> float | None:
    return _number(value[-1]) if isinstance(value, list) and value else None


def _sum(value: Any) -> float | None:
    numbers = [_number(item) for item in value] if isinstance(value, list) else []
    return sum(number for number in numbers if number) or None
