"""Each setting by itself: what it may be, in which forms it is written, and what it is where nobody says it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cachekit.amounts import or_none, parse_age, parse_size
from cachekit.secrecy import address


def _folder(value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise ValueError("expected the path of a folder")
    return Path(os.path.expandvars(str(value))).expanduser().absolute()


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a name")  # noqa: TRY004 - one kind of error for bad values
    return value


def _seconds(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("a number of seconds, 0 or more")  # noqa: TRY004 - as above
    seconds = float(value)
    if not 0 <= seconds < float("inf"):
        raise ValueError("a number of seconds, 0 or more")
    return seconds


def _days(value: Any) -> int:
    if isinstance(value, bool | float):
        raise ValueError("a whole number of days, 0 or more")  # noqa: TRY004 - one kind of error for bad values
    days = int(value)
    if days < 0:
        raise ValueError("a number of days, 0 or more")
    return days


def _bytes(value: Any) -> int:
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(?:i?B)?", str(value).strip())
    if isinstance(value, bool) or matched is None:
        raise ValueError("a number of bytes, 0 or more, or one like 500MB")
    return int(float(matched[1]) * 1000 ** " KMGT".index(matched[2].upper() or " "))


def _chain(value: Any) -> tuple[str, ...]:
    entries = value.split(",") if isinstance(value, str) else value
    if (
        not isinstance(entries, list | tuple)
        or not entries
        or not all(isinstance(e, str) and e.strip() for e in entries)
    ):
        raise ValueError('expected "local:rw,NAME:r" or a list of such entries')
    return tuple(entry.strip() for entry in entries)


def _tables(value: Any) -> dict[str, dict[str, str]]:
    """`{name: {url: …}}`, or `name=url,…` as a variable holds it."""
    if isinstance(value, str):
        value = {
            name.strip(): {"url": url} for name, _, url in (part.partition("=") for part in value.split(",") if part)
        }
    if not isinstance(value, dict):
        raise ValueError("expected [tiers.NAME] tables with a url")  # noqa: TRY004 - one kind of error for bad values
    for name, table in value.items():
        if not isinstance(table, dict) or not isinstance(table.get("url"), str) or not table["url"]:
            raise ValueError(f'expected url = "…" for {address(str(name))}')
        if not all(isinstance(option, str) for option in table.values()):
            raise ValueError(f"expected texts for {address(str(name))}")
    return {name: dict(table) for name, table in value.items()}


# name -> (reader, help). The order is the order of `cachekit config`.
SETTINGS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "home": (_folder, "the store's folder"),
    "live_dir": (_folder, "where compilers read and write during a run; must be a local disk"),
    "compiler": (_name, "auto, or the name of a compiler"),
    "wait_seconds": (_seconds, "how long to wait for another process that compiles the same key"),
    "keep_logs": (_days, "days that run logs and journals are kept"),
    "cache": (_chain, "the caches in order, each with what may be done there: local:rw,NAME:r"),
    "tiers": (_tables, "what the names of shared caches stand for"),
    "lease_seconds": (_seconds, "how long a silent machine keeps the right to compile a key for all; 0 chooses"),
    "push_seconds": (_seconds, "how long a push may take, with waiting for a busy cache"),
    "neighbour_bytes": (_bytes, "the largest record of another key that a warm starts from; 0 is none"),
    "gc_max_size": (or_none(parse_size), "what `gc` leaves in the store: 50GB; none is no limit"),
    "gc_max_age": (or_none(parse_age), "how long `gc` leaves a record that nobody uses: 30d; none is no limit"),
}


def by_default() -> dict[str, Any]:
    """What each setting is where nobody says it, as a file would say it; the store lies in this user's cache folder."""
    import platformdirs

    return {
        "home": platformdirs.user_cache_path("cachekit"),
        "live_dir": None,  # `<home>/v1/live`, once home is known
        "compiler": "auto",
        "wait_seconds": 3600.0,
        "keep_logs": 90,
        "cache": ("local:rw",),
        "tiers": {},
        "lease_seconds": 0.0,
        "push_seconds": 900.0,
        "neighbour_bytes": 2_000_000_000,
        "gc_max_size": None,
        "gc_max_age": None,
    }
