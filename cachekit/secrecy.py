"""Secrets in addresses that people give: in the place of each stands `***` wherever an address is shown.

An address has no room for one, whichever scheme it has, also one that nobody knows: keys and tokens are looked for in
the environment. Who writes one there all the same must not find it on screens, in settings that are printed, in logs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

# Patterns are compiled when there is something to look at. All of them end at a comma: a chain is told apart by these.
_TOKENS = (
    r"\b(?:hf|api_org|hf_oauth|hf_jwt)_[A-Za-z0-9]{30,}|\b(?:ghp|gho|github_pat)_[A-Za-z0-9_]{20,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\beyJ[\w-]+\.[\w-]+\.[\w-]*"
)
_SCHEME = r"(?i)(?<![\w/.~@-])([a-z][a-z0-9+.-]*:/*)"  # with or without slashes: it may be mistyped
# Of an S3 key, which has slashes in it, the first colon tells that it is one.
_USER = rf"{_SCHEME}(?:[^/@,]*:[^,]*@|[^/,]*@)"
_POLICY = r"(?=(?::(?:r|w|rw))?(?:,|$))"
_QUERY = rf"{_SCHEME}(?<!file:)(?<!file:/)(?<!file://)(?<!file:///)([^,?]*)\?[^,]*?{_POLICY}"
# In a folder's name only what looks like one.
_NAMED = rf"([?#&;][\w.%~-]+=)[^,]*?{_POLICY}"


def address(text: str) -> str:
    """An address, or several with commas between them, as it may be shown.

    A name and a password, a query, and tokens by how they look are hidden; what may be done there (`:rw`) is not.
    """
    if not re.search(r"[@?#&;_]|AKIA|ASIA|eyJ", text):
        return text
    text = re.sub(_USER, rf"\1{HIDDEN}@", text)
    text = re.sub(_QUERY, rf"\1\2?{HIDDEN}", text)
    text = re.sub(_NAMED, rf"\1{HIDDEN}", text)
    return re.sub(_TOKENS, HIDDEN, text)


def has_secret(text: str) -> bool:
    """Whether an address holds what may be one. A folder may be called anything, but for a token."""
    if re.match(r"[/~.]", text):
        return re.search(_TOKENS, text) is not None
    return address(text) != text


def shown(value: Any) -> Any:
    """A setting's value as it may be shown: texts in it are taken for addresses."""
    if isinstance(value, Mapping):
        return {address(str(name)): shown(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(shown(one) for one in value)
    return address(value) if isinstance(value, str) else value
