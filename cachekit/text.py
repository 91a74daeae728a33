"""What people read, and write: numbers, sizes, ages, times in words; what is long, cut; strangers' text, harmless."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Literal, TypeVar, get_args

from cachekit import redact

Period = Literal["day", "week", "month"]  # of a row in a table of times
PERIODS: tuple[Period, ...] = get_args(Period)
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]*)\s*", re.ASCII)
_BYTES: dict[str, int] = {"": 1, "B": 1} | {
    f"{letter}{rest}": base**power
    for power, letter in enumerate("KMGTP", 1)
    for rest, base in (("", 1000), ("B", 1000), ("I", 1024), ("IB", 1024))
}
DAY = 86_400  # seconds
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": DAY, "w": 7 * DAY, "y": 365 * DAY}
_LONG = {"second": "s", "minute": "min", "hour": "h", "day": "d", "week": "w", "year": "y"}
_PLAIN = {"s": "seconds", "d": "days"}
_LONGEST = 100 * _SECONDS["y"]  # what waits for longer, or looks back further, may overflow
# What moves a terminal's cursor, changes its colours, answers in its name or reorders what is read: C0 and C1 controls
# but for tab and newline, marks of writing direction, separators of lines, halves of pairs (of names not in UTF-8).
CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"


def plain(words: str) -> str:
    """Words with what controls a terminal spelled out: names of files and what records say may hold anything."""
    return _unasked(re.sub(CONTROL, lambda found: _escaped(found[0]), words))


def one_line(words: str) -> str:
    """Words as one line: whatever a terminal would not print stands there spelled out, line ends and tabs too."""
    if words.isprintable():
        return _unasked(words)
    return _unasked("".join(char if char.isprintable() else _escaped(char) for char in words))


def each_one_line(lines: Sequence[str]) -> str:
    """Texts as lines, each as `one_line` has it; most need no change, which is seen of all of them at once."""
    if "".join(lines).isprintable():
        return _unasked("\n".join(lines))
    return "\n".join(map(one_line, lines))


def spelled(words: str) -> str:
    r"""Words that JSON can hold: bytes of a path, an argument or a variable that are no UTF-8 stand there as `\xff`."""
    return words.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _unasked(words: str) -> str:
    """Words that ask nothing of GitHub's runner, which takes `##[command]` in a log, wherever it stands, as its own.

    So it does with `::command::` where a line begins. [actions/runner: ActionCommand.TryParse and TryParseV2]
    """
    words = words.replace("##[", r"#\x23[")
    return re.sub(r"(?m)^(\s*)::(?=\w)", r"\1:\\x3a", words) if "::" in words else words


def _escaped(characters: str) -> str:
    return characters.encode("unicode_escape").decode("ascii")


def cause_of(error: OSError) -> str:
    """What the operating system says of a failed call; the error's own words where it says nothing."""
    return error.strerror or str(error)


def first_line(error: BaseException) -> str:
    """What an error of somebody else's says, in a line: the first one, or the error's kind where it says nothing."""
    return cut((str(error).strip().splitlines() or [type(error).__name__])[0], 300)


def cut(words: str, most: int) -> str:
    """Words of so many characters at most, with a mark where the rest of longer ones was."""
    return words if len(words) <= most else f"{words[: most - 1]}…"


def cut_inside(words: str, most: int) -> str:
    """As `cut`, where both ends tell: of paths, and of names that begin alike and end with a version."""
    first = (most - 1) // 2
    return words if len(words) <= most else f"{words[:first]}…{words[first + 1 - most :]}"


def first_of(names: Iterable[str], most: int = 3, between: str = ", ") -> str:
    """The first of some names, for a sentence, and how many more there are: bert, gpt2, t5 and 4 more."""
    known = [*names]
    return between.join(known[:most]) + (f" and {len(known) - most:,} more" if len(known) > most else "")


