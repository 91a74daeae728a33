"""Secrets: how they are told by name, form and value, and how they are kept out of all that cachekit writes or prints.

A secret belongs into the environment of the process that needs it. Whoever writes one into an address, a recipe or a
command line all the same must not find it in records, journals, logs, errors or on screens: `***` stands in its place.
The values of this process's own secret variables are always looked for: no caller hands them over.

This package imports the standard library alone, and its own modules by their place: inside of users' commands, where
cachekit cannot be imported, it has another name (`compilers/inductor/hook`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from .forms import without_forms, without_keys
from .names import SHORTEST, hides, is_secret, names_secret, names_tokens, plain, secrets_of, without_named

HIDDEN = "***"
_WORD = 200  # characters of texts that are remembered
# A digest and a moment: each record has its own, and no secret has their forms.
_OF_RECORDS = r"[0-9a-f]{64}|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)?"


_own: tuple[dict[Any, Any], tuple[str, ...]] = ({}, ())  # this process's variables, and what is looked for by these


def _sought(others: Iterable[str] = ()) -> tuple[str, ...]:
    """What is looked for by value: of others, and of this process, gathered once until a variable changes."""
    global _own  # noqa: PLW0603
    # What `os.environ` reads from: to compare it takes 2 µs, and to read all variables 200.
    variables = getattr(os.environ, "_data", os.environ)
    if variables != _own[0]:
        _own = dict(variables), _shapes(tuple(secrets_of(os.environ).values()))
    return (*_shapes(tuple(others)), *_own[1]) if others else _own[1]


@lru_cache(16)
def _shapes(values: tuple[str, ...]) -> tuple[str, ...]:
    """Values as they are, and as texts have them: in JSON, addresses, quotes, base64, hex digits; longest first."""
    found = {one for value in values for one in _encoded(value) if len(one) >= SHORTEST or one == value}
    return tuple(sorted(found, key=lambda one: (-len(one), one)))


def _encoded(value: str) -> Iterator[str]:
    import base64
    from urllib.parse import quote, quote_plus

    written = {value, *(json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))}
    yield from (json.dumps(one, ensure_ascii=ascii_only)[1:-1] for one in written for ascii_only in (True, False))
    yield from (*written, repr(value)[1:-1])
    yield from (value.replace("'", by) for by in ("'\"'\"'", r"'\''", '"'))  # the last: as torch writes variables down
    raw = value.encode("utf-8", "surrogateescape")
    for one in (text.encode("utf-8", "surrogateescape") for text in written):
        for quoted in (quote(one), quote(one, safe=""), quote_plus(one), quote_plus(one, safe="/:@")):
            yield from (quoted, re.sub("%..", lambda found: found[0].lower(), quoted))
    yield from (raw.hex(), raw.hex().upper())
    for before in range(3):  # also in the middle of something: without the digits that its neighbours have a part in
        whole = base64.b64encode(b"\0" * before + raw).decode()
        inner = whole[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]
        yield from (inner, inner.replace("+", "-").replace("/", "_"))


def printed(text: str, others: Iterable[str] = (), hidden: str = HIDDEN) -> str:
    """A text without secrets by value, by form and by name (`TOKEN=...`).

    Args:
        text: Of one line, or several.
        others: Values of another process's variables that are secrets, see `secrets_of`, beside those of this one.
        hidden: What stands in their place.
    """
    return _printed(text, _sought(others), hidden)


def _printed(text: str, sought: tuple[str, ...], hidden: str = HIDDEN) -> str:
    if len(text) < SHORTEST:
        return text
    return (_hide_in_word if len(text) <= _WORD else _hide)(text, sought, hidden)


def _hide(text: str, sought: tuple[str, ...], hidden: str) -> str:
    if re.fullmatch(_OF_RECORDS, text):
        return _without_values(text, sought, hidden)
    text = _without_any(text, sought, hidden)
    if (seen := plain(text)) == text or (shown := _without_any(seen, sought, hidden)) == seen:
        return text
    lines = text.split("\n"), seen.split("\n"), shown.split("\n")
    if not len(lines[0]) == len(lines[1]) == len(lines[2]):
        return shown
    # A line without a secret stays as it was, with its colours and accents.
    return "\n".join(old if bare == new else new for old, bare, new in zip(*lines, strict=True))


def _without_values(text: str, sought: tuple[str, ...], hidden: str) -> str:
    for secret in sought:
        if secret in text:
            text = text.replace(secret, hidden)
    return text


def _without_any(text: str, sought: tuple[str, ...], hidden: str) -> str:
    return without_named(without_forms(_without_values(text, sought, hidden), hidden), hidden)


_hide_in_word = lru_cache(4096)(_hide)  # names, versions and users stand in many a record


def holds(text: str) -> bool:
    """Whether a text holds a secret, see `printed`."""
    return printed(text) != text


_SCHEME = r"(?i)(?<![\w/.~@-])([a-z][a-z0-9+.-]*:/*)"  # with or without slashes: it may be mistyped
# All of them end at a comma: a list of remotes is told apart by these. Of an S3 key, which has slashes in it, the first
# colon tells that it is one.
_USER = rf"{_SCHEME}(?:[^/@,]*:[^,]*@|[^/,]*@)"
_POLICY = r"(?=(?::(?:r|w|rw))?(?:,|$))"
_QUERY = rf"{_SCHEME}(?<!file:)(?<!file:/)(?<!file://)(?<!file:///)([^,?]*)\?[^,]*?{_POLICY}"
# In a folder's name only what looks like one.
_PARAMETER = rf"([?#&;][\w.%~-]+=)[^,]*?{_POLICY}"


def address(text: str) -> str:
    """An address, or several with commas between them, as it may be shown.

    An address has no room for a secret, whichever scheme it has, also one that nobody knows: keys and tokens are looked
    for in the environment. A name, a password and a whole query are hidden, and tokens by their form; what may be done
    there (`:rw`) is not.
    """
    if re.search(r"[@?#&;_]", text):
        text = re.sub(_USER, rf"\1{HIDDEN}@", text)
        text = re.sub(_QUERY, rf"\1\2?{HIDDEN}", text)
        text = re.sub(_PARAMETER, rf"\1{HIDDEN}", text)
    return without_keys(text, HIDDEN)


def has_secret(text: str) -> bool:
    """Whether an address holds what may be one. A folder may be called anything, but for a token."""
    return text != (without_keys(text, HIDDEN) if re.match(r"[/~.]", text) else address(text))


def setting(value: Any) -> Any:
    """A setting's value as it may be shown: texts in it are taken for addresses, and names tell secrets."""
    if isinstance(value, Mapping):
        # Where a name hides something, the value may go on with it.
        shown = {name: address(str(name)) for name in value}
        return {
            shown[name]: HIDDEN if shown[name] != str(name) or is_secret(str(name), one) else setting(one)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(setting(one) for one in value)
    return address(value) if isinstance(value, str) else value


def document(value: Any, others: Iterable[str] = ()) -> Any:
    """A JSON value without secrets, see `printed`; names tell them, and may be some."""
    return _document(value, _sought(others))


def _document(value: Any, sought: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return _printed(value, sought)
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Mapping):
        shown = {}
        for name, one in value.items():
            named, tells = _name(name, sought) if isinstance(name, str) else (name, False)
            shown[named] = _named(name, one, sought) if tells else _document(one, sought)
        return shown
    if isinstance(value, list | tuple):
        return [_document(one, sought) for one in value]
    return value


def _named(name: str, value: Any, sought: tuple[str, ...]) -> Any:
    """What a name that may be a secret's has, as it may be shown: one value, or a list of several."""
    if isinstance(value, list | tuple):
        return [HIDDEN if hides(name, one) else _document(one, sought) for one in value]
    return HIDDEN if is_secret(name, value) else _document(value, sought)


@lru_cache(4096)
def _name(name: str, sought: tuple[str, ...]) -> tuple[str, bool]:
    """A name as it may be shown, and whether it may be a secret's."""
    return _printed(name, sought), names_secret(name) or names_tokens(name)


def places(value: Any) -> dict[str, str]:
    """What tells a secret in each field of a JSON value that holds one: `{"hard.command.arguments.3": "--api-key"}`.

    That is an option, a name, or a variable of this process whose value it is; empty for what its form alone tells.
    """
    return dict(_places(value, "", _sought()))


def _places(value: Any, name: str, sought: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if is_secret(name, value):
            yield name, name.rpartition(".")[2]
        elif (shown := _printed(value, sought)) != value:
            yield name, _told_by(value, shown)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            inner = f"{name}.{key}" if name else str(key)
            if (shown := _document(key, sought)) != key:
                yield inner, _told_by(key, shown)
            else:
                yield from _places(one, inner, sought)
    elif isinstance(value, list | tuple):
        before: Any = ""
        for number, one in enumerate(value):
            option = isinstance(before, str) and re.fullmatch(r"-[\w.-]+", before)
            if option and is_secret(before, one):  # `--api-key X`
                yield f"{name}.{number}", before
            elif hides(held := name.rpartition(".")[2], one):
                yield f"{name}.{number}", held
            else:
                yield from _places(one, f"{name}.{number}", sought)
            before = one


def _told_by(text: str, shown: str) -> str:
    """The variable whose value a text holds, else the name before what is hidden of it."""
    for name, value in secrets_of(os.environ).items():
        if any(shape in text for shape in _shapes((value,))):
            return name
    found = re.search(rf"(-{{0,2}}[A-Za-z_][\w.-]*)(?:[=:\s\"'\\]|%3[Dd]){{1,6}}{re.escape(HIDDEN)}", shown)
    return found[1] if found and names_secret(found[1]) else ""


# What comes piece by piece, such as a log

_PEM_BEGIN, _PEM_END = rb"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY", b"-----END"
_PEM_LINES = 200


class Stream:
    """Hides secrets in what comes piece by piece: whole lines go on, the last part of one waits.

    Args:
        others: See `printed`.
    """

    LONGEST = 1 << 16  # bytes of a line that wait for its end

    def __init__(self, others: Iterable[str] = ()) -> None:
        self._others = tuple(others)
        self._rest = b""
        self._in_key = 0  # lines of a private key that were hidden

    def feed(self, block: bytes) -> bytes:
        """What of all that came may be shown now."""
        whole = self._rest + block
        end = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        if len(whole) - end > self.LONGEST:
            end = len(whole)
        self._rest = whole[end:]
        return self._shown(whole[:end])

    def close(self) -> bytes:
        """The rest."""
        rest, self._rest = self._rest, b""
        return self._shown(rest)

    def _shown(self, block: bytes) -> bytes:
        if self._in_key or b"PRIVATE KEY" in block:
            block = b"".join(self._outside_keys(block))
        text = block.decode("utf-8", "surrogateescape")
        return printed(text, self._others).encode("utf-8", "surrogateescape")

    def _outside_keys(self, block: bytes) -> Iterator[bytes]:
        for line in block.splitlines(keepends=True):
            rest = line
            while rest:
                if self._in_key:
                    _, end, after = rest.partition(_PEM_END)
                    self._in_key = 0 if end or self._in_key == _PEM_LINES else self._in_key + 1
                    rest = after.partition(b"-----")[2]
                    continue
                found = re.search(_PEM_BEGIN, rest)
                yield rest[: found.start()] + HIDDEN.encode() if found else rest
                rest = rest[found.end() :] if found else b""
                self._in_key = 1 if found else 0
