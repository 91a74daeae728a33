"""`cachekit config`: every setting, its value, and where it came from."""

from __future__ import annotations

from typing import Any

from cachekit.cli import options, out
from cachekit.text import redacted

NAME = "config"


def command(
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
) -> int:
    """Print every setting with its value and its origin.

    Flag > CACHEKIT_<NAME> > cachekit.toml (or [tool.cachekit]) > the user's config.toml > default.

    Example:  cachekit config --format quiet
    """
    out.setup(format, quiet=quiet, verbose=verbose)
    settings = options.load_config(home).settings
    rows = [{"name": s.name, "value": redacted(s.value), "origin": s.origin, "help": s.help} for s in settings]
    out.data(rows, _human, lambda found: "\n".join(f"{row['name']}={_text(row['value'])}" for row in found))
    return 0


def _human(rows: list[dict[str, Any]]) -> list[str]:
    return out.table([[row["name"], _text(row["value"]), row["origin"]] for row in rows], ["setting", "value", "from"])


def _text(value: Any) -> str:
    """A value as a variable would hold it."""
    if isinstance(value, dict):
        return ",".join(f"{name}={table['url']}" for name, table in value.items())
    if value is None:
        return "none"
    return ",".join(value) if isinstance(value, list | tuple) else str(value)