def count(number: int, noun: str, plural: str = "") -> str:
    """A number of things: 1 graph, 3 graphs."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def a(noun: str) -> str:
    """A noun with its article: a trn1.2xlarge, an inf2.xlarge, an ml.trn1.2xlarge."""
    return f"{'an' if noun.startswith((*'aeiou', 'ml.')) else 'a'} {noun}"


def about(name: str, said: str) -> str:
    """What is said of something, with its name in front, unless the words begin with the name themselves."""
    return said if re.match(rf"{re.escape(name)}[\s,:]", said) else f"{name}: {said}"


def not_asked(name: str, said: str) -> str:
    """That a remote could not be asked, and why: where the reason begins with its name, that is not said twice."""
    rest = said.removeprefix(name)
    why = said if rest == said else rest[2:] if rest.startswith(": ") else f"it{rest}" if rest.startswith(" ") else said
    return f"{name} could not be asked: {why}"


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
    return _whole(round(seconds))


@lru_cache(4096)
def _whole(seconds: int) -> str:
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds} s"
    if seconds < 3600:  # noqa: PLR2004
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


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
        *(["--tiny"] if tiny else []),
        *(word for text in overrides for word in ("--set", redact.printed(text))),
    ]
    words += [word for name, value in options.items() if value for word in (name, str(value))]
    return " ".join([argument(recipe), *map(_quoted, words)])


def argument(path: str) -> str:
    """A path, or a name, as somebody types it after a command: one that begins with a dash is no option."""
    return _quoted(f"./{path}" if path.startswith("-") else path)


def _quoted(word: str) -> str:
    """A word for a shell; `shlex` knows no way to type bytes that are no text."""
    if word == spelled(word):
        return shlex.quote(word)
    escaped = re.sub(r"[\\']", r"\\\g<0>", word)
    return f"$'{spelled(escaped)}'"


# As people write them: 50GB, 500 MiB, 30d, 12h, 2026-11-01T12:00:00Z


def parse_size(text: object) -> int:
    """Bytes: a whole number of them, or with a unit, in thousands (kB, MB, GB, TB) or in 1024s (KiB, MiB, GiB, TiB).

    Raises:
        ValueError: The text is not a size.
    """
    number, unit = _split(text, "a number of bytes, or a size like 500MB or 2GiB")
    factor = _BYTES.get(unit.upper())
    if factor is None:
        raise ValueError(f"{unit} is not a unit of bytes; use kB, MB, GB, TB, KiB, MiB, GiB or TiB")
    size = number * factor
    if size % 1 and min(size, factor) <= 1:  # rounded, `0.4` for 0.4 GB would be no bytes at all
        raise ValueError(f"a fraction of a byte; a size has a unit, as in {number:g}GB")
    return round(size)


def parse_age(text: object, plain: str = "d") -> float:
    """Seconds: a number with a unit, as 90min, 12h, 30d, 4w.

    Args:
        text: The age.
        plain: The unit of a number without one.

    Raises:
        ValueError: The text is not an age, or one of more than a century, which no clock of a system can wait for.
    """
    number, unit = _split(text, f"a number of {_PLAIN[plain]}, 0 or more, or a time like 90min, 12h or 30d")
    name = unit.lower()
    factor = _SECONDS.get(_LONG.get(name.removesuffix("s"), name) or plain)
    if factor is None:
        raise ValueError(f"{unit} is not a unit of time; use s, min, h, d, w or y")
    if number * factor > _LONGEST:
        raise ValueError("a time of more than 100 years")
    return number * factor


def parse_days(text: object) -> float:
    """Days: a number of them, or a time as `parse_age` reads it.

    Raises:
        ValueError: The text is not an age.
    """
    return parse_age(text) / DAY


def parse_time(text: str) -> datetime:
    """A time, or a day's beginning, as ISO 8601 has them; without a zone where the text has none.

    Raises:
        ValueError: The text is no time.
    """
    return datetime.fromisoformat(re.sub(r"[Zz]\Z", "+00:00", text))  # Python 3.10 knows no Z


def _split(text: object, wanted: str) -> tuple[float, str]:
    if isinstance(text, int | float) and not isinstance(text, bool) and 0 <= text < math.inf:
        return float(text), ""
    found = None if isinstance(text, bool) else _NUMBER_AND_UNIT.fullmatch(str(text))
    if found is None or math.isinf(float(found[1])):
        raise ValueError(f"expected {wanted}")
    return float(found[1]), found[2]


_T = TypeVar("_T")


def or_none(read: Callable[[object], _T]) -> Callable[[object], _T | None]:
    """A reader that takes `none`, too: no limit."""
    return lambda value: None if value is None or str(value).strip().lower() == "none" else read(value)


def named(ingredient: str) -> str:
    """What people call an ingredient: by its name, but for the one of `key.nearest` that no recipe has."""
    return "how far its run came" if ingredient == "interrupted" else ingredient
