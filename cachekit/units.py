"""Sizes, ages and times as they are written: 50GB, 500 MiB, 30d, 12h, 2026-11-01T12:00:00Z."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Literal, TypeVar, get_args

Period = Literal["day", "week", "month"]  # of a row in a table of times
PERIODS: tuple[Period, ...] = get_args(Period)
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([A-Za-z]*)\s*")
_BYTES: dict[str, int] = {"": 1, "B": 1} | {
    f"{letter}{rest}": base**power
    for power, letter in enumerate("KMGTP", 1)
    for rest, base in (("", 1000), ("B", 1000), ("I", 1024), ("IB", 1024))
}
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0, "y": 365 * 86_400.0}
_LONG = {"second": "s", "minute": "min", "hour": "h", "day": "d", "week": "w", "year": "y"}
_PLAIN = {"s": "seconds", "d": "days"}


def parse_size(text: object) -> int:
    """Bytes: a whole number of them, or with a unit, in thousands (kB, MB, GB, TB) or in 1024s (KiB, MiB, GiB, TiB).

    Raises:
        ValueError: The text is not a size.
    """
    number, unit = _split(text, "a number of bytes, or a size like 500MB or 2GiB")
    factor = _BYTES.get(unit.upper())
    if factor is None:
        raise ValueError(f"{unit} is not a unit of bytes; use kB, MB, GB, TB, KiB, MiB, GiB or TiB")
    return round(number * factor)


def parse_age(text: object, plain: str = "d") -> float:
    """Seconds: a number with a unit, as 90min, 12h, 30d, 4w.

    Args:
        text: The age.
        plain: The unit of a number without one.

    Raises:
        ValueError: The text is not an age.
    """
    number, unit = _split(text, f"a number of {_PLAIN[plain]}, 0 or more, or a time like 90min, 12h or 30d")
    name = unit.lower()
    factor = _SECONDS.get(_LONG.get(name.removesuffix("s"), name) or plain)
    if factor is None:
        raise ValueError(f"{unit} is not a unit of time; use s, min, h, d, w or y")
    return number * factor


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
