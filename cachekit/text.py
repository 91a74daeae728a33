"""What people read: numbers and times in words, and strangers' text made harmless."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from functools import lru_cache

from cachekit import redact

# What moves a terminal's cursor, changes its colours, answers in its name or reorders what is read: C0 and C1 controls
# but for tab and newline, marks of writing direction, separators of lines, halves of pairs (of names not in UTF-8).
CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"


def plain(words: str) -> str:
    """Words with what controls a terminal spelled out: names of files and what records say may hold anything."""
    return re.sub(CONTROL, lambda found: _escaped(found[0]), words)


def one_line(words: str) -> str:
    """Words as one line: whatever a terminal would not print stands there spelled out, line ends and tabs too."""
    if words.isprintable():
        return words
    return "".join(char if char.isprintable() else _escaped(char) for char in words)


def _escaped(characters: str) -> str:
    return characters.encode("unicode_escape").decode("ascii")


def cause_of(error: OSError) -> str:
    """What the operating system says of a failed call; the error's own words where it says nothing."""
    return error.strerror or str(error)


def first_line(error: BaseException) -> str:
    """What an error of somebody else's says, in a line: the first one, or the error's kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def count(number: int, noun: str, plural: str = "") -> str:
    """A number of things: 1 graph, 3 graphs."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def a(noun: str) -> str:
    """A noun with its article: a trn1.2xlarge, an inf2.xlarge."""
    return f"{'an' if noun[:1] in set('aeiou') else 'a'} {noun}"


def about(name: str, said: str) -> str:
    """What is said of something, with its name in front, unless the words begin with the name themselves."""
    return said if re.match(rf"{re.escape(name)}[\s,:]", said) else f"{name}: {said}"


@lru_cache(4096)  # records of one model are alike
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
    """Seconds for people: 0.3 s, 41 s, 2 min 5 s, 1 h 10 min; negative ones keep their sign, unless they are 0.0 s."""
    if seconds < 10:  # noqa: PLR2004
        return f"-{duration(-seconds)}" if round(seconds, 1) < 0 else f"{abs(seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    if whole < 3600:  # noqa: PLR2004
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def span(low: float, high: float) -> str:
    """A range of seconds for people, without a precision that it has not: 10 to 15 min, 40 s to 3 min 20 s."""
    minute, long = 60, 7200
    if low >= minute and high < long:
        words = [f"{low / minute:.0f}", f"{high / minute:.0f} min"]
    else:
        words = [duration(low), duration(high)]
    return words[1] if words[0] == words[1].removesuffix(" min") else " to ".join(words)


def rate(often: float) -> str:
    """How often a second, for people, in three digits or more: 0.0512, 9.24, 296, 1,205."""
    return f"{often:,.0f}" if often >= 100 else f"{often:.3g}"  # noqa: PLR2004


def dollars(amount: float | None) -> str:
    """Money for people, to the cent, and below ten cents finer: $1.25, -$0.02, $0.014; `?` where it is not known."""
    if amount is None:
        return "?"
    words = f"{abs(amount):,.3f}"
    cents = words.endswith("0") or abs(amount) >= 0.1  # noqa: PLR2004
    return f"{'-' if round(amount, 3) < 0 else ''}${f'{abs(amount):,.2f}' if cents else words}"


def typed(recipe: str, overrides: Iterable[str], options: Mapping[str, object], *, tiny: bool = False) -> str:
    """A recipe with its changes, and the options that mean the same again, as somebody types them; without secrets.

    Args:
        recipe: Path or name.
        overrides: As `--set` takes them.
        options: Values by option; one that is not said is left out.
        tiny: The recipe in small.
    """
    words = [
        recipe,
        *(["--tiny"] if tiny else []),
        *(word for text in overrides for word in ("--set", redact.printed(text))),
    ]
    return shlex.join([*words, *(word for name, value in options.items() if value for word in (name, str(value)))])
