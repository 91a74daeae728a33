"""Places that wait for a value: `$MODEL`, `{model_name}`, `<your-model>`, `path/to/data`.

A placeholder is never taken for a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from cachekit.errors import RecipeError

# A tokenizer's words (`<s>`, `<pad>`) are values, and so are JSON (`{"a": 1}`) and a lone `$`.
_PLACEHOLDER = re.compile(
    r"\$[\w{(@*#?]|`[^`]*`|\{\{.*?\}\}|\{[\w .-]*\}|\.\.\.$|…"
    r"|<(?!/?(?:s|pad|unk|mask|bos|eos|cls|sep|extra_id_\d+)>)[A-Za-z/][^<>|]*>"
    # %MODEL%, @model@, __MODEL__; a language's `__en__` is a value.
    r"|(?<!\w)(?:%[A-Za-z_]\w*%|@[A-Za-z_]\w*@|__[A-Z][A-Z0-9_]*__)(?!\w)"
    # %(model)s; y*.csv, which a shell would turn into names.
    r"|%\(\w+\)[a-z]|[*?][^/*?]*\.(?:csv|tsv|json|jsonl|txt|parquet)$"
    # [model]; a tokenizer's [MASK] is a value.
    r"|^\[(?i:(?:your|my)[ _-][\w -]+|(?:[\w-]*[_-])?(?:model|dataset|data|task|name|path|dir|file|id))\]$"
    # YOUR_MODEL, your-model-here, path/to/data, MODEL_PLACEHOLDER
    r"|(?:^|/)(?i:your[_-]\w|path[/_-]to[/_-])|PLACEHOLDER|(?:^|[/_-])(?i:placeholder)$"
)
LONGEST = 60  # characters of a value that an error or a note quotes


def has_placeholder(value: Any) -> bool:
    """Whether a value, or something in it, waits for a value."""
    if isinstance(value, dict):
        return any(map(has_placeholder, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_placeholder, value))
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None


def refuse(places: Iterable[tuple[str, Any]], where: str, hint: str) -> None:
    """Refuse placeholders among named values; `where` is what holds the values.

    Raises:
        RecipeError: The cause names each placeholder.
    """
    found = [f"{name} is {short(value)}" for name, value in places if has_placeholder(value)]
    if found:
        raise RecipeError(f"{where} has placeholders in the place of values", cause=", ".join(found), hint=hint)


def short(value: Any) -> str:
    """A value as words, cut where it is long."""
    text = words(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def words(value: Any) -> str:
    """A value as words; those of a list with spaces between them."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
