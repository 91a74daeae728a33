"""What people read: numbers and times in words, strangers' text made harmless, and secrets redacted.

An address has no room for a secret, whichever scheme it has, also one that nobody knows: keys and tokens are looked for
in the environment. Whoever writes one into an address all the same must not find it on screens, in settings that are
printed, or in logs: in the place of each secret stands `***`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

# What moves a terminal's cursor, changes its colours, answers in its name or reorders what is read: C0 and C1 controls
# but for tab and newline, marks of writing direction, separators of lines, halves of pairs (of names not in UTF-8).
CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"


def plain(words: str) -> str:
    """Words with what controls a terminal spelled out: names of files and what records say may hold anything."""
    return re.sub(CONTROL, lambda found: _escaped(found[0]), words)


def one_line(words: str) -> str:
    """Words as one line: whatever a terminal would not print stands there spelled out, line ends and tabs too."""
    return "".join(char if char.isprintable() else _escaped(char) for char in words)


def _escaped(characters: str) -> str:
    return characters.encode("unicode_escape").decode("ascii")


def first_line(error: BaseException) -> str:
    """What an error of somebody else's says, in a line: the first one, or the error's kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def count(number: int, noun: str, plural: str = "") -> str:
    """A number of things: 1 graph, 3 graphs."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def size(count: int) -> str:
    """Bytes for people: 4.7 MB."""
    number = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":  # noqa: PLR2004
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError  # the loop returns


def moment(created: str) -> str:
    """A record's time for people: 2026-11-21 06:36 UTC."""
    return f"{created[:16].replace('T', ' ')} UTC"


def duration(seconds: float) -> str:
    """Seconds for people: 0.3 s, 41 s, 2 min 5 s, 1 h 10 min; negative ones keep their sign."""
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds < 10:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    if whole < 3600:  # noqa: PLR2004
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def dollars(amount: float | None) -> str:
    """Money for people: $1.25, -$0.02."""
    if amount is None:
        return ""
    return f"{'-' if amount < 0 else ''}${abs(amount):,.2f}"


HIDDEN = "***"

# Patterns are compiled when there is something to look at. All of them end at a comma: a chain is told apart by these.
# Tokens by how they look: of the Hub, GitHub, AWS, OpenAI and its like, a JSON web token.
_TOKENS = (
    r"\b(?:hf|api_org|hf_oauth|hf_jwt)_[A-Za-z0-9]{30,}|\b(?:ghp|gho|github_pat)_[A-Za-z0-9_]{20,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bsk-(?:proj-|ant-\w+-)?[A-Za-z0-9_]{20,}|\beyJ[\w-]+\.[\w-]+\.[\w-]*"
)
_LOGIN = r"(?<=://)[^/\s@]+:[^/\s@]+(?=@)"
# How names end whose values are secrets: of variables, options, ingredients.
_ENDINGS = r"(?i)(TOKEN|KEY|SECRET|PASSWORD|PASSWD|KEY_ID|CREDENTIALS)$"
_SCHEME = r"(?i)(?<![\w/.~@-])([a-z][a-z0-9+.-]*:/*)"  # with or without slashes: it may be mistyped
# Of an S3 key, which has slashes in it, the first colon tells that it is one.
_USER = rf"{_SCHEME}(?:[^/@,]*:[^,]*@|[^/,]*@)"
_POLICY = r"(?=(?::(?:r|w|rw))?(?:,|$))"
_QUERY = rf"{_SCHEME}(?<!file:)(?<!file:/)(?<!file://)(?<!file:///)([^,?]*)\?[^,]*?{_POLICY}"
# In a folder's name only what looks like one.
_NAMED = rf"([?#&;][\w.%~-]+=)[^,]*?{_POLICY}"


def typed(recipe: str, overrides: Iterable[str], options: Mapping[str, object], *, tiny: bool = False) -> str:
    """A recipe with its changes, and the options that mean the same again, as somebody types them.

    Args:
        recipe: Path or name.
        overrides: As `--set` takes them.
        options: Values by option; one that is not said is left out.
        tiny: The recipe in small.
    """
    words = [recipe, *(["--tiny"] if tiny else []), *(word for text in overrides for word in ("--set", text))]
    return shlex.join([*words, *(word for name, value in options.items() if value for word in (name, str(value)))])


def redact(address: str) -> str:
    """An address, or several with commas between them, as it may be shown.

    A name and a password, a query, and tokens by how they look are hidden; what may be done there (`:rw`) is not.
    """
    if not re.search(r"[@?#&;_]|AKIA|ASIA|eyJ", address):
        return address
    address = re.sub(_USER, rf"\1{HIDDEN}@", address)
    address = re.sub(_QUERY, rf"\1\2?{HIDDEN}", address)
    address = re.sub(_NAMED, rf"\1{HIDDEN}", address)
    return re.sub(_TOKENS, HIDDEN, address)


def names_secret(name: str) -> bool:
    """Whether what is called so is a secret, whatever it looks like: `HF_TOKEN`."""
    return re.search(_ENDINGS, name) is not None


def hide_tokens(words: str, hidden: str = HIDDEN) -> str:
    """Words with tokens, and passwords in addresses, hidden; the rest of an address stays."""
    return re.sub(f"{_TOKENS}|{_LOGIN}", hidden, words)


def has_secret(address: str) -> bool:
    """Whether an address holds what may be one. A folder may be called anything, but for a token."""
    if re.match(r"[/~.]", address):
        return re.search(_TOKENS, address) is not None
    return redact(address) != address


def redacted(value: Any) -> Any:
    """A setting's value as it may be shown: texts in it are taken for addresses."""
    if isinstance(value, Mapping):
        return {redact(str(name)): redacted(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(redacted(one) for one in value)
    return redact(value) if isinstance(value, str) else value
