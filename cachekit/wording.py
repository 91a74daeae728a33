"""Numbers, times and names as people read them, on a screen or on a page."""

from __future__ import annotations

import re

# What moves a terminal's cursor, changes its colours, answers in its name or reorders what is read: C0 and C1 controls
# but for tab and newline, marks of writing direction, separators of lines, halves of pairs (of names not in UTF-8).
CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"


def plain(words: str) -> str:
    """Words with what controls a terminal spelled out: names of files and what records say may hold anything."""
    return re.sub(CONTROL, lambda found: found[0].encode("unicode_escape").decode("ascii"), words)


def printable(words: str, longest: int = 512) -> str:
    """Words of a stranger's file on one line: what does not print is spelled out, and what is too long is cut."""
    if len(words) > longest:
        words = words[:longest] + "…"
    if words.isprintable():
        return words
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in words)


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
