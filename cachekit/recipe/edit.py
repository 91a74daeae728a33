"""A recipe that is a value already, with some of its fields changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct, structs

from cachekit.recipe.load import load_text
from cachekit.recipe.schema import Recipe


def override_words(overrides: Mapping[str, Any] | Iterable[str]) -> list[str]:
    """Overrides as `--set` takes them: `{"training.max_seq_length": 128}` or `["training.max_seq_length=128"]`.

    Raises:
        TypeError: A value has no JSON form; or all of it is one text.
    """
    if isinstance(overrides, str):
        raise TypeError(f"overrides are a mapping or a list, not the text {overrides!r}")
    if isinstance(overrides, Mapping):
        return [f"{name}={_json(value)}" for name, value in overrides.items()]
    return list(overrides)


def edited(recipe: Recipe, overrides: Iterable[str]) -> Recipe:
    """A recipe with overrides, checked as one that is read from a file is.

    Raises:
        RecipeError: It does not fit the schema any more.
        UsageError: An override is malformed.
    """
    return load_text(_json(_said(recipe)), overrides, source=recipe.name)


def _said(part: Struct) -> dict[str, Any]:
    """The fields that differ from their defaults: what a task does not read may stand in no recipe of it."""
    found: dict[str, Any] = {}
    for field in structs.fields(part):
        value = getattr(part, field.name)
        default = field.default if field.default_factory is NODEFAULT else field.default_factory()
        if value != default:
            found[field.name] = _said(value) if isinstance(value, Struct) else msgspec.to_builtins(value)
    return found


def _json(value: Any) -> str:
    """JSON, which is YAML too but for its pairs of surrogates."""
    return json.dumps(msgspec.to_builtins(value, enc_hook=_path), ensure_ascii=False)


def _path(value: Any) -> str:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{value!r:.80} has no JSON form")
