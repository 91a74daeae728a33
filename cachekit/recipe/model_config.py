"""A model's `config.json`: read as what a stranger wrote, and checked before a key is made or a model is tried.

What a recipe changes in it is checked against the value that it replaces: a plan must not call something a miss, or a
hit, that no model can be made of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cachekit import files
from cachekit.errors import RecipeError
from cachekit.text import cause_of

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
            raise RecipeError(f"{path} is not a model config", cause=f"{size:,} bytes")
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
                return f"{item[:40]!r} holds half of a character"
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
            f"{source}: model_type {found[:80]!r} is not an architecture's name",
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
            raise RecipeError(
                f"{where} is {json.dumps(value)[:80]}",
                cause=f"expected {expected}",
                hint=f"did you mean {near[0]}?" if near else "",
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
