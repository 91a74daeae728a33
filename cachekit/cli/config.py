"""`cachekit config`: every setting, its value, and where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cachekit.cli import out
from cachekit.cli.verb import Shown, verb
from cachekit.text import redacted

if TYPE_CHECKING:
    from cachekit.api import Cache


@verb("home", answers="list[Setting]")
def command(cache: Cache) -> Shown:
    """Print every setting with its value and its origin.

    Precedence: flag > CACHEKIT_<NAME> > cachekit.toml (or [tool.cachekit]) > the user's config.toml > default.

    Example:  cachekit config --format quiet
    """
    rows = [{"name": s.name, "value": redacted(s.value), "origin": s.origin, "help": s.help} for s in cache.settings()]
    return Shown(rows, _human, lambda found: "\n".join(f"{row['name']}={_text(row['value'])}" for row in found))


def _human(rows: list[dict[str, Any]]) -> list[str]:
    return out.table([[row["name"], _text(row["value"]), row["origin"]] for row in rows], ["setting", "value", "from"])


def _text(value: Any) -> str:
    """A value as a variable would hold it."""
    if isinstance(value, dict):
        return ",".join(f"{name}={table['url']}" for name, table in value.items())
    if value is None:
        return "none"
    return ",".join(value) if isinstance(value, list | tuple) else str(value)
