"""What a model's config may say in several ways, in one way: versions of Transformers save different fields.

From the configuration classes of Transformers 4.57 and 5.23; `tests/recipe/test_zoo_models.py` compares with the
installed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# How an encoder-decoder generates text: nothing to its training, and evaluation decodes greedily. Old configs hold it.
GENERATION = frozenset(
    """
    bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
    exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty max_length min_length
    no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores prefix remove_invalid_values
    repetition_penalty return_dict_in_generate suppress_tokens temperature top_k top_p typical_p
    """.split()  # noqa: SIM905
)
# Decoders whose heads follow from their width, where a config says nothing.
ROTARY = frozenset({"granite", "llama", "mistral"})


def rotary(merged: dict[str, Any], config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary embeddings as Transformers 5 has them: `rope_parameters` for 4.x's `rope_theta` and `rope_scaling`."""
    if "rope_parameters" not in defaults:
        return merged
    rope = {**defaults["rope_parameters"], **(config.get("rope_scaling") or {})}
    if "type" in rope:  # its name before 4.43
        rope["rope_type"] = rope.pop("type")
    if config.get("rope_theta") is not None:
        rope["rope_theta"] = config["rope_theta"]
    rope |= config.get("rope_parameters") or {}
    rope["rope_theta"] = float(rope["rope_theta"])
    return {**merged, "rope_parameters": rope, "rope_theta": None, "rope_scaling": None}


def repeated(model_type: str, config: Mapping[str, Any]) -> set[str]:
    """The fields that say only what follows from others: some versions save them, and some do not."""
    return {name for name, value in derived(model_type, config).items() if name in config and config[name] == value}


def derived(model_type: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The values that follow from other fields, as Transformers makes them."""
    found: dict[str, Any] = {}
    if model_type in ROTARY:
        width, heads = config.get("hidden_size"), config.get("num_attention_heads")
        found["num_key_value_heads"] = heads
        if isinstance(width, int) and isinstance(heads, int) and heads > 0:
            found["head_dim"] = width // heads
    if model_type == "qwen3":
        found["layer_types"] = _layers(config)
    if "encoder_layers" in config:
        found["num_hidden_layers"] = config["encoder_layers"]
    if "num_layers" in config:
        found["num_decoder_layers"] = config["num_layers"]  # T5's, by default
    if isinstance(projection := config.get("feed_forward_proj"), str):
        gate, _, name = projection.rpartition("-")
        found |= {"is_gated_act": gate == "gated", "dense_act_fn": "gelu_new" if projection == "gated-gelu" else name}
    if isinstance(depths := config.get("depths"), list):
        stages = ["stem", *(f"stage{number}" for number in range(1, len(depths) + 1))]
        found |= {"stage_names": stages, "out_features": stages[-1:], "out_indices": [len(depths)]}
    if isinstance(repeats := config.get("num_block_repeats"), list) and all(isinstance(n, int) for n in repeats):
        found["num_hidden_layers"] = 4 * sum(repeats)
    if model_type in {"vit", "deit"} and "hidden_size" in config:
        found["pooler_output_size"] = config["hidden_size"]
    return found


def _layers(config: Mapping[str, Any]) -> list[str] | None:
    """Qwen's: a window on the later layers, where windows are used at all."""
    count, first = config.get("num_hidden_layers"), config.get("max_window_layers")
    if not isinstance(count, int) or not isinstance(first, int):
        return None
    windows = config.get("use_sliding_window") and config.get("sliding_window") is not None
    return ["sliding_attention" if windows and number >= first else "full_attention" for number in range(count)]
