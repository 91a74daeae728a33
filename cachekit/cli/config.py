"""`cachekit config`: every setting, its value, and where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from cachekit.cli import out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import Setting


@verb("home", answers="list[Setting]")
def command(cache: Cache) -> Shown:
    """Print every setting with its value and its origin.

    Precedence: flag > CACHEKIT_<NAME> > cachekit.toml (or [tool.cachekit]) > the user's config.toml > default.

    Example:  cachekit config --format quiet
    """
    rows = [structs.replace(one, value=one.shown) for one in cache.settings()]
    return Shown(rows, _human, lambda found: "\n".join(f"{row.name}={_text(row.value)}" for row in found))


def _human(rows: list[Setting]) -> list[str]:
    return out.table([[row.name, _text(row.value), row.origin] for row in rows], ["setting", "value", "from"])


def _text(value: Any) -> str:
    """A value as a variable would hold it."""
    if isinstance(value, dict):
        return ",".join(_entry(name, one) for name, one in value.items())
    if value is None:
        return "none"
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def _entry(name: str, value: Any) -> str:
    """What a table says under a name: of a remote its address, of trust the names of signers and what is revoked."""
    if isinstance(value, dict) and "url" in value:
        return f"{name}={value['url']}"
    said = "|".join(value) if isinstance(value, dict) else _text(value)
    return f"{name}={said}"
